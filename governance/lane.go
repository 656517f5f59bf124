package governance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// task is one caller's part of a step.
type task interface {
	plan(*planner)       // names the rows that it needs
	decide(*sheet)       // decides on them; the answer stays in the task
	fail(error)          // the step failed as a whole
	failed() error       // the answer's error, or nil
	subject() string     // whose turn it takes in the queue
	patient() bool       // waits for a place rather than being refused when the queue is full
	abandoned(*Governor) // it was decided, but the caller had left
}

// lane runs tasks in shared transactions. While one is on its way, the next
// tasks wait and go together; a lone caller runs its own at once, in its own
// goroutine, and waits for nobody.
//
// Source: design "Speed by sharing the transaction".
type lane struct {
	g *Governor

	mu     sync.Mutex
	busy   bool
	queues map[string]*queue // waiting tasks by subject
	ring   []*queue          // subjects that wait, in the order of their turns
	length int
	spare  []*queue
}

// queue holds one subject's waiting tasks, oldest first.
type queue struct {
	subject string
	waiting []*waiter
}

// waiter is a task whose caller waits.
type waiter struct {
	task task
	wake chan turn // receives exactly one turn, unless the waiter left the queue
	cut  bool      // belongs to a transaction that is on its way
	left bool      // the caller no longer waits; guarded by lane.mu
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
	if !l.busy {
		l.busy = true
		l.mu.Unlock()
		batch := [1]task{t}
		l.transact(ctx, batch[:])
		l.handOver()
		return nil
	}
	w := &waiter{task: t, wake: make(chan turn, 1)}
	if !l.enqueue(w) {
		l.mu.Unlock()
		return &Refusal{Reason: ReasonQueueFull, RetryAfter: retryUnavailable, Retryable: true}
	}
	l.mu.Unlock()

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
	// Callers that were answered a moment ago are about to come back: without
	// yielding, a closed loop settles into two half-size cohorts.
	runtime.Gosched()
	runtime.Gosched()
	l.mu.Lock()
	batch := l.cut(self)
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

// handOver makes the next waiting caller the leader, or leaves the lane idle.
func (l *lane) handOver() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.length == 0 {
		l.busy = false
		return
	}
	l.ring[0].waiting[0].wake <- turnLead
}

// enqueue adds a waiter to its subject's queue. When the lane is full, a subject
// that has its fair share already is refused; others are not.
func (l *lane) enqueue(w *waiter) bool {
	subject := w.task.subject()
	q := l.queues[subject]
	if l.length >= l.g.options.QueueLimit && !w.task.patient() {
		share := l.g.options.QueueLimit / (len(l.ring) + 1)
		if l.length >= 2*l.g.options.QueueLimit || (q != nil && len(q.waiting) >= share) {
			return false
		}
	}
	if q == nil {
		if n := len(l.spare); n > 0 {
			q, l.spare = l.spare[n-1], l.spare[:n-1]
		} else {
			q = &queue{}
		}
		q.subject = subject
		l.queues[subject] = q
		l.ring = append(l.ring, q)
	}
	q.waiting = append(q.waiting, w)
	l.length++
	return true
}

// remove takes a waiter that was not cut out of its queue.
func (l *lane) remove(w *waiter) {
	q := l.queues[w.task.subject()]
	if q == nil {
		return
	}
	if i := slices.Index(q.waiting, w); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		l.length--
	}
	if len(q.waiting) == 0 {
		l.ring = slices.DeleteFunc(l.ring, func(o *queue) bool { return o == q })
		l.drop(q)
	}
}

func (l *lane) drop(q *queue) {
	delete(l.queues, q.subject)
	if len(l.spare) < 64 && cap(q.waiting) <= 1024 {
		clear(q.waiting[:cap(q.waiting)])
		q.waiting = q.waiting[:0]
		l.spare = append(l.spare, q)
	}
}

// cut takes the next batch: self, then one task of each subject in turn.
func (l *lane) cut(self *waiter) []*waiter {
	l.remove(self)
	self.cut = true
	batch := make([]*waiter, 1, min(l.length+1, l.g.options.BatchLimit))
	batch[0] = self
	for len(batch) < l.g.options.BatchLimit && len(l.ring) > 0 {
		kept := l.ring[:0]
		for i, q := range l.ring {
			if len(batch) == l.g.options.BatchLimit {
				kept = append(kept, l.ring[i:]...) // these are first in the next batch
				break
			}
			w := q.waiting[0]
			q.waiting[0] = nil
			q.waiting = q.waiting[1:]
			l.length--
			w.cut = true
			batch = append(batch, w)
			if len(q.waiting) > 0 {
				kept = append(kept, q)
			} else {
				l.drop(q)
			}
		}
		l.ring = kept
	}
	return batch
}

// transact brings the tasks through one transaction, or several when one of them
// is to blame for a failure. Afterwards every task has its answer.
func (l *lane) transact(ctx context.Context, tasks []task) {
	deadline := time.Now().Add(l.g.options.StepTimeout)
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	l.g.transact(ctx, tasks)
}

// attempts is how often a transaction that provably did not commit is repeated.
const attempts = 4

func (g *Governor) transact(ctx context.Context, tasks []task) {
	skip := false
	for attempt := 1; ; attempt++ {
		err := g.step(ctx, tasks, skip)
		switch {
		case err == nil:
			return
		case ctx.Err() != nil && !errors.Is(err, ErrUnknownOutcome):
			failAll(tasks, ErrUnavailable)
			return
		case errors.Is(err, ErrRetry) && attempt < attempts:
			continue
		case errors.Is(err, ErrLockTimeout) && !skip:
			skip = true // answer those whose rows are free; do not wait again
			continue
		case errors.Is(err, ErrPoison) && len(tasks) > 1:
			half := len(tasks) / 2
			g.transact(ctx, tasks[:half])
			g.transact(ctx, tasks[half:])
			return
		case errors.Is(err, ErrPoison), errors.Is(err, ErrRetry), errors.Is(err, ErrLockTimeout):
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		failAll(tasks, err)
		return
	}
}

func failAll(tasks []task, err error) {
	for _, t := range tasks {
		t.fail(err)
	}
}

// step runs the tasks in one transaction of the store.
func (g *Governor) step(ctx context.Context, tasks []task, skip bool) error {
	plan := g.planOf(tasks, skip)
	var broken error
	err := g.store.Step(ctx, plan, func(loaded *Loaded) (changes *Changes) {
		defer func() {
			if r := recover(); r != nil {
				// Nothing is written. The one to blame is found by splitting.
				g.options.Logger.Error("governance: a decision panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
				broken, changes = fmt.Errorf("%w: a decision failed", ErrPoison), nil
			}
		}()
		s := newSheet(plan, loaded)
		for _, t := range tasks {
			t.decide(s)
		}
		return s.finish()
	})
	if broken != nil {
		return broken
	}
	return err
}

// planner collects the rows that a batch of tasks needs.
type planner struct {
	constraints []ConstraintID
	sets        []*constraintSet
	accounts    []AccountKey
	keys        []string
	permits     []PermitID
	entries     *EntryQuery
}

// set adds all constraints of a principal; equal sets are added once.
func (p *planner) set(s *constraintSet) {
	if !slices.Contains(p.sets, s) {
		p.sets = append(p.sets, s)
		p.keys = append(p.keys, s.keyID)
	}
}

func (p *planner) holds(t *terms) {
	for i := range t.holds {
		p.constraints = append(p.constraints, t.holds[i].constraint)
		if t.holds[i].kind.isAccount() {
			p.accounts = append(p.accounts, t.holds[i].account())
		}
	}
}

func (g *Governor) planOf(tasks []task, skip bool) *Plan {
	var p planner
	for _, t := range tasks {
		t.plan(&p)
	}
	if len(p.sets) == 1 && len(p.constraints) == 0 {
		p.constraints = p.sets[0].ids // sorted, and shared: a plan is never changed
	} else {
		for _, s := range p.sets {
			p.constraints = append(p.constraints, s.ids...)
		}
		slices.SortFunc(p.constraints, func(a, b ConstraintID) int { return bytes.Compare(a[:], b[:]) })
		p.constraints = slices.Compact(p.constraints)
	}
	slices.SortFunc(p.accounts, AccountKey.Compare)
	slices.Sort(p.keys)
	slices.SortFunc(p.permits, func(a, b PermitID) int { return bytes.Compare(a[:], b[:]) })
	return &Plan{
		Batch: newBatchID(g.options.Now()), Constraints: p.constraints, Accounts: slices.Compact(p.accounts),
		Keys: slices.Compact(p.keys), Permits: slices.Compact(p.permits), Entries: p.entries, WithTerms: p.entries != nil, SkipLocked: skip,
	}
}
