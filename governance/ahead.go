package governance

import (
	"context"
	"slices"
)

// flight is one transaction of a lane with those whom it carries.
type flight struct {
	batch []*waiter
	// sets are what callers who are on their way back will need: the rows are locked
	// before it is known who comes.
	sets    []*constraintSet
	relayed bool // the next transaction is on its way already, and will hand the lane over
}

// The next transaction is begun while one commits: its locks are granted at the instant
// of the commit, when the callers who are answered by it have yet to come back, and what
// they ask is decided when they have. So the rows are not idle between two commits.
const (
	relayFrom = 4  // tasks in a transaction that make it worth while to begin the next one before it ends
	relaySets = 16 // so many principals at most are expected back
	relayRest = 8  // transactions to go without, after nobody came; doubled each time
	restMost  = 512
)

// relay begins the next transaction when the rows of this one will be wanted again. It
// is called once the tasks of a flight are decided, and before they are committed.
func (l *lane) relay(f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.relayed || l.flying > 1 || len(f.batch) < relayFrom {
		return
	}
	if l.rest > 0 {
		l.rest--
		return
	}
	sets := expectedBack(f.batch)
	if sets == nil {
		return
	}
	next := &flight{sets: sets}
	l.flying++
	f.relayed = l.g.spawn(func() { l.relayed(next) })
	if !f.relayed {
		l.flying--
	}
}

// expectedBack lists what the admissions of a batch are subject to; nil when that is too
// much to lock for somebody who may not come.
func expectedBack(batch []*waiter) []*constraintSet {
	var sets []*constraintSet
	for _, w := range batch {
		a, ok := w.task.(*admission)
		if !ok || slices.Contains(sets, a.set) {
			continue
		}
		if len(sets) == relaySets {
			return nil
		}
		sets = append(sets, a.set)
	}
	return sets
}

// relayed runs a transaction that was begun ahead.
func (l *lane) relayed(f *flight) {
	l.mu.Lock()
	if l.length > 0 {
		f.batch = l.cut(l.ring.front().first)
	}
	hoped := l.last
	l.mu.Unlock()
	l.fly(context.Background(), f, nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case 2*len(f.batch) >= hoped:
		l.barren = 0
	default:
		l.barren = min(max(2*l.barren, relayRest), restMost)
		l.rest = l.barren
	}
}

// join takes those who came while the rows were being locked. Only admissions can join:
// which other rows they need is known without looking at what they ask.
func (l *lane) join(f *flight) []task {
	if f.sets == nil {
		return nil
	}
	l.gather(true)
	defer l.mu.Unlock()
	most := l.g.options.BatchLimit
	var heads []*waiter
	for q := l.ring.front(); q != nil; q = q.next {
		heads = append(heads, q.first)
	}
	var tasks []task
	for found := true; found && len(f.batch) < most; {
		found = false
		for i := 0; i < len(heads) && len(f.batch) < most; i++ { // one of each subject in turn
			w := heads[i]
			for w != nil && !f.fits(w.task) {
				w = w.next
			}
			if w == nil {
				heads[i] = nil
				continue
			}
			heads[i] = w.next
			l.remove(w)
			w.cut = true
			f.batch, tasks, found = append(f.batch, w), append(tasks, w.task), true
		}
	}
	l.last = max(len(f.batch), 1)
	return tasks
}

// fits reports whether every row that the task needs is locked for those expected.
func (f *flight) fits(t task) bool {
	a, ok := t.(*admission)
	return ok && a.minted && slices.Contains(f.sets, a.set)
}

// fly brings a flight through its transaction and answers those whom it carries; self
// is the caller in whose goroutine it runs.
func (l *lane) fly(ctx context.Context, f *flight, self *waiter) {
	ctx, cancel := l.g.stepContext(ctx)
	l.g.transact(ctx, l.trip(f))
	cancel()
	l.mu.Lock()
	l.flying--
	for _, w := range f.batch {
		switch {
		case w == self:
		case w.left:
			w.task.abandoned(l.g)
		default:
			w.wake <- turnDone
		}
	}
	relayed := f.relayed
	l.mu.Unlock()
	if !relayed {
		l.handOver()
	}
}

// trip is what the Governor needs to know of a flight.
func (l *lane) trip(f *flight) *trip {
	t := &trip{sets: f.sets, tasks: make([]task, len(f.batch)), decided: func() { l.relay(f) }}
	for i, w := range f.batch {
		t.tasks[i] = w.task
	}
	if f.sets != nil {
		t.join = func() []task { return l.join(f) }
	}
	return t
}
