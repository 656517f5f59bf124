package httpgov_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/governancemem"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/governance/usage"
	"github.com/tallystick-go/tallystick/keys"
)

// faulty is a store that fails when it is told to.
type faulty struct {
	governance.Store
	mu   sync.Mutex
	fail func(ctx context.Context, before func() error) error // nil: as it should
}

func (f *faulty) set(fail func(context.Context, func() error) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

func (f *faulty) Step(ctx context.Context, plan *governance.Plan, decide func(*governance.Loaded) *governance.Changes) error {
	f.mu.Lock()
	fail := f.fail
	f.mu.Unlock()
	step := func() error { return f.Store.Step(ctx, plan, decide) }
	if fail == nil {
		return step()
	}
	return fail(ctx, step)
}

// down is an outage that tells more than a client may know.
func down(context.Context, func() error) error {
	return fmt.Errorf("%w: dial postgres://user:password@db/governance: INSERT INTO permits", governance.ErrUnavailable)
}

// hung answers nothing until it is given up.
func hung(ctx context.Context, _ func() error) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", governance.ErrUnavailable, ctx.Err())
}

func (f *faulty) backend(db *governancemem.DB) governance.Backend {
	f.Store = db.Store
	return governance.Stores{Keys: db.Keys, Store: f}
}

// exceptions are what Bedrock's clients are told, by the reason. AWS's SDKs repeat a
// ThrottlingException and every 503, and of the others none.
var exceptions = map[string]string{
	"model": "AccessDeniedException", "frozen": "AccessDeniedException", "money": "ServiceQuotaExceededException",
	"never_fits": "ServiceQuotaExceededException", "reserved": "ThrottlingException", "rate": "ThrottlingException",
	"quota": "ThrottlingException", "concurrency": "ThrottlingException", "unavailable": "ServiceUnavailableException",
}

// The table of refusals, in all envelopes.
func TestRefusals(t *testing.T) {
	money := func(m int64) *amount.MicroUSD { return keys.Cost(amount.MicroUSD(m)) }
	hold := func(g *gate) func() { return g.inFlight() }
	once := func(g *gate) func() { g.post(chatPath, chatBody); g.attempt(); return func() {} }
	nothing := func(*gate) func() { return func() {} }
	cases := map[string]struct {
		s         setup
		before    func(*gate) func()
		status    int
		retry     string // Retry-After: a number, "some", or nothing
		retryable bool
		code      string
		openai    string
		anthropic string
	}{
		"model not allowed": {setup{team: keys.CreateTeam{AllowedModels: []string{"other"}}}, nothing,
			403, "", false, "model", "permission_error", "permission_error"},
		"money spent": {setup{limits: keys.Limits{CostPerDay: money(chatCost)}}, once,
			402, "", false, "money", "insufficient_quota", "billing_error"},
		"money reserved": {setup{limits: keys.Limits{CostPerDay: money(chatCost)}}, hold,
			429, "1", true, "reserved", "rate_limit_error", "rate_limit_error"},
		"money never fits": {setup{limits: keys.Limits{CostPerDay: money(10)}}, nothing,
			429, "", false, "never_fits", "rate_limit_error", "rate_limit_error"},
		"requests": {setup{limits: keys.Limits{RequestsPerMinute: keys.Limit(1)}}, once,
			429, "60", true, "rate", "rate_limit_error", "rate_limit_error"},
		"tokens a minute": {setup{limits: keys.Limits{TokensPerMinute: keys.Limit(280)}}, once,
			429, "some", true, "rate", "rate_limit_error", "rate_limit_error"},
		"tokens a minute never fit": {setup{limits: keys.Limits{TokensPerMinute: keys.Limit(10)}}, nothing,
			429, "", false, "never_fits", "rate_limit_error", "rate_limit_error"},
		"tokens a day": {setup{limits: keys.Limits{TokensPerDay: keys.Limit(280)}}, once,
			429, "some", true, "quota", "rate_limit_error", "rate_limit_error"},
		"concurrency": {setup{limits: keys.Limits{Concurrency: keys.Limit(1)}}, hold,
			429, "some", true, "concurrency", "rate_limit_error", "rate_limit_error"},
		"frozen": {setup{}, func(g *gate) func() { g.freeze(); return func() {} },
			423, "", false, "frozen", "permission_error", "permission_error"},
		"storage": {setup{}, func(g *gate) func() { g.store.set(down); return func() { g.store.set(nil) } },
			503, "1", true, "unavailable", "server_error", "overloaded_error"},
		"storage that hangs": {setup{governor: governance.Options{StepTimeout: 20 * time.Millisecond}},
			func(g *gate) func() { g.store.set(hung); return func() { g.store.set(nil) } },
			503, "1", true, "unavailable", "server_error", "overloaded_error"},
		"governor closed": {setup{}, func(g *gate) func() { check(g, g.gov.Close(context.Background())); return func() {} },
			503, "1", true, "unavailable", "server_error", "overloaded_error"},
	}
	for name, c := range cases {
		for _, p := range []struct {
			path, body, kind string
		}{{chatPath, chatBody, c.openai}, {messagesPath, messageBody, c.anthropic}, {conversePath, converseBody, exceptions[c.code]}} {
			t.Run(name+p.path, func(t *testing.T) {
				bedrock := p.path == conversePath
				if p.path != chatPath && (c.code == "money" || c.code == "reserved") {
					c.s.limits.CostPerDay = money((int64(len(p.body))+80)*4 + 100*10)
				}
				if bedrock && c.code == "never_fits" {
					c.status = http.StatusBadRequest // some of AWS's SDKs repeat every 429
				}
				g := open(t, nil, c.s.pausable())
				after := c.before(g)
				got := g.post(p.path, p.body)
				is(t, "status", got.StatusCode, c.status)
				retry := got.Header.Get("Retry-After")
				if n, err := strconv.Atoi(retry); c.retry == "some" {
					if err != nil || n < 1 {
						t.Errorf("Retry-After is %q", retry)
					}
				} else {
					is(t, "Retry-After", retry, c.retry)
				}
				if millis := got.Header.Get("X-Amz-Retry-After"); bedrock && retry != "" {
					is(t, "X-Amz-Retry-After", millis, retry+"000")
				} else {
					is(t, "X-Amz-Retry-After", millis, "")
				}
				should := "false"
				if c.retryable {
					should = ""
				}
				is(t, "x-should-retry", got.Header.Get("X-Should-Retry"), should)
				if bedrock {
					is(t, "type", got.Header.Get("X-Amzn-Errortype"), p.kind)
					var body map[string]string
					check(t, json.Unmarshal([]byte(got.body), &body))
					if len(body) != 1 || body["message"] == "" {
						t.Errorf("the answer is %s", got.body)
					}
					after()
					return
				}
				message, code := envelope(t, got, p.path == messagesPath, p.kind)
				if p.path == chatPath {
					is(t, "code", code, c.code)
				}
				if message == "" || strings.Contains(message, "postgres") || strings.Contains(message, "INSERT") {
					t.Errorf("the answer tells %q", message)
				}
				after()
				if c.code != "unavailable" {
					g.balanced()
				}
			})
		}
	}
}

// pausable gives a setup an upstream that answers when it is let.
func (s setup) pausable() setup { s.pause = true; return s }

// inFlight holds a request open at the provider; the result lets it end.
func (g *gate) inFlight() func() {
	g.Helper()
	g.paused.Store(true)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.post(chatPath, chatBody)
	}()
	<-g.arrived
	g.paused.Store(false)
	return func() {
		g.resume <- struct{}{}
		<-ended
		g.attempt()
	}
}

// freeze makes an impossible report freeze the team's accounts.
func (g *gate) freeze() {
	g.Helper()
	p, err := g.db.Keys.Resolve(context.Background(), g.token)
	check(g, err)
	permit, err := g.gov.Admit(context.Background(), governance.Request{Principal: &p, Bound: governance.Bound{Tokens: 1, Cost: 1}})
	check(g, err)
	impossible := governance.Measure{Certainty: governance.Impossible}
	check(g, permit.Settle(context.Background(), governance.Outcome{Tokens: impossible, Cost: impossible}))
}

// A refusal is known by the type of its body: no provider can forge one, and a
// fallback above neither retries it nor takes it for the provider's failure.
func TestRefusalFrom(t *testing.T) {
	upstream := &provider{answer: func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		w.Header().Set("X-Should-Retry", "false")
		w.Header().Set(httpgov.PermitHeader, "01890000-0000-7000-8000-000000000000")
		w.WriteHeader(http.StatusPaymentRequired)
		_, _ = w.Write([]byte(`{"error":{"message":"pay","type":"insufficient_quota","param":null,"code":"money"}}`))
	}}
	var ours []error
	s := setup{limits: keys.Limits{CostPerDay: keys.Cost(amount.MicroUSD(chatCost))}}
	s.wrap = func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			refused, ok := httpgov.RefusalFrom(resp)
			if ok != (refused != nil) {
				t.Error("a refusal without a reason")
			}
			ours = append(ours, refused)
			return resp, err
		})
	}
	g := open(t, upstream, s)
	is(t, "provider's", g.post(chatPath, chatBody).StatusCode, http.StatusPaymentRequired)
	is(t, "ours", g.post(chatPath, chatBody).StatusCode, http.StatusPaymentRequired)
	var refusal *governance.Refusal
	if len(ours) != 2 || ours[0] != nil || !errors.As(ours[1], &refusal) || refusal.Reason != governance.ReasonMoney {
		t.Errorf("refusals are %v", ours)
	}
	if _, ok := httpgov.RefusalFrom(nil); ok {
		t.Error("no response is a refusal")
	}
}

// A client that left while it waited for its admission has reserved nothing.
func TestClientLeavesDuringAdmission(t *testing.T) {
	admitting := make(chan context.Context, 1)
	s := setup{}
	s.wrap = func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			admitting <- r.Context()
			return next.RoundTrip(r)
		})
	}
	g := open(t, nil, s.pausable())
	ctx, cancel := context.WithCancel(context.Background())
	var once sync.Once
	g.store.set(func(_ context.Context, step func() error) error {
		once.Do(func() {
			cancel()
			<-(<-admitting).Done() // the gateway has noticed
		})
		return step()
	})
	if _, err := g.client.Do(g.request(ctx, chatPath, chatBody)); err == nil { //nolint:bodyclose // there is none
		t.Error("the client was answered")
	}
	if a := g.attempt(); !errors.Is(a.Err, context.Canceled) {
		t.Errorf("the attempt is %+v", a)
	}
	g.reopen()
	untouched(g)
}

// reopen closes the Governor, which records what waits, and opens another.
func (g *gate) reopen() {
	g.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	check(g, g.gov.Close(ctx))
	var err error
	g.gov, err = governance.New(g.db, nil)
	check(g, err)
	g.Cleanup(func() { _ = g.gov.Close(context.Background()) })
}

// A settlement that fails is not the client's business.
func TestSettlementFails(t *testing.T) {
	for name, fail := range map[string]func(context.Context, func() error) error{"down": down, "hung": hung} {
		t.Run(name, func(t *testing.T) {
			s := setup{governor: governance.Options{StepTimeout: 50 * time.Millisecond}}
			g := open(t, nil, s.pausable())
			g.paused.Store(true)
			got := make(chan answer)
			go func() { got <- g.post(chatPath, chatBody) }()
			<-g.arrived
			g.paused.Store(false)
			g.store.set(fail)
			g.resume <- struct{}{}
			is(t, "body", (<-got).body, chatReply)
			a := g.attempt()
			var failed *governance.SettleError
			if !errors.As(a.SettleError, &failed) || failed.ID != a.Permit {
				t.Errorf("SettleError is %v", a.SettleError)
			}
			g.store.set(nil)
			g.reopen()
			g.spent(books{consumed: replyCost}, books{consumed: replyTokens})
		})
	}
}

// TestNodeRefusals: what a node lacks is worth another try, in each protocol, and tells nothing of why.
func TestNodeRefusals(t *testing.T) {
	short := &governance.Refusal{Reason: governance.ReasonCredit, Retryable: true, RetryAfter: time.Second, Verdict: governance.Verdict{
		Constraint: &governance.Constraint{Kind: governance.KindMoney, Scope: governance.ScopeTeam, Rule: "month"}, Limit: 9_000_000, Need: 500, Held: 70, Node: true,
	}}
	unready := fmt.Errorf("%w: the journal of /var/lib/node", governance.ErrNotReady)
	for err, want := range map[error]string{short: "month of the team: limit 9000000, needed 500, left 70 microUSD", unready: "not ready"} {
		for _, p := range []usage.Protocol{usage.OpenAIChat, usage.AnthropicMessages, usage.BedrockConverse} {
			w := httptest.NewRecorder()
			httpgov.WriteRefusal(w, p, err)
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || w.Header().Get("X-Should-Retry") != "" {
				t.Errorf("%v over %v: %d %v", err, p, w.Code, w.Header())
			}
			if body := w.Body.String(); !strings.Contains(body, want) || strings.Contains(body, "/var") {
				t.Errorf("%v over %v: %s", err, p, body)
			}
		}
	}
}
