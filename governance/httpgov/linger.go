package httpgov

import (
	"context"
	"time"
)

// enter and exit count attempts, so that Shutdown can wait for them.
func (t *Transport) enter() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open++
}

func (t *Transport) exit() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open--
	if t.open == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// linger lets an attempt go on for a bounded time without its client, or reports
// false: then it must be cut.
func (t *Transport) linger(ctx context.Context, cancel context.CancelFunc) bool {
	if ctx.Err() != nil {
		return true // it has ended
	}
	most, limit := t.Linger, t.LingerLimit
	if most == 0 {
		most = DefaultLinger
	}
	if limit == 0 {
		limit = DefaultLingerLimit
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if most < 0 || t.closed || len(t.lingering) >= limit {
		return false
	}
	if t.lingering == nil {
		t.lingering = map[context.Context]context.CancelFunc{}
	}
	t.lingering[ctx] = cancel
	timer := time.AfterFunc(most, cancel)
	context.AfterFunc(ctx, func() {
		timer.Stop()
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.lingering, ctx)
	})
	return true
}

// CloseIdleConnections closes those of Base, if Base can.
func (t *Transport) CloseIdleConnections() {
	t.once.Do(t.init)
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Shutdown waits until every attempt has ended and was settled. When the context
// ends first, providers that are still read on for a client who has left are cut,
// and what they used stays unknown. Call it after the server was shut down and
// before the Governor is closed.
//
// Errors: the context's.
func (t *Transport) Shutdown(ctx context.Context) error {
	wait := func() chan struct{} {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.open == 0 {
			return nil
		}
		if t.idle == nil {
			t.idle = make(chan struct{})
		}
		return t.idle
	}
	idle := wait()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	t.closed = true
	for _, cancel := range t.lingering {
		cancel()
	}
	t.mu.Unlock()
	return ctx.Err()
}
