package httpgov

import (
	"context"
	"errors"
	"io"
	"net/http/httptrace"
	"sync"
)

// evidence is what is known about how far a request got on its way to the
// provider. Trace hooks run on several goroutines, some after RoundTrip returned.
//
// Source: internal/docs/guarantees.md "Nothing is refunded by accident".
type evidence struct {
	mu        sync.Mutex
	asked     bool // the transport below reports what it does
	connected bool
	reused    bool // the connection had been used before
}

func (e *evidence) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.asked = true
		},
		GotConn: func(i httptrace.GotConnInfo) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.connected, e.reused = true, i.Reused
		},
	})
}

// nothingSent reports whether it is proved that the provider cannot have got the
// request: no connection was had, or the body was sealed before its first byte
// was asked for. Without proof the answer is no. stale: the connection had been
// used before and nothing went over it this time.
func (d *dispatch) nothingSent() (proved, stale bool) {
	untouched := d.body.seal()
	e := d.evidence
	e.mu.Lock()
	defer e.mu.Unlock()
	return untouched || e.asked && !e.connected, e.connected && e.reused && untouched
}

var errSealed = errors.New("httpgov: the attempt is over")

// sealedBody is a request body that can be closed for good from outside. A body
// of which no byte was asked for, and never will be, was not sent: a provider
// cannot act on a request that never becomes whole. There is no GetBody, so the
// transport below cannot send it a second time.
type sealedBody struct {
	mu      sync.Mutex
	data    []byte
	touched bool
	sealed  bool
}

func (b *sealedBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sealed {
		return 0, errSealed
	}
	b.touched = true
	if len(b.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.data)
	b.data = b.data[n:]
	return n, nil
}

// Close is for the transport: the body was sent, or will not be.
func (b *sealedBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sealed, b.data = true, nil
	return nil
}

// seal reports whether the body was never touched, and then keeps it so. A body
// that is on its way stays readable.
func (b *sealedBody) seal() (untouched bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.touched {
		return false
	}
	b.sealed, b.data = true, nil
	return true
}
