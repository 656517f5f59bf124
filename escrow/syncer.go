package escrow

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// SyncerOptions tune a Syncer. Nil and zero fields are the defaults.
type SyncerOptions struct {
	// Every is the time between two heartbeats where no budget says. Where budgets do, the
	// shortest Renew of all of them is. Default DefaultRenew.
	Every time.Duration
	// Gap is the least time from one heartbeat to the next, however much is wanted. Default 100 ms.
	// It grows up to tenfold while what is wanted is denied.
	Gap time.Duration
	// Timeout bounds one heartbeat, and the first wait after a failure is a hundredth of
	// it. Default 10 s.
	Timeout time.Duration
	// Logger receives what no caller is told. Default slog.Default().
	Logger *slog.Logger
}

func (o *SyncerOptions) withDefaults() (SyncerOptions, error) {
	var out SyncerOptions
	if o != nil {
		out = *o
	}
	for _, d := range [...]struct {
		to        *time.Duration
		name      string
		otherwise time.Duration
	}{{&out.Every, "every", DefaultRenew}, {&out.Gap, "gap", 100 * time.Millisecond}, {&out.Timeout, "timeout", 10 * time.Second}} {
		if *d.to == 0 {
			*d.to = d.otherwise
		}
		if *d.to < time.Millisecond || *d.to > 24*time.Hour {
			return out, refuse("options."+d.name, "must be between 1 ms and a day")
		}
	}
	if out.Logger == nil {
		out.Logger = slog.Default()
	}
	return out, nil
}

// Syncer carries heartbeats from a node's ledger to the authority, in the background: in
// time, and at once when credit is missing. No request ever waits for it.
//
// Concurrency: safe for concurrent use. There is never more than one heartbeat on its way.
//
// Source: ADR-045 "Failure and operational boundaries".
type Syncer struct {
	authority Authority
	ledger    Ledger
	options   SyncerOptions
	ctx       context.Context // of the loop
	stop      context.CancelFunc
	stopped   chan struct{} // closed when the loop has ended
	kick      chan struct{} // receives when somebody waits for a heartbeat

	mu      sync.Mutex
	status  SyncerStatus
	waiting []chan error

	closing sync.Mutex // held by a Close
	left    bool       // a Bye was answered
}

// SyncerStatus says how a Syncer fares.
type SyncerStatus struct {
	Ready    bool          // an answer was taken, and nobody has fenced this boot
	LastSync time.Time     // when the last heartbeat that was answered was sent; zero before
	Failures int           // heartbeats since then that were not
	Err      error         // of the last one, nil when it was answered
	Every    time.Duration // between two heartbeats
}

// NewSyncer starts to carry heartbeats; the first one goes at once. Close it to end that.
// Errors: *Error for options that make no sense.
func NewSyncer(a Authority, l Ledger, o *SyncerOptions) (*Syncer, error) {
	options, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Syncer{authority: a, ledger: l, options: options, stopped: make(chan struct{}), kick: make(chan struct{}, 1)}
	s.status.Every = options.Every
	s.ctx, s.stop = context.WithCancel(context.Background())
	go s.loop()
	return s, nil
}

// Ready reports whether an answer was taken. It stays so through outages: what the node
// holds ends by its own deadlines. A boot that was fenced is not ready any more.
func (s *Syncer) Ready() bool { return s.Status().Ready }

// Status says how it fares.
func (s *Syncer) Status() SyncerStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// ErrClosed reports a Syncer that was closed.
var ErrClosed = errors.New("escrow: the syncer was closed")

// Sync waits for a heartbeat that begins after the call, and returns what came of it. It
// may wait for as long as the Syncer waits after a failure. It is for start-up, and for tests.
//
// Errors: those of Authority.Beat, the ledger's, ErrClosed, the context's.
func (s *Syncer) Sync(ctx context.Context) error {
	result := make(chan error, 1)
	s.mu.Lock()
	s.waiting = append(s.waiting, result)
	s.mu.Unlock()
	select {
	case s.kick <- struct{}{}:
	default:
	}
	select {
	case err := <-result:
		return err
	case <-s.stopped:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pace says when the next heartbeat goes.
type pace struct {
	due      time.Time // at the latest
	earliest time.Time // when something is wanted
	failed   int       // heartbeats in a row
	denied   int       // answers in a row that had nothing for what was wanted
}

func (s *Syncer) loop() {
	defer close(s.stopped)
	var p pace
	for s.await(&p) {
		began := time.Now()
		answer, _, err := s.beat(s.ctx, false)
		if s.ctx.Err() != nil {
			return
		}
		var fenced *Fenced
		if errors.As(err, &fenced) && s.fence(fenced) {
			return
		}
		s.set(&p, began, answer, err)
	}
}

// await waits for the next heartbeat's time, and reports false when there is none.
func (s *Syncer) await(p *pace) bool {
	until := p.due
	wants, kick := s.ledger.Wants(), s.kick
	for {
		timer := time.NewTimer(time.Until(until))
		select {
		case <-s.ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
			return true
		case <-wants:
		case <-kick:
		}
		timer.Stop()
		wants, kick, until = nil, nil, p.earliest
	}
}

// set follows a heartbeat that began at an instant.
func (s *Syncer) set(p *pace, began time.Time, a *Answer, err error) {
	if err != nil {
		p.failed++
		wait := jitter(backoff(max(s.options.Timeout/100, time.Millisecond), p.failed-1, s.Status().Every))
		p.earliest = time.Now().Add(wait)
		p.due = p.earliest
		return
	}
	p.failed = 0
	switch {
	case len(a.Grants) > 0 || len(a.Denials) == 0:
		p.denied = 0
	default:
		p.denied++
	}
	p.earliest = began.Add(backoff(s.options.Gap, p.denied, 10*s.options.Gap))
	p.due = began.Add(jitter(s.Status().Every))
	if p.due.Before(p.earliest) {
		p.due = p.earliest
	}
}

// backoff doubles a wait n times, up to a bound.
func backoff(wait time.Duration, n int, most time.Duration) time.Duration {
	for ; n > 0 && wait < most; n-- {
		wait *= 2
	}
	return min(wait, max(most, time.Millisecond))
}

// jitter takes up to a fifth away, so that nodes that began together do not stay together.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/5+1) }

// beat carries one heartbeat, and tells who waits for it. Bye says that it was the last.
func (s *Syncer) beat(ctx context.Context, leaving bool) (a *Answer, bye bool, err error) {
	select { // what was wanted until now is in this one
	case <-s.ledger.Wants():
	default:
	}
	s.mu.Lock()
	waiting := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	sent, a, bye, err := s.exchange(ctx, leaving)
	s.mu.Lock()
	s.status.Err = err
	if err == nil {
		s.status.LastSync, s.status.Failures, s.status.Ready = sent, 0, true
		s.status.Every = s.options.every(a.Definitions)
	} else {
		s.status.Failures++
	}
	failures := s.status.Failures
	s.mu.Unlock()
	for _, w := range waiting {
		w <- err
	}
	if err != nil && ctx.Err() == nil {
		s.options.Logger.Warn("escrow: a heartbeat failed", "failures", failures, "error", err)
	}
	return a, bye, err
}

func (o *SyncerOptions) every(list []Definition) time.Duration {
	if len(list) == 0 {
		return o.Every
	}
	shortest := list[0].Renew
	for i := range list {
		shortest = min(shortest, list[i].Renew)
	}
	return shortest
}

func (s *Syncer) exchange(ctx context.Context, leaving bool) (sent time.Time, a *Answer, bye bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	h, err := s.ledger.Next(ctx, leaving)
	if err != nil {
		return sent, nil, false, err
	}
	sent = time.Now() // with the monotonic clock
	a, err = s.authority.Beat(ctx, h)
	if err != nil {
		return sent, nil, false, err
	}
	if err := a.Verify(h); err != nil {
		return sent, nil, false, err
	}
	// What was granted is taken even if there is little time left: it is out in any case.
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), s.options.Timeout)
	defer done()
	return sent, a, h.Bye, s.ledger.Take(ctx, h, a, sent)
}

// fence ends the boot, and reports whether the ledger knows.
func (s *Syncer) fence(why *Fenced) bool {
	s.mu.Lock()
	s.status.Ready, s.status.Err = false, why
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), s.options.Timeout)
	defer cancel()
	if err := s.ledger.Fence(ctx, why); err != nil {
		s.options.Logger.Error("escrow: a boot that was fenced goes on", "error", err)
		return false
	}
	s.options.Logger.Error("escrow: this boot was fenced", "error", why)
	return true
}

// Close stops, closes all grants and returns what was not used, so that a restart strands
// nothing. It repeats that until it is answered or the context ends; end all attempts first,
// what is on its way stays out as uncertain.
//
// Retry: safe; a Syncer that said goodbye returns nil.
// Errors: the last failure when the context ended before the authority answered: what the
// node held stays out, and the next opening of its journal reports it.
func (s *Syncer) Close(ctx context.Context) error {
	s.stop()
	<-s.stopped
	s.closing.Lock()
	defer s.closing.Unlock()
	for failed := 0; !s.left; {
		_, bye, err := s.beat(ctx, true)
		var fenced *Fenced
		switch {
		case err == nil:
			s.left, failed = bye, 0
			continue
		case errors.As(err, &fenced):
			s.fence(fenced)
			return err
		case ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		}
		timer := time.NewTimer(jitter(backoff(max(s.options.Timeout/100, time.Millisecond), failed, time.Second)))
		failed++
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(err, ctx.Err())
		}
	}
	return nil
}
