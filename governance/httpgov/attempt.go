package httpgov

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick-go/tallystick/governance"
)

const (
	// settleWait is how long a client waits for the end of an answer because its
	// outcome is being recorded. What takes longer goes to the Governor's backlog.
	settleWait = 2 * time.Second
	// maxStale is how many connections are tried that turn out to have been closed
	// while they were idle, before the request was written.
	maxStale = 4

	readSize = 32 << 10
)

var (
	errAborted   = errors.New("httpgov: the attempt was aborted")
	errSwitching = errors.New("httpgov: the provider switched protocols on a governed route")
	errLeft      = errors.New("httpgov: the client left before the request was sent")
	errBodyGone  = errors.New("httpgov: read of a closed response body")
)

// attempt is one provider attempt under one permit. Its goroutine owns the
// upstream connection, the observation and the settlement, and outlives the
// client by a bounded time; the client's goroutine only waits and reads.
type attempt struct {
	t      *Transport
	client *http.Request // as the caller of RoundTrip gave it
	plan   *plan
	permit *governance.Permit
	report Attempt

	ctx    context.Context //nolint:containedctx // of the upstream request, which outlives the client
	cancel context.CancelFunc

	sent       atomic.Pointer[dispatch] // nil: nothing was dispatched
	answered   bool                     // a response came
	outcome    governance.Outcome
	settled    bool
	replied    bool
	panicValue any

	reply   chan reply  // one, before anything else
	chunks  chan []byte // what the client reads; closed after end and trailer were set
	end     error
	trailer http.Header
	gone    chan struct{} // the client has left
	leave   func()        // once
}

// dispatch is one try to send the request.
type dispatch struct {
	evidence *evidence
	body     *sealedBody
}

type reply struct {
	resp     *http.Response
	err      error
	panicked any
}

// start runs an attempt and waits for the answer's header.
func (t *Transport) start(r *http.Request, p *plan, permit *governance.Permit, report Attempt) (*http.Response, error) {
	a := &attempt{
		t: t, client: r, plan: p, permit: permit, report: report,
		reply: make(chan reply, 1), chunks: make(chan []byte), gone: make(chan struct{}),
	}
	a.ctx, a.cancel = context.WithCancel(context.WithoutCancel(r.Context()))
	a.leave = sync.OnceFunc(a.left)
	unwatch := context.AfterFunc(r.Context(), a.leave)
	t.enter()
	go func() {
		defer t.exit()
		defer unwatch()
		a.run()
	}()
	select {
	case got := <-a.reply:
		if got.panicked != nil {
			panic(got.panicked)
		}
		return got.resp, got.err
	case <-a.gone:
		return nil, r.Context().Err()
	}
}

// left is told once that nobody waits for the answer any more. The provider is
// read on for a bounded time to learn what it used, unless it was not asked yet.
func (a *attempt) left() {
	close(a.gone)
	// send stores the dispatch before it looks at gone: one of the two sees the other.
	if d := a.sent.Load(); d == nil || d.body.seal() || !a.t.linger(a.ctx, a.cancel) {
		a.cancel()
	}
}

func (a *attempt) run() {
	defer a.cancel()
	defer a.finish()
	resp, err := a.send()
	if err != nil {
		a.end = err
		return
	}
	a.answered = true
	a.plan.body, a.plan.ask.doc = nil, nil // a stream may last for minutes
	a.relay(resp)
}

// finish ends the attempt on every path: return, panic, runtime.Goexit.
func (a *attempt) finish() {
	if v := recover(); v != nil {
		a.panicValue = v
		a.end = errAborted
		if v != http.ErrAbortHandler {
			a.t.logger().Error("httpgov: panic in a provider attempt", "permit", a.permit.ID().String(), "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		}
	}
	if a.end == nil {
		a.end = errAborted
	}
	if !a.answered && !a.settled {
		a.outcome = a.unanswered()
	}
	a.settle()
	if !a.replied {
		a.reply <- reply{err: a.end, panicked: a.panicValue}
	}
	close(a.chunks)
	a.report.Duration = time.Since(a.report.Began)
	select {
	case <-a.gone:
		a.report.Left = true
	default:
	}
	a.t.tell(a.report)
}

// unanswered is the outcome of an attempt that got no response.
//
// Source: internal/docs/guarantees.md "Nothing is refunded by accident".
func (a *attempt) unanswered() governance.Outcome {
	d := a.sent.Load()
	if d == nil {
		return governance.NotSent()
	}
	if proved, _ := d.nothingSent(); proved {
		return governance.NotSent()
	}
	return governance.Unknown()
}

// send makes the request. It is repeated only when it is proved that a connection
// had gone stale before anything was written: then it never was an attempt.
func (a *attempt) send() (*http.Response, error) {
	for try := 1; ; try++ {
		d := &dispatch{&evidence{}, &sealedBody{data: a.plan.body}}
		out := outgoing(d.evidence.trace(a.ctx), a.client, d.body, int64(len(a.plan.body)))
		a.plan.header(out.Header)
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(a.plan.body)), nil }
		if err := a.t.credentials(out); err != nil {
			return nil, err
		}
		out.GetBody = nil // net/http must not send it twice
		a.sent.Store(d)
		select {
		case <-a.gone:
			return nil, errLeft
		default:
		}
		resp, err := a.t.base().RoundTrip(out)
		if err == nil && resp != nil {
			return resp, nil
		}
		if err == nil {
			err = errAborted
		}
		if _, stale := d.nothingSent(); !stale || try == maxStale || a.ctx.Err() != nil {
			return nil, err
		}
	}
}

// relay hands the answer to the client as it comes, observes it, and settles.
func (a *attempt) relay(resp *http.Response) {
	upstream := resp.Body
	if upstream == nil {
		upstream = http.NoBody
	}
	defer upstream.Close()
	a.report.Status = resp.StatusCode
	a.report.FirstByte = time.Since(a.report.Began)
	if resp.StatusCode == http.StatusSwitchingProtocols {
		a.end = errSwitching
		return
	}
	observer := observerFor(a.plan.route.Protocol, resp, a.plan.ask.stream, a.plan.strip)
	a.hand(resp, observer)

	var out [2][]byte
	in, turn, live := make([]byte, readSize), 0, true
	give := func(p []byte) {
		if live = live && a.pass(p); live && len(p) > 0 {
			turn = 1 - turn // the client keeps what it has until it asks for more
		}
	}
	for {
		n, err := upstream.Read(in)
		out[turn] = observer.observe(out[turn][:0], in[:n])
		if !a.settled && observer.final() {
			a.conclude(observer.found(err == nil || err == io.EOF))
		}
		give(out[turn])
		switch {
		case err == nil && (live || !a.settled):
			continue
		case err == nil:
			return // nobody reads, and nothing is left to learn
		}
		out[turn] = observer.close(out[turn][:0])
		a.conclude(observer.found(err == io.EOF))
		give(out[turn])
		a.end, a.trailer = err, resp.Trailer
		return
	}
}

// hand gives the response to the client: a copy, since trailers are written to
// the original while the client already reads.
func (a *attempt) hand(original *http.Response, o observer) {
	handed := *original
	resp := &handed
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	resp.Trailer = resp.Trailer.Clone()
	resp.Body = &responseBody{a: a, resp: resp}
	resp.Request = a.client
	resp.Header.Set(PermitHeader, a.permit.ID().String())
	if _, cut := o.(*stripped); cut && resp.ContentLength >= 0 {
		resp.ContentLength = -1
		resp.Header.Del("Content-Length")
	}
	a.replied = true
	a.reply <- reply{resp: resp}
}

// pass waits until the client takes a piece of the answer.
func (a *attempt) pass(p []byte) bool {
	if len(p) == 0 {
		return true
	}
	select {
	case a.chunks <- p:
		return true
	case <-a.gone:
		return false
	}
}

// conclude settles by what the answer said, at the price that was captured.
func (a *attempt) conclude(f finding) {
	if a.settled {
		return
	}
	a.outcome = f.outcome(a.permit.Price(), a.plan.ask)
	a.settle()
}

// settle records the outcome once. A failure is not the client's business: the
// Governor goes on trying.
func (a *attempt) settle() {
	if a.settled {
		return
	}
	a.settled = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.client.Context()), settleWait)
	defer cancel()
	err := a.permit.Settle(ctx, a.outcome)
	a.report.Outcome, a.report.SettleError = a.outcome, err
	if err != nil {
		a.t.logger().Warn("httpgov: an outcome is not recorded yet", "permit", a.permit.ID().String(), "error", err)
	}
}

// responseBody is the client's end of an answer.
type responseBody struct {
	a    *attempt
	resp *http.Response
	mu   sync.Mutex // Close may come while Read waits; this guards rest alone
	rest []byte
}

func (b *responseBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	select {
	case <-b.a.gone:
		return 0, b.left()
	default:
	}
	if len(b.rest) == 0 {
		select {
		case chunk, ok := <-b.a.chunks:
			if !ok {
				if b.a.trailer != nil {
					b.resp.Trailer = b.a.trailer
				}
				return 0, b.a.end
			}
			b.rest = chunk
		case <-b.a.gone:
			return 0, b.left()
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// left says why nothing more is to be had.
func (b *responseBody) left() error {
	if err := b.a.client.Context().Err(); err != nil {
		return err
	}
	return errBodyGone
}

// Close leaves the answer. It does not wait for the settlement.
func (b *responseBody) Close() error {
	b.a.leave()
	return nil
}
