package httpgov_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/httpgov"
)

const (
	firstChunk = `data: {"model":"gpt-test","choices":[{"index":0,"delta":{"content":"h"}}]}` + "\n\n"
	usageChunk = `data: {"model":"gpt-test","choices":[],"usage":{"prompt_tokens":30,"completion_tokens":7,"total_tokens":37,"prompt_tokens_details":{"cached_tokens":10}}}` + "\n\n"
	doneChunk  = "data: [DONE]\n\n"
)

// slow is an upstream that sends the first chunk, and the rest when it is told to.
type slow struct {
	early   bool // the first chunk comes at once
	rest    chan struct{}
	arrived chan struct{} // told of each request
	cut     chan struct{} // told of each gateway that has left
}

func newSlow(early bool) *slow {
	return &slow{early: early, rest: make(chan struct{}), arrived: make(chan struct{}, 100), cut: make(chan struct{}, 100)}
}

func (s *slow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	s.arrived <- struct{}{}
	flush := func(text string) {
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if s.early {
		flush(firstChunk)
	}
	select {
	case <-s.rest:
	case <-r.Context().Done():
		s.cut <- struct{}{}
		return
	}
	if !s.early {
		flush(firstChunk)
	}
	flush(usageChunk + doneChunk)
}

// hangUp begins a request, reads a little if there is something to read, and leaves.
func (g *gate) hangUp(s *slow) {
	g.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	left := make(chan struct{})
	r := g.request(ctx, chatPath, chatStream)
	go func() {
		defer close(left)
		resp, err := g.client.Do(r)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.Contains(firstChunk, line) {
			g.Errorf("read %q, %v", line, err)
		}
		cancel()
	}()
	<-s.arrived
	if !s.early {
		cancel()
	}
	<-left
}

func TestClientLeaves(t *testing.T) {
	for name, early := range map[string]bool{"in the middle of a stream": true, "before the first byte": false} {
		t.Run(name, func(t *testing.T) {
			upstream := newSlow(early)
			g := open(t, upstream, setup{})
			g.hangUp(upstream)
			is(t, "reserved meanwhile", g.books(governance.KindMoney).reserved, streamCost)
			close(upstream.rest)
			g.attempt()
			g.spent(books{consumed: replyCost}, books{consumed: replyTokens})
		})
	}
}

// The time to read on is bounded: then the provider is cut off, and what it used
// stays unknown.
func TestReadingOnIsBounded(t *testing.T) {
	for name, most := range map[string]time.Duration{"in time": time.Millisecond, "forbidden": -1} {
		for _, early := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				upstream := newSlow(early)
				g := open(t, upstream, setup{transport: &httpgov.Transport{Linger: most}})
				g.hangUp(upstream)
				a := g.attempt()
				is(t, "outcome", a.Outcome, governance.Unknown())
				is(t, "left", a.Left, true)
				<-upstream.cut
				g.spent(books{uncertain: streamCost}, books{uncertain: streamTokens})
			})
		}
	}
}

func TestReadingOnIsBoundedInNumber(t *testing.T) {
	upstream := newSlow(true)
	g := open(t, upstream, setup{transport: &httpgov.Transport{Linger: time.Hour, LingerLimit: 1}})
	g.hangUp(upstream)
	g.hangUp(upstream)
	is(t, "outcome of the second", g.attempt().Outcome, governance.Unknown())
	<-upstream.cut
	g.spent(books{uncertain: streamCost, reserved: streamCost}, books{uncertain: streamTokens, reserved: streamTokens})
	close(upstream.rest)
	g.attempt()
	g.spent(books{uncertain: streamCost, consumed: replyCost}, books{uncertain: streamTokens, consumed: replyTokens})
}

// Whoever leaves before the request was sent has used nothing.
func TestClientLeavesBeforeDispatch(t *testing.T) {
	dialing, release := make(chan struct{}), make(chan struct{})
	defer close(release) // net/http dials on without the request
	base := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		close(dialing)
		<-release
		return nil, net.ErrClosed
	}}
	g := open(t, nil, setup{target: "http://upstream.invalid", transport: &httpgov.Transport{Base: base, Linger: time.Hour}})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-dialing
		cancel()
	}()
	_, err := g.client.Do(g.request(ctx, chatPath, chatBody)) //nolint:bodyclose // there is none
	if err == nil {
		t.Error("the client was answered")
	}
	is(t, "outcome", g.attempt().Outcome, governance.NotSent())
	untouched(g)
}

func TestShutdown(t *testing.T) {
	upstream := newSlow(true)
	g := open(t, upstream, setup{transport: &httpgov.Transport{Linger: time.Hour}})
	check(t, g.transport.Shutdown(context.Background()))
	g.hangUp(upstream)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := g.transport.Shutdown(ended); err != context.Canceled {
		t.Errorf("Shutdown says %v", err)
	}
	is(t, "outcome", g.attempt().Outcome, governance.Unknown())
	check(t, g.transport.Shutdown(context.Background()))
	g.spent(books{uncertain: streamCost}, books{uncertain: streamTokens})
}

// A handler above that panics never closes the body.
func TestHandlerPanics(t *testing.T) {
	upstream := newSlow(true)
	g := open(t, upstream, setup{})
	g.proxy.ModifyResponse = func(*http.Response) error { panic("boom") }
	_, err := g.client.Do(g.request(t.Context(), chatPath, chatStream)) //nolint:bodyclose // there is none
	if err == nil {
		t.Error("the client was answered")
	}
	close(upstream.rest)
	g.attempt()
	g.spent(books{consumed: replyCost}, books{consumed: replyTokens})
}

// Without a proxy: the Transport under an http.Client, whose deadline passes
// while the provider thinks.
func TestDirectClient(t *testing.T) {
	upstream := newSlow(false)
	base := &http.Transport{}
	g := open(t, upstream, setup{transport: &httpgov.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.GetBody != nil {
			t.Error("the request can be sent twice")
		}
		return base.RoundTrip(r)
	})}})
	defer base.CloseIdleConnections()
	p, err := g.db.Keys.Resolve(t.Context(), g.token)
	check(t, err)
	ctx := httpgov.WithPrincipal(t.Context(), &p, nil)
	send := func(ctx context.Context) (*http.Response, error) {
		r := g.request(ctx, chatPath, chatStream)
		r.URL.Host = g.upstream.Host
		return (&http.Client{Transport: g.transport}).Do(r)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := send(short); err == nil { //nolint:bodyclose // there is none
		t.Error("the deadline was passed over")
	}
	close(upstream.rest)
	g.attempt()
	g.spent(books{consumed: replyCost}, books{consumed: replyTokens})

	resp, err := send(ctx)
	check(t, err)
	check(t, resp.Body.Close()) // without reading: read on in the background
	g.attempt()
	if n, err := resp.Body.Read(make([]byte, 10)); n != 0 || err == nil || err == io.EOF {
		t.Errorf("a closed body gave %d bytes, %v", n, err)
	}
	check(t, resp.Body.Close())
	g.spent(books{consumed: 2 * replyCost}, books{consumed: 2 * replyTokens})
}
