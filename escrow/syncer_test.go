package escrow_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
)

// All of this happens in the bubbles of synctest, whose clock jumps to whatever is waited for.

// script is a ledger that wants nothing but what a test puts into it.
type script struct {
	mu       sync.Mutex
	h        escrow.Heartbeat
	requests []escrow.Request
	taken    []*escrow.Answer
	deadline []time.Time // of what was granted
	expires  int64
	fenced   *escrow.Fenced
	more     int // farewells that do not fit in one heartbeat
	wants    chan struct{}
}

func newScript() *script {
	return &script{h: escrow.Heartbeat{Node: "n", Boot: bootID(1), BootNumber: 1}, wants: make(chan struct{}, 1)}
}

func (s *script) Next(_ context.Context, leaving bool) (*escrow.Heartbeat, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.h
	s.h.Sequence++
	h.Sequence = s.h.Sequence
	if !leaving {
		h.Requests = s.requests
		return &h, nil
	}
	s.more--
	h.Bye = s.more < 0
	return &h, nil
}

func (s *script) Take(_ context.Context, h *escrow.Heartbeat, a *escrow.Answer, sent time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.h.Answered, s.h.Mark = h.Sequence, a.Mark
	s.taken = append(s.taken, a)
	for i := range a.Grants {
		s.expires = a.Grants[i].ExpiresAt
		s.deadline = append(s.deadline, a.Deadline(s.expires, sent))
	}
	return nil
}

func (s *script) Fence(_ context.Context, why *escrow.Fenced) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fenced = why
	return nil
}

func (s *script) Wants() <-chan struct{} { return s.wants }

func (s *script) want() {
	select {
	case s.wants <- struct{}{}:
	default:
	}
}

func (s *script) answers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.taken)
}

// line stands between a syncer and its authority.
type line struct {
	escrow.Authority
	mu    sync.Mutex
	sent  []time.Time
	do    func(ctx context.Context, h *escrow.Heartbeat) (*escrow.Answer, error) // nil: pass it on
	busy  atomic.Int32
	twice atomic.Bool // two heartbeats were on their way at once
}

func (l *line) Beat(ctx context.Context, h *escrow.Heartbeat) (*escrow.Answer, error) {
	if l.busy.Add(1) > 1 {
		l.twice.Store(true)
	}
	defer l.busy.Add(-1)
	l.mu.Lock()
	l.sent = append(l.sent, time.Now())
	do := l.do
	l.mu.Unlock()
	if do != nil {
		return do(ctx, h)
	}
	return l.Authority.Beat(ctx, h)
}

func (l *line) use(do func(ctx context.Context, h *escrow.Heartbeat) (*escrow.Answer, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.do = do
}

// take is when heartbeats were sent since it was asked last.
func (l *line) take() []time.Time {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.sent
	l.sent = nil
	return out
}

// syncing runs a test with a syncer, whose budgets are renewed every second.
func syncing(t *testing.T, test func(t *testing.T, s *escrow.Syncer, l *script, line *line)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ledger, way := newScript(), &line{Authority: newModelAuthority(budgets(t, 1000, 1000), time.Now)}
		s, err := escrow.NewSyncer(way, ledger, &escrow.SyncerOptions{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		if err != nil {
			t.Fatal(err)
		}
		test(t, s, ledger, way)
		way.use(nil)
		if err := s.Close(t.Context()); err != nil {
			var fenced *escrow.Fenced
			if !errors.As(err, &fenced) {
				t.Error(err)
			}
		}
		if way.twice.Load() {
			t.Error("two heartbeats were on their way at once")
		}
	})
}

func unavailable(context.Context, *escrow.Heartbeat) (*escrow.Answer, error) {
	return nil, escrow.ErrUnavailable
}

func TestSyncerBeatsInTime(t *testing.T) {
	syncing(t, func(t *testing.T, s *escrow.Syncer, l *script, line *line) {
		if n := len(line.take()); n != 1 || !s.Ready() {
			t.Fatalf("%d heartbeats at the start, ready: %v", n, s.Ready())
		}
		time.Sleep(20 * time.Second)
		times := line.take()
		if len(times) < 20 || len(times) > 26 {
			t.Errorf("%d heartbeats in 20 s, every second less a fifth", len(times))
		}
		for i := 1; i < len(times); i++ {
			if d := times[i].Sub(times[i-1]); d < 800*time.Millisecond || d > time.Second {
				t.Errorf("%v between two heartbeats", d)
			}
		}
		if st := s.Status(); st.Every != time.Second || st.Err != nil || st.LastSync != times[len(times)-1] {
			t.Errorf("%+v", st)
		}
	})
}

func TestSyncerComesAtOnceForCredit(t *testing.T) {
	syncing(t, func(t *testing.T, s *escrow.Syncer, l *script, line *line) {
		start := line.take()[0]
		for range 1000 {
			l.want()
		}
		time.Sleep(100 * time.Millisecond)
		if times := line.take(); len(times) != 1 || times[0].Sub(start) != 100*time.Millisecond {
			t.Errorf("a thousand wants made heartbeats %v after %v, want one after the gap", times, start)
		}
		time.Sleep(500 * time.Millisecond)
		line.take()
		l.want()
		if times := line.take(); len(times) != 1 || time.Since(times[0]) != 0 {
			t.Errorf("heartbeats %v, want one at once", times)
		}
	})
}

// A want that nothing can be given for must not hammer the authority.
func TestSyncerSlowsDownWhenDenied(t *testing.T) {
	syncing(t, func(t *testing.T, s *escrow.Syncer, l *script, line *line) {
		line.take()
		d := definitions(t, budgets(t, 1000, 1000), time.Now())[0]
		l.mu.Lock()
		l.requests = []escrow.Request{{ID: grantID(1), Account: d.Account, Amount: d.Limit + 1, Least: d.Limit + 1}}
		l.mu.Unlock()
		for range 10_000 {
			l.want()
			time.Sleep(time.Millisecond)
		}
		if n := len(line.take()); n < 10 || n > 18 {
			t.Errorf("%d heartbeats in 10 s for what is always denied", n)
		}
		l.mu.Lock()
		l.requests = []escrow.Request{{ID: grantID(2), Account: d.Account, Amount: 5, Least: 5}}
		l.mu.Unlock()
		if err := s.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.mu.Lock()
		l.requests = nil
		l.mu.Unlock()
		line.take()
		l.want()
		time.Sleep(100 * time.Millisecond)
		if n := len(line.take()); n != 1 {
			t.Errorf("%d heartbeats after a grant", n)
		}
	})
}

func TestSyncerBacksOff(t *testing.T) {
	syncing(t, func(t *testing.T, s *escrow.Syncer, l *script, line *line) {
		line.take()
		line.use(unavailable)
		for range 60 {
			l.want()
			time.Sleep(time.Second)
		}
		n := len(line.take())
		if n < 58 || n > 90 {
			t.Errorf("%d heartbeats in a minute of failures", n)
		}
		st := s.Status()
		if !st.Ready || st.Failures != n || !errors.Is(st.Err, escrow.ErrUnavailable) {
			t.Errorf("%+v after %d failures", st, n)
		}
		line.use(nil)
		time.Sleep(time.Second)
		if st := s.Status(); st.Err != nil || st.Failures != 0 {
			t.Errorf("%+v when the authority was back", st)
		}
	})
}

func TestSyncerIsNotReadyBeforeTheFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, way := newScript(), &line{Authority: newModelAuthority(budgets(t, 1000, 1000), time.Now)}
		way.use(unavailable)
		s, err := escrow.NewSyncer(way, ledger, &escrow.SyncerOptions{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Sync(t.Context()); !errors.Is(err, escrow.ErrUnavailable) {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if s.Ready() {
			t.Error("ready without an answer")
		}
		way.use(nil)
		if err := s.Sync(t.Context()); err != nil || !s.Ready() {
			t.Error(err, s.Ready())
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := s.Sync(t.Context()); !errors.Is(err, escrow.ErrClosed) {
			t.Error(err)
		}
	})
}

// A heartbeat that hangs is given up; its answer is worth nothing when it comes.
func TestSyncerBoundsAHeartbeat(t *testing.T) {
	syncing(t, func(t *testing.T, s *escrow.Syncer, l *script, line *line) {
		line.take()
		line.use(func(ctx context.Context, h *escrow.Heartbeat) (*escrow.Answer, error) {
			<-ctx.Done()
			return nil, escrow.ErrUnavailable
		})
		time.Sleep(25 * time.Second)
		if n := len(line.take()); n != 3 {
			t.Errorf("%d heartbeats of 10 s each in 25 s", n)
		}
	})
}

func TestSyncerTakesNothingThatDiffers(t *testing.T) {
	syncing(t, func(t *testing.T, s *escrow.Syncer, l *script, line *line) {
		line.take()
		before := l.answers()
		line.use(func(ctx context.Context, h *escrow.Heartbeat) (*escrow.Answer, error) {
			a, err := line.Authority.Beat(ctx, h)
			if err == nil {
				a.Definitions[0].Limit++
			}
			return a, err
		})
		if err := s.Sync(t.Context()); !errors.Is(err, escrow.ErrIncompatible) {
			t.Error(err)
		}
		if l.answers() != before {
			t.Error("an answer was taken that says another limit than its documents")
		}
	})
}

// The deadline counts from when the heartbeat was sent, however long the answer took.
func TestDeadlineTakesTheRoundTripOff(t *testing.T) {
	syncing(t, func(t *testing.T, s *escrow.Syncer, l *script, line *line) {
		line.take()
		line.use(func(ctx context.Context, h *escrow.Heartbeat) (*escrow.Answer, error) {
			time.Sleep(time.Second)
			a, err := line.Authority.Beat(ctx, h)
			time.Sleep(3 * time.Second)
			return a, err
		})
		d := definitions(t, budgets(t, 1000, 1000), time.Now())[0]
		l.mu.Lock()
		l.requests = []escrow.Request{{ID: grantID(1), Account: d.Account, Amount: 5, Least: 5}}
		l.mu.Unlock()
		time.Sleep(20 * time.Second) // it is asked again and again, and answered with the same grant
		if err := s.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.deadline) < 3 {
			t.Fatalf("%d answers", len(l.deadline))
		}
		for _, deadline := range l.deadline {
			if over := time.UnixMicro(l.expires); !deadline.Truncate(time.Microsecond).Equal(over.Add(-time.Second)) {
				t.Errorf("the deadline is %v, and the heartbeat took a second to the clock that says %v", deadline, over)
			}
		}
	})
}

func TestSyncerStopsWhenFenced(t *testing.T) {
	syncing(t, func(t *testing.T, s *escrow.Syncer, l *script, line *line) {
		line.take()
		other := &escrow.Heartbeat{Node: "n", Boot: bootID(2), BootNumber: 2, Sequence: 1}
		if _, err := line.Authority.Beat(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		line.take()
		time.Sleep(time.Hour)
		if n := len(line.take()); n != 0 || s.Ready() || l.fenced == nil || l.fenced.Reason != escrow.Replaced {
			t.Errorf("%d heartbeats after %v, ready: %v", n, l.fenced, s.Ready())
		}
	})
}

func TestCloseSaysGoodbyeUntilItIsHeard(t *testing.T) {
	syncing(t, func(t *testing.T, s *escrow.Syncer, l *script, line *line) {
		line.take()
		l.mu.Lock()
		l.more = 2
		l.mu.Unlock()
		lost := 3
		line.use(func(ctx context.Context, h *escrow.Heartbeat) (*escrow.Answer, error) {
			a, err := line.Authority.Beat(ctx, h)
			if lost--; lost >= 0 {
				return nil, escrow.ErrUnavailable
			}
			return a, err
		})
		if err := s.Close(t.Context()); err != nil || lost > 0 || l.more != -2 {
			t.Errorf("%v, with %d answers to lose and %d farewells", err, lost, -l.more)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ledger, way := newScript(), &line{Authority: newModelAuthority(budgets(t, 1000, 1000), time.Now)}
		s, err := escrow.NewSyncer(way, ledger, &escrow.SyncerOptions{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		way.use(unavailable)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); !errors.Is(err, escrow.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestSyncerOptions(t *testing.T) {
	for _, o := range []escrow.SyncerOptions{{Every: -1}, {Gap: time.Microsecond}, {Timeout: 25 * time.Hour}} {
		var e *escrow.Error
		if _, err := escrow.NewSyncer(nil, nil, &o); !errors.As(err, &e) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
