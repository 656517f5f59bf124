package governance

import (
	"context"
	"errors"
	"sync"
	"time"
)

// backlog holds outcomes that could not be recorded, and tries again. It lives in
// memory only: what a crash takes from it stays open in the store, where Holds
// lists it and nothing was refunded.
type backlog struct {
	g *Governor

	mu      sync.Mutex
	waiting []*settlement
	running bool
}

func (b *backlog) init(g *Governor) { b.g = g }

// The waits between tries while outcomes fail.
const (
	backlogWaitLeast = 100 * time.Millisecond
	backlogWaitMost  = 15 * time.Second
)

// add keeps an outcome for another try.
func (b *backlog) add(o *settlement) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) >= b.g.options.BacklogLimit {
		b.g.slots.ended(o.ending)
		b.g.options.Logger.Error("governance: too many outcomes wait; the permit stays open", "permit", o.id.String())
		return
	}
	b.waiting = append(b.waiting, o)
	if !b.running {
		b.running = b.g.spawn(b.loop)
	}
}

// loop tries until nothing waits or the Governor is closed.
func (b *backlog) loop() {
	wait := backlogWaitLeast
	for {
		ctx, cancel := b.g.stepContext(context.Background())
		done, failed := b.pass(ctx)
		cancel()
		if b.idle() {
			return
		}
		if done > 0 {
			wait = backlogWaitLeast
		}
		if failed == nil {
			continue
		}
		timer := time.NewTimer(wait)
		wait = min(2*wait, backlogWaitMost)
		select {
		case <-b.g.stop:
			timer.Stop()
			b.mu.Lock()
			b.running = false
			b.mu.Unlock()
			return
		case <-timer.C:
		}
	}
}

// idle ends the loop when nothing waits.
func (b *backlog) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = len(b.waiting) > 0
	return !b.running
}

// pass tries the oldest outcomes in one transaction. Those that fail go behind the
// others, so that one which can never be recorded holds up none.
func (b *backlog) pass(ctx context.Context) (done int, failed *SettleError) {
	b.mu.Lock()
	batch := make([]task, min(len(b.waiting), b.g.options.BatchLimit))
	for i := range batch {
		batch[i] = b.waiting[i]
	}
	b.mu.Unlock()
	if len(batch) == 0 {
		return 0, nil
	}
	b.g.transact(ctx, batch)
	for _, t := range batch {
		if o := t.(*settlement); o.err == nil || o.hopeless(o.err) {
			b.g.slots.over(ctx, o, o.ending)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = b.waiting[len(batch):]
	for _, t := range batch {
		o := t.(*settlement)
		switch {
		case o.err == nil:
			done++
		case o.hopeless(o.err):
			done++
			if !o.orphan || !errors.Is(o.err, ErrNotFound) { // an orphan that is not there was never committed
				b.g.options.Logger.Error("governance: an outcome cannot be recorded", "permit", o.id.String(), "error", o.err)
			}
		default:
			b.waiting = append(b.waiting, o)
			if failed == nil {
				failed = &SettleError{ID: o.id, Err: o.err}
			}
		}
	}
	return done, failed
}

// flush tries everything that waits once more, after the loop has ended. It gives
// up when nothing can be recorded.
func (b *backlog) flush(ctx context.Context) error {
	b.mu.Lock()
	left := len(b.waiting)
	b.mu.Unlock()
	var first *SettleError
	for left > 0 {
		step, cancel := context.WithTimeout(ctx, b.g.options.StepTimeout)
		done, failed := b.pass(step)
		cancel()
		if first == nil {
			first = failed
		}
		if done == 0 {
			break
		}
		left -= b.g.options.BatchLimit
	}
	if first != nil {
		return first
	}
	return nil
}
