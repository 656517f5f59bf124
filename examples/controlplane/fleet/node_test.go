package fleet_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/internal/pgtest"
)

// A gateway that has not heard its authority admits nothing and says so; one that has goes on
// through an outage as long as what it was granted lasts, and after that refuses the cheapest
// call too. Counting tokens is free all the while.
func TestOutageOfTheAuthority(t *testing.T) {
	t.Parallel()
	server := pgtest.Own(t)
	const ttl = 6 * time.Second
	f := newFleet(t, server.DSN(), "tallystick", 1, ttl, "a")
	f.policy(100, 20, "1s")
	f.relay.down.Store(true)
	g := f.gateway("a")
	for range 2 {
		a := g.call(t.Context(), says("early"))
		require.Equal(t, answer{503, "not_ready", "1"}, a)
		status, body := g.get("/readyz")
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Contains(t, body, `"authority":"has not answered yet"`)
		require.Equal(t, http.StatusOK, g.counts())
	}
	f.relay.down.Store(false)
	g.ready().served(says("hello"))

	ctx := context.WithoutCancel(t.Context())
	require.NoError(t, server.Kill(ctx))
	require.Equal(t, served, g.call(ctx, says("valid")).String(), "valid authority goes on")
	require.Equal(t, served, g.ask(ctx, "demo-free", says("free")).String())
	require.Equal(t, http.StatusOK, g.counts())
	require.Eventually(t, func() bool { return g.call(ctx, says("until the deadline")).String() == missing }, patience, 50*time.Millisecond)
	after := f.spent.Load()
	for _, model := range []string{"demo-small", "demo-free"} {
		a := g.ask(ctx, model, says("the cheapest"))
		require.Equal(t, answer{503, "missing_credit", "1"}, a, model)
	}
	require.Equal(t, http.StatusOK, g.counts())
	require.Equal(t, after, f.spent.Load())
	status, _ := g.get("/readyz")
	require.Equal(t, http.StatusOK, status, "it is the credit that is missing, not the node")
	_, body := g.get("/metrics")
	require.Contains(t, body, "tallystick_gateway_node_synced 1")
	require.NotContains(t, body, "tallystick_gateway_node_heartbeats_unanswered 0")

	require.NoError(t, server.Start(ctx))
	g.served(says("again"))
	g.stop()
	sum, _ := f.out()
	require.Zero(t, sum)
	f.balanced(100_000)
}

// The official clients see a missing credit as something to repeat, and repeat it; a spent
// budget as something that repeating does not help.
func TestOfficialClients(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema, 1, time.Minute, "a")
	f.policy(4, 1, "1s")
	g := f.gateway("a").ready()
	var sent atomic.Int64
	count := func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		sent.Add(1)
		return next(r)
	}
	o := openai.NewClient(option.WithBaseURL(g.url()+"/v1"), option.WithAPIKey(f.token), option.WithUnsafeAllowHTTP(), option.WithMaxRetries(5), option.WithMiddleware(count))
	ask := openai.ChatCompletionNewParams{
		Model: "demo-small", MaxCompletionTokens: openai.Int(40),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(says("hello"))},
	}
	_, err := o.Chat.Completions.New(t.Context(), ask)
	require.NoError(t, err, "it came back when there was credit")
	require.Greater(t, sent.Load(), int64(1), "and not at the first try")
	require.EqualValues(t, 1, f.calls.Load(), "what was refused never left")

	many := ask
	many.N = openai.Int(2)
	sent.Store(0)
	_, err = o.Chat.Completions.New(t.Context(), many)
	var failed *openai.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, http.StatusBadRequest, failed.StatusCode, "one answer to each request")
	require.EqualValues(t, 1, sent.Load())

	require.Eventually(t, func() bool { return g.call(t.Context(), says("hello")).String() == spent }, patience, tick)
	sent.Store(0)
	_, err = o.Chat.Completions.New(t.Context(), ask)
	require.ErrorAs(t, err, &failed)
	require.Equal(t, http.StatusPaymentRequired, failed.StatusCode)
	require.EqualValues(t, 1, sent.Load(), "a spent budget is not asked again")

	a := anthropic.NewClient(anthropicoption.WithBaseURL(g.url()), anthropicoption.WithAPIKey(f.token), anthropicoption.WithMaxRetries(5))
	message := []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(says("hello")))}
	_, err = a.Messages.New(t.Context(), anthropic.MessageNewParams{Model: "claude-haiku-4-5", MaxTokens: 40, Messages: message})
	var refused *anthropic.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, http.StatusPaymentRequired, refused.StatusCode)
	n, err := a.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{Model: "claude-haiku-4-5", Messages: message})
	require.NoError(t, err)
	require.Positive(t, n.InputTokens)
	f.policy(500, 50, "1s")
	require.Eventually(t, func() bool {
		_, err := a.Messages.New(t.Context(), anthropic.MessageNewParams{Model: "claude-haiku-4-5", MaxTokens: 40, Messages: message})
		return err == nil
	}, patience, tick)
	g.stop()
}

// An input is bounded by the model's context window where nothing else is said, and every hard
// budget that is about the caller holds the bound.
func TestBoundByTheContextWindow(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema, 1, time.Minute, "a")
	f.policy(200, 40, "1s")
	g := f.gatewayBoundBy("a", "context").ready()
	g.served(says("warm"))
	held := "held {{provider: hold=late tokens=20}}"
	before := f.calls.Load()
	late := make(chan answer, 1)
	go func() { late <- g.call(context.WithoutCancel(t.Context()), held) }()
	require.Eventually(t, func() bool { return f.calls.Load() == before+1 }, patience, tick)
	j := g.journal()
	require.Len(t, j.Accounts, 1)
	require.GreaterOrEqual(t, j.Accounts[0].Reserved, int64(16384), "demo-small: a microUSD for each token of its window")
	f.provider.Release("late")
	require.Equal(t, served, (<-late).String())
	require.Eventually(t, func() bool { return g.journal().Accounts[0].Reserved == 0 }, patience, tick)
	g.stop()
	f.balanced(200_000)
}

// Each attempt reserves by itself, also one that follows another: what the first may have used
// stays charged, and the second is charged what it used.
func TestFallbackReservesAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema, 1, time.Minute, "a")
	f.policy(100, 20, "1s")
	g := f.gateway("a").ready()
	g.served(says("warm"))
	require.Equal(t, served, g.ask(t.Context(), "fallback", says("second")).String())
	g.stop()
	_, b := f.budget()
	require.EqualValues(t, f.spent.Load(), b.Consumed)
	require.EqualValues(t, price(says("warm"))+price(says("second")), b.Consumed)
	require.Positive(t, b.Uncertain, "a 500 proves nothing")
	require.Zero(t, b.Granted)
	f.balanced(100_000)
}

// journal is what an operator is told of what the node holds.
func (g *gateway) journal() report.Journal {
	g.f.Helper()
	var j report.Journal
	require.NoError(g.f, g.admin.Do(g.f.Context(), http.MethodGet, "journal", nil, nil, &j))
	return j
}

// A call that used more than its bound poisons the node: nothing is admitted until an operator
// has looked, across restarts; what was used is on the books in full.
func TestOverrunPoisons(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema, 1, time.Minute, "a")
	const limit = 100_000
	f.policy(limit/1000, 20, "1s")
	g := f.gateway("a").ready()
	g.served(says("warm"))
	const over = 20_000
	require.Equal(t, served, g.call(t.Context(), "over {{provider: tokens=20 prompt="+strconv.Itoa(over)+"}}").String())
	require.Eventually(t, func() bool { return g.call(t.Context(), says("after")).status == http.StatusServiceUnavailable }, patience, tick)
	status, body := g.get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "poisoned by an overrun")
	require.Equal(t, http.StatusOK, g.counts())
	g.kill()
	g.boot()
	require.Eventually(t, func() bool {
		_, body = g.get("/readyz")
		return strings.Contains(body, `"authority":"ready"`)
	}, patience, tick)
	require.Contains(t, body, "poisoned by an overrun")
	require.NotEqual(t, http.StatusOK, g.call(t.Context(), says("after")).status)
	out := g.run(0, "journal", "status", "-sqlite", g.file())
	require.Contains(t, out, "POISONED")
	g.run(1, "journal", "release", "-sqlite", g.file())
	out = g.run(0, "journal", "release", "-sqlite", g.file(), "-actor", "ann", "-reason", "the provider counted otherwise", "-json")
	require.Contains(t, out, `"released":true`)
	g.ready().served(says("released"))
	_, b := f.budget()
	require.GreaterOrEqual(t, int64(b.Consumed+b.Uncertain), int64(over), "it is counted in full")
	require.Nil(t, g.journal().Poison)
	g.stop()
}

// A copy of a node's file, an older one, and one that was started anew: the authority lets none
// of them spend what the first one holds.
func TestCopiesOfANode(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema, 1, 2*time.Second, "a")
	const limit = 100_000
	f.policy(limit/1000, 20, "1s")
	g := f.gateway("a").ready()
	g.served(says("first"))
	g.stop()
	old, err := os.ReadFile(g.file())
	require.NoError(t, err)
	g.boot().ready().served(says("second"))

	// Who opens the same file beside it is kept out.
	second := g.command("serve", "-config", g.path("gateway.yaml"))
	out, err := second.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "another process has this journal open")

	// An older copy comes to the number that was heard already.
	copied := f.gatewayOn("a", old)
	require.Eventually(t, func() bool {
		_, body := copied.get("/readyz")
		return strings.Contains(body, "two copies of this node")
	}, patience, tick)
	a := copied.call(t.Context(), says("copied"))
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, http.StatusOK, copied.counts())
	copied.kill()
	g.served(says("third")) // the first one goes on
	g.kill()
	g.boot().ready()

	// It is started anew, and refused until it is readmitted.
	g.stop()
	out2 := g.run(0, "journal", "start-anew", "-config", g.path("gateway.yaml"), "-actor", "ann", "-reason", "the disk was restored")
	require.Contains(t, out2, "set aside")
	g.boot()
	var heard string
	require.Eventually(t, func() bool {
		_, body := g.get("/readyz")
		_, heard, _ = strings.Cut(body, "has heard opening ")
		heard, _, _ = strings.Cut(heard, " ")
		return heard != ""
	}, patience, tick)
	require.Equal(t, http.StatusServiceUnavailable, g.call(t.Context(), says("anew")).status)
	require.Contains(t, g.run(1, "journal", "readmit", "-config", g.path("gateway.yaml"), "-heard", heard, "-actor", "ann", "-reason", "why"), "another", "not while it is served")
	g.kill()
	require.Contains(t, g.run(0, "journal", "readmit", "-config", g.path("gateway.yaml"), "-heard", heard, "-actor", "ann", "-reason", "it was looked at", "-json"), `"heard":`+heard)
	g.boot().ready().served(says("readmitted"))
	g.stop()
	f.balanced(limit)
}

// gatewayOn starts one of a name on a copy of a file.
func (f *fleet) gatewayOn(name string, file []byte) *gateway {
	f.Helper()
	g := &gateway{f: f, name: name, folder: f.TempDir()}
	g.clock = g.path("clock")
	require.NoError(f, os.WriteFile(g.file(), file, 0o600))
	require.NoError(f, os.WriteFile(g.path("gateway.yaml"), gatewayConfig(f, name, "bytes"), 0o600))
	return g.boot()
}

// What a node is told of itself, over the admin API and the command line, and what it refuses to
// have edited.
func TestWhatANodeSaysOfItself(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema, 1, time.Minute, "a")
	f.policy(100, 20, "1s")
	g := f.gateway("a").ready()
	g.served(says("hello"))
	over := []string{"-admin", g.admin.Base, "-token", "env:ADMIN"}
	out := g.run(0, append([]string{"status"}, over...)...)
	require.Contains(t, out, "NODE")
	require.Contains(t, g.run(0, append([]string{"journal", "status"}, over...)...), "acme day")
	require.Contains(t, g.run(0, append([]string{"policies", "list"}, over...)...), "acme")
	require.Contains(t, g.run(1, append([]string{"policies", "delete", "acme", "-actor", "ann", "-reason", "why"}, over...)...), "policies_from_authority")
	var s report.Status
	require.NoError(t, g.admin.Do(t.Context(), http.MethodGet, "status", nil, nil, &s))
	require.Equal(t, "node", s.Profile)
	require.True(t, s.Ready)
	require.True(t, s.Node.Synced)
	require.NotNil(t, s.Node.LastSync)
	require.Equal(t, map[string]string{"keys": "ready", "counters": "ready", "policies": "ready", "authority": "ready", "journal": "ready"}, s.Parts)
	status, body := g.get("/v1/usage")
	require.Equal(t, http.StatusOK, status)
	var u report.Usage
	require.NoError(t, json.Unmarshal([]byte(body), &u))
	require.Contains(t, body, `"policy":"acme"`)
	_, body = g.get("/metrics")
	require.Contains(t, body, `tallystick_gateway_node_microusd{policy="acme",rule="day",state="consumed"}`)

	// The file is a node's: no gateway that counts for itself serves it.
	g.stop()
	text, err := os.ReadFile(g.path("gateway.yaml"))
	require.NoError(t, err)
	local := strings.Replace(string(text), "profile: node\nnode: a\n", "profile: local\n", 1)
	first, rest, _ := strings.Cut(local, "authority:")
	_, rest, _ = strings.Cut(rest, "\n")
	require.NoError(t, os.WriteFile(g.path("local.yaml"), []byte(first+rest), 0o600))
	require.Contains(t, g.run(1, "serve", "-config", g.path("local.yaml")), "the file is a node's")
	require.Contains(t, g.run(0, "verify", "-sqlite", g.file()), "balance")
}
