package governance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

// plenty are limits that nothing in these tests reaches.
func plenty() keys.Limits {
	return keys.Limits{RequestsPerMinute: keys.Limit(1e9), TokensPerMinute: keys.Limit(1e9), TokensPerDay: keys.Limit(1e12), CostPerDay: keys.Cost(1e12)}
}

var small = Bound{Tokens: 3, Cost: 2}

func TestLoneCallerDecidesInItsOwnGoroutine(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	var where []string
	r.shelf.enter = func(*Plan) error { where = append(where, goroutine()); return nil }
	permit := r.admit(p, small)
	r.ok(permit.Raise(r.ctx, Bound{Tokens: 9, Cost: 9}))
	r.ok(permit.Settle(r.ctx, Used(5, 5)))
	_, err := r.g.Resolve(r.ctx, Evidence{ID: permit.ID(), Outcome: Used(1, 1), Actor: "op", Reason: "x"})
	r.is(err, ErrTerminal)
	for _, g := range where {
		if g != goroutine() {
			t.Fatalf("transactions ran in goroutines %v, the caller is %s", where, goroutine())
		}
	}
	if len(where) != 4 || !r.idle() {
		t.Fatalf("%d transactions, idle %v", len(where), r.idle())
	}
}

func TestCallersShareTheNextTransaction(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	gate := r.gate()
	var c results
	c.admit(r.ctx, r.g, Request{Principal: p, Bound: small})
	<-gate.entered
	for range 20 {
		c.admit(r.ctx, r.g, Request{Principal: p, Bound: small})
	}
	r.until("20 wait", func() bool { return r.waiting() == 20 })
	gate.pass(2)
	permits, errs := c.wait()
	if len(permits) != 21 || len(errs) > 0 || r.shelf.commits != 2 {
		t.Fatalf("%d permits, errors %v, %d transactions", len(permits), errs, r.shelf.commits)
	}
	gate.lift()
	r.verify()
	batches := map[BatchID]int{}
	for _, p := range permits {
		batches[r.stored(p.ID()).Batch]++
	}
	if len(batches) != 2 {
		t.Fatalf("batches %v", batches)
	}
}

func TestBatchLimit(t *testing.T) {
	r := newRig(t, &Options{BatchLimit: 4})
	p := r.caller("red", "k", plenty(), plenty())
	var sizes []int
	r.shelf.answer = func(_ *Plan, ch *Changes) error { sizes = append(sizes, len(ch.Batch.Permits)); return nil }
	gate := r.gate()
	var c results
	c.admit(r.ctx, r.g, Request{Principal: p, Bound: small})
	<-gate.entered
	for range 10 {
		c.admit(r.ctx, r.g, Request{Principal: p, Bound: small})
	}
	r.until("10 wait", func() bool { return r.waiting() == 10 })
	gate.pass(4)
	c.wait()
	if fmt.Sprint(sizes) != "[1 4 4 2]" || !r.idle() {
		t.Fatalf("batches of %v, idle %v", sizes, r.idle())
	}
}

func TestQueueIsBounded(t *testing.T) {
	r := newRig(t, &Options{QueueLimit: 6})
	loud, quiet := r.caller("loud", "k1", plenty(), plenty()), r.caller("quiet", "k2", plenty(), plenty())
	open := r.admit(loud, small)
	gate := r.gate()
	var c results
	c.admit(r.ctx, r.g, Request{Principal: loud, Bound: small})
	<-gate.entered
	for range 6 {
		c.admit(r.ctx, r.g, Request{Principal: loud, Bound: small})
	}
	r.until("6 wait", func() bool { return r.waiting() == 6 })

	_, err := r.g.Admit(r.ctx, Request{Principal: loud, Bound: small})
	refusal := r.refused(err, ReasonQueueFull)
	if !refusal.Retryable || refusal.RetryAfter <= 0 || StatusOf(err).Code != 429 {
		t.Fatalf("refusal %+v", refusal)
	}
	r.refused(open.Raise(r.ctx, Bound{Tokens: 99}), ReasonQueueFull)
	c.admit(r.ctx, r.g, Request{Principal: quiet, Bound: small}) // others still have their share
	r.until("the quiet one waits", func() bool { return r.waiting() == 7 })
	var settled error // settlements never are refused
	c.wg.Go(func() { settled = open.Settle(r.ctx, Used(1, 1)) })
	r.until("the settlement waits", func() bool { return r.waiting() == 8 })
	gate.lift()
	permits, errs := c.wait()
	if len(permits) != 8 || len(errs) > 0 || settled != nil {
		t.Fatalf("%d permits, errors %v, settled %v", len(permits), errs, settled)
	}
	r.verify()
}

// Many subjects cannot push the queue beyond twice its limit.
func TestQueueIsBoundedForManySubjects(t *testing.T) {
	l := &lane{g: &Governor{options: Options{QueueLimit: 8, BatchLimit: 4}}, queues: map[string]*queue{}}
	admitted := 0
	for i := range 100 {
		if l.enqueue(&waiter{task: &stub{team: fmt.Sprint(i)}}) {
			admitted++
		}
	}
	if admitted != 16 {
		t.Fatalf("%d wait, the limit is 8", admitted)
	}
	if !l.enqueue(&waiter{task: &stub{team: "x", calm: true}}) {
		t.Fatal("a patient task was refused")
	}
}

// stub is a task that only takes part in queues.
type stub struct {
	team      string
	calm      bool
	twice     bool
	number    int
	err       error
	act       func(*sheet)
	planned   func(*planner)
	forgotten atomic.Int32
}

func (o *stub) plan(p *planner) {
	if o.planned != nil {
		o.planned(p)
	}
}

func (o *stub) decide(s *sheet) {
	if o.act != nil {
		o.act(s)
	}
}
func (o *stub) fail(err error)      { o.err = err }
func (o *stub) failed() error       { return o.err }
func (o *stub) subject() string     { return o.team }
func (o *stub) patient() bool       { return o.calm }
func (o *stub) replayable() bool    { return o.twice }
func (o *stub) abandoned(*Governor) { o.forgotten.Add(1) }

func TestLeavingTheQueue(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	gate := r.gate()
	var c results
	c.admit(r.ctx, r.g, Request{Principal: p, Bound: small})
	<-gate.entered
	ctx, leave := context.WithCancel(r.ctx)
	var left results
	for range 5 {
		left.admit(ctx, r.g, Request{Principal: p, Bound: small})
	}
	r.until("5 wait", func() bool { return r.waiting() == 5 })
	leave()
	_, errs := left.wait() // they do not wait for the transaction
	for _, err := range errs {
		r.is(err, context.Canceled)
	}
	if len(errs) != 5 || r.waiting() != 0 {
		t.Fatalf("errors %v, %d wait", errs, r.waiting())
	}
	gate.pass(1)
	c.wait()
	if len(r.shelf.permits) != 1 || !r.idle() {
		t.Fatalf("%d permits, idle %v", len(r.shelf.permits), r.idle())
	}
}

// Who leaves while the transaction is on its way never received the permit: the
// Governor cancels it.
func TestLeavingInFlight(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	gate := r.gate()
	var first, stay, leave results
	first.admit(r.ctx, r.g, Request{Principal: p, Bound: small})
	<-gate.entered
	stay.admit(r.ctx, r.g, Request{Principal: p, Bound: small}) // leads the next one
	r.until("1 waits", func() bool { return r.waiting() == 1 })
	ctx, cancel := context.WithCancel(r.ctx)
	leave.admit(ctx, r.g, Request{Principal: p, Bound: small})
	r.until("2 wait", func() bool { return r.waiting() == 2 })
	gate.pass(1)
	first.wait()
	<-gate.entered // both are in it
	cancel()
	_, errs := leave.wait()
	if len(errs) != 1 || !errors.Is(errs[0], context.Canceled) {
		t.Fatalf("errors %v", errs)
	}
	gate.lift()
	permits, _ := stay.wait()
	if len(permits) != 1 {
		t.Fatal("who stayed got nothing")
	}
	r.until("the permit is cancelled", func() bool {
		n := 0
		r.shelf.with(func() {
			for _, rec := range r.shelf.permits {
				if rec.State == StateCancelled {
					n++
				}
			}
		})
		return n == 1
	})
	if len(r.shelf.permits) != 3 || r.reserved() != 2*2*(3+2) { // team and key
		t.Fatalf("%d permits, %d reserved", len(r.shelf.permits), r.reserved())
	}
}

// The same for a lone caller, whose transaction is not cut short by its context.
func TestLeavingWhileDecidingAlone(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	ctx, cancel := context.WithCancel(r.ctx)
	r.shelf.pause = func(step context.Context, _ *Plan) {
		cancel()
		if step.Err() != nil {
			t.Error("the transaction shares the caller's cancellation")
		}
	}
	_, err := r.g.Admit(ctx, Request{Principal: p, Bound: small})
	r.is(err, context.Canceled)
	r.until("the permit is cancelled", func() bool { return r.reserved() == 0 })
	if len(r.shelf.permits) != 1 {
		t.Fatalf("%d permits", len(r.shelf.permits))
	}
}

func TestContextThatEndedBeforeTheCall(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	_, err := r.g.Admit(ctx, Request{Principal: p, Bound: small})
	r.is(err, context.Canceled)
	if r.shelf.steps != 0 || !r.idle() {
		t.Fatalf("%d transactions", r.shelf.steps)
	}
}

// A waiter may be made leader at the very moment at which it leaves: it passes that on.
func TestLeaderThatLeaves(t *testing.T) {
	for leave := 3; leave > 0; leave-- {
		r := newRig(t, nil)
		l := r.g.lanes[0]
		l.busy = true
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				mine := context.Background()
				if i < leave {
					mine = ctx
				}
				_ = l.run(mine, &stub{team: fmt.Sprint(i)})
			})
			r.until("it waits", func() bool { return r.waiting() == i+1 })
		}
		l.mu.Lock()
		cancel()
		r.until("they are leaving", func() bool { return waitIn("[sync.Mutex.Lock", "(*lane).run") == leave })
		l.ring.front().first.wake <- turnLead // as handOver does
		l.mu.Unlock()
		wg.Wait() // those who stay have their turn
		if !r.idle() {
			t.Fatal("the lane is stuck")
		}
	}
}

// A waiter may be told that it came too late at the very moment at which it leaves.
func TestLateWaiterThatLeaves(t *testing.T) {
	for range 10 {
		r := newRig(t, nil)
		l := r.g.lanes[0]
		l.busy = true
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		var errs [4]error
		for i := range errs {
			wg.Go(func() {
				o := &stub{team: fmt.Sprint(i % 2)}
				if errs[i] = l.run(ctx, o); errs[i] == nil {
					errs[i] = o.err
				}
			})
		}
		r.until("4 wait", func() bool { return r.waiting() == 4 })
		l.mu.Lock()
		for q := l.ring.first; q != nil; q = q.next {
			for w := q.first; w != nil; w = w.next {
				w.since = time.Time{}
			}
		}
		cancel()
		r.until("all are leaving", func() bool { return waitIn("[sync.Mutex.Lock", "(*lane).run") == 4 })
		l.cut(l.ring.front().first)[0].wake <- turnDone // and are answered
		l.mu.Unlock()
		wg.Wait()
		l.handOver()
		if !r.idle() {
			t.Fatal("the lane is stuck")
		}
		for _, err := range errs {
			if err != nil && !errors.Is(err, ErrUnavailable) {
				t.Fatalf("an answer was lost: %v", err)
			}
		}
	}
}

// No wake-up is lost and no permit is, whoever leaves when.
func TestStress(t *testing.T) {
	r := newRig(t, &Options{BatchLimit: 5, Lanes: 2})
	r.shelf.pause = func(context.Context, *Plan) {
		if rand.IntN(3) == 0 {
			time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond) // a commit takes its time
		}
	}
	var callers []*keys.Principal
	for i := range 7 {
		limits := plenty()
		limits.Concurrency = keys.Limit(1000)
		callers = append(callers, r.caller(fmt.Sprint("team", i), fmt.Sprint("key", i), limits, keys.Limits{}))
	}
	var wg sync.WaitGroup
	for range 24 {
		wg.Go(func() {
			for range 40 {
				ctx, cancel := context.WithCancel(context.Background())
				if rand.IntN(2) == 0 {
					time.AfterFunc(time.Duration(rand.IntN(400))*time.Microsecond, cancel)
				}
				permit, err := r.g.Admit(ctx, Request{Principal: callers[rand.IntN(len(callers))], Bound: small})
				if err == nil {
					if rand.IntN(4) == 0 {
						err = permit.Raise(ctx, Bound{Tokens: 7, Cost: 7})
					}
					if err == nil || errors.Is(err, context.Canceled) {
						err = permit.Settle(ctx, Used(2, 1))
					}
				}
				var unsettled *SettleError // the Governor goes on with that
				if err != nil && !errors.Is(err, context.Canceled) && !errors.As(err, &unsettled) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	r.until("everything is settled", func() bool { return r.reserved() == 0 })
	r.until("the lanes are idle", r.idle)
	r.verify()
	r.shelf.with(func() {
		for key := range r.shelf.cells {
			if c := r.shelf.cell(key); c.Kind == KindConcurrency && len(c.Slots.Holders) > 0 {
				t.Errorf("slots are left: %+v", c.Slots)
			}
		}
	})
}
