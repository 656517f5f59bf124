package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/provider"
	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/examples/gateway/server"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/keys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	providerKey = "sk-provider-secret"
	adminToken  = "admin-secret"

	waitFor = 10 * time.Second
	tick    = 2 * time.Millisecond
)

// document is the configuration of the tests. %[1]s is the first provider, %[2]s
// the second, %[3]s an address where nobody listens.
const document = `
listen: 127.0.0.1:0
admin: {listen: 127.0.0.1:0, token: env:ADMIN}
storage: {sqlite: gateway.db}
upstreams:
  - {name: one, protocol: openai, base_url: "%[1]s/v1", credential: env:KEY, models: [demo-small, demo-large, demo-free, demo-embedding]}
  - {name: two, protocol: openai, base_url: "%[2]s", credential: env:KEY, models: [demo-small, demo-large]}
  - {name: gone, protocol: openai, base_url: "http://%[3]s", credential: env:KEY, models: [demo-small]}
  - {name: claude, protocol: anthropic, base_url: "%[1]s", credential: env:KEY, models: [claude-sonnet-4-5]}
  - {name: aws, protocol: bedrock, base_url: "%[1]s", credential: env:KEY, region: us-east-1, models: ["us.anthropic.claude-sonnet-4-5-v1:0"]}
  - {name: aws-wrong, protocol: bedrock, base_url: "%[2]s", credential: env:WRONG, models: ["anthropic.claude-haiku-4-5-v1:0"]}
routes:
  - {model: demo-small, attempts: [{upstream: one}]}
  - {model: demo-large, attempts: [{upstream: one}]}
  - {model: safe, attempts: [{upstream: one, model: demo-small}, {upstream: two, model: demo-large}]}
  - {model: reach, attempts: [{upstream: gone, model: demo-small}, {upstream: two, model: demo-small}]}
  - {model: nowhere, attempts: [{upstream: gone, model: demo-small}]}
  - {model: cheap, attempts: [{upstream: one, model: demo-free}, {upstream: two, model: demo-large}]}
timeouts: {drain: 10s, request: 30s, storage: 2s, linger: 2s}
`

// world is a running gateway with two providers behind it.
type world struct {
	t       testing.TB
	server  *server.Server
	one     *provider.Provider
	two     *provider.Provider
	folder  string
	stop    func() error // ends Serve and waits; safe to repeat
	client  *http.Client
	arrived *arrivals

	policies string // the file that has them
	token    string // of the key that was made last

	mu       sync.Mutex
	attempts []httpgov.Attempt
}

// arrivals are the requests that the providers got.
type arrivals struct {
	mu   sync.Mutex
	list []provider.Received
	tell chan struct{} // one for each
}

func (a *arrivals) observe(r provider.Received) {
	a.mu.Lock()
	a.list = append(a.list, r)
	a.mu.Unlock()
	a.tell <- struct{}{}
}

func (a *arrivals) all() []provider.Received {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]provider.Received(nil), a.list...)
}

func newWorld(t testing.TB, changes ...string) *world {
	t.Helper()
	w := &world{t: t, folder: t.TempDir(), arrived: &arrivals{tell: make(chan struct{}, 10000)}}
	start := func() (*provider.Provider, string) {
		p := provider.New(&provider.Options{Credential: providerKey, Observe: w.arrived.observe})
		s := httptest.NewUnstartedServer(p)
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
		s.Start()
		t.Cleanup(s.Close)
		return p, s.URL
	}
	var first, second string
	w.one, first = start()
	w.two, second = start()
	gone := httptest.NewServer(nil)
	gone.Close()
	text := fmt.Sprintf(document, first, second, strings.TrimPrefix(gone.URL, "http://"))
	text = strings.NewReplacer(changes...).Replace(text)
	env := func(name string) (string, bool) {
		value, ok := map[string]string{"KEY": providerKey, "ADMIN": adminToken, "WRONG": "sk-wrong"}[name]
		return value, ok
	}
	c, err := config.Parse([]byte(text), w.folder, env)
	require.NoError(t, err)
	w.open(c)
	return w
}

// open starts the gateway, and serves until the test ends.
func (w *world) open(c *config.Config) {
	t := w.t
	t.Helper()
	var err error
	w.server, err = server.Open(t.Context(), c, &server.Options{
		Logger: slog.New(slog.DiscardHandler),
		Observe: func(a httpgov.Attempt) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.attempts = append(w.attempts, a)
		},
	})
	require.NoError(t, err)
	s := w.server
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	w.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	w.client = &http.Client{Transport: &http.Transport{}}
	client := w.client
	t.Cleanup(func() {
		client.CloseIdleConnections()
		_ = w.stop() // tests that mind have looked at it
		require.NoError(t, s.Close(context.WithoutCancel(t.Context())))
	})
}

func (w *world) url() string { return "http://" + w.server.Address() }

// key makes a team with limits and a key in it, and returns the token.
func (w *world) key(id string, limits keys.Limits, change ...func(*keys.CreateKey)) string {
	w.t.Helper()
	ctx := w.t.Context()
	_, err := w.server.Storage.Keys.CreateTeam(ctx, keys.CreateTeam{ID: "team-" + id, Limits: limits})
	require.NoError(w.t, err)
	create := keys.CreateKey{ID: id, TeamID: "team-" + id, Owner: "zelda"}
	for _, c := range change {
		c(&create)
	}
	created, err := w.server.Storage.Keys.CreateKey(ctx, create)
	require.NoError(w.t, err)
	w.token = created.Token.Reveal()
	return w.token
}

// budget is a limit of money.
func budget(micro amount.MicroUSD) keys.Limits {
	return keys.Limits{CostPerDay: keys.Cost(micro), CostPerMonth: keys.Cost(1_000_000_000)}
}

// counting counts the requests that an SDK makes.
type counting struct {
	base http.RoundTripper
	n    atomic.Int64
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.base.RoundTrip(r)
}

// openai returns the official client, with its automatic retries as they are.
func (w *world) openai(token string) (openai.Client, *counting) {
	count := &counting{base: w.client.Transport}
	return openai.NewClient(option.WithBaseURL(w.url()+"/v1"), option.WithAPIKey(token),
		option.WithHTTPClient(w.client), option.WithUnsafeAllowHTTP(),
		option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			count.n.Add(1)
			return next(r)
		})), count
}

func (w *world) anthropic(token string) (anthropic.Client, *counting) {
	count := &counting{base: w.client.Transport}
	return anthropic.NewClient(anthropicoption.WithBaseURL(w.url()), anthropicoption.WithAPIKey(token),
		anthropicoption.WithHTTPClient(&http.Client{Transport: count})), count
}

func chat(model, prompt string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: model, MaxCompletionTokens: openai.Int(100),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
	}
}

func message(prompt string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: "claude-sonnet-4-5", MaxTokens: 100,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt))},
	}
}

// usage asks the gateway how full a key's limits are.
func (w *world) usage(token string) report.Usage {
	w.t.Helper()
	status, body := w.get("/v1/usage", token)
	require.Equal(w.t, http.StatusOK, status, string(body))
	var u report.Usage
	require.NoError(w.t, json.Unmarshal(body, &u))
	return u
}

func constraint(t testing.TB, u report.Usage, rule string) report.Constraint {
	t.Helper()
	for _, c := range u.Constraints {
		if c.Rule == rule {
			return c
		}
	}
	t.Fatalf("no limit %s in %+v", rule, u)
	return report.Constraint{}
}

func (w *world) get(path, token string) (int, []byte) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url()+path, nil)
	require.NoError(w.t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return w.do(req)
}

func (w *world) post(path, token, body string) (int, []byte, http.Header) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url()+path, strings.NewReader(body))
	require.NoError(w.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.client.Do(req)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	return resp.StatusCode, data, resp.Header
}

func (w *world) do(req *http.Request) (int, []byte) {
	w.t.Helper()
	resp, err := w.client.Do(req)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	return resp.StatusCode, data
}

// permits counts what the books hold, by how it ended.
func (w *world) permits() map[string]int {
	w.t.Helper()
	list, err := w.server.Storage.Store.Permits(w.t.Context(), governance.PermitQuery{Limit: 1000})
	require.NoError(w.t, err)
	out := map[string]int{}
	for _, rec := range list {
		state := rec.State.String()
		if rec.Flags&(governance.FlagTokensUncertain|governance.FlagCostUncertain) != 0 {
			state = "uncertain"
		}
		out[state]++
	}
	return out
}

// settled waits until no permit is open any more.
func (w *world) settled() {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return w.permits()["open"] == 0 }, waitFor, tick)
}

// balanced is how every test of money ends.
func (w *world) balanced() {
	w.t.Helper()
	w.settled()
	v, err := w.server.Governor.Verify(w.t.Context(), governance.VerifyQuery{})
	require.NoError(w.t, err)
	require.Empty(w.t, v.Differences)
}
