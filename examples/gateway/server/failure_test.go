package server_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/examples/gateway/server"
	"github.com/tallystick-go/tallystick/examples/gateway/storage"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
)

// sql runs a statement on the gateway's file, behind its back.
func (w *world) sql(statement string) {
	w.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(w.folder, "gateway.db")+"?_pragma=busy_timeout(5000)")
	require.NoError(w.t, err)
	defer db.Close()
	_, err = db.ExecContext(w.t.Context(), statement)
	require.NoError(w.t, err)
}

// table finds one of the tables by a part of its name.
func (w *world) table(part string) string {
	w.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(w.folder, "gateway.db"))
	require.NoError(w.t, err)
	defer db.Close()
	var name string
	require.NoError(w.t, db.QueryRowContext(w.t.Context(),
		"select name from sqlite_master where type = 'table' and name like ? order by length(name) limit 1", "%"+part+"%").Scan(&name))
	return name
}

// When the database is gone, everything is a 503, never a 401, and no provider is
// asked for anything.
func TestStorageDown(t *testing.T) {
	w := newWorld(t)
	token := w.key("app", budget(10_000_000))
	client, _ := w.openai(token)
	_, err := client.Chat.Completions.New(t.Context(), chat("demo-small", "hello"))
	require.NoError(t, err)
	before := len(w.arrived.all())

	broken := w.table("key")
	w.sql("alter table " + broken + " rename to hidden")
	var resp *http.Response
	_, err = client.Chat.Completions.New(t.Context(), chat("demo-small", "hello"), option.WithMaxRetries(0), option.WithResponseInto(&resp))
	require.Equal(t, 503, status(t, err))
	require.Equal(t, "1", resp.Header.Get("Retry-After"))
	code, body := w.get("/v1/models", token)
	require.Equal(t, 503, code)
	require.NotContains(t, string(body), broken, "nothing of the database is told")
	speaker, _ := w.anthropic(token)
	_, err = speaker.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{
		Model: "claude-sonnet-4-5", Messages: message("hello").Messages,
	})
	require.Equal(t, 503, anthropicStatus(t, err))
	code, _ = w.get("/readyz", "")
	require.Equal(t, 503, code)
	code, _ = w.get("/healthz", "")
	require.Equal(t, 200, code, "restarting would not help")
	require.Len(t, w.arrived.all(), before, "no provider was asked")

	w.sql("alter table hidden rename to " + broken)
	_, err = client.Chat.Completions.New(t.Context(), chat("demo-small", "hello"))
	require.NoError(t, err)
	code, _ = w.get("/readyz", "")
	require.Equal(t, 200, code)
	w.balanced()
}

// With the store down, usage is told as far as this gateway knows it by itself, which
// is nothing: zeros that say so, and no provider is asked. It is neither a 503, which
// clients would repeat, nor a 401, for which they would throw the key away.
func TestUsageWithoutTheStore(t *testing.T) {
	w := newWorld(t)
	known := w.key("known", budget(10_000_000), func(c *keys.CreateKey) { c.Limits.RequestsPerMinute = keys.Limit(10) })
	fresh := w.key("fresh", budget(10_000_000))
	client, _ := w.openai(known)
	_, err := client.Chat.Completions.New(t.Context(), chat("demo-small", "hello"))
	require.NoError(t, err)
	w.settled()
	before := len(w.arrived.all())
	ask := func(token string) (out struct {
		report.Usage
		Available *bool `json:"available"`
	}) {
		t.Helper()
		code, body := w.get("/v1/usage", token)
		require.Equal(t, 200, code, string(body))
		require.NoError(t, json.Unmarshal(body, &out))
		require.NotNil(t, out.Available)
		return out
	}
	told := ask(known)
	require.True(t, *told.Available)
	require.Positive(t, constraint(t, told.Usage, "cost_per_day").Consumed)

	for _, part := range []string{"key", "cell"} { // who is calling cannot be told; how full its limits are cannot
		broken := w.table(part)
		w.sql("alter table " + broken + " rename to hidden")
		down := ask(known)
		require.False(t, *down.Available)
		require.Equal(t, "known", down.KeyID)
		require.Len(t, down.Constraints, len(told.Constraints))
		for _, c := range down.Constraints {
			require.Zero(t, c.Consumed+c.Uncertain+c.Reserved+c.Granted+c.Remaining)
			was := constraint(t, told.Usage, c.Rule)
			require.Equal(t, [5]any{was.Rule, was.Scope, was.Subject, was.Kind, was.Unit}, [5]any{c.Rule, c.Scope, c.Subject, c.Kind, c.Unit})
			require.Equal(t, was.Limit, c.Limit)
		}
		if part == "key" {
			nobody := ask(fresh) // not known here: nothing is told of it
			require.False(t, *nobody.Available)
			require.Empty(t, nobody.KeyID)
			require.Empty(t, nobody.Constraints)
		}
		code, _ := w.get("/v1/usage", "sk-no-key-of-ours")
		require.Equal(t, 401, code, "that is no key, store or not")
		w.sql("alter table hidden rename to " + broken)
	}
	require.Len(t, w.arrived.all(), before, "no provider was asked")
	require.True(t, *ask(known).Available)
	_, err = w.server.Storage.Keys.RevokeKey(t.Context(), keys.RevokeKey{ID: "known"})
	require.NoError(t, err)
	code, _ := w.get("/v1/usage", known)
	require.Equal(t, 401, code, "a refusal is no outage")
}

// A cached principal must not outlive its key.
func TestRevokedAtOnce(t *testing.T) {
	w := newWorld(t)
	token := w.key("app", keys.Limits{})
	client, _ := w.openai(token)
	_, err := client.Chat.Completions.New(t.Context(), chat("demo-small", "hello"))
	require.NoError(t, err)
	_, err = w.server.Storage.Keys.RevokeKey(t.Context(), keys.RevokeKey{ID: "app"})
	require.NoError(t, err)
	_, err = client.Chat.Completions.New(t.Context(), chat("demo-small", "hello"))
	require.Equal(t, 401, status(t, err))
	for _, path := range []string{"/v1/usage", "/v1/models", "/v1/models/demo-small"} {
		code, _ := w.get(path, token)
		require.Equal(t, 401, code, path)
	}
	speaker, _ := w.anthropic(token)
	_, err = speaker.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{
		Model: "claude-sonnet-4-5", Messages: message("hello").Messages,
	})
	require.Equal(t, 401, anthropicStatus(t, err))
	require.Len(t, w.arrived.all(), 1)
}

func TestUsageIsTheCallersOwn(t *testing.T) {
	w := newWorld(t)
	mine := w.key("mine", budget(1000), func(c *keys.CreateKey) { c.Limits.RequestsPerMinute = keys.Limit(10) })
	w.key("other", budget(2000))
	u := w.usage(mine)
	require.Equal(t, "mine", u.KeyID)
	require.Equal(t, "team-mine", u.TeamID)
	require.Equal(t, "zelda", u.User)
	require.Len(t, u.Constraints, 3)
	for _, c := range u.Constraints {
		require.Contains(t, []string{"mine", "team-mine"}, c.Subject)
		require.NotEmpty(t, c.Unit)
	}
	rate := constraint(t, u, "requests_per_minute")
	require.Equal(t, int64(10), rate.Remaining)
	require.Nil(t, rate.ResetsAt, "a rate frees continuously")
	code, _ := w.get("/v1/usage", "")
	require.Equal(t, 401, code)
	code, _ = w.get("/v1/usage", strings.Replace(mine, "tly_", "tlx_", 1))
	require.Equal(t, 401, code)
}

// An impossible report freezes the accounts; an operator looks and releases them.
func TestImpossibleReportFreezes(t *testing.T) {
	w := newWorld(t)
	token := w.key("app", budget(10_000_000))
	client, _ := w.openai(token)
	_, err := client.Chat.Completions.New(t.Context(), chat("demo-small", "{{provider: usage=negative}}"))
	require.NoError(t, err)
	w.settled()
	_, err = client.Chat.Completions.New(t.Context(), chat("demo-small", "hello"))
	require.Equal(t, 423, status(t, err))
	require.True(t, constraint(t, w.usage(token), "cost_per_day").Frozen)
	w.balanced()
}

// Nothing that a client invents becomes a label.
func TestMetricsAreBounded(t *testing.T) {
	w := newWorld(t)
	token := w.key("app", budget(10_000_000))
	client, _ := w.openai(token)
	_, err := client.Chat.Completions.New(t.Context(), chat("safe", "hello"))
	require.NoError(t, err)
	_, err = client.Chat.Completions.New(t.Context(), chat("invented-model", "hello"))
	require.Error(t, err)
	w.get("/v1/invented-path", token)
	w.get("/invented-path", token)
	w.get("/v1/models", "tly_invented")
	w.settled()
	code, body := w.get("/metrics", "")
	require.Equal(t, 200, code)
	text := string(body)
	require.Contains(t, text, `tallystick_gateway_attempts_total{model="safe",outcome="settled",upstream="one"} 1`)
	require.Contains(t, text, `tallystick_gateway_requests_total{route="chat_completions",status="200"} 1`)
	require.Contains(t, text, `tallystick_gateway_refusals_total{reason="invalid_api_key"} 1`)
	require.Contains(t, text, `route="other"`)
	for _, secret := range []string{"invented", token, "app\"", "team-app", "zelda", providerKey} {
		require.NotContains(t, text, secret)
	}
}

// At a shutdown, what is in flight ends, and what it used is recorded.
func TestShutdownDrains(t *testing.T) {
	w := newWorld(t)
	token := w.key("app", budget(10_000_000))
	client, _ := w.openai(token)
	answered := make(chan error, 1)
	go func() {
		_, err := client.Chat.Completions.New(context.WithoutCancel(t.Context()), chat("demo-small", "{{provider: hold=gate}}"), option.WithMaxRetries(0))
		answered <- err
	}()
	<-w.arrived.tell
	require.Equal(t, map[string]int{"open": 1}, w.permits())
	stopped := make(chan error, 1)
	go func() { stopped <- w.stop() }()
	require.Eventually(t, func() bool { // it no longer listens
		resp, err := w.client.Get("http://" + w.server.Address() + "/healthz")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err != nil
	}, waitFor, tick)
	select {
	case err := <-stopped:
		t.Fatalf("stopped while a request was in flight: %v", err)
	default:
	}
	w.one.Release("gate")
	require.NoError(t, <-answered)
	require.NoError(t, <-stopped)
	require.Equal(t, map[string]int{"settled": 1}, w.permits())
	w.balanced()
}

// What does not end in time is cut. Its bound is held: nobody knows what it used.
func TestShutdownCuts(t *testing.T) {
	w := newWorld(t, "drain: 10s", "drain: 100ms")
	token := w.key("app", budget(10_000_000))
	client, _ := w.openai(token)
	answered := make(chan error, 1)
	go func() {
		_, err := client.Chat.Completions.New(context.WithoutCancel(t.Context()), chat("demo-small", "{{provider: hold=never}}"), option.WithMaxRetries(0))
		answered <- err
	}()
	<-w.arrived.tell
	err := w.stop()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Error(t, <-answered)
	require.Equal(t, map[string]int{"uncertain": 1}, w.permits())
	holds, err := w.server.Governor.Holds(t.Context(), governance.HoldQuery{})
	require.NoError(t, err)
	require.Len(t, holds, 1)
	w.balanced()
}

// An upstream that stays silent is left for the next one; nobody knows what it did.
func TestFirstByteTimeout(t *testing.T) {
	w := newWorld(t, "linger: 2s", "linger: 2s, first_byte: 500ms")
	token := w.key("app", budget(10_000_000))
	client, _ := w.openai(token)
	w.two.Release("gate")
	var resp *http.Response
	_, err := client.Chat.Completions.New(t.Context(), chat("safe", "{{provider: hold=gate}}"), option.WithResponseInto(&resp))
	require.NoError(t, err)
	require.Equal(t, "two", resp.Header.Get("X-Gateway-Upstream"))
	w.settled()
	require.Equal(t, map[string]int{"uncertain": 1, "settled": 1}, w.permits())

	code, body, header := w.post("/v1/chat/completions", token, `{"model":"demo-small","max_tokens":5,"messages":[{"role":"user","content":"{{provider: hold=never}}"}]}`)
	require.Equal(t, 504, code)
	require.Contains(t, string(body), "upstream_timeout")
	require.Empty(t, header.Get("X-Should-Retry"))
	w.balanced()
}

func TestRequestTimeout(t *testing.T) {
	w := newWorld(t, "request: 30s", "request: 500ms", "linger: 2s", "linger: 50ms")
	token := w.key("app", budget(10_000_000))
	code, body, _ := w.post("/v1/chat/completions", token, `{"model":"safe","max_tokens":5,"messages":[{"role":"user","content":"{{provider: hold=never}}"}]}`)
	require.Equal(t, 504, code)
	require.Contains(t, string(body), "upstream_timeout")
	w.settled()
	require.Equal(t, map[string]int{"uncertain": 1}, w.permits(), "the time is over for the next upstream too")
	w.balanced()
}

// The time to read a request is not the time to answer it.
func TestReadTimeoutEndsWithTheBody(t *testing.T) {
	w := newWorld(t, "request: 30s", "request: 30s, read_body: 500ms")
	client, _ := w.openai(w.key("app", budget(10_000_000)))
	stream := client.Chat.Completions.NewStreaming(t.Context(), chat("demo-small", "{{provider: slow=600ms pace=10ms tokens=5}}"))
	for stream.Next() {
		continue
	}
	require.NoError(t, stream.Err())
	w.balanced()
}

// A client that leaves does not hide what it used: the upstream is read on.
func TestClientLeaves(t *testing.T) {
	w := newWorld(t)
	token := w.key("app", budget(10_000_000))
	client, _ := w.openai(token)
	ctx, leave := context.WithCancel(t.Context())
	stream := client.Chat.Completions.NewStreaming(ctx, chat("demo-small", "{{provider: pace=2ms tokens=40}}"))
	require.True(t, stream.Next())
	leave()
	_ = stream.Close()
	w.settled()
	require.Equal(t, map[string]int{"settled": 1}, w.permits())
	require.Greater(t, constraint(t, w.usage(token), "cost_per_day").Consumed, int64(80), "all forty tokens")
	w.balanced()
}

func TestOneGatewayPerFile(t *testing.T) {
	w := newWorld(t)
	_, err := server.Open(t.Context(), w.server.Config, nil)
	require.ErrorIs(t, err, storage.ErrServed)
	code, _ := w.get("/healthz", "")
	require.Equal(t, 200, code, "the first one goes on")
}
