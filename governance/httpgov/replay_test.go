package httpgov_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/keys"
)

// chaos is an upstream that ends a request in a way that the prompt names.
var chaos = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	cut := func(text string) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = io.WriteString(c, text)
			_ = c.Close()
		}
	}
	sse := func(text string) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, text)
	}
	jsonBody := func(status int, text string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
	envelope := `{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}`
	for how, f := range map[string]func(){
		"plain":        func() { jsonBody(200, chatReply) },
		"stream":       func() { sse(firstChunk + usageChunk + doneChunk) },
		"rejected":     func() { jsonBody(400, envelope) },
		"broken":       func() { jsonBody(502, envelope) },
		"late":         func() { jsonBody(504, "<html>") },
		"cut-header":   func() { cut("") },
		"cut-stream":   func() { cut("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + firstChunk) },
		"first-error":  func() { sse("data: {\"error\":{\"message\":\"no\",\"type\":\"rate_limit_error\"}}\n\n") },
		"later-error":  func() { sse(firstChunk + "data: {\"error\":{\"message\":\"no\",\"type\":\"server_error\"}}\n\n") },
		"silent":       func() { <-r.Context().Done() },
		"never-ending": func() { sse(firstChunk); _ = http.NewResponseController(w).Flush(); <-r.Context().Done() },
	} {
		if bytes.Contains(body, []byte(`"`+how+`"`)) {
			f()
			return
		}
	}
	panic(http.ErrAbortHandler)
})

var ways = []string{
	"plain", "stream", "rejected", "broken", "late", "cut-header", "cut-stream", "first-error", "later-error", "silent", "never-ending", "abort",
}

func asking(how string) string {
	body := chatBody
	if strings.Contains(how, "stream") || strings.Contains(how, "error") || how == "never-ending" {
		body = chatStream
	}
	return strings.Replace(body, "hello", how, 1)
}

// Replay L1, G3: whatever happens to a request, its permit is settled exactly once
// and nothing stays reserved. Replay S1, S5: a client who leaves or runs out of
// time leaves an uncertain bound behind, not zero.
func TestEveryExitSettles(t *testing.T) {
	s := setup{transport: &httpgov.Transport{}, limits: keys.Limits{
		CostPerDay: keys.Cost(1_000_000_000), TokensPerDay: keys.Limit(1_000_000_000),
		Concurrency: keys.Limit(1000), RequestsPerMinute: keys.Limit(1_000_000), TokensPerMinute: keys.Limit(1_000_000_000),
	}}
	s.transport.Linger = time.Millisecond
	g := open(t, chaos, s)
	const callers, calls = 16, 12
	var all sync.WaitGroup
	for i := range callers {
		all.Add(1)
		go func() {
			defer all.Done()
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range calls {
				how := ways[random.IntN(len(ways))]
				ctx, cancel := context.WithCancel(context.Background())
				if how == "silent" || random.IntN(4) == 0 {
					ctx, cancel = context.WithTimeout(context.Background(), time.Duration(random.IntN(20))*time.Millisecond)
				}
				resp, err := g.client.Do(g.request(ctx, chatPath, asking(how)))
				if err == nil {
					if how == "never-ending" {
						_, _ = resp.Body.Read(make([]byte, 1))
						cancel()
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				cancel()
			}
		}()
	}
	all.Wait()
	check(t, g.transport.Shutdown(t.Context()))
	tokens, money := books{}, books{}
	settled := map[governance.PermitID]bool{}
	for len(g.attempts) > 0 {
		a := <-g.attempts
		if a.Permit.IsZero() {
			continue // left before it was admitted
		}
		if settled[a.Permit] {
			t.Errorf("permit %s ended twice", a.Permit)
		}
		settled[a.Permit] = true
		add := func(b *books, m governance.Measure, bound int64) {
			switch {
			case a.Outcome.Unsent:
			case m.Certainty == governance.Known:
				b.consumed += m.Value
			default:
				b.uncertain += bound
			}
		}
		add(&tokens, a.Outcome.Tokens, int64(a.Bound.Tokens))
		add(&money, a.Outcome.Cost, int64(a.Bound.Cost))
	}
	if len(settled) == 0 || money.consumed == 0 || money.uncertain == 0 {
		t.Errorf("%d attempts, %+v", len(settled), money)
	}
	g.spent(money, tokens)
	is(t, "slots in use", g.books(governance.KindConcurrency).reserved, int64(0))
	open, err := g.gov.Holds(t.Context(), governance.HoldQuery{Open: true})
	check(t, err)
	is(t, "open permits", len(open), 0)
}

// Replay L6: ten answers of 502 or 504 must give ten slots back.
func TestSlotsComeBack(t *testing.T) {
	s := setup{limits: keys.Limits{Concurrency: keys.Limit(2)}}
	g := open(t, chaos, s)
	for _, how := range []string{"broken", "late", "cut-header", "cut-stream", "later-error", "abort", "broken", "late", "rejected", "first-error"} {
		resp, err := g.client.Do(g.request(t.Context(), chatPath, asking(how)))
		check(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		g.attempt()
	}
	is(t, "the next", g.post(chatPath, asking("plain")).StatusCode, 200)
	is(t, "slots in use", g.books(governance.KindConcurrency).reserved, int64(0))
}

// fallback tries models in order until one answers, like a gateway's routing.
func fallback(models ...string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			var resp *http.Response
			for _, model := range models {
				if resp != nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				try := r.Clone(r.Context())
				text := strings.Replace(string(body), "gpt-test", model, 1)
				try.Body, try.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
				if resp, err = next.RoundTrip(try); err != nil {
					continue
				}
				if _, refused := httpgov.RefusalFrom(resp); refused || resp.StatusCode < 500 {
					return resp, nil
				}
			}
			return resp, err
		})
	}
}

// failing answers 500 for some models.
func failing(models ...string) *provider {
	return &provider{answer: func(w http.ResponseWriter, _ *http.Request, body []byte) {
		w.Header().Set("Content-Type", "application/json")
		for _, model := range models {
			if bytes.Contains(body, []byte(model)) {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
		}
		_, _ = io.WriteString(w, chatReply)
	}}
}

// Replay I9: a budget is checked before each attempt, also behind a free one.
func TestPaidFallbackBehindFree(t *testing.T) {
	upstream := failing("free-test")
	s := setup{limits: keys.Limits{CostPerDay: keys.Cost(amount.MicroUSD(chatCost)), TokensPerDay: keys.Limit(1_000_000)}}
	g := open(t, upstream, s)
	g.post(chatPath, chatBody) // leaves too little
	g.attempt()
	g.proxy.Transport = fallback("free-test", "gpt-test")(g.transport)
	got := g.post(chatPath, chatBody)
	is(t, "status", got.StatusCode, http.StatusPaymentRequired)
	first, second := g.attempt(), g.attempt()
	if first.Status == http.StatusPaymentRequired { // they end side by side
		first, second = second, first
	}
	is(t, "first attempt", first.Status, 500)
	is(t, "second attempt", second.Status, http.StatusPaymentRequired)
	is(t, "requests at the provider", len(upstream.requests()), 2)
	is(t, "money", g.books(governance.KindMoney), books{consumed: replyCost})
	g.balanced()
}

// Every attempt has a reservation of its own, and each is settled by itself.
func TestFallbackPaysForEachAttempt(t *testing.T) {
	s := setup{wrap: fallback("claude-test", "gpt-test")}
	g := open(t, failing("claude-test"), s)
	is(t, "status", g.post(chatPath, chatBody).StatusCode, 200)
	first, second := g.attempt(), g.attempt()
	if first.Status == 200 { // they end side by side
		first, second = second, first
	}
	is(t, "permits differ", first.Permit != second.Permit, true)
	g.spent(books{uncertain: int64(first.Bound.Cost), consumed: replyCost}, books{uncertain: int64(first.Bound.Tokens), consumed: replyTokens})
}

// Replay F3: refusals are cheap, and do not ask to be repeated.
func TestRefusalsAreCheap(t *testing.T) {
	upstream := says(200, "application/json", chatReply)
	g := open(t, upstream, setup{limits: keys.Limits{CostPerDay: keys.Cost(amount.MicroUSD(chatCost)), TokensPerDay: keys.Limit(1_000_000)}})
	g.post(chatPath, chatBody)
	for range 1359 {
		got := g.post(chatPath, chatBody)
		if got.StatusCode != http.StatusPaymentRequired || got.Header.Get("X-Should-Retry") != "false" || got.Header.Get("Retry-After") != "" {
			t.Fatalf("answered %d, %v", got.StatusCode, got.Header)
		}
	}
	is(t, "requests at the provider", len(upstream.requests()), 1)
	g.spent(books{consumed: replyCost}, books{consumed: replyTokens})
}

// A hard limit holds under any number of callers: what was admitted is what fits.
func TestManyCallers(t *testing.T) {
	const fit, callers = 10, 64
	arrived := make(chan struct{}, callers)
	release := make(chan struct{})
	upstream := &provider{answer: func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		arrived <- struct{}{}
		<-release
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, chatReply)
	}}
	g := open(t, upstream, setup{limits: keys.Limits{CostPerDay: keys.Cost(amount.MicroUSD(fit * chatCost)), TokensPerDay: keys.Limit(1_000_000)}})
	statuses := make(chan string, callers)
	for range callers {
		go func() {
			got := g.post(chatPath, chatBody)
			statuses <- fmt.Sprint(got.StatusCode, " ", got.Header.Get("Retry-After"))
		}()
	}
	for range callers - fit {
		is(t, "refused", <-statuses, "429 1")
	}
	is(t, "money", g.books(governance.KindMoney), books{reserved: fit * chatCost})
	close(release)
	for range fit {
		is(t, "admitted", <-statuses, "200 ")
	}
	is(t, "requests at the provider", len(arrived), fit)
	g.spent(books{consumed: fit * replyCost}, books{consumed: fit * replyTokens})
}
