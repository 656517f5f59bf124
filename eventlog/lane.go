package eventlog

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// mostShared bounds a shared transaction, in events.
const mostShared = 512

// mostWaiting bounds how many callers wait for one.
const mostWaiting = 8192

// lane lets appends share transactions. A lone caller's goes at once, in its own goroutine; what comes while
// one is on its way goes together in the next.
type lane struct {
	store Store

	mu    sync.Mutex
	busy  bool
	queue []*waiting
	last  int // how many callers the last shared transaction carried

	length atomic.Int64 // of the queue, for who watches it grow
}

// waiting is one caller's appends.
type waiting struct {
	appends []Append
	events  int
	taken   bool // in a transaction
	done    chan struct{}
	out     []Appended
	err     error
}

func (l *lane) append(ctx context.Context, appends []Append) ([]Appended, error) {
	w := &waiting{appends: appends, done: make(chan struct{})}
	for _, a := range appends {
		w.events += len(a.Events)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	l.mu.Lock()
	if !l.busy {
		l.busy, w.taken = true, true
		l.mu.Unlock()
		out, err := l.store.Append(ctx, appends)
		l.mu.Lock()
		if len(l.queue) > 0 {
			go l.drain()
		} else {
			l.busy = false
		}
		l.mu.Unlock()
		return out, err
	}
	if len(l.queue) >= mostWaiting {
		l.mu.Unlock()
		return nil, fmt.Errorf("%w: too many appends wait", ErrUnavailable)
	}
	l.queue = append(l.queue, w)
	l.length.Store(int64(len(l.queue)))
	l.mu.Unlock()
	select {
	case <-w.done:
		return w.out, w.err
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-w.done:
		return w.out, w.err
	default:
	}
	if w.taken {
		return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
	}
	for i, other := range l.queue {
		if other == w {
			l.queue = append(l.queue[:i:i], l.queue[i+1:]...)
			l.length.Store(int64(len(l.queue)))
			break
		}
	}
	return nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
}

// drain runs shared transactions until nobody waits.
func (l *lane) drain() {
	for {
		l.gather()
		l.mu.Lock()
		batch := l.cut()
		if len(batch) == 0 {
			l.busy = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		l.transact(batch)
		for _, w := range batch {
			close(w.done)
		}
	}
}

// lull is after how long without a new caller nobody is waited for any more.
const lull = 40 * time.Microsecond

// gather yields while callers are still coming. Those who were answered a moment ago are about to come
// back: without yielding, a closed loop settles into two half-size cohorts.
func (l *lane) gather() {
	before := int64(0)
	for last := time.Now(); before < int64(l.last); {
		runtime.Gosched()
		if now := l.length.Load(); now != before {
			last, before = time.Now(), now
		} else if time.Since(last) >= lull {
			return
		}
	}
}

// cut takes from the front of the queue what one transaction may hold.
func (l *lane) cut() []*waiting {
	events, n := 0, 0
	for n < len(l.queue) && (n == 0 || events+l.queue[n].events <= mostShared) {
		events += l.queue[n].events
		l.queue[n].taken = true
		n++
	}
	batch := append([]*waiting(nil), l.queue[:n]...)
	l.queue = append(l.queue[:0:0], l.queue[n:]...)
	l.length.Store(int64(len(l.queue)))
	l.last = n
	return batch
}

// transact gives every caller its answer. Where the store refuses, whoever is to blame is found by halves.
func (l *lane) transact(batch []*waiting) {
	var all []Append
	for _, w := range batch {
		all = append(all, w.appends...)
	}
	out, err := l.store.Append(context.Background(), all) // bounded by the store; no caller may take it from the others
	switch {
	case err == nil:
		for _, w := range batch {
			w.out, out = out[:len(w.appends):len(w.appends)], out[len(w.appends):]
		}
	case len(batch) == 1 || errors.Is(err, ErrUnavailable):
		for _, w := range batch {
			w.err = err
		}
	default:
		// Refused together, or unknown: each half by itself says what is true of it. What had been committed is found by its ids.
		l.transact(batch[:len(batch)/2])
		l.transact(batch[len(batch)/2:])
	}
}
