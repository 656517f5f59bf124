package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/keys"
)

func TestOpenAIPlain(t *testing.T) {
	w := newWorld(t)
	token := w.key("app", budget(1_000_000))
	client, _ := w.openai(token)
	var resp *http.Response
	answer, err := client.Chat.Completions.New(t.Context(), chat("demo-small", "{{provider: tokens=20}}"), option.WithResponseInto(&resp))
	require.NoError(t, err)
	require.Len(t, strings.Fields(answer.Choices[0].Message.Content), 20)
	require.NotEmpty(t, resp.Header.Get(httpgov.PermitHeader))
	require.Equal(t, "one", resp.Header.Get("X-Gateway-Upstream"))
	require.NotEmpty(t, resp.Header.Get("X-Request-Id"))
	require.NotContains(t, fmt.Sprint(resp.Header), "the-gateways-own", "the account stays private")

	got := w.arrived.all()
	require.Len(t, got, 1)
	require.Equal(t, providerKey, got[0].Credential, "the provider sees the gateway's key")
	for name, values := range got[0].Header {
		require.NotContains(t, strings.Join(values, " "), token, name)
	}
	money := constraint(t, w.usage(token), "cost_per_day")
	require.Equal(t, answer.Usage.PromptTokens*1+answer.Usage.CompletionTokens*2, money.Consumed, "1 and 2 microUSD a token")
	require.Zero(t, money.Reserved)
	require.Equal(t, money.Limit-money.Consumed, money.Remaining)
	require.NotNil(t, money.ResetsAt)
	require.True(t, money.Hard)
	w.balanced()
}

func TestOpenAIStream(t *testing.T) {
	for _, asked := range []bool{true, false} {
		w := newWorld(t)
		token := w.key("app", budget(1_000_000))
		client, _ := w.openai(token)
		q := chat("demo-small", "{{provider: tokens=30}}")
		if asked {
			q.StreamOptions.IncludeUsage = openai.Bool(true)
		}
		stream := client.Chat.Completions.NewStreaming(t.Context(), q)
		var all openai.ChatCompletionAccumulator
		reports := 0
		for stream.Next() {
			chunk := stream.Current()
			require.True(t, all.AddChunk(chunk))
			if len(chunk.Choices) == 0 {
				reports++
			}
		}
		require.NoError(t, stream.Err())
		require.Len(t, strings.Fields(all.Choices[0].Message.Content), 30)
		if asked {
			require.Equal(t, 1, reports)
		} else {
			require.Zero(t, reports, "who did not ask for the usage does not get it")
		}
		w.settled()
		require.Equal(t, map[string]int{"settled": 1}, w.permits(), "settled from what the stream said")
		require.Positive(t, constraint(t, w.usage(token), "cost_per_day").Consumed)
		w.balanced()
	}
}

func TestOpenAIToolsAndEmbeddings(t *testing.T) {
	w := newWorld(t)
	client, _ := w.openai(w.key("app", budget(10_000_000)))
	q := chat("demo-small", "how is the weather")
	q.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name: "weather",
		Parameters: shared.FunctionParameters{
			"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"},
		},
	})}
	answer, err := client.Chat.Completions.New(t.Context(), q)
	require.NoError(t, err)
	call := answer.Choices[0].Message.ToolCalls[0]
	require.Equal(t, "weather", call.Function.Name)
	q.Messages = append(q.Messages, answer.Choices[0].Message.ToParam(), openai.ToolMessage("rain", call.ID))
	answer, err = client.Chat.Completions.New(t.Context(), q)
	require.NoError(t, err)
	require.NotEmpty(t, answer.Choices[0].Message.Content)

	vectors, err := client.Embeddings.New(t.Context(), openai.EmbeddingNewParams{
		Model: "demo-embedding", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"one", "two"}},
	})
	require.NoError(t, err)
	require.Len(t, vectors.Data, 2)
	w.balanced()
	require.Equal(t, map[string]int{"settled": 3}, w.permits())
}

func TestOpenAIModels(t *testing.T) {
	w := newWorld(t)
	client, _ := w.openai(w.key("app", keys.Limits{}, func(c *keys.CreateKey) { c.AllowedModels = []string{"demo-small", "safe"} }))
	page, err := client.Models.List(t.Context())
	require.NoError(t, err)
	var ids []string
	for _, m := range page.Data {
		ids = append(ids, m.ID)
	}
	require.Equal(t, []string{"demo-small", "safe"}, ids, "what the key may use, and no more")
	one, err := client.Models.Get(t.Context(), "safe")
	require.NoError(t, err)
	require.Equal(t, "safe", one.ID)
	_, err = client.Models.Get(t.Context(), "demo-large")
	require.Equal(t, 404, status(t, err))
	require.Empty(t, w.arrived.all(), "no provider was asked")
}

// status finds the typed error of the SDK.
func status(t testing.TB, err error) int {
	t.Helper()
	var failed *openai.Error
	require.ErrorAs(t, err, &failed)
	return failed.StatusCode
}

func TestOpenAIRefusalsAreTyped(t *testing.T) {
	w := newWorld(t)
	never := keys.Limits{RequestsPerMinute: keys.Limit(0)}
	for name, c := range map[string]struct {
		token  string
		model  string
		status int
		code   string
	}{
		"no such key":       {"tly_00000000000000000000000000000000000000000001N4bGd", "demo-small", 401, "invalid_api_key"},
		"no key of ours":    {"sk-something", "demo-small", 401, "invalid_api_key"},
		"budget":            {w.key("poor", budget(10)), "demo-small", 429, "never_fits"},
		"money":             {w.spent("spent"), "demo-small", 402, "money"},
		"model not allowed": {w.key("narrow", keys.Limits{}, func(c *keys.CreateKey) { c.AllowedModels = []string{} }), "demo-small", 403, "model"},
		"model not served":  {w.key("wide", keys.Limits{}), "gpt-unknown", 404, "model_not_found"},
		"other protocol":    {w.key("other", keys.Limits{}), "claude-sonnet-4-5", 404, "model_not_found"},
		"a limit of zero":   {w.key("zero", never), "demo-small", 429, "never_fits"},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(w.arrived.all())
			client, count := w.openai(c.token)
			_, err := client.Chat.Completions.New(t.Context(), chat(c.model, "hello"))
			var failed *openai.Error
			require.ErrorAs(t, err, &failed)
			require.Equal(t, c.status, failed.StatusCode, failed.RawJSON())
			require.Equal(t, c.code, failed.Code)
			require.NotEmpty(t, failed.Message)
			require.NotEmpty(t, failed.Type)
			require.Empty(t, failed.JSON.ExtraFields)
			require.Equal(t, int64(1), count.n.Load(), "the SDK does not repeat what cannot succeed")
			require.Len(t, w.arrived.all(), before, "no provider was asked")
			require.NotContains(t, failed.RawJSON(), c.token)
		})
	}
	w.balanced()
}

// spent makes a key whose budget has room for one request, and spends it.
func (w *world) spent(id string) string {
	w.t.Helper()
	token := w.key(id, budget(700))
	client, _ := w.openai(token)
	_, err := client.Chat.Completions.New(w.t.Context(), chat("demo-small", "{{provider: tokens=100}}"))
	require.NoError(w.t, err)
	w.settled()
	require.Positive(w.t, constraint(w.t, w.usage(token), "cost_per_day").Consumed)
	return token
}

// The SDK waits as long as it is told, and is then let in. Without that it would
// come back after half a second and be refused again.
func TestOpenAIHonoursRetryAfter(t *testing.T) {
	w := newWorld(t)
	token := w.key("app", keys.Limits{TokensPerMinute: keys.Limit(6000)})
	client, count := w.openai(token)
	q := chat("demo-small", "{{provider: tokens=3800}}")
	q.MaxCompletionTokens = openai.Int(3800)
	_, err := client.Chat.Completions.New(t.Context(), q)
	require.NoError(t, err)
	w.settled()
	q = chat("demo-small", "hello")
	body, err := json.Marshal(q)
	require.NoError(t, err)
	w.refusedOnce(token, int64(len(body)), count, func(most int64) error {
		q.MaxCompletionTokens = openai.Int(most)
		_, err := client.Chat.Completions.New(t.Context(), q, option.WithMaxRetries(1))
		return err
	})
	w.balanced()
}

// refusedOnce sends a request that asks for a little more than is left of 6000
// tokens a minute: 150 too many now are none in two seconds. On a machine that
// stalls for that long it is let in at once, and sent again.
func (w *world) refusedOnce(token string, body int64, count *counting, send func(most int64) error) {
	w.t.Helper()
	for range 5 {
		left := constraint(w.t, w.usage(token), "tokens_per_minute").Remaining
		before := count.n.Load()
		require.NoError(w.t, send(left-body-64-16+150))
		if count.n.Load() == before+2 {
			return // one refusal, one wait, one answer
		}
		require.Equal(w.t, before+1, count.n.Load())
		w.settled()
	}
	w.t.Fatal("never refused")
}

func TestOpenAIRateIsRetryable(t *testing.T) {
	w := newWorld(t)
	token := w.key("app", keys.Limits{RequestsPerMinute: keys.Limit(1)})
	client, count := w.openai(token)
	_, err := client.Chat.Completions.New(t.Context(), chat("demo-small", "hello"))
	require.NoError(t, err)
	_, err = client.Chat.Completions.New(t.Context(), chat("demo-small", "hello"), option.WithMaxRetries(0))
	var failed *openai.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 429, failed.StatusCode)
	require.Equal(t, "rate", failed.Code)
	require.NotEmpty(t, failed.Response.Header.Get("Retry-After"))
	require.Empty(t, failed.Response.Header.Get("X-Should-Retry"))
	require.Equal(t, int64(2), count.n.Load())
}
