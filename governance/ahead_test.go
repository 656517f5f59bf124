package governance

import (
	"context"
	"testing"
	"time"
)

// crowd brings the rig to where eight callers of one key are in a transaction behind a
// lone one, and another is begun ahead of it.
func crowd(r *rig, c *results, g *gate, req Request) {
	c.admit(r.ctx, r.g, req)
	<-g.entered
	for range 8 {
		c.admit(r.ctx, r.g, req)
	}
	r.until("8 wait", func() bool { return r.waiting() == 8 })
	g.pass(1)
	<-g.entered
	g.pass(1)
}

func TestTheNextTransactionIsBegunWhileOneCommits(t *testing.T) {
	r := newRig(t, nil)
	one, two := r.caller("red", "k1", plenty(), plenty()), r.caller("blue", "k2", plenty(), plenty())
	open := r.admit(one, small)
	g := r.gate()
	var c results
	crowd(r, &c, g, Request{Principal: one, Bound: small})
	ahead := <-g.entered // nobody waits, and yet
	if len(ahead.Permits) > 0 || len(ahead.Constraints) != len(r.g.sets.of(one, nil).ids) {
		t.Fatalf("%d constraints are locked for those who are expected", len(ahead.Constraints))
	}

	// Those whose rows are locked join; others wait for the next one.
	for range 5 {
		c.admit(r.ctx, r.g, Request{Principal: one, Bound: small})
	}
	c.admit(r.ctx, r.g, Request{Principal: two, Bound: small})
	var settled error
	c.wg.Go(func() { settled = open.Settle(r.ctx, Used(1, 1)) })
	c.admit(r.ctx, r.g, Request{Principal: one, Bound: small, ID: NewPermitID(time.UnixMicro(r.shelf.clock))}) // perhaps known already: its row is needed
	r.until("8 wait", func() bool { return r.waiting() == 8 })
	g.pass(1)
	next := <-g.entered
	r.until("5 joined", func() bool { return r.waiting() == 0 })
	if len(next.Permits) != 2 {
		t.Fatalf("the transaction behind names %d permits, want those that could not join", len(next.Permits))
	}
	g.lift()
	permits, errs := c.wait()
	if len(permits) != 16 || len(errs) > 0 || settled != nil {
		t.Fatalf("%d permits, errors %v, settled %v", len(permits), errs, settled)
	}
	sizes := map[BatchID]int{}
	for _, p := range permits {
		sizes[r.stored(p.ID()).Batch]++
	}
	if len(sizes) != 4 { // 1, 8, the 5 that joined, and the 2 admissions that could not
		t.Fatalf("batches %v", sizes)
	}
	r.until("the lane is idle", r.idle)
	r.verify()
}

// When nobody comes back, nothing is written, nobody is held up, and it is not tried again at once.
func TestNobodyJoins(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	g := r.gate()
	var c results
	crowd(r, &c, g, Request{Principal: p, Bound: small})
	<-g.entered
	g.lift()
	permits, errs := c.wait()
	if len(permits) != 9 || len(errs) > 0 {
		t.Fatalf("%d permits, errors %v", len(permits), errs)
	}
	r.until("the lane is idle", r.idle)
	l := r.g.lanes[0]
	l.mu.Lock()
	rest, flying := l.rest, l.flying
	l.mu.Unlock()
	if r.shelf.commits != 2 || rest != relayRest || flying != 0 {
		t.Fatalf("%d commits, %d transactions to rest, %d on their way", r.shelf.commits, rest, flying)
	}
	r.admit(p, small)
	r.verify()
}

// Who leaves while its transaction is on its way never received the permit, also when it joined.
func TestWhoJoinedLeaves(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	g := r.gate()
	var c, gone results
	crowd(r, &c, g, Request{Principal: p, Bound: small})
	<-g.entered
	ctx, leave := context.WithCancel(r.ctx)
	defer leave()
	for range 5 {
		gone.admit(ctx, r.g, Request{Principal: p, Bound: small})
	}
	r.until("5 wait", func() bool { return r.waiting() == 5 })
	held := make(chan struct{})
	r.shelf.answer = func(*Plan, *Changes) error { <-held; return nil }
	g.lift()
	r.until("5 joined", func() bool { return r.waiting() == 0 })
	leave()
	if _, errs := gone.wait(); len(errs) != 5 {
		t.Fatalf("errors %v", errs)
	}
	close(held)
	c.wait()
	r.until("what they would have had is given back", func() bool { return r.opened() == 9 })
	r.verify()
}

// opened is how many permits are open.
func (r *rig) opened() (n int) {
	r.shelf.with(func() {
		for _, rec := range r.shelf.permits {
			if rec.State == StateOpen {
				n++
			}
		}
	})
	return n
}
