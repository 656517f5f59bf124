package httpgov_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancemem"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/governance/pricing"
	"github.com/tallystick-go/tallystick/keys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen. It decides nothing but
// when a broken build is given up.
const patience = 20 * time.Second

const providerKey = "Bearer provider-secret"

// catalogue prices in whole microUSD per token, so that sums are easy to check.
const catalogue = `{
  "gpt-test": {"litellm_provider": "openai", "mode": "chat", "max_input_tokens": 5000, "max_output_tokens": 400,
    "input_cost_per_token": 0.000002, "output_cost_per_token": 0.000010, "cache_read_input_token_cost": 0.000001},
  "claude-test": {"litellm_provider": "anthropic", "mode": "chat", "max_input_tokens": 5000, "max_output_tokens": 400,
    "input_cost_per_token": 0.000002, "output_cost_per_token": 0.000010, "cache_read_input_token_cost": 0.000001,
    "cache_creation_input_token_cost": 0.000003, "cache_creation_input_token_cost_above_1hr": 0.000004},
  "tier-test": {"litellm_provider": "openai", "mode": "chat", "max_input_tokens": 5000, "max_output_tokens": 400,
    "input_cost_per_token": 0.000002, "output_cost_per_token": 0.000010,
    "input_cost_per_token_priority": 0.000004, "output_cost_per_token_priority": 0.000020},
  "embed-test": {"litellm_provider": "openai", "mode": "embedding", "max_input_tokens": 1000,
    "input_cost_per_token": 0.000001, "output_cost_per_token": 0},
  "free-test": {"litellm_provider": "openai", "mode": "chat", "max_input_tokens": 5000, "max_output_tokens": 400,
    "input_cost_per_token": 0, "output_cost_per_token": 0}
}`

func prices(t testing.TB, o *pricing.Options) *pricing.Catalogue {
	t.Helper()
	c, _, err := pricing.ParseLiteLLM(strings.NewReader(catalogue), o)
	check(t, err)
	return c
}

// gate is a whole gateway: a real Governor on a store in memory, a Middleware, a
// ReverseProxy and a Transport, in front of a real upstream.
type gate struct {
	testing.TB
	db        *governancemem.DB
	gov       *governance.Governor
	transport *httpgov.Transport
	proxy     *httputil.ReverseProxy
	server    *httptest.Server
	client    *http.Client
	team      keys.Team
	token     string
	upstream  *url.URL
	store     *faulty // with pause

	paused  atomic.Bool // the upstream holds requests until resume
	arrived chan struct{}
	resume  chan struct{}

	attempts chan httpgov.Attempt
}

// setup is what a test changes of the usual gateway.
type setup struct {
	limits    keys.Limits // of the team; default: 1 USD a day, a million tokens a day
	team      keys.CreateTeam
	governor  governance.Options
	backend   func(*governancemem.DB) governance.Backend
	resolver  func(*governancemem.DB) keys.Resolver
	options   httpgov.Options
	transport *httpgov.Transport
	wrap      func(http.RoundTripper) http.RoundTripper // above the Transport
	pricing   *pricing.Options
	target    string // where to forward, when upstream is nil
	pause     bool   // an upstream and a store that the test can hold up
}

var roomy = keys.Limits{CostPerDay: keys.Cost(1_000_000), TokensPerDay: keys.Limit(1_000_000)}

func open(t testing.TB, upstream http.Handler, s setup) *gate {
	t.Helper()
	g := &gate{TB: t, attempts: make(chan httpgov.Attempt, 10_000), arrived: make(chan struct{}), resume: make(chan struct{})}
	if s.pause {
		g.store = &faulty{}
		s.backend = g.store.backend
		upstream = &provider{answer: func(w http.ResponseWriter, r *http.Request, _ []byte) {
			if g.paused.Load() {
				g.arrived <- struct{}{}
				<-g.resume
			}
			w.Header().Set("Content-Type", "application/json")
			if strings.HasSuffix(r.URL.Path, "/messages") {
				_, _ = io.WriteString(w, messageReply)
				return
			}
			_, _ = io.WriteString(w, chatReply)
		}}
	}
	if upstream != nil {
		server := httptest.NewServer(upstream)
		t.Cleanup(server.Close)
		s.target = server.URL
	}
	target, err := url.Parse(s.target)
	check(t, err)
	g.upstream = target

	g.db, err = governancemem.New(nil)
	check(t, err)
	ctx := context.Background()
	s.team.ID = "team"
	if s.team.Limits = s.limits; s.limits == (keys.Limits{}) {
		s.team.Limits = roomy
	}
	g.team, err = g.db.Keys.CreateTeam(ctx, s.team)
	check(t, err)
	g.token = g.key(keys.CreateKey{})

	var backend governance.Backend = g.db
	if s.backend != nil {
		backend = s.backend(g.db)
	}
	if s.governor.Logger == nil {
		s.governor.Logger = slog.New(slog.DiscardHandler)
	}
	g.gov, err = governance.New(backend, &s.governor)
	check(t, err)

	if g.transport = s.transport; g.transport == nil {
		g.transport = &httpgov.Transport{}
	}
	g.transport.Governor = g.gov
	if g.transport.Prices == nil {
		g.transport.Prices = prices(t, s.pricing)
	}
	if g.transport.Credentials == nil {
		g.transport.Credentials = func(r *http.Request) error { r.Header.Set("Authorization", providerKey); return nil }
	}
	if g.transport.Logger == nil {
		g.transport.Logger = slog.New(slog.DiscardHandler)
	}
	base := &http.Transport{DisableCompression: true}
	if g.transport.Base == nil {
		g.transport.Base = base
	}
	g.transport.Observe = func(a httpgov.Attempt) { g.attempts <- a }
	s.options.Observe = g.transport.Observe

	g.proxy = httputil.NewSingleHostReverseProxy(target)
	g.proxy.Transport = g.transport
	if s.wrap != nil {
		g.proxy.Transport = s.wrap(g.transport)
	}
	g.proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	var resolver keys.Resolver = g.db.Keys
	if s.resolver != nil {
		resolver = s.resolver(g.db)
	}
	g.server = httptest.NewUnstartedServer(httpgov.Middleware(g.proxy, resolver, &s.options))
	g.server.Config.ErrorLog = g.proxy.ErrorLog
	g.server.Start()
	g.client = &http.Client{Transport: &http.Transport{DisableCompression: true}}
	t.Cleanup(func() {
		g.client.CloseIdleConnections()
		g.server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		check(t, g.transport.Shutdown(ctx))
		g.transport.CloseIdleConnections()
		_ = g.gov.Close(ctx)
	})
	return g
}

// key makes a key of the team and returns its token.
func (g *gate) key(c keys.CreateKey) string {
	g.Helper()
	c.TeamID = "team"
	made, err := g.db.Keys.CreateKey(context.Background(), c)
	check(g, err)
	return made.Token.Reveal()
}

func (g *gate) request(ctx context.Context, path, body string) *http.Request {
	g.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.server.URL+path, strings.NewReader(body))
	check(g, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+g.token)
	return r
}

// answer is a response that was read to its end.
type answer struct {
	*http.Response
	body string
	err  error // while reading the body
}

func (g *gate) do(r *http.Request) answer {
	g.Helper()
	resp, err := g.client.Do(r)
	check(g, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp, string(body), err}
}

func (g *gate) post(path, body string) answer {
	g.Helper()
	return g.do(g.request(context.Background(), path, body))
}

// attempt waits for the next attempt to be over.
func (g *gate) attempt() httpgov.Attempt {
	g.Helper()
	select {
	case a := <-g.attempts:
		return a
	case <-time.After(patience):
		g.Fatal("no attempt ended")
		panic("unreachable")
	}
}

// books are the team's accounts.
type books struct{ consumed, uncertain, reserved int64 }

func (g *gate) books(kind governance.Kind) books {
	g.Helper()
	p, err := g.db.Keys.Resolve(context.Background(), g.token)
	check(g, err)
	usage, err := g.gov.Usage(context.Background(), governance.UsageQuery{Principal: &p})
	check(g, err)
	for _, v := range usage.Verdicts {
		if v.Constraint.Kind == kind && v.Constraint.Scope == governance.ScopeTeam {
			return books{v.Consumed, v.Uncertain, v.Reserved}
		}
	}
	g.Fatalf("the team has no %s", kind)
	panic("unreachable")
}

// spent checks money and tokens, and that the books balance.
func (g *gate) spent(money, tokens books) {
	g.Helper()
	if got := g.books(governance.KindMoney); got != money {
		g.Errorf("money is %+v, want %+v", got, money)
	}
	if got := g.books(governance.KindTokenQuota); got != tokens {
		g.Errorf("tokens are %+v, want %+v", got, tokens)
	}
	g.balanced()
}

func (g *gate) balanced() {
	g.Helper()
	v, err := g.gov.Verify(context.Background(), governance.VerifyQuery{})
	check(g, err)
	if len(v.Differences) > 0 {
		g.Errorf("the books differ: %+v", v.Differences)
	}
}

func (g *gate) holds() []governance.Hold {
	g.Helper()
	holds, err := g.gov.Holds(context.Background(), governance.HoldQuery{})
	check(g, err)
	return holds
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t testing.TB, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// provider records what reached it and answers by a function.
type provider struct {
	mu     sync.Mutex
	seen   []received
	answer func(w http.ResponseWriter, r *http.Request, body []byte)
}

type received struct {
	path   string
	header http.Header
	body   map[string]any
	raw    string
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	got := received{path: r.URL.Path, header: r.Header.Clone(), raw: string(raw)}
	_ = json.Unmarshal(raw, &got.body)
	p.mu.Lock()
	p.seen = append(p.seen, got)
	p.mu.Unlock()
	p.answer(w, r, raw)
}

func (p *provider) requests() []received {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]received(nil), p.seen...)
}

func (p *provider) only(t testing.TB) received {
	t.Helper()
	seen := p.requests()
	if len(seen) != 1 {
		t.Fatalf("the provider saw %d requests, want 1", len(seen))
	}
	return seen[0]
}

// says answers everything with one body.
func says(status int, contentType, body string) *provider {
	return &provider{answer: func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}}
}

const (
	chatPath     = "/v1/chat/completions"
	embedPath    = "/v1/embeddings"
	messagesPath = "/v1/messages"

	chatBody     = `{"model":"gpt-test","max_tokens":100,"messages":[{"role":"user","content":"hello"}]}`
	chatStream   = `{"model":"gpt-test","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"hello"}]}`
	messageBody  = `{"model":"claude-test","max_tokens":100,"messages":[{"role":"user","content":"hello"}]}`
	messageSteam = `{"model":"claude-test","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"hello"}]}`

	chatReply = `{"id":"c1","object":"chat.completion","model":"gpt-test","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":30,"completion_tokens":7,"total_tokens":37,"prompt_tokens_details":{"cached_tokens":10}}}`
	messageReply = `{"id":"m1","type":"message","role":"assistant","model":"claude-test","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn",` +
		`"usage":{"input_tokens":30,"output_tokens":7,"cache_read_input_tokens":10,"cache_creation_input_tokens":0}}`
)

// The bounds of the requests above: bytes + 64 + 16 for the message, and 100 of output.
var (
	chatTokens   = int64(len(chatBody)) + 80 + 100
	chatCost     = (int64(len(chatBody))+80)*2 + 100*10
	streamTokens = int64(len(chatStream)) + 80 + 100
	streamCost   = (int64(len(chatStream))+80)*2 + 100*10
)

// The cost of chatReply: 20 fresh, 10 cached, 7 out.
const (
	replyTokens = 37
	replyCost   = 20*2 + 10*1 + 7*10
)
