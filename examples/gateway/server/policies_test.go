package server_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/server"
	"github.com/tallystick-go/tallystick/keys"
)

// withPolicies starts a gateway whose policies are in a file.
func withPolicies(t *testing.T, text string) *world {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	w := newWorld(t, "storage: {sqlite: gateway.db}", "storage: {sqlite: gateway.db}\npolicies: {files: ["+path+"]}")
	w.policies = path
	return w
}

// reload puts other policies in the file and has it read again.
func (w *world) reload(text string) error {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(w.policies, []byte(text), 0o600))
	return w.server.ReloadPolicies(w.t.Context())
}

const head = "apiVersion: tallystick.dev/v1alpha1\nkind: GovernancePolicy\n"

const thrift = head + `
metadata: {name: thrift}
spec:
  subject: {team: team-app}
  rules:
    - {name: day, failurePolicy: FailClosed, budget: {limitMilliUSD: 1, hardCap: true, period: day}}
    - {name: route, failurePolicy: FailOpen, routing: {budget: day, budgetTiers: [
        {thresholdPercent: 1, strict: true, substitutions: {demo-large: demo-small, claude-sonnet-4-5: demo-small}}]}}
`

const onlySmall = head + `
metadata: {name: small}
spec:
  subject: {team: team-app}
  rules:
    - {name: models, failurePolicy: FailClosed, modelAccess: {allow: [demo-small]}}
`

// mandatory cannot be enforced by one gateway with a store of its own.
const mandatory = head + `
metadata: {name: quota}
spec:
  subject: {team: team-app}
  rules:
    - {name: month, failurePolicy: FailClosed, tokenQuota: {limitTokens: 1000000, period: month}}
`

// A budget that fills replaces the model, before it is decided where the request goes.
func TestPoliciesRoute(t *testing.T) {
	w := withPolicies(t, thrift)
	client, _ := w.openai(w.key("app", keys.Limits{}))
	ask := func(model string) (served, said string) {
		t.Helper()
		var resp *http.Response
		_, err := client.Chat.Completions.New(t.Context(), chat(model, "hello"), option.WithResponseInto(&resp))
		require.NoError(t, err)
		w.settled()
		all := w.arrived.all()
		return all[len(all)-1].Model, resp.Header.Get("X-Gateway-Model")
	}
	served, said := ask("demo-small")
	require.Equal(t, "demo-small", served)
	require.Empty(t, said)
	served, said = ask("demo-large")
	require.Equal(t, "demo-small", served, "the first call has filled a hundredth of a tenth of a cent")
	require.Equal(t, "demo-small", said)
	u := constraint(t, w.usage(w.token), "day")
	require.Equal(t, "thrift", u.Policy)
	require.EqualValues(t, 1000, u.Limit)
	require.EqualValues(t, 1, u.Tier)
	require.True(t, u.Hard)

	speaker, _ := w.anthropic(w.token)
	_, err := speaker.Messages.New(t.Context(), message("hello"))
	require.Equal(t, 404, anthropicStatus(t, err), "what takes its place is not served under this protocol")
	w.balanced()
}

// What policies do not allow is refused at every way in, also where nothing is billed.
func TestPoliciesAllow(t *testing.T) {
	w := withPolicies(t, onlySmall)
	token := w.key("app", keys.Limits{})
	client, _ := w.openai(token)
	_, err := client.Chat.Completions.New(t.Context(), chat("demo-small", "hello"))
	require.NoError(t, err)
	_, err = client.Chat.Completions.New(t.Context(), chat("demo-large", "hello"))
	require.Equal(t, 403, status(t, err))
	speaker, _ := w.anthropic(token)
	count := anthropic.MessageCountTokensParams{Model: "claude-sonnet-4-5", Messages: message("hello").Messages}
	_, err = speaker.Messages.CountTokens(t.Context(), count)
	require.Equal(t, 403, anthropicStatus(t, err))
	code, body := w.get("/v1/models", token)
	require.Equal(t, 200, code)
	require.Contains(t, string(body), "demo-small")
	require.NotContains(t, string(body), "demo-large")
	other, _ := w.openai(w.key("other", keys.Limits{}))
	_, err = other.Chat.Completions.New(t.Context(), chat("demo-large", "hello"))
	require.NoError(t, err, "nobody else is concerned")
	w.balanced()
}

// A rule that must be enforced and cannot be shuts its subject out, and nobody else.
// The next reading of the files opens the gate.
func TestPoliciesGate(t *testing.T) {
	w := withPolicies(t, mandatory)
	token := w.key("app", keys.Limits{})
	client, _ := w.openai(token)
	speaker, _ := w.anthropic(token)
	before := len(w.arrived.all())
	_, err := client.Chat.Completions.New(t.Context(), chat("demo-small", "hello"))
	require.Equal(t, 403, status(t, err))
	require.ErrorContains(t, err, "gated")
	_, err = speaker.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{Model: "claude-sonnet-4-5", Messages: message("hello").Messages})
	require.Equal(t, 403, anthropicStatus(t, err))
	require.Len(t, w.arrived.all(), before)
	require.Contains(t, w.attempts[0].Reason, "gated", "it is counted as a refusal")
	other, _ := w.openai(w.key("other", keys.Limits{}))
	_, err = other.Chat.Completions.New(t.Context(), chat("demo-small", "hello"))
	require.NoError(t, err)

	for name, wrong := range map[string]string{
		"no YAML": "[", "unknown field": mandatory + "extra: 1\n", "twice": onlySmall + "---\n" + onlySmall, "a file that is gone": "",
	} {
		if wrong == "" {
			require.NoError(t, os.Remove(w.policies))
			err = w.server.ReloadPolicies(t.Context())
		} else {
			err = w.reload(wrong)
		}
		require.ErrorIs(t, err, config.ErrConfig, name)
		require.ErrorContains(t, err, w.policies, name)
		_, err = client.Chat.Completions.New(t.Context(), chat("demo-small", "hello"))
		require.Equal(t, 403, status(t, err), "%s: those in force stay", name)
	}
	require.NoError(t, w.reload(onlySmall))
	_, err = client.Chat.Completions.New(t.Context(), chat("demo-small", "hello"))
	require.NoError(t, err)
	w.balanced()
}

func TestPoliciesThatCannotBeRead(t *testing.T) {
	w := withPolicies(t, onlySmall)
	c := *w.server.Config
	c.Storage.SQLite = filepath.Join(t.TempDir(), "other.db")
	require.NoError(t, os.WriteFile(w.policies, []byte(head+"spec: {}\n"), 0o600))
	_, err := server.Open(t.Context(), &c, nil)
	require.ErrorIs(t, err, config.ErrConfig)
	require.ErrorContains(t, err, w.policies)
}

const meter = head + `
metadata: {name: meter}
spec:
  subject: {team: team-app}
  rules:
    - {name: month, failurePolicy: FailOpen, budget: {limitMilliUSD: 1, hardCap: false, period: month}}
    - {name: route, failurePolicy: FailOpen, routing: {budget: month, budgetTiers: [
        {thresholdPercent: 1, strict: true, substitutions: {demo-large: demo-small}}]}}
`

// What nobody can price is refused before it is sent, also where a policy only counts, and
// switches no tier.
func TestPoliciesMeterNothingUnknown(t *testing.T) {
	w := withPolicies(t, meter)
	token := w.key("app", keys.Limits{})
	status, body, header := w.post("/v1/chat/completions", token, `{"model":"demo-large","max_tokens":5,"web_search_options":{},"messages":[{"role":"user","content":"hello"}]}`)
	require.Equal(t, 403, status, string(body))
	require.Contains(t, string(body), "not_governable")
	require.Equal(t, "false", header.Get("X-Should-Retry"))
	require.Empty(t, w.arrived.all())
	client, _ := w.openai(token)
	_, err := client.Chat.Completions.New(t.Context(), chat("demo-large", "hello"))
	require.NoError(t, err)
	require.Equal(t, "demo-large", w.arrived.all()[0].Model)
	w.balanced()
}
