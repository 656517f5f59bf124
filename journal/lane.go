package journal

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
)

// call is one caller's part of a shared commit.
type call struct {
	reserve *Reservation // nil: a settlement
	id      ID
	outcome Outcome

	err  error
	wake chan turn // receives one turn
	cut  bool      // in a transaction that is on its way
	left bool      // the caller has gone
}

type turn uint8

const (
	turnDone turn = iota + 1 // answered
	turnLead                 // run the next transaction
)

// lane runs calls in shared transactions. While one is on its way the next calls wait and
// go together; a lone caller runs its own at once and waits for nobody.
//
// Source: internal/docs/performance.md.
type lane struct {
	mu      sync.Mutex
	busy    bool
	waiting []*call
	last    int  // calls of the last transaction
	orphans []ID // reserved, and nobody was told: to be given back

	coming atomic.Int64 // len(waiting), for the leader who watches it grow
}

const (
	mostOrphans = 1 << 16
	lull        = 40 * time.Microsecond // after so long without a new caller none is waited for
)

func (l *lane) run(ctx context.Context, j *Journal, c *call) error {
	if j.isClosed() {
		return ErrClosed
	}
	l.mu.Lock()
	lead := !l.busy
	l.busy = true
	l.waiting = append(l.waiting, c)
	l.coming.Store(int64(len(l.waiting)))
	l.mu.Unlock()
	if lead {
		l.lead(ctx, j, c)
		return l.told(ctx, j, c)
	}
	select {
	case t := <-c.wake:
		if t == turnLead {
			l.lead(ctx, j, c)
		}
		return l.told(ctx, j, c)
	case <-ctx.Done():
	}
	l.mu.Lock()
	select {
	case t := <-c.wake: // at the same moment
		if t == turnDone {
			l.mu.Unlock()
			return l.told(ctx, j, c)
		}
		l.remove(c)
		l.handOver()
	default:
		if c.cut {
			c.left = true // the leader sees to it
		} else {
			l.remove(c)
		}
	}
	l.mu.Unlock()
	return ctx.Err()
}

// told answers a caller, who may have left during the commit: the reservation that it
// does not use is given back.
func (l *lane) told(ctx context.Context, j *Journal, c *call) error {
	if c.err != nil || c.reserve == nil || ctx.Err() == nil {
		return c.err
	}
	// If that fails, the next transaction tries again.
	l.mu.Lock()
	l.orphan(c)
	l.mu.Unlock()
	_ = l.run(context.WithoutCancel(ctx), j, &call{id: c.reserve.ID, outcome: NotSent(), wake: make(chan turn, 1)})
	return ctx.Err()
}

func (l *lane) remove(c *call) {
	for i, w := range l.waiting {
		if w == c {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			break
		}
	}
	l.coming.Store(int64(len(l.waiting)))
}

// orphan notes a reservation of which nobody was told. Beyond the bound it stays reserved.
func (l *lane) orphan(c *call) {
	if c.reserve != nil && len(l.orphans) < mostOrphans {
		l.orphans = append(l.orphans, c.reserve.ID)
	}
}

// lead runs the next transaction in the goroutine of one of its callers, c.
func (l *lane) lead(ctx context.Context, j *Journal, c *call) {
	l.gather(j.options.BatchLimit)
	l.mu.Lock()
	l.remove(c)
	n := min(len(l.waiting), j.options.BatchLimit-1)
	batch := append(append(make([]*call, 0, n+1), c), l.waiting[:n]...)
	l.waiting = append(l.waiting[:0], l.waiting[n:]...)
	l.coming.Store(int64(len(l.waiting)))
	for _, w := range batch {
		w.cut = true
	}
	orphans := l.orphans[:min(len(l.orphans), j.options.BatchLimit)]
	l.orphans = l.orphans[len(orphans):]
	l.last = len(batch)
	l.mu.Unlock()

	failed := j.transact(ctx, batch, orphans)

	l.mu.Lock()
	defer l.mu.Unlock()
	if failed {
		l.orphans = append(l.orphans, orphans...)
	}
	gone := 0
	for _, w := range batch {
		switch unknown := errors.Is(w.err, ErrUnknownOutcome); {
		case w.left && w.err == nil:
			gone++
			l.orphan(w)
		case unknown:
			l.orphan(w)
		}
		if w != c && !w.left {
			w.wake <- turnDone
		}
	}
	if gone > 0 { // nobody may come for a long time
		orphans := l.orphans
		l.orphans = nil
		l.mu.Unlock()
		failed := j.transact(ctx, nil, orphans)
		l.mu.Lock()
		if failed {
			l.orphans = append(l.orphans, orphans...)
		}
	}
	l.handOver()
}

// gather yields while callers are still coming back from the last transaction.
func (l *lane) gather(limit int) {
	l.mu.Lock()
	want := int64(min(len(l.waiting)+l.last, limit))
	if l.last <= 1 {
		want = 0
	}
	l.mu.Unlock()
	before := l.coming.Load()
	for last := time.Now(); before < want; {
		runtime.Gosched()
		if now := l.coming.Load(); now != before {
			last, before = time.Now(), now
		} else if time.Since(last) >= lull {
			break
		}
	}
}

func (l *lane) handOver() {
	if len(l.waiting) == 0 {
		l.busy = false
		return
	}
	l.waiting[0].wake <- turnLead
}

// transact decides the calls in one transaction and gives every one its answer. What can
// be repeated is repeated once when the answer to a commit was lost: all of it can. It
// reports whether what nobody was told of is still to be given back.
func (j *Journal) transact(ctx context.Context, batch []*call, orphans []ID) (failed bool) {
	plan := planOf(batch, orphans)
	decide := func(b *Book) error {
		for _, id := range orphans {
			if err := b.Settle(id, NotSent()); err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrEnded) && !errors.Is(err, ErrConflict) {
				return err
			}
		}
		for _, c := range batch {
			if c.reserve != nil {
				c.err = b.Reserve(*c.reserve)
			} else {
				c.err = b.Settle(c.id, c.outcome)
			}
		}
		return nil
	}
	err := j.step(ctx, plan, decide)
	if errors.Is(err, ErrUnknownOutcome) {
		if again := j.step(ctx, plan, decide); again == nil {
			err = nil
		}
	}
	if err == nil {
		return false
	}
	for _, c := range batch {
		// A refusal stands where the commit is in doubt: it changed nothing either way.
		if !errors.Is(err, ErrUnknownOutcome) || c.err == nil {
			c.err = err
		}
	}
	return true
}

func planOf(batch []*call, orphans []ID) *Plan {
	plan := &Plan{Reservations: make([]ID, 0, len(batch)+len(orphans))}
	ids, accounts := make(map[ID]bool, len(batch)+len(orphans)), map[escrow.Account]bool{}
	add := func(id ID) {
		if !ids[id] {
			ids[id] = true
			plan.Reservations = append(plan.Reservations, id)
		}
	}
	for _, id := range orphans {
		add(id)
	}
	for _, c := range batch {
		if c.reserve == nil {
			add(c.id)
			continue
		}
		add(c.reserve.ID)
		for i := range c.reserve.Needs {
			if a := c.reserve.Needs[i].Account; !accounts[a] {
				accounts[a] = true
				plan.Accounts = append(plan.Accounts, a)
			}
		}
	}
	return plan
}
