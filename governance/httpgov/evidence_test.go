package httpgov_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/httpgov"
)

// raw listens on loopback and gives every connection to f.
func raw(t testing.TB, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// hijack answers with exactly these bytes and then cuts the connection.
func hijack(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(c, text)
		_ = c.Close()
	})
}

func untouched(g *gate) {
	g.Helper()
	g.spent(books{}, books{})
	if holds := g.holds(); len(holds) != 0 {
		g.Errorf("something is held: %+v", holds)
	}
}

func TestNothingWasSent(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	check(t, closed.Close())
	garbage := raw(t, func(c net.Conn) { _, _ = io.WriteString(c, "this is no TLS\r\n\r\n") })
	stranger := httptest.NewUnstartedServer(http.NotFoundHandler())
	stranger.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	stranger.StartTLS()
	t.Cleanup(stranger.Close)

	cases := map[string]setup{
		"dial refused":             {target: "http://" + closed.Addr().String()},
		"no TLS":                   {target: "https://" + garbage},
		"certificate not trusted":  {target: stranger.URL},
		"TLS version not accepted": {target: stranger.URL, transport: &httpgov.Transport{Base: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS10}}}},
		"credentials not to be had": {target: stranger.URL, transport: &httpgov.Transport{
			Credentials: func(*http.Request) error { return errors.New("vault is sealed") },
		}},
		"base that fails before it reads the body": {target: stranger.URL, transport: &httpgov.Transport{
			Base: roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("no route") }),
		}},
	}
	for name, s := range cases {
		t.Run(name, func(t *testing.T) {
			g := open(t, nil, s)
			is(t, "status", g.post(chatPath, chatBody).StatusCode, http.StatusBadGateway)
			a := g.attempt()
			is(t, "outcome", a.Outcome, governance.NotSent())
			untouched(g)
		})
	}
}

// roundTripper is a Base of a test.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestPanicsAndExits(t *testing.T) {
	send := func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	cases := map[string]struct {
		transport *httpgov.Transport
		outcome   governance.Outcome
	}{
		"credentials panic": {&httpgov.Transport{Credentials: func(*http.Request) error { panic("boom") }}, governance.NotSent()},
		"base panics before": {&httpgov.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) {
			panic("boom")
		})}, governance.NotSent()},
		"base panics after": {&httpgov.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			send(r)
			panic("boom")
		})}, governance.Unknown()},
		"base exits its goroutine": {&httpgov.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			send(r)
			runtime.Goexit()
			return nil, nil
		})}, governance.Unknown()},
		"base returns nothing": {&httpgov.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			send(r)
			return nil, nil
		})}, governance.Unknown()},
		"body panics": {&httpgov.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			send(r)
			return &http.Response{StatusCode: 200, Body: panicBody{}}, nil
		})}, governance.Unknown()},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := open(t, nil, setup{target: "http://upstream.invalid", transport: c.transport})
			resp, err := g.client.Do(g.request(t.Context(), chatPath, chatBody))
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			is(t, "outcome", g.attempt().Outcome, c.outcome)
			if c.outcome.Unsent {
				untouched(g)
				return
			}
			g.spent(books{uncertain: chatCost}, books{uncertain: chatTokens})
		})
	}
}

type panicBody struct{}

func (panicBody) Read([]byte) (int, error) { panic("boom") }
func (panicBody) Close() error             { return nil }

// A body that somebody below read before the connection failed: without a trace
// nothing proves that it was not sent, with one the missing connection does.
func TestBodyReadEarly(t *testing.T) {
	for name, traced := range map[string]bool{"without a trace": false, "with a trace": true} {
		t.Run(name, func(t *testing.T) {
			g := open(t, nil, setup{target: "http://upstream.invalid", transport: &httpgov.Transport{
				Base: roundTripper(func(r *http.Request) (*http.Response, error) {
					_, _ = io.Copy(io.Discard, r.Body)
					if traced {
						httptrace.ContextClientTrace(r.Context()).GetConn("upstream.invalid:80")
					}
					return nil, errors.New("dial failed")
				}),
			}})
			g.post(chatPath, chatBody)
			is(t, "unsent", g.attempt().Outcome.Unsent, traced)
		})
	}
}

// A connection that was closed while it was idle is no attempt: it is replaced,
// under the same permit, and only as long as nothing was written.
func TestStaleConnection(t *testing.T) {
	upstream := says(200, "application/json", chatReply)
	var tries atomic.Int64
	real := &http.Transport{}
	defer real.CloseIdleConnections()
	g := open(t, upstream, setup{transport: &httpgov.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
		if tries.Add(1) < 3 {
			trace := httptrace.ContextClientTrace(r.Context())
			trace.GetConn("upstream")
			trace.GotConn(httptrace.GotConnInfo{Reused: true})
			return nil, errors.New("server closed idle connection")
		}
		return real.RoundTrip(r)
	})}})
	is(t, "body", g.post(chatPath, chatBody).body, chatReply)
	is(t, "tries", tries.Load(), int64(3))
	upstream.only(t)
	g.spent(books{consumed: replyCost}, books{consumed: replyTokens})
}

// net/http repeats a request on its own where it may: a GetBody or an
// Idempotency-Key would let it, and the provider would serve twice under one permit.
func TestNothingIsSentTwice(t *testing.T) {
	var served atomic.Int64
	address := raw(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		for i := 0; ; i++ {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			served.Add(1)
			if i == 1 {
				return // the second request of a connection is cut without an answer
			}
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(chatReply), chatReply)
		}
	})
	g := open(t, nil, setup{target: "http://" + address})
	is(t, "first", g.post(chatPath, chatBody).StatusCode, 200)
	r := g.request(t.Context(), chatPath, chatBody)
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("X-Idempotency-Key", "k")
	is(t, "second", g.do(r).StatusCode, http.StatusBadGateway)
	is(t, "served", served.Load(), int64(2))
	g.spent(books{consumed: replyCost, uncertain: chatCost}, books{consumed: replyTokens, uncertain: chatTokens})
}

func TestErrorEnvelopes(t *testing.T) {
	openai := `{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}`
	anthropic := `{"type":"error","error":{"type":"overloaded_error","message":"no"}}`
	cases := []struct {
		status            int
		openai, anthropic bool // proves that nothing was used
	}{
		{400, true, true}, {401, true, true}, {403, true, true}, {404, true, true}, {413, true, true},
		{422, true, true}, {429, true, true}, {529, false, true},
		{408, false, false}, {409, false, false}, {500, false, false}, {502, false, false}, {503, false, false}, {504, false, false},
	}
	for _, c := range cases {
		for _, p := range []struct {
			path, body, reply string
			proves            bool
		}{{chatPath, chatBody, openai, c.openai}, {messagesPath, messageBody, anthropic, c.anthropic}} {
			t.Run(fmt.Sprint(p.path, c.status), func(t *testing.T) {
				g := open(t, says(c.status, "application/json", p.reply), setup{})
				got := g.post(p.path, p.body)
				is(t, "status", got.StatusCode, c.status)
				is(t, "body", got.body, p.reply)
				a := g.attempt()
				if p.proves {
					is(t, "outcome", a.Outcome, governance.Used(0, 0))
					untouched(g)
				} else {
					is(t, "outcome", a.Outcome, governance.Unknown())
					g.spent(books{uncertain: int64(a.Bound.Cost)}, books{uncertain: int64(a.Bound.Tokens)})
				}
			})
		}
	}
}

// Whatever is not a whole envelope before any data proves nothing.
func TestUncertainAnswers(t *testing.T) {
	envelope := `{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}`
	chunk := `data: {"model":"gpt-test","choices":[{"index":0,"delta":{"content":"h"}}]}` + "\n\n"
	failure := `data: {"error":{"message":"slow down","type":"rate_limit_error","code":"rate_limit_exceeded"}}` + "\n\n"
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
	cases := map[string]struct {
		upstream http.Handler
		body     string
	}{
		"cut before the header":         {hijack(""), chatBody},
		"cut in the header":             {hijack("HTTP/1.1 200 OK\r\nContent-Ty"), chatBody},
		"garbage":                       {hijack("\x00\x01\x02 what\r\n\r\n"), chatBody},
		"cut in the body":               {hijack("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 400\r\n\r\n" + chatReply[:60]), chatBody},
		"cut in the envelope":           {hijack("HTTP/1.1 400 Bad\r\nContent-Type: application/json\r\nContent-Length: 400\r\n\r\n" + envelope), chatBody},
		"half an envelope":              {says(400, "application/json", envelope[:40]), chatBody},
		"two envelopes":                 {says(400, "application/json", envelope+envelope), chatBody},
		"HTML of a proxy on the way":    {says(429, "text/html", "<html>slow down</html>"), chatBody},
		"JSON of another shape":         {says(400, "application/json", `{"detail":"no"}`), chatBody},
		"empty error":                   {says(400, "application/json", ""), chatBody},
		"error with the prompt counted": {says(400, "application/json", `{"error":{"message":"filtered","type":"invalid_request_error","code":"content_filter"}}`), chatBody},
		"success without usage":         {says(200, "application/json", `{"id":"c1","choices":[]}`), chatBody},
		"success with null usage":       {says(200, "application/json", `{"id":"c1","choices":[],"usage":null}`), chatBody},
		"success that is no JSON":       {says(200, "text/plain", "hello"), chatBody},
		"empty success":                 {says(200, "application/json", ""), chatBody},
		"redirect":                      {says(307, "text/html", ""), chatBody},
		"stream without usage":          {says(200, "text/event-stream", chunk+"data: [DONE]\n\n"), chatStream},
		"stream cut after data":         {hijack(head + chunk + chunk[:20]), chatStream},
		"error after data":              {says(200, "text/event-stream", chunk+failure), chatStream},
		"error in a stream, then data":  {says(200, "text/event-stream", failure+chunk), chatStream},
		"server error in a stream":      {says(200, "text/event-stream", `data: {"error":{"message":"oops","type":"server_error"}}`+"\n\n"), chatStream},
		"encoding that was not asked for": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			_, _ = io.WriteString(w, chatReply)
		}), chatBody},
		"protocols switched": {hijack("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n"), chatBody},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := open(t, c.upstream, setup{})
			resp, err := g.client.Do(g.request(t.Context(), chatPath, c.body))
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			a := g.attempt()
			is(t, "certainty of tokens", a.Outcome.Tokens.Certainty, governance.Uncertain)
			g.spent(books{uncertain: int64(a.Bound.Cost)}, books{uncertain: int64(a.Bound.Tokens)})
			if holds := g.holds(); len(holds) != 1 || holds[0].State != governance.StateSettled {
				t.Errorf("holds are %+v", holds)
			}
		})
	}
}

// What was seen before the end is noted beside the bound, and charged to nobody.
func TestObservedIsKeptApart(t *testing.T) {
	start := "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-test\",\"usage\":{\"input_tokens\":30,\"output_tokens\":1}}}\n\n"
	for name, upstream := range map[string]http.Handler{
		"cut":   hijack("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + start),
		"error": says(200, "text/event-stream", start+"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n"),
		"end":   says(200, "text/event-stream", start),
	} {
		t.Run(name, func(t *testing.T) {
			g := open(t, upstream, setup{})
			resp, err := g.client.Do(g.request(t.Context(), messagesPath, messageSteam))
			check(t, err)
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			a := g.attempt()
			is(t, "outcome", a.Outcome, governance.Observed(31, 30*2+1*10))
			g.spent(books{uncertain: int64(a.Bound.Cost)}, books{uncertain: int64(a.Bound.Tokens)})
			holds := g.holds()
			if len(holds) != 1 || holds[0].Observed.Tokens != 31 || holds[0].Observed.Cost != 70 {
				t.Errorf("holds are %+v", holds)
			}
		})
	}
}

func TestErrorBeforeAnyData(t *testing.T) {
	for name, c := range map[string]struct{ path, body, stream string }{
		"openai":    {chatPath, chatStream, ": hello\n\ndata: {\"error\":{\"message\":\"slow down\",\"type\":\"rate_limit_error\",\"code\":\"rate_limit_exceeded\"}}\n\n"},
		"anthropic": {messagesPath, messageSteam, "event: ping\ndata: {\"type\":\"ping\"}\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			g := open(t, says(200, "text/event-stream", c.stream), setup{})
			is(t, "body", g.post(c.path, c.body).body, c.stream)
			is(t, "outcome", g.attempt().Outcome, governance.Used(0, 0))
			untouched(g)
		})
	}
}

func TestExplicitZero(t *testing.T) {
	g := open(t, says(200, "application/json", `{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`), setup{})
	g.post(chatPath, chatBody)
	is(t, "outcome", g.attempt().Outcome, governance.Used(0, 0))
	untouched(g)
}

// Tokens may be known while their price is not: each settles for itself.
func TestCostUnknownTokensKnown(t *testing.T) {
	reply := strings.Replace(messageReply, `"cache_creation_input_tokens":0`, `"cache_creation_input_tokens":5`, 1)
	g := open(t, says(200, "application/json", reply), setup{})
	g.post(messagesPath, messageBody)
	a := g.attempt()
	is(t, "tokens", a.Outcome.Tokens, governance.Measure{Certainty: governance.Known, Value: 52})
	is(t, "certainty of cost", a.Outcome.Cost.Certainty, governance.Uncertain)
	g.spent(books{uncertain: int64(a.Bound.Cost)}, books{consumed: 52})
}

// What no convention explains freezes the accounts, until an operator looked.
func TestImpossibleUsage(t *testing.T) {
	g := open(t, says(200, "application/json", strings.Replace(chatReply, `"prompt_tokens":30`, `"prompt_tokens":-30`, 1)), setup{})
	is(t, "status", g.post(chatPath, chatBody).StatusCode, 200)
	a := g.attempt()
	is(t, "tokens", a.Outcome.Tokens.Certainty, governance.Impossible)
	is(t, "cost", a.Outcome.Cost.Certainty, governance.Impossible)
	got := g.post(chatPath, chatBody)
	is(t, "status of the next", got.StatusCode, http.StatusLocked)
	is(t, "x-should-retry", got.Header.Get("X-Should-Retry"), "false")
	g.balanced()
}

// More than the bound is recorded in full.
func TestOverrun(t *testing.T) {
	g := open(t, says(200, "application/json", `{"choices":[],"usage":{"prompt_tokens":10000,"completion_tokens":9000,"total_tokens":19000}}`), setup{})
	g.post(chatPath, chatBody)
	g.spent(books{consumed: 10000*2 + 9000*10}, books{consumed: 19000})
}
