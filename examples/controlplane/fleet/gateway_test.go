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
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/admin"
	"github.com/tallystick-go/tallystick/examples/gateway/provider"
	"github.com/tallystick-go/tallystick/keys"
)

// clockFile names a file that says by how much a process's clock is wrong; see clockOf.
const clockFile = "CONTROLPLANE_FLEET_CLOCK"

// move says by how much a clock is ahead, from an instant on.
type move struct {
	From  time.Time
	Ahead time.Duration
}

// clockOf is a clock that a file moves: the last move that has come into force.
func clockOf(path string) func(time.Time) time.Time {
	return func(now time.Time) time.Time {
		data, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return now
		}
		var moves []move
		if err == nil {
			err = json.Unmarshal(data, &moves)
		}
		if err != nil {
			panic("the clock's file: " + err.Error())
		}
		var ahead time.Duration
		for _, m := range moves {
			if !now.Before(m.From) {
				ahead = m.Ahead
			}
		}
		return now.Add(ahead)
	}
}

// setClock writes such a file, at once for all who read it.
func (f *fleet) setClock(path string, moves ...move) {
	f.Helper()
	data, err := json.Marshal(moves)
	require.NoError(f, err)
	require.NoError(f, os.WriteFile(path+".new", data, 0o600))
	require.NoError(f, os.Rename(path+".new", path))
}

const providerKey = "sk-provider"

// behind starts the provider, which counts by itself what it is to be paid.
func (f *fleet) behind() {
	f.Helper()
	if f.provider != nil {
		return
	}
	f.provider = provider.New(&provider.Options{Credential: providerKey, Observe: f.pay})
	s := httptest.NewUnstartedServer(f.provider)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.Start()
	f.Cleanup(s.Close)
	f.providerURL = s.URL
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	f.Cleanup(broken.Close)
	f.brokenURL = broken.URL
	token, err := keys.Mint(nil)
	require.NoError(f, err)
	f.token = token.Reveal()
}

// pay counts a call when it arrives, whatever becomes of its answer: a token for four bytes,
// three for the message, and what the prompt says is written.
func (f *fleet) pay(r provider.Received) {
	var body struct {
		Messages []struct{ Content string }
	}
	_ = json.Unmarshal(r.Body, &body)
	if len(body.Messages) == 0 || strings.HasSuffix(r.Path, "count_tokens") {
		return
	}
	in, out := int64(len(body.Messages[0].Content)+3)/4+3, int64(reply)
	f.calls.Add(1)
	switch r.Model {
	case "demo-small":
		f.spent.Add(in + 2*out)
	case "demo-large":
		f.spent.Add(10*in + 30*out)
	}
}

const reply = 20 // tokens that the provider writes

func says(what string) string { return fmt.Sprintf("%s {{provider: tokens=%d}}", what, reply) }

// price is what a prompt costs with demo-small.
func price(prompt string) int64 { return int64(len(prompt)+3)/4 + 3 + 2*reply }

const gatewayDocument = `
profile: node
node: %[1]s
listen: 127.0.0.1:0
admin: {listen: 127.0.0.1:0, token: env:ADMIN}
storage: {sqlite: %[1]s.db}
authority: {url: "%[2]s", token: env:TOKEN_%[1]s, timeout: 1s, farewell: 20s}
bootstrap:
  teams: [{id: acme}]
  keys: [{id: app, team_id: acme, owner: zelda, token: env:APP}]
upstreams:
  - {name: one, protocol: openai, base_url: "%[3]s", credential: env:KEY, models: [demo-small, demo-large, demo-free]}
  - {name: two, protocol: anthropic, base_url: "%[3]s", credential: env:KEY, models: [claude-haiku-4-5]}
  - {name: broken, protocol: openai, base_url: "%[5]s", credential: env:KEY, models: [gpt-4o-mini]}
routes:
  - {model: fallback, attempts: [{upstream: broken, model: gpt-4o-mini}, {upstream: one, model: demo-small}]}
requests: {bound: %[4]s}
timeouts: {drain: 20s, storage: 2s}
`

// gateway is `gateway serve` of the profile node, in a process of its own.
type gateway struct {
	f      *fleet
	name   string
	folder string
	clock  string

	cmd     *exec.Cmd
	clients atomic.Pointer[string] // callers go on while it is restarted
	admin   *admin.Client
	said    *output
	wait    func() error
}

func (g *gateway) url() string {
	if at := g.clients.Load(); at != nil {
		return *at
	}
	return ""
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

// gateway starts one on a file of its own, whose inputs are bounded by bytes: then a call needs
// little credit.
func (f *fleet) gateway(name string) *gateway { return f.gatewayBoundBy(name, "bytes") }

func (f *fleet) gatewayBoundBy(name, bound string) *gateway {
	f.Helper()
	f.behind()
	g := &gateway{f: f, name: name, folder: f.TempDir()}
	g.clock = g.path("clock")
	require.NoError(f, os.WriteFile(g.path("gateway.yaml"), gatewayConfig(f, name, bound), 0o600))
	return g.boot()
}

func gatewayConfig(f *fleet, name, bound string) []byte {
	return fmt.Appendf(nil, gatewayDocument, name, f.relay.URL, f.providerURL, bound, f.brokenURL)
}

// gateways starts several at once, and waits until all have heard the authority.
func (f *fleet) gateways(names ...string) []*gateway {
	f.Helper()
	f.behind()
	list := make([]*gateway, len(names))
	for i, name := range names {
		list[i] = f.gateway(name)
	}
	for _, g := range list {
		g.ready()
	}
	return list
}

func (g *gateway) path(name string) string { return filepath.Join(g.folder, name) }

func (g *gateway) file() string { return g.path(g.name + ".db") }

// command is the command line of this gateway's program.
func (g *gateway) command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), asChild+"=gateway", clockFile+"="+g.clock, "ADMIN="+adminToken, "KEY="+providerKey, "APP="+g.f.token, "GORACE=atexit_sleep_ms=0"), g.f.env...)
	return cmd
}

// run runs a command, which ends with that status.
func (g *gateway) run(status int, args ...string) string {
	g.f.Helper()
	cmd := g.command(args...)
	out, _ := cmd.CombinedOutput()
	require.Equal(g.f, status, cmd.ProcessState.ExitCode(), string(out))
	return string(out)
}

// boot starts the process, again where there was one, and waits until it listens.
func (g *gateway) boot() *gateway {
	g.f.Helper()
	require.NoError(g.f, g.start())
	return g
}

func (g *gateway) start() error {
	g.cmd, g.said = g.command("serve", "-config", g.path("gateway.yaml")), &output{}
	g.cmd.Stderr = g.said
	out, err := g.cmd.StdoutPipe()
	if err == nil {
		err = g.cmd.Start()
	}
	if err != nil {
		return err
	}
	cmd := g.cmd
	g.wait = sync.OnceValue(cmd.Wait)
	wait := g.wait
	g.f.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		name, address, _ := strings.Cut(lines.Text(), ":")
		switch address = strings.TrimSpace(address); name {
		case "clients":
			g.clients.Store(&address)
		case "operators":
			g.admin = &admin.Client{Base: address, Token: adminToken}
			return nil
		}
	}
	_ = wait()
	return fmt.Errorf("the gateway did not start: %s", g.said)
}

// kill ends it as it may end at any moment, and stop in good order.
func (g *gateway) kill() {
	g.f.Helper()
	require.NoError(g.f, g.cmd.Process.Signal(syscall.SIGKILL))
	require.Error(g.f, g.wait())
}

func (g *gateway) stop() {
	g.f.Helper()
	require.NoError(g.f, g.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(g.f, g.wait(), g.said)
}

// get asks the gateway for something that is not a call.
func (g *gateway) get(path string) (int, string) {
	g.f.Helper()
	req, err := http.NewRequestWithContext(g.f.Context(), http.MethodGet, g.url()+path, nil)
	require.NoError(g.f, err)
	req.Header.Set("Authorization", "Bearer "+g.f.token)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(g.f, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(g.f, err)
	return resp.StatusCode, string(body)
}

// ready waits until it would be sent requests.
func (g *gateway) ready() *gateway {
	g.f.Helper()
	var status int
	var body string
	require.Eventually(g.f, func() bool {
		status, body = g.get("/readyz")
		return status == http.StatusOK
	}, patience, tick, "%s", body)
	return g
}

// answer is what became of one call.
type answer struct {
	status int    // zero: no answer
	code   string // of a refusal
	retry  string // Retry-After
}

func (a answer) String() string { return strings.TrimSpace(fmt.Sprint(a.status, " ", a.code)) }

const (
	served  = "200"
	missing = "503 missing_credit"
	spent   = "402 money"
)

// call makes one call with the official client, without its own repetitions.
func (g *gateway) call(ctx context.Context, prompt string) answer {
	return g.ask(ctx, "demo-small", prompt)
}

func (g *gateway) ask(ctx context.Context, model, prompt string) answer {
	client := openai.NewClient(option.WithBaseURL(g.url()+"/v1"), option.WithAPIKey(g.f.token), option.WithUnsafeAllowHTTP(), option.WithMaxRetries(0))
	var resp *http.Response
	_, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model: model, MaxCompletionTokens: openai.Int(40),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
	}, option.WithResponseInto(&resp))
	var a answer
	var failed *openai.Error
	switch {
	case err == nil:
		a.status = http.StatusOK
	case errors.As(err, &failed):
		a.status, a.code = failed.StatusCode, failed.Code
	}
	if resp != nil {
		a.retry = resp.Header.Get("Retry-After")
	}
	return a
}

// served calls until one call is served.
func (g *gateway) served(prompt string) {
	g.f.Helper()
	var last answer
	require.Eventually(g.f, func() bool {
		last = g.call(g.f.Context(), prompt)
		return last.String() == served
	}, patience, tick, "the last answer was %v", &last)
}

// counts asks how many tokens a message has, which is free.
func (g *gateway) counts() int {
	g.f.Helper()
	body := `{"model":"claude-haiku-4-5","messages":[{"role":"user","content":"how long is this?"}]}`
	req, err := http.NewRequestWithContext(g.f.Context(), http.MethodPost, g.url()+"/v1/messages/count_tokens", strings.NewReader(body))
	require.NoError(g.f, err)
	req.Header.Set("X-Api-Key", g.f.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(g.f, err)
	defer resp.Body.Close()
	return resp.StatusCode
}

// load is callers who go on until they are stopped.
type load struct {
	f    *fleet
	mu   sync.Mutex
	seen map[string]int
	odd  []string // refusals of 503 that do not say when to come back
	stop func()
}

// load starts so many callers at a gateway, who rest that long after each answer.
func (f *fleet) load(g *gateway, callers int, rest time.Duration, prompt string) *load {
	l := &load{f: f, seen: map[string]int{}}
	ctx, cancel := context.WithCancel(f.Context())
	var wait sync.WaitGroup
	for range callers {
		wait.Go(func() {
			for ctx.Err() == nil {
				a := g.call(f.Context(), prompt)
				l.mu.Lock()
				l.seen[a.String()]++
				if a.status == http.StatusServiceUnavailable && a.retry != "1" {
					l.odd = append(l.odd, fmt.Sprint(a, " Retry-After ", a.retry))
				}
				l.mu.Unlock()
				pause := rest
				if a.status != http.StatusOK {
					pause = max(rest, 10*time.Millisecond)
				}
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	l.stop = sync.OnceFunc(func() {
		cancel()
		wait.Wait()
	})
	f.Cleanup(l.stop)
	return l
}

func (l *load) count(of string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[of]
}

func (l *load) all() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]int{}
	for k, v := range l.seen {
		out[k] = v
	}
	return out
}

// more waits for so many further answers of a kind.
func (l *load) more(of string, n int) {
	l.f.Helper()
	before := l.count(of)
	require.Eventually(l.f, func() bool { return l.count(of) >= before+n }, patience, tick, "answers so far: %v", l)
}

func (l *load) String() string { return fmt.Sprint(l.all()) }
