package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/loopback"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/keys"
)

// bedrock returns the official client, with its automatic retries as they are.
func (w *world) bedrock(token string) (*bedrockruntime.Client, *counting) {
	count := &counting{base: w.client.Transport}
	return loopback.Bedrock(w.url(), token, count, nil), count
}

const claudeOnBedrock = "us.anthropic.claude-sonnet-4-5-v1:0"

func converse(model, prompt string) *bedrockruntime.ConverseInput {
	return &bedrockruntime.ConverseInput{
		ModelId: &model, InferenceConfig: &types.InferenceConfiguration{MaxTokens: aws.Int32(100)},
		Messages: []types.Message{{Role: types.ConversationRoleUser, Content: []types.ContentBlock{&types.ContentBlockMemberText{Value: prompt}}}},
	}
}

func TestBedrock(t *testing.T) {
	w := newWorld(t)
	token := w.key("app", budget(10_000_000))
	client, _ := w.bedrock(token)
	long := strings.Repeat("cached prefix ", 200)
	out, err := client.Converse(t.Context(), converse(claudeOnBedrock, long+"{{provider: tokens=10 cached=300 write-5m=40 write-1h=20}}"))
	require.NoError(t, err)
	got := w.arrived.all()
	require.Len(t, got, 1)
	require.Equal(t, providerKey, got[0].Credential)
	require.Equal(t, claudeOnBedrock, got[0].Model)
	for name, values := range got[0].Header {
		require.NotContains(t, strings.Join(values, " "), token, name)
	}
	// $3 fresh, $0.30 read, $3.75 and $6 written, $15 out, for a million each.
	u := out.Usage
	micro100 := int64(*u.InputTokens)*300 + int64(*u.CacheReadInputTokens)*30 + 40*375 + 20*600 + int64(*u.OutputTokens)*1500
	require.Equal(t, (micro100+99)/100, constraint(t, w.usage(token), "cost_per_day").Consumed)

	before := len(w.permits())
	_, err = client.Converse(t.Context(), converse("anthropic.none-v1:0", "hello"))
	var missing *types.ResourceNotFoundException
	require.ErrorAs(t, err, &missing)
	_, err = client.CountTokens(t.Context(), &bedrockruntime.CountTokensInput{ModelId: aws.String(claudeOnBedrock), Input: &types.CountTokensInputMemberConverse{Value: types.ConverseTokensRequest{}}})
	require.ErrorAs(t, err, &missing, "a route that is not served is refused in the protocol's own words")
	require.Len(t, w.permits(), before)
	w.balanced()
}

// What the SDK makes of our refusals: what cannot succeed is sent once, and every one
// of them is a type of its own.
func TestBedrockRefusalsAreTyped(t *testing.T) {
	w := newWorld(t)
	ask := func(token, model string) (int64, error) {
		client, count := w.bedrock(token)
		_, err := client.Converse(t.Context(), converse(model, "hello"))
		return count.n.Load(), err
	}
	status := func(err error) int {
		var r *smithyhttp.ResponseError
		require.ErrorAs(t, err, &r)
		return r.HTTPStatusCode()
	}
	var denied *types.AccessDeniedException
	var quota *types.ServiceQuotaExceededException
	n, err := ask("tly_00000000000000000000000000000000000000000001N4bGd", claudeOnBedrock)
	require.ErrorAs(t, err, &denied)
	require.Equal(t, [2]int64{1, 401}, [2]int64{n, int64(status(err))})
	n, err = ask(w.key("narrow", keys.Limits{}, func(c *keys.CreateKey) { c.AllowedModels = []string{} }), claudeOnBedrock)
	require.ErrorAs(t, err, &denied)
	require.Equal(t, [2]int64{1, 403}, [2]int64{n, int64(status(err))})
	n, err = ask(w.key("poor", budget(10)), claudeOnBedrock)
	require.ErrorAs(t, err, &quota)
	require.Equal(t, [2]int64{1, 400}, [2]int64{n, int64(status(err))})
	n, err = ask(w.spentOnBedrock("spent"), claudeOnBedrock)
	require.ErrorAs(t, err, &quota)
	require.Equal(t, [2]int64{1, 402}, [2]int64{n, int64(status(err))})
	require.NotEmpty(t, quota.ErrorMessage())

	// A rate that fills again is a ThrottlingException, which the SDK repeats by itself.
	token := w.key("often", keys.Limits{RequestsPerMinute: keys.Limit(1)})
	_, err = ask(token, claudeOnBedrock)
	require.NoError(t, err)
	client, count := w.bedrock(token)
	_, err = client.Converse(t.Context(), converse(claudeOnBedrock, "hello"), func(o *bedrockruntime.Options) { o.Retryer = aws.NopRetryer{} })
	var throttled *types.ThrottlingException
	require.ErrorAs(t, err, &throttled)
	require.Equal(t, int64(1), count.n.Load())
	var raw *smithyhttp.ResponseError
	require.ErrorAs(t, err, &raw)
	require.NotEmpty(t, raw.Response.Header.Get("Retry-After"))
	require.Equal(t, raw.Response.Header.Get("Retry-After")+"000", raw.Response.Header.Get("X-Amz-Retry-After"))

	// Our account's trouble at Bedrock is not the client's: not its key's, and no reason to wait.
	client, _ = w.bedrock(w.key("wide", keys.Limits{}))
	_, err = client.Converse(t.Context(), converse("anthropic.claude-haiku-4-5-v1:0", "hello"), func(o *bedrockruntime.Options) { o.Retryer = aws.NopRetryer{} })
	require.Equal(t, 502, status(err))
	w.balanced()
}

// spentOnBedrock makes a key whose budget has room for one request, and spends it.
func (w *world) spentOnBedrock(id string) string {
	w.t.Helper()
	token := w.key(id, budget(3000))
	client, _ := w.bedrock(token)
	_, err := client.Converse(w.t.Context(), converse(claudeOnBedrock, "{{provider: tokens=100}}"))
	require.NoError(w.t, err)
	w.settled()
	return token
}

// With the store down the SDK is told to come back, and does.
func TestBedrockStorageDown(t *testing.T) {
	w := newWorld(t)
	token := w.key("app", budget(10_000_000))
	client, count := w.bedrock(token)
	broken := w.table("key")
	w.sql("alter table " + broken + " rename to hidden")
	_, err := client.Converse(t.Context(), converse(claudeOnBedrock, "hello"), func(o *bedrockruntime.Options) { o.RetryMaxAttempts = 2 })
	var busy *types.ServiceUnavailableException
	require.ErrorAs(t, err, &busy)
	require.NotContains(t, busy.ErrorMessage(), broken)
	require.Equal(t, int64(2), count.n.Load())
	w.sql("alter table hidden rename to " + broken)
	_, err = client.Converse(t.Context(), converse(claudeOnBedrock, "hello"))
	require.NoError(t, err)
	w.balanced()
}

func TestResponses(t *testing.T) {
	w := newWorld(t)
	token := w.key("app", budget(10_000_000))
	client, _ := w.openai(token)
	q := responses.ResponseNewParams{Model: "safe", MaxOutputTokens: openai.Int(100), Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("{{provider: tokens=20}}")}}
	answer, err := client.Responses.New(t.Context(), q)
	require.NoError(t, err)
	require.Len(t, strings.Fields(answer.OutputText()), 20)
	money := constraint(t, w.usage(token), "cost_per_day")
	require.Equal(t, answer.Usage.InputTokens+2*answer.Usage.OutputTokens, money.Consumed)

	// Both attempts of a fallback have a reservation of their own here too.
	q.Input.OfString = openai.String("{{provider: error=503}}")
	_, err = client.Responses.New(t.Context(), q)
	require.Equal(t, 503, status(t, err))
	w.settled()
	require.GreaterOrEqual(t, w.permits()["uncertain"], 2)

	q.Background = openai.Bool(true)
	_, err = client.Responses.New(t.Context(), q)
	require.Equal(t, 400, status(t, err))

	stream := client.Responses.NewStreaming(t.Context(), responses.ResponseNewParams{Model: "demo-small", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hello")}})
	for stream.Next() {
		require.NotEqual(t, "error", stream.Current().Type)
	}
	require.NoError(t, stream.Err())
	code, body, header := w.post("/v1/responses/resp_1", token, "{}")
	require.Equal(t, 404, code)
	require.Equal(t, "false", header.Get("X-Should-Retry"))
	var shape struct{ Error struct{ Code string } }
	require.NoError(t, json.Unmarshal(body, &shape))
	require.Equal(t, "unknown_route", shape.Error.Code)
	require.Empty(t, header.Get(httpgov.PermitHeader))
	w.balanced()
}
