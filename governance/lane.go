package governance

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// task is one caller's part of a step.
type task interface {
	plan(*planner)       // names the rows that it needs
	decide(*sheet)       // decides on them; the answer stays in the task
	fail(error)          // replaces the answer's error; nil before each decision
	failed() error       // the answer's error, or nil
	subject() string     // whose turn it takes in the queue
	patient() bool       // waits for a place rather than being refused when the queue is full
	replayable() bool    // deciding it twice does what deciding it once does
	abandoned(*Governor) // it was decided, but the caller had left
}

// lane runs tasks in shared transactions. While one is on its way, the next
// tasks wait and go together; a lone caller runs its own at once, in its own
// goroutine, and waits for nobody.
//
// Source: internal/docs/performance.md.
type lane struct {
	g *Governor

	mu     sync.Mutex
	busy   bool
	queues map[string]*queue // waiting tasks by subject
	ring   ring              // subjects that wait, in the order of their turns
	length int
	last   int // how many tasks the last shared transaction carried

	waiting atomic.Int64 // length, for the leader who watches it grow
}

// waiter is a task whose caller waits.
type waiter struct {
	task       task
	wake       chan turn // receives exactly one turn, unless the waiter left the queue
	cut        bool      // waits no more: it is answered, or in a transaction that is on its way
	left       bool      // the caller no longer waits; guarded by lane.mu
	queue      *queue    // where it waits
	since      time.Time // it began to wait
	prev, next *waiter
}

type turn uint8

const (
	turnDone turn = iota + 1 // the task was decided
	turnLead                 // run the next transaction
)

// run brings the task through a transaction. An error means that the task was not
// decided for this caller: the context ended, the queue is full, the Governor is
// closed. Otherwise the answer is in the task.
func (l *lane) run(ctx context.Context, t task) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	lead := !l.busy
	if lead && l.last <= 1 {
		l.busy = true
		l.mu.Unlock()
		batch := [1]task{t}
		l.transact(ctx, batch[:])
		l.handOver()
		return nil
	}
	w := &waiter{task: t, wake: make(chan turn, 1), since: time.Now()}
	if !l.enqueue(w) {
		l.mu.Unlock()
		return &Refusal{Reason: ReasonQueueFull, RetryAfter: retryUnavailable, Retryable: true}
	}
	l.busy = true
	l.mu.Unlock()
	if lead { // others were here a moment ago and are about to come back
		l.lead(ctx, w)
		return nil
	}

	select {
	case turn := <-w.wake:
		if turn == turnLead {
			l.lead(ctx, w)
		}
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	if !w.cut {
		l.remove(w)
		l.mu.Unlock()
		select {
		case <-w.wake: // it was made leader at the same moment: pass that on
			l.handOver()
		default:
		}
		return ctx.Err()
	}
	// The transaction is on its way. Its runner sees the mark when it is done.
	select {
	case <-w.wake:
		l.mu.Unlock()
		return nil
	default:
		w.left = true
		l.mu.Unlock()
		return ctx.Err()
	}
}

// lead cuts the next batch and runs it in the caller's goroutine.
func (l *lane) lead(ctx context.Context, self *waiter) {
	l.gather()
	batch := l.cut(self)
	l.last = len(batch)
	l.mu.Unlock()
	tasks := make([]task, len(batch))
	for i, w := range batch {
		tasks[i] = w.task
	}
	l.transact(ctx, tasks)
	l.mu.Lock()
	for _, w := range batch {
		if w == self {
			continue
		}
		if w.left {
			w.task.abandoned(l.g)
			continue
		}
		w.wake <- turnDone
	}
	l.mu.Unlock()
	l.handOver()
}

// gather yields while callers are still coming, and returns with the lock held. Those
// who were answered a moment ago are about to come back: without yielding, a closed
// loop settles into two half-size cohorts.
func (l *lane) gather() {
	l.mu.Lock()
	want := int64(min(l.length+l.last, l.g.options.BatchLimit))
	before := int64(l.length)
	l.mu.Unlock()
	for last := time.Now(); before < want; {
		runtime.Gosched()
		// Without the lock: those who are coming need it.
		if now := l.waiting.Load(); now != before {
			last, before = time.Now(), now
		} else if time.Since(last) >= lull {
			break
		}
	}
	l.mu.Lock()
}

// lull is after how long without a new caller nobody is waited for any more.
const lull = 40 * time.Microsecond

// handOver makes the next waiting caller the leader, or leaves the lane idle.
func (l *lane) handOver() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.length == 0 {
		l.busy = false
		return
	}
	l.ring.front().first.wake <- turnLead
}

// enqueue adds a waiter to its subject's queue. When the lane is full, a subject
// that has its fair share already is refused; others are not.
func (l *lane) enqueue(w *waiter) bool {
	subject := w.task.subject()
	q := l.queues[subject]
	if most := l.g.options.QueueLimit; l.length >= most && !w.task.patient() {
		if l.length >= 2*most || (q != nil && q.length >= most/(len(l.queues)+1)) {
			return false
		}
	}
	if q == nil {
		q = &queue{subject: subject}
		l.queues[subject] = q
		l.ring.push(q)
	}
	q.push(w)
	l.length++
	l.waiting.Store(int64(l.length))
	return true
}

// remove takes a waiter that was not cut out of its queue.
func (l *lane) remove(w *waiter) {
	q := w.queue
	q.remove(w)
	l.length--
	l.waiting.Store(int64(l.length))
	if q.length == 0 {
		l.ring.remove(q)
		delete(l.queues, q.subject)
	}
}

// cut takes the next batch: self, then one task of each subject in turn. Whose
// turn is not reached is first in the next batch. Who has waited for longer than a
// transaction may take is told so: the store is an outage, not a queue.
func (l *lane) cut(self *waiter) []*waiter {
	most := l.g.options.BatchLimit
	batch := make([]*waiter, 0, min(l.length, most))
	patience := time.Now().Add(-l.g.options.StepTimeout)
	for w := self; ; w = l.ring.front().first {
		q := w.queue
		l.remove(w)
		w.cut = true
		if q.length > 0 {
			l.ring.remove(q)
			l.ring.push(q)
		}
		if w != self && w.since.Before(patience) {
			w.task.fail(fmt.Errorf("%w: waited too long for a decision", ErrUnavailable))
			w.wake <- turnDone
		} else {
			batch = append(batch, w)
		}
		if l.length == 0 || len(batch) == most {
			return batch
		}
	}
}

// transact brings the tasks through one transaction, or several when one of them
// is to blame for a failure. Afterwards every task has its answer.
func (l *lane) transact(ctx context.Context, tasks []task) {
	ctx, cancel := l.g.stepContext(ctx)
	defer cancel()
	l.g.transact(ctx, tasks)
}
