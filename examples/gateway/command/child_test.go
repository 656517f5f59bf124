package command_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/admin"
	"github.com/tallystick-go/tallystick/examples/gateway/command"
	"github.com/tallystick-go/tallystick/examples/gateway/provider"
	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/internal/pgtest"
)

// asChild makes this test binary be the gateway.
const asChild = "GATEWAY_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(asChild) != "" {
		os.Exit(command.Run(command.Process{Args: os.Args[1:], Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv}))
	}
	os.Exit(pgtest.Run(m))
}

const document = `
listen: 127.0.0.1:0
admin: {listen: 127.0.0.1:0, token: env:ADMIN}
storage: {sqlite: gateway.db}
upstreams:
  - {name: one, protocol: openai, base_url: "%s", credential: env:KEY, models: [demo-small]}
timeouts: {drain: 20s}
`

// place is a folder with a configuration, and a provider behind it.
type place struct {
	t        *testing.T
	folder   string
	provider *provider.Provider
	arrived  chan provider.Received
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, folder: t.TempDir(), arrived: make(chan provider.Received, 1000)}
	p.provider = provider.New(&provider.Options{Observe: func(r provider.Received) { p.arrived <- r }})
	s := httptest.NewServer(p.provider)
	t.Cleanup(s.Close)
	require.NoError(t, os.WriteFile(p.path("gateway.yaml"), fmt.Appendf(nil, document, s.URL), 0o600))
	return p
}

func (p *place) path(name string) string { return filepath.Join(p.folder, name) }

func (p *place) document() string {
	p.t.Helper()
	data, err := os.ReadFile(p.path("gateway.yaml"))
	require.NoError(p.t, err)
	return string(data)
}

func (p *place) write(document string) {
	p.t.Helper()
	require.NoError(p.t, os.WriteFile(p.path("gateway.yaml"), []byte(document), 0o600))
}

func (p *place) append(text string) { p.write(p.document() + text) }

// child is a gateway in a process of its own.
type child struct {
	*exec.Cmd
	t       *testing.T
	clients string
	admin   string
	errors  *bytes.Buffer
	wait    func() error
}

// serve starts a gateway and waits until it listens.
func (p *place) serve() *child {
	p.t.Helper()
	c := &child{t: p.t, errors: &bytes.Buffer{}}
	c.Cmd = exec.Command(os.Args[0], "serve", "-config", p.path("gateway.yaml"))
	c.Env = append(os.Environ(), asChild+"=1", "ADMIN=admin-secret", "KEY=sk-provider")
	c.Stderr = c.errors
	out, err := c.StdoutPipe()
	require.NoError(p.t, err)
	require.NoError(p.t, c.Start())
	c.wait = sync.OnceValue(c.Wait)
	p.t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		name, url, _ := strings.Cut(lines.Text(), ":")
		switch name {
		case "clients":
			c.clients = strings.TrimSpace(url)
		case "operators":
			c.admin = strings.TrimSpace(url)
			return c
		}
	}
	_ = c.wait()
	p.t.Fatalf("the gateway did not start: %s", c.errors)
	return nil
}

// stop ends a gateway in good order.
func (c *child) stop() {
	c.t.Helper()
	require.NoError(c.t, c.Process.Signal(syscall.SIGTERM))
	require.NoError(c.t, c.wait(), c.errors)
}

// run runs a command in this process.
func run(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env := func(name string) (string, bool) {
		value, ok := map[string]string{"ADMIN": "admin-secret", "WRONG": "other", "KEY": "sk-provider"}[name]
		return value, ok
	}
	status = command.Run(command.Process{Args: args, Out: &stdout, Err: &stderr, Env: env})
	return status, stdout.String(), stderr.String()
}

// operate runs a command that must succeed, and decodes its answer.
func operate[T any](t *testing.T, args ...string) T {
	t.Helper()
	status, out, errs := run(t, append(args, "-json")...)
	require.Zero(t, status, errs)
	var v T
	require.NoError(t, json.Unmarshal([]byte(out), &v), out)
	return v
}

func (c *child) over() []string { return []string{"-admin", c.admin, "-token", "env:ADMIN"} }

func (c *child) openai(token string) openai.Client {
	return openai.NewClient(option.WithBaseURL(c.clients+"/v1"), option.WithAPIKey(token), option.WithUnsafeAllowHTTP(), option.WithMaxRetries(0))
}

func chat(prompt string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: "demo-small", MaxCompletionTokens: openai.Int(50),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
	}
}

// A gateway that dies in the middle of calls gives nothing back: what its calls
// may have used stays reserved, listed, until an operator looks at it.
func TestKilled(t *testing.T) {
	p := newPlace(t)
	c := p.serve()
	operate[map[string]any](t, append([]string{"teams", "create", "-id", "acme", "-cost-per-day", "$1", "-concurrency", "8"}, c.over()...)...)
	key := operate[admin.NewKey](t, append([]string{"keys", "create", "-id", "app", "-team", "acme"}, c.over()...)...)
	client := c.openai(key.Token)
	_, err := client.Chat.Completions.New(t.Context(), chat("hello"))
	require.NoError(t, err)
	<-p.arrived

	const calls = 5
	answers := make(chan error, calls)
	for range calls {
		go func() {
			_, err := client.Chat.Completions.New(context.WithoutCancel(t.Context()), chat("{{provider: hold=never}}"))
			answers <- err
		}()
	}
	for range calls {
		<-p.arrived
	}
	before := operate[report.Usage](t, append([]string{"keys", "usage", "app"}, c.over()...)...)
	require.NoError(t, c.Process.Signal(syscall.SIGKILL))
	require.Error(t, c.wait())
	for range calls {
		require.Error(t, <-answers)
	}

	file := p.path("gateway.db")
	look := func(over ...string) {
		t.Helper()
		holds := operate[report.HoldPage](t, append([]string{"holds", "list", "-open"}, over...)...)
		require.Len(t, holds.Holds, calls)
		var tokens, cost int64
		for _, h := range holds.Holds {
			require.Equal(t, "open", h.State)
			require.Equal(t, "app", h.KeyID)
			tokens, cost = tokens+h.Bound.Tokens, cost+h.Bound.CostMicroUSD
		}
		require.Positive(t, tokens)
		after := operate[report.Usage](t, append([]string{"keys", "usage", "app"}, over...)...)
		for i, was := range before.Constraints {
			if is := after.Constraints[i]; is.Kind == "money" {
				require.Equal(t, was, is, "nothing was refunded, nothing was charged twice")
				require.Equal(t, cost, is.Reserved)
			}
		}
		v := operate[report.Verification](t, append([]string{"verify"}, over...)...)
		require.True(t, v.Balanced)
	}
	look("-sqlite", file)

	c = p.serve()
	look(c.over()...)
	client = c.openai(key.Token)
	_, err = client.Chat.Completions.New(t.Context(), chat("hello again"))
	require.NoError(t, err, "the key and its team go on")

	holds := operate[report.HoldPage](t, append([]string{"holds", "list"}, c.over()...)...)
	for _, h := range holds.Holds {
		resolved := operate[report.Hold](t, append([]string{"holds", "resolve", h.ID, "-tokens", "10", "-cost", "$0.00002", "-actor", "ops", "-reason", "read the provider's log"}, c.over()...)...)
		require.Equal(t, "resolved", resolved.State)
	}
	holds = operate[report.HoldPage](t, append([]string{"holds", "list"}, c.over()...)...)
	require.Empty(t, holds.Holds)
	v := operate[report.Verification](t, append([]string{"verify"}, c.over()...)...)
	require.True(t, v.Balanced)
}

// SIGTERM ends the gateway when the calls in flight have ended, and not before.
func TestTerminated(t *testing.T) {
	p := newPlace(t)
	c := p.serve()
	operate[map[string]any](t, append([]string{"teams", "create", "-id", "acme", "-cost-per-day", "$1"}, c.over()...)...)
	key := operate[admin.NewKey](t, append([]string{"keys", "create", "-id", "app", "-team", "acme"}, c.over()...)...)
	client := c.openai(key.Token)
	answered := make(chan error, 1)
	go func() {
		_, err := client.Chat.Completions.New(context.WithoutCancel(t.Context()), chat("{{provider: hold=gate}}"))
		answered <- err
	}()
	<-p.arrived
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool { // it has stopped to listen to clients
		resp, err := http.Get(c.clients + "/healthz")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err != nil
	}, 10*time.Second, 5*time.Millisecond)
	status, _, errs := run(t, append([]string{"holds", "list"}, c.over()...)...)
	require.Zero(t, status, "operators can look until the last call has ended: %s", errs)
	p.provider.Release("gate")
	require.NoError(t, <-answered)
	require.NoError(t, c.wait(), c.errors.String())

	over := []string{"-sqlite", p.path("gateway.db")}
	holds := operate[report.HoldPage](t, append([]string{"holds", "list"}, over...)...)
	require.Empty(t, holds.Holds, "it was settled before the end")
	require.True(t, operate[report.Verification](t, append([]string{"verify"}, over...)...).Balanced)
}

func TestSecondGatewayIsRefused(t *testing.T) {
	p := newPlace(t)
	p.serve()
	second := exec.Command(os.Args[0], "serve", "-config", p.path("gateway.yaml"))
	second.Env = append(os.Environ(), asChild+"=1", "ADMIN=admin-secret", "KEY=sk-provider")
	out, err := second.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "another gateway serves this file")
}
