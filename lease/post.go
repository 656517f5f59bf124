package lease

import (
	"errors"
	"time"
)

// post is what a keeper knows of one name, and what it does next: pure decisions on instants of the keeper's clock.
//
// Trust is counted from before a call was sent. The store's tenure began later than that, and lasts longer
// than the deadline: whoever trusts no longer than the deadline gives up before the store lets another in.
type post struct {
	pace
	name     string
	holding  bool
	held     Lease
	trust    time.Duration // holding is believed until this instant, and not at it
	due      time.Duration // the next call
	failures int           // calls in a row that were no answer
	err      error         // of the last call that was none
	doubt    bool          // the store may say that this holder has a lease which is not believed in
	tries    int           // of handing over
	shown    Row           // another's tenure, as it was shown last
	shownAt  time.Duration
}

// pace is how a keeper was configured.
type pace struct {
	ttl, renew, deadline time.Duration
	spread               func(time.Duration) time.Duration // takes a little off, so that keepers do not move in step
}

// step is what comes next.
type step int

const (
	wait    step = iota + 1
	acquire      // ask for the lease
	renew        // make it last
	release      // hand over
	leave        // nothing is left to do
)

// mostTries bounds how often a lease is handed over that cannot be: it lapses by itself.
const mostTries = 3

// holds reports whether this process may believe that it has the lease.
func (p *post) holds(now time.Duration) bool { return p.holding && now < p.trust }

// lapse ends a belief whose time is over, and reports whether it did.
func (p *post) lapse(now time.Duration) bool {
	if !p.holding || now < p.trust {
		return false
	}
	p.end(now, ErrGivenUp)
	p.doubt = true
	return true
}

// end ends a belief.
func (p *post) end(now time.Duration, why error) { p.holding, p.err, p.due = false, why, now }

// next says what to do, and when where that is to wait. Busy says that work of this or an earlier tenure
// still runs: nothing is handed over or taken anew until it has stopped.
func (p *post) next(now time.Duration, leaving, busy bool) (step, time.Duration) {
	const long = time.Hour // until somebody says that work has stopped, or to leave
	switch {
	case leaving && busy && !p.holds(now):
		return wait, long
	case leaving && !busy && (p.holds(now) || p.doubt) && p.tries < mostTries:
		if now < p.due && p.tries > 0 {
			return wait, p.due - now
		}
		return release, 0
	case leaving && !busy:
		return leave, 0
	case !p.holds(now) && busy:
		return wait, long
	case now < p.due:
		return wait, p.due - now
	case p.holds(now):
		return renew, 0
	}
	return acquire, 0
}

// bound is how long the next call may take. Half of the trust that is left, so that a connection which hangs leaves time for another.
func (p *post) bound(now time.Duration) time.Duration {
	if left := p.trust - now; p.holding {
		return max(left/2, min(left, p.deadline/50), 1)
	}
	return p.deadline / 2
}

// acquired takes the answer to a call that was sent at an instant.
func (p *post) acquired(sent, now time.Duration, l Lease, err error) {
	var held *HeldError
	switch {
	case err == nil && now < sent+p.deadline:
		p.holding, p.held, p.trust, p.due = true, l, sent+p.deadline, sent+p.renew
		p.doubt, p.failures, p.err, p.shown = false, 0, nil, Row{}
	case err == nil: // too late to know whether it still is true
		p.doubt = true
		p.fail(now, ErrGivenUp)
	case errors.As(err, &held):
		p.doubt, p.failures, p.err = false, 0, nil
		p.see(now, held.Row)
		p.due = now + p.spread(p.renew)
		if held.Fenced { // it was waited for already
			p.due = now + p.spread(p.renew/8)
		}
		if left := held.Row.Remaining(); left > 0 {
			p.due = min(p.due, now+left)
		}
	default:
		nothing := errors.Is(err, ErrUnavailable) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrHistoryRegressed)
		p.doubt = p.doubt || !nothing
		p.fail(now, err)
	}
}

// renewed takes the answer to a call that was sent at an instant.
func (p *post) renewed(sent, now time.Duration, l Lease, err error) {
	if p.lapse(now) || !p.holding {
		return // whoever has stopped believing does not start again: the next acquisition has a generation of its own
	}
	var lost *LostError
	switch {
	case err == nil:
		p.held, p.trust, p.due = l, max(p.trust, sent+p.deadline), sent+p.renew
		p.failures, p.err = 0, nil
	case errors.Is(err, ErrLost), errors.Is(err, ErrHistoryRegressed):
		if errors.As(err, &lost) {
			p.see(now, lost.Row)
		}
		p.end(now, err)
		if !errors.Is(err, ErrLost) {
			p.fail(now, err)
		}
	default:
		p.fail(now, err)
	}
}

// released takes the answer to handing over.
func (p *post) released(now time.Duration, err error) {
	p.tries++
	if err == nil || errors.Is(err, ErrLost) {
		p.holding, p.doubt, p.err = false, false, nil
		return
	}
	p.fail(now, err)
}

// fail counts a call that was no answer: soon again at first, and never more often than that for long.
func (p *post) fail(now time.Duration, err error) {
	p.failures++
	p.err = err
	pause := p.renew / 16
	for i := 1; i < p.failures && pause < p.renew/2; i++ {
		pause *= 2
	}
	if errors.Is(err, ErrHistoryRegressed) || errors.Is(err, ErrInvalid) {
		pause = p.renew
	}
	p.due = now + p.spread(pause)
}

func (p *post) see(now time.Duration, r Row) { p.shown, p.shownAt = r, now }

// inForce is the tenure that others wait for, by the store; zero where nobody's was seen.
func (p *post) inForce() time.Duration {
	if p.holding {
		return p.held.TTL
	}
	return p.shown.TTL
}

// drifts reports whether a tenure is materially longer than this process would have it: by more than half.
func (p *post) drifts() bool { return p.inForce() > p.ttl+p.ttl/2 }
