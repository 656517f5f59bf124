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

// add keeps an outcome for another try.
func (b *backlog) add(o *settlement) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) >= b.g.options.BacklogLimit {
		b.g.options.Logger.Error("governance: too many outcomes wait; the permit stays open", "permit", o.id.String())
		return
	}
	b.waiting = append(b.waiting, o)
	if !b.running && !b.g.isClosed() {
		b.running = true
		b.g.work.Add(1)
		go b.loop()
	}
}

// loop tries until nothing waits or the Governor is closed.
func (b *backlog) loop() {
	defer b.g.work.Done()
	wait := 100 * time.Millisecond
	for {
		ctx, cancel := context.WithTimeout(context.Background(), b.g.options.StepTimeout)
		done, err := b.next(ctx)
		cancel()
		if done {
			return
		}
		if err == nil {
			wait = 100 * time.Millisecond
			continue
		}
		timer := time.NewTimer(wait)
		wait = min(2*wait, 15*time.Second)
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

// next tries the oldest outcome. done: nothing waits any more.
func (b *backlog) next(ctx context.Context) (done bool, err error) {
	b.mu.Lock()
	if len(b.waiting) == 0 {
		b.running = false
		b.mu.Unlock()
		return true, nil
	}
	o := b.waiting[0]
	b.mu.Unlock()
	if err = b.g.lane(o.team).run(ctx, o); err == nil {
		err = o.err
	}
	switch {
	case err == nil:
	case o.hopeless(err):
		if !o.orphan || !errors.Is(err, ErrNotFound) { // an orphan that is not there was never committed
			b.g.options.Logger.Error("governance: an outcome cannot be recorded", "permit", o.id.String(), "error", err)
		}
		err = nil
	default:
		return false, err
	}
	b.mu.Lock()
	b.waiting = b.waiting[1:]
	b.mu.Unlock()
	return false, nil
}

// flush makes one last pass, after the loop has ended.
func (b *backlog) flush(ctx context.Context) error {
	for {
		done, err := b.next(ctx)
		if done {
			return nil
		}
		if err != nil {
			b.mu.Lock()
			id := b.waiting[0].id
			b.mu.Unlock()
			return &SettleError{ID: id, Err: err}
		}
	}
}
