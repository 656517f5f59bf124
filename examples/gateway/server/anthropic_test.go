package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/keys"
)

func TestAnthropicPlain(t *testing.T) {
	w := newWorld(t)
	token := w.key("app", budget(1_000_000))
	client, _ := w.anthropic(token)
	long := strings.Repeat("cached prefix ", 200)
	answer, err := client.Messages.New(t.Context(), message(long+"{{provider: tokens=10 cached=300 write-5m=40 write-1h=20}}"))
	require.NoError(t, err)
	require.Len(t, strings.Fields(answer.Content[0].AsText().Text), 10)
	got := w.arrived.all()
	require.Len(t, got, 1)
	require.Equal(t, providerKey, got[0].Credential)
	require.Empty(t, got[0].Header.Get("Authorization"))
	u := answer.Usage
	// $3 fresh, $0.30 read, $3.75 and $6 written, $15 out, for a million each.
	micro100 := u.InputTokens*300 + u.CacheReadInputTokens*30 + u.CacheCreation.Ephemeral5mInputTokens*375 +
		u.CacheCreation.Ephemeral1hInputTokens*600 + u.OutputTokens*1500
	require.Equal(t, (micro100+99)/100, constraint(t, w.usage(token), "cost_per_day").Consumed)
	w.balanced()
}

func TestAnthropicStreamAndTools(t *testing.T) {
	w := newWorld(t)
	token := w.key("app", budget(10_000_000))
	client, _ := w.anthropic(token)
	stream := client.Messages.NewStreaming(t.Context(), message("{{provider: tokens=25}}"))
	var all anthropic.Message
	for stream.Next() {
		require.NoError(t, all.Accumulate(stream.Current()))
	}
	require.NoError(t, stream.Err())
	require.Equal(t, int64(25), all.Usage.OutputTokens)

	q := message("how is the weather")
	q.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{
		Name: "weather", InputSchema: anthropic.ToolInputSchemaParam{
			Properties: map[string]any{"city": map[string]any{"type": "string"}}, Required: []string{"city"},
		},
	}}}
	answer, err := client.Messages.New(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, anthropic.StopReasonToolUse, answer.StopReason)
	q.Messages = append(q.Messages, answer.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock(answer.Content[0].AsToolUse().ID, "rain", false)))
	answer, err = client.Messages.New(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, anthropic.StopReasonEndTurn, answer.StopReason)
	w.balanced()
	require.Equal(t, map[string]int{"settled": 3}, w.permits())
}

// Counting is answered and never billed, whatever the limits say.
func TestCountTokensIsFree(t *testing.T) {
	w := newWorld(t)
	none := keys.Limits{
		RequestsPerMinute: keys.Limit(0), TokensPerMinute: keys.Limit(0), TokensPerDay: keys.Limit(0),
		CostPerDay: keys.Cost(0), CostPerMonth: keys.Cost(0), Concurrency: keys.Limit(0),
	}
	token := w.key("app", none)
	client, _ := w.anthropic(token)
	counted, err := client.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{
		Model: "claude-sonnet-4-5", Messages: message("how long is this").Messages,
	})
	require.NoError(t, err)
	require.Positive(t, counted.InputTokens)
	require.Empty(t, w.permits(), "nothing was reserved")
	require.Equal(t, providerKey, w.arrived.all()[0].Credential)

	// The key must be good at this moment: no cache may answer for the store.
	_, err = w.server.Storage.Keys.RevokeKey(t.Context(), keys.RevokeKey{ID: "app"})
	require.NoError(t, err)
	_, err = client.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{
		Model: "claude-sonnet-4-5", Messages: message("how long is this").Messages,
	})
	require.Equal(t, 401, anthropicStatus(t, err))
	require.Len(t, w.arrived.all(), 1)
}

func TestCountTokensOfAModelThatIsNotAllowed(t *testing.T) {
	w := newWorld(t)
	client, count := w.anthropic(w.key("app", keys.Limits{}, func(c *keys.CreateKey) { c.AllowedModels = []string{"demo-small"} }))
	_, err := client.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{
		Model: "claude-sonnet-4-5", Messages: message("how long is this").Messages,
	})
	require.Equal(t, 403, anthropicStatus(t, err))
	require.Equal(t, int64(1), count.n.Load())
	require.Empty(t, w.arrived.all())
}

func anthropicStatus(t testing.TB, err error) int {
	t.Helper()
	var failed *anthropic.Error
	require.ErrorAs(t, err, &failed)
	return failed.StatusCode
}

func TestAnthropicRefusalsAreTyped(t *testing.T) {
	w := newWorld(t)
	poor := w.key("poor", budget(4000))
	client, _ := w.anthropic(poor)
	_, err := client.Messages.New(t.Context(), message("{{provider: tokens=100}}"))
	require.NoError(t, err)
	w.settled()
	for name, c := range map[string]struct {
		token  string
		status int
		kind   string
	}{
		"no such key":       {"tly_00000000000000000000000000000000000000000001N4bGd", 401, "authentication_error"},
		"money":             {poor, 402, "billing_error"},
		"model not allowed": {w.key("narrow", keys.Limits{}, func(c *keys.CreateKey) { c.AllowedModels = []string{} }), 403, "permission_error"},
		"never fits":        {w.key("tiny", budget(10)), 429, "rate_limit_error"},
	} {
		t.Run(name, func(t *testing.T) {
			client, count := w.anthropic(c.token)
			_, err := client.Messages.New(t.Context(), message("hello"))
			var failed *anthropic.Error
			require.ErrorAs(t, err, &failed)
			require.Equal(t, c.status, failed.StatusCode, failed.RawJSON())
			require.Equal(t, c.kind, string(failed.Type()), failed.RawJSON())
			require.Equal(t, int64(1), count.n.Load(), "the SDK does not repeat what cannot succeed")
		})
	}
	w.balanced()
}

// As with the other SDK: it waits as long as it is told, and is then let in.
func TestAnthropicHonoursRetryAfter(t *testing.T) {
	w := newWorld(t)
	token := w.key("app", keys.Limits{TokensPerMinute: keys.Limit(6000)})
	client, count := w.anthropic(token)
	q := message("{{provider: tokens=3800}}")
	q.MaxTokens = 3800
	_, err := client.Messages.New(t.Context(), q)
	require.NoError(t, err)
	w.settled()
	q = message("hello")
	body, err := json.Marshal(q)
	require.NoError(t, err)
	w.refusedOnce(token, int64(len(body)), count, func(most int64) error {
		q.MaxTokens = most
		_, err := client.Messages.New(t.Context(), q, anthropicoption.WithMaxRetries(1))
		return err
	})
	w.balanced()
}

func TestAnthropicModels(t *testing.T) {
	w := newWorld(t)
	token := w.key("app", keys.Limits{})
	client, _ := w.anthropic(token)
	page, err := client.Models.List(t.Context(), anthropic.ModelListParams{})
	require.NoError(t, err)
	require.Len(t, page.Data, 1)
	require.Equal(t, "claude-sonnet-4-5", page.Data[0].ID)
	status, _ := w.get("/v1/models", "")
	require.Equal(t, http.StatusUnauthorized, status)
}
