package governancepg_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgwire"
)

// crowd keeps a lane busy until everybody who is to share the next transaction waits for it.
type crowd struct {
	governance.Store
	next  atomic.Pointer[chan struct{}]
	busy  chan struct{}
	steps atomic.Int64
}

func (c *crowd) Step(ctx context.Context, plan *governance.Plan, decide func(*governance.Loaded) *governance.Changes) error {
	if open := c.next.Swap(nil); open != nil {
		c.busy <- struct{}{}
		<-*open
		return governance.ErrUnavailable // without a word to the database
	}
	c.steps.Add(1)
	return c.Store.Step(ctx, plan, decide)
}

// watched tells when its caller begins to wait, which is when it asks how the waiting would end.
type watched struct {
	context.Context
	once  sync.Once
	waits *sync.WaitGroup
}

func (w *watched) Done() <-chan struct{} {
	w.once.Do(w.waits.Done)
	return w.Context.Done()
}

// shared is a batch of many callers and what each was told.
type shared struct {
	s        *subject
	settled  [3]*governance.Permit
	raised   *governance.Permit
	admits   [6]governance.Request
	permits  [6]*governance.Permit
	errs     [6]error
	ends     [3]error
	raising  error
	refused  error
	inFlight error
}

// TestCutUnderManyCallers: the connection ends at the k-th message of a transaction that many callers share.
// One look-up answers for them all, and each is told the truth.
func TestCutUnderManyCallers(t *testing.T) {
	t.Parallel()
	c := &crowd{busy: make(chan struct{})}
	w := newBench(t, benchOptions{mode: pgx.QueryExecModeExec, wrap: func(s governance.Store) governance.Store { c.Store = s; return c }})
	seen := c.together(t, w, pgwire.Fault{})
	faults := pgwire.Sample(pgwire.Everywhere(seen, pgwire.Cut, false))
	asked := pgwire.Before(seen, "commit")
	looked := 0
	for _, f := range faults {
		n := pgwire.Executed(c.together(t, w, f), tombstone)
		require.LessOrEqual(t, n, 1, "one look-up for all")
		if n > 0 {
			require.Greater(t, f.At, asked[f.From], "a look-up though nothing was in doubt")
			looked++
		}
	}
	if os.Getenv(pgwire.EnvEach) == "" {
		require.Greater(t, looked, len(faults)/6)
	}
	w.settled(t)
}

func tombstone(sql string) bool { return strings.Contains(sql, "void) values") }

// together brings everybody into one transaction, breaks it, judges what they were told, and returns
// what was sent meanwhile.
func (c *crowd) together(t *testing.T, w *bench, f pgwire.Fault) []pgwire.Message {
	t.Helper()
	ctx := t.Context()
	b := &shared{s: w.subject(t)}
	for i := range b.settled {
		b.settled[i] = b.minted(t, w)
	}
	b.raised = b.minted(t, w)
	for i := range b.admits {
		b.admits[i] = b.s.request()
		b.admits[i].ID = governance.PermitID{}
		if i%2 == 0 {
			b.admits[i].ID = governance.NewPermitID(time.Now())
		}
	}
	tooMuch, twice := b.s.request(), b.admits[0]
	tooMuch.ID, tooMuch.Bound.Tokens = governance.PermitID{}, 1_000_000

	open := make(chan struct{})
	c.next.Store(&open)
	var all, waits sync.WaitGroup
	all.Go(func() {
		_, err := w.gov.Admit(ctx, tooMuch)
		if !errors.Is(err, governance.ErrUnavailable) {
			t.Errorf("the first one: %v", err)
		}
	})
	<-c.busy
	caller := func(call func(context.Context)) {
		waits.Add(1)
		all.Go(func() { call(&watched{Context: ctx, waits: &waits}) })
		waits.Wait() // one after another, so that they come in this order
	}
	for i := range b.admits {
		caller(func(ctx context.Context) { b.permits[i], b.errs[i] = w.gov.Admit(ctx, b.admits[i]) })
	}
	for i, o := range outcomes() {
		caller(func(ctx context.Context) { b.ends[i] = b.settled[i].Settle(ctx, o) })
	}
	caller(func(ctx context.Context) { b.raising = b.raised.Raise(ctx, raised) })
	caller(func(ctx context.Context) { _, b.refused = w.gov.Admit(ctx, tooMuch) })
	caller(func(ctx context.Context) { _, b.inFlight = w.gov.Admit(ctx, twice) })
	require.NoError(t, w.pool.Ping(ctx))
	c.steps.Store(0)
	happened := w.proxy.Arm(f)
	close(open)
	all.Wait()
	if f.At > 0 {
		<-happened
	}
	if f.At == 0 {
		require.EqualValues(t, 1, c.steps.Load(), "they did not share")
	}
	seen := w.proxy.Messages()
	require.Eventually(t, func() bool { return w.pool.Ping(ctx) == nil }, patience, tick)
	b.judge(t, w)
	return seen
}

func outcomes() [3]governance.Outcome {
	return [3]governance.Outcome{governance.Used(60, 3), governance.Observed(20, 1), governance.NotSent()}
}

func (b *shared) minted(t *testing.T, w *bench) *governance.Permit {
	t.Helper()
	r := b.s.request()
	r.ID = governance.PermitID{}
	permit, err := w.gov.Admit(t.Context(), r)
	require.NoError(t, err)
	return permit
}

// judge compares what everybody was told with what is counted, and leaves nothing open.
func (b *shared) judge(t *testing.T, w *bench) {
	t.Helper()
	ctx := t.Context()
	s, later := b.s, false
	want := books{consumed: 60, uncertain: 100, requests: 3, slots: 1, reserved: 250}
	for i, err := range b.errs {
		require.Equal(t, b.errs[0] == nil, err == nil, "who shares a transaction shares its end")
		if err != nil {
			unavailable(t, err)
			if b.admits[i].ID.IsZero() {
				continue
			}
			b.permits[i], err = w.truth.Admit(ctx, b.admits[i])
			require.NoError(t, err)
		}
		want.reserved, want.requests, want.slots = want.reserved+100, want.requests+1, want.slots+1
	}
	for _, err := range b.ends {
		var unsettled *governance.SettleError
		if err != nil {
			unavailable(t, err)
			require.ErrorAs(t, err, &unsettled)
			later = true
		}
	}
	if b.raising != nil {
		unavailable(t, b.raising)
		require.NoError(t, b.raised.Raise(ctx, raised))
	}
	var refusal *governance.Refusal
	if !errors.As(b.refused, &refusal) {
		unavailable(t, b.refused)
	}
	if !errors.Is(b.inFlight, governance.ErrInFlight) {
		unavailable(t, b.inFlight)
	}
	s.count(t, later, want)
	open := map[governance.PermitID]bool{b.raised.ID(): true, b.settled[1].ID(): true}
	for _, p := range b.permits {
		if p != nil {
			open[p.ID()] = true
		}
	}
	for _, h := range s.held(t) {
		require.True(t, open[h.ID], "permit %s is nobody's", h.ID)
		delete(open, h.ID)
	}
	require.Empty(t, open)
	for _, p := range append(b.permits[:], b.raised) {
		if p != nil {
			require.NoError(t, p.Settle(ctx, governance.NotSent()))
		}
	}
	s.count(t, false, books{consumed: 60, uncertain: 100, requests: 2})
}
