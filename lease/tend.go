package lease

import (
	"context"
	"log/slog"
	"time"
)

// seat is one name at work. The keeper's mu guards it.
type seat struct {
	k *Keeper
	post
	work    int             // cycles that run
	tenure  context.Context // of the tenure that is believed in, or of the last one
	cancel  context.CancelCauseFunc
	kick    chan struct{} // receives when the loop should look again
	changed chan struct{} // closed, and made anew, when a tenure begins
	noted   Generation    // of another's tenure that was logged
}

// tend is the loop of one name.
func (s *seat) tend() {
	for {
		what, pause := s.plan()
		switch what {
		case leave:
			return
		case wait:
			if !s.await(pause) {
				return
			}
		default:
			s.call(what)
			if s.k.ctx.Err() != nil {
				return
			}
		}
	}
}

func (s *seat) plan() (step, time.Duration) {
	s.k.mu.Lock()
	defer s.k.unlock()
	now := s.k.options.Clock()
	s.check(now)
	return s.next(now, s.k.leaving.Err() != nil, s.work > 0)
}

// await reports false when nothing is left to wait for.
func (s *seat) await(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	leaving := s.k.leaving.Done()
	if s.k.leaving.Err() != nil {
		leaving = nil
	}
	select {
	case <-timer.C:
	case <-s.kick:
	case <-leaving:
	case <-s.k.ctx.Done():
		return false
	}
	return true
}

// call asks the store. Trust is counted from here, and the call is bounded by it.
func (s *seat) call(what step) {
	k := s.k
	k.mu.Lock()
	sent := k.options.Clock()
	bound, held, until := s.bound(sent), s.held, k.ctx
	k.mu.Unlock()
	if what == acquire {
		until = k.leaving // nobody wants it any more; whether it went through is then unknown
	}
	ctx, cancel := context.WithTimeout(until, bound)
	defer cancel()
	var err error
	switch what {
	case acquire:
		held, err = k.leaser.Acquire(ctx, Claim{Name: s.name, Holder: k.holder, TTL: s.ttl})
	case renew:
		held, err = k.leaser.Renew(ctx, held)
	case release:
		if !s.believed() {
			held = Lease{Name: s.name, Holder: k.holder}
		}
		err = k.leaser.Release(ctx, held)
	}
	k.mu.Lock()
	defer k.unlock()
	now := k.options.Clock()
	s.check(now)
	before, failed, why := s.holding, s.failures, s.err
	switch what {
	case acquire:
		s.acquired(sent, now, held, err)
	case renew:
		s.renewed(sent, now, held, err)
	case release:
		s.released(now, err)
	}
	s.follow(what, before, failed, why)
}

func (s *seat) believed() bool {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	return s.holding
}

// follow tells everybody what an answer changed.
func (s *seat) follow(what step, before bool, failed int, why error) {
	switch {
	case what == release && !s.holding && s.err == nil:
		s.note(slog.LevelInfo, "lease: handed over", "generation", int64(s.held.Generation))
	case !before && s.holding:
		s.tenure, s.cancel = context.WithCancelCause(context.Background())
		if s.k.leaving.Err() != nil {
			s.over(ErrClosed)
		}
		s.note(slog.LevelInfo, "lease: acquired", "generation", int64(s.held.Generation), "ttl", s.ttl)
		s.announce()
		select {
		case s.k.armed <- struct{}{}:
		default:
		}
	case before && !s.holding:
		s.over(s.err)
		s.note(slog.LevelWarn, "lease: lost", "generation", int64(s.held.Generation), "error", s.err)
	}
	switch {
	case s.failures > failed && s.failures&(s.failures-1) == 0: // the first, the second, the fourth, ...
		s.note(slog.LevelWarn, "lease: a call failed", "failures", s.failures, "holding", s.holding, "error", s.err)
	case s.failures == 0 && failed > 0:
		s.note(slog.LevelInfo, "lease: calls succeed again", "failures", failed, "last", why)
	}
	if s.holding || s.shown.Generation == s.noted || !s.shown.Held() {
		return
	}
	s.noted = s.shown.Generation
	s.note(slog.LevelInfo, "lease: standing by, another holds it", "holder", s.shown.Holder, "generation", int64(s.shown.Generation))
	if s.drifts() {
		s.note(slog.LevelWarn, "lease: the tenure in force is longer than this process's own, and everybody waits for it when its holder dies: configure one TTL",
			"holder", s.shown.Holder, "in_force", s.inForce(), "own", s.ttl)
	}
}

// check ends a belief whose time is over.
func (s *seat) check(now time.Duration) {
	if s.lapse(now) {
		s.over(s.err)
		s.note(slog.LevelWarn, "lease: given up, no renewal was confirmed in time", "generation", int64(s.held.Generation), "deadline", s.deadline)
		s.wake()
	}
}

// over ends the context of the tenure.
func (s *seat) over(why error) {
	if s.cancel != nil {
		s.cancel(why)
	}
}

func (s *seat) exit() {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	if s.work--; s.work == 0 {
		s.wake()
	}
}

func (s *seat) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

func (s *seat) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// note logs once mu is free: a handler may do anything.
func (s *seat) note(level slog.Level, text string, args ...any) {
	args = append([]any{"name", s.name}, args...)
	s.k.notes = append(s.k.notes, func() { s.k.options.Logger.Log(context.Background(), level, text, args...) })
}

func (k *Keeper) unlock() {
	notes := k.notes
	k.notes = nil
	k.mu.Unlock()
	for _, say := range notes {
		say()
	}
}

// watch ends beliefs in time, however long a call takes. It looks more often than needed: timers stand still while a
// machine is suspended, and the clock does not.
func (k *Keeper) watch() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-k.armed:
		case <-k.ctx.Done():
			return
		}
		timer.Reset(k.look())
	}
}

func (k *Keeper) look() time.Duration {
	k.mu.Lock()
	defer k.unlock()
	now, pause := k.options.Clock(), time.Hour
	for _, s := range k.order {
		s.check(now)
		if s.holding {
			pause = min(pause, s.trust-now, max(s.deadline/20, time.Millisecond))
		}
	}
	return pause
}
