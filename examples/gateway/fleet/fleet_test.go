package fleet_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/admin"
	"github.com/tallystick-go/tallystick/examples/gateway/command"
	"github.com/tallystick-go/tallystick/examples/gateway/provider"
	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancepg"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
)

// asChild makes this test binary be the gateway. Its value names a file that moves the
// gateway's calendar, see calendar.
const asChild = "GATEWAY_FLEET_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(asChild); path != "" {
		p := command.Process{Args: os.Args[1:], Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv}
		if path != "none" {
			p.Clock = calendar(path)
		}
		os.Exit(command.Run(p))
	}
	os.Exit(pgtest.Run(m))
}

const (
	adminToken  = "admin-secret"
	providerKey = "sk-provider"

	patience = 60 * time.Second
	tick     = 5 * time.Millisecond
)

const document = `
profile: shared
topology_version: "1"
listen: 127.0.0.1:0
admin: {listen: 127.0.0.1:0, token: env:ADMIN}
storage: {postgres: {dsn: env:DSN, schema: %[2]s}}
upstreams:
  - {name: one, protocol: openai, base_url: "%[1]s", credential: env:KEY, models: [demo-small, demo-large]}
timeouts: {drain: 20s, storage: 2s}
`

// fleet is gateways on one schema, and the provider behind them.
type fleet struct {
	*testing.T
	dsn, schema string
	folder      string
	clock       string // the file of the calendar, or none
	program     string // what gateways are started of; empty: what is tested
	provider    *provider.Provider
	gateways    []*gateway
	books       *governancepg.DB // the schema itself, past all gateways

	arrived *arrivals
}

// arrivals are the prompts that reached the provider, and the models that were asked.
type arrivals struct {
	mu     sync.Mutex
	count  map[string]int
	models map[string]int // by model and prompt
}

// newFleet makes a place for gateways; start starts them.
func newFleet(t *testing.T, dsn, schema string) *fleet {
	t.Helper()
	f := &fleet{T: t, dsn: dsn, schema: schema, folder: t.TempDir(), clock: "none", arrived: &arrivals{count: map[string]int{}, models: map[string]int{}}}
	f.provider = provider.New(&provider.Options{Credential: providerKey, Observe: f.observe})
	s := httptest.NewUnstartedServer(f.provider)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.Start()
	t.Cleanup(s.Close)
	f.write(fmt.Sprintf(document, s.URL, schema))
	pool, err := pgxpool.New(context.WithoutCancel(t.Context()), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	f.books, err = governancepg.Open(pool, &governancepg.Options{Schema: schema})
	require.NoError(t, err)
	return f
}

func (f *fleet) path(name string) string { return filepath.Join(f.folder, name) }

func (f *fleet) write(document string) {
	f.Helper()
	require.NoError(f, os.WriteFile(f.path("gateway.yaml"), []byte(document), 0o600))
}

func (f *fleet) observe(r provider.Received) {
	var body struct {
		Messages []struct{ Content string }
	}
	_ = json.Unmarshal(r.Body, &body)
	if len(body.Messages) == 0 {
		return
	}
	f.arrived.mu.Lock()
	defer f.arrived.mu.Unlock()
	prompt := body.Messages[0].Content
	f.arrived.count[prompt]++
	f.arrived.models[r.Model+" "+prompt]++
}

// reached is how many calls with a prompt came to the provider.
func (f *fleet) reached(prompt string) int {
	f.arrived.mu.Lock()
	defer f.arrived.mu.Unlock()
	return f.arrived.count[prompt]
}

// asked is how many of them asked for a model.
func (f *fleet) asked(model, prompt string) int {
	f.arrived.mu.Lock()
	defer f.arrived.mu.Unlock()
	return f.arrived.models[model+" "+prompt]
}

// gateway is `gateway serve` in a process of its own.
type gateway struct {
	*exec.Cmd
	f       *fleet
	clients string
	admin   *admin.Client
	said    *output
	wait    func() error
}

// output is what a process wrote on its error output.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// command prepares a gateway's process with some arguments.
func (f *fleet) command(args ...string) *exec.Cmd {
	program := os.Args[0]
	if f.program != "" {
		program = f.program
	}
	cmd := exec.Command(program, args...)
	// A process that was built for the race detector waits a second before it ends.
	cmd.Env = append(os.Environ(), asChild+"="+f.clock, "ADMIN="+adminToken, "KEY="+providerKey, "DSN="+f.dsn, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// start adds so many gateways, all at once: the first of a schema race to migrate it.
func (f *fleet) start(n int) {
	f.Helper()
	f.serve(n, "-migrate")
}

// serve is start, without updating tables unless it is told to.
func (f *fleet) serve(n int, more ...string) {
	f.Helper()
	args := append([]string{"serve", "-config", f.path("gateway.yaml")}, more...)
	added := make([]*gateway, n)
	var wait sync.WaitGroup
	for i := range added {
		g := &gateway{f: f, Cmd: f.command(args...), said: &output{}}
		added[i] = g
		wait.Go(g.start)
	}
	wait.Wait()
	for _, g := range added {
		require.NotNil(f, g.admin, "the gateway did not start: %s", g.said)
	}
	f.gateways = append(f.gateways, added...)
}

// start starts the process and waits until it listens.
func (g *gateway) start() {
	g.Stderr = g.said
	out, err := g.StdoutPipe()
	if err == nil {
		err = g.Cmd.Start()
	}
	if err != nil {
		g.f.Error(err)
		return
	}
	g.wait = sync.OnceValue(g.Wait)
	g.f.Cleanup(func() {
		_ = g.Process.Kill()
		_ = g.wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		name, address, _ := strings.Cut(lines.Text(), ":")
		switch address = strings.TrimSpace(address); name {
		case "clients":
			g.clients = address
		case "operators":
			g.admin = &admin.Client{Base: address, Token: adminToken}
			return
		}
	}
}

// stop ends a gateway in good order.
func (g *gateway) stop() {
	g.f.Helper()
	require.NoError(g.f, g.Process.Signal(syscall.SIGTERM))
	require.NoError(g.f, g.wait(), g.said)
}

// do makes one call of the admin API, which must succeed.
func (g *gateway) do(method, path string, body, into any) {
	g.f.Helper()
	path, query, _ := strings.Cut(path, "?")
	values, err := url.ParseQuery(query)
	require.NoError(g.f, err)
	require.NoError(g.f, g.admin.Do(g.f.Context(), method, path, values, body, into))
}

type object map[string]any

// key makes a team and a key in it, and returns the token.
func (g *gateway) key(id string, team keys.Limits, more ...object) string {
	g.f.Helper()
	g.do(http.MethodPost, "teams", object{"id": "team-" + id, "limits": team}, nil)
	create := object{"id": id, "team_id": "team-" + id, "owner": "zelda"}
	for _, m := range more {
		for name, value := range m {
			create[name] = value
		}
	}
	var made admin.NewKey
	g.do(http.MethodPost, "keys", create, &made)
	return made.Token
}

// client is the official client, without its own repetitions.
func (g *gateway) client(token string) openai.Client {
	return openai.NewClient(option.WithBaseURL(g.clients+"/v1"), option.WithAPIKey(token), option.WithUnsafeAllowHTTP(), option.WithMaxRetries(0))
}

const reply = 20 // tokens that the provider writes, unless the prompt says otherwise

func chat(prompt string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: "demo-small", MaxCompletionTokens: openai.Int(40),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
	}
}

func says(what string) string { return fmt.Sprintf("%s {{provider: tokens=%d}}", what, reply) }

// answer is what became of one call.
type answer struct {
	status int    // zero: no answer
	code   string // of a refusal
	tokens int64
	model  string // that was used in the place of the one asked for
	retry  string // Retry-After
	err    error
}

// call makes one call through one gateway.
func (g *gateway) call(ctx context.Context, token, prompt string) answer {
	return g.ask(ctx, token, "demo-small", prompt)
}

// ask is call, for a model.
func (g *gateway) ask(ctx context.Context, token, model, prompt string) answer {
	client := g.client(token)
	var resp *http.Response
	params := chat(prompt)
	params.Model = model
	got, err := client.Chat.Completions.New(ctx, params, option.WithResponseInto(&resp))
	a := answer{err: err}
	var failed *openai.Error
	switch {
	case err == nil:
		a.status, a.tokens = http.StatusOK, got.Usage.TotalTokens
	case errors.As(err, &failed):
		a.status, a.code = failed.StatusCode, failed.Code
	}
	if resp != nil {
		a.retry, a.model = resp.Header.Get("Retry-After"), resp.Header.Get("X-Gateway-Model")
	}
	return a
}

// get asks a gateway for something that is not a call.
func (g *gateway) get(path, token string) (int, []byte) {
	g.f.Helper()
	req, err := http.NewRequestWithContext(g.f.Context(), http.MethodGet, g.clients+path, nil)
	require.NoError(g.f, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(g.f, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(g.f, err)
	return resp.StatusCode, body
}

// usage is what a key's limits hold, as its own caller is told.
func (g *gateway) usage(token string) report.Usage {
	g.f.Helper()
	status, body := g.get("/v1/usage", token)
	require.Equal(g.f, http.StatusOK, status, string(body))
	var u report.Usage
	require.NoError(g.f, json.Unmarshal(body, &u))
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

// settled waits until no call holds anything by being under way.
func (f *fleet) settled() {
	f.Helper()
	require.Eventually(f, func() bool {
		open, err := f.books.Store.Permits(f.Context(), governance.PermitQuery{Limit: 1, States: []governance.State{governance.StateOpen}})
		return err == nil && len(open) == 0
	}, patience, tick)
}

// balanced is how every test ends: the books are what the permits add up to.
func (f *fleet) balanced() {
	f.Helper()
	for _, g := range f.gateways {
		if g.ProcessState == nil {
			var v report.Verification
			g.do(http.MethodPost, "verify", nil, &v)
			require.Empty(f, v.Differences)
			require.True(f, v.Balanced)
			return
		}
	}
	f.Fatal("no gateway is left to ask")
}

// inForce fails the test where an account holds more than its limit.
func (f *fleet) inForce(g *gateway, token string) {
	f.Helper()
	for _, c := range g.usage(token).Constraints {
		require.LessOrEqual(f, c.Consumed+c.Uncertain+c.Reserved+c.Granted, c.Limit, "%s of %s", c.Rule, c.Subject)
	}
}
