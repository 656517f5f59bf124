package provider_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tallystick-go/tallystick/examples/gateway/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type world struct {
	*provider.Provider
	openai    openai.Client
	anthropic anthropic.Client
	url       string
	client    *http.Client
}

func newWorld(t *testing.T, o *provider.Options) *world {
	t.Helper()
	p := provider.New(o)
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	client := server.Client()
	return &world{
		Provider: p, url: server.URL, client: client,
		openai: openai.NewClient(option.WithBaseURL(server.URL+"/v1"), option.WithAPIKey("sk-test"),
			option.WithHTTPClient(client), option.WithMaxRetries(0), option.WithUnsafeAllowHTTP()),
		anthropic: anthropic.NewClient(anthropicoption.WithBaseURL(server.URL), anthropicoption.WithAPIKey("sk-test"),
			anthropicoption.WithHTTPClient(client), anthropicoption.WithMaxRetries(0)),
	}
}

func chat(prompt string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:    "gpt-4o-mini",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("Be brief."), openai.UserMessage(prompt)},
	}
}

func weatherTool() []openai.ChatCompletionToolUnionParam {
	return []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name: "weather",
		Parameters: shared.FunctionParameters{
			"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"},
		},
	})}
}

func message(prompt string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: "claude-sonnet-4-5", MaxTokens: 100,
		System:   []anthropic.TextBlockParam{{Text: "Be brief."}},
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt))},
	}
}

func weatherToolAnthropic() []anthropic.ToolUnionParam {
	return []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{
		Name: "weather",
		InputSchema: anthropic.ToolInputSchemaParam{
			Properties: map[string]any{"city": map[string]any{"type": "string"}}, Required: []string{"city"},
		},
	}}}
}

func TestChatCompletion(t *testing.T) {
	w := newWorld(t, nil)
	long := strings.Repeat("cached prefix ", 100)
	answer, err := w.openai.Chat.Completions.New(t.Context(), chat(long+"{{provider: tokens=5 cached=64 reasoning=2}}"))
	require.NoError(t, err)
	requireStrict(t, answer)
	require.Len(t, strings.Fields(answer.Choices[0].Message.Content), 5)
	require.Equal(t, "stop", answer.Choices[0].FinishReason)
	u := answer.Usage
	require.Equal(t, int64(64), u.PromptTokensDetails.CachedTokens)
	require.Equal(t, int64(2), u.CompletionTokensDetails.ReasoningTokens)
	require.Equal(t, int64(5), u.CompletionTokens)
	require.Equal(t, u.PromptTokens+u.CompletionTokens, u.TotalTokens)

	again, err := w.openai.Chat.Completions.New(t.Context(), chat(long+"{{provider: tokens=5 cached=64 reasoning=2}}"))
	require.NoError(t, err)
	require.Equal(t, answer.Choices[0].Message.Content, again.Choices[0].Message.Content, "the same prompt has the same answer")
}

func TestChatCompletionCutByMaxTokensAndTimesN(t *testing.T) {
	w := newWorld(t, nil)
	q := chat("hello")
	q.N, q.MaxCompletionTokens = openai.Int(3), openai.Int(4)
	answer, err := w.openai.Chat.Completions.New(t.Context(), q)
	require.NoError(t, err)
	requireStrict(t, answer)
	require.Len(t, answer.Choices, 3)
	require.Equal(t, "length", answer.Choices[2].FinishReason)
	require.Equal(t, int64(12), answer.Usage.CompletionTokens)
}

func TestChatStream(t *testing.T) {
	for _, include := range []bool{true, false} {
		w := newWorld(t, nil)
		q := chat("hello {{provider: tokens=6}}")
		if include {
			q.StreamOptions.IncludeUsage = openai.Bool(true)
		}
		stream := w.openai.Chat.Completions.NewStreaming(t.Context(), q)
		var all openai.ChatCompletionAccumulator
		reports := 0
		for stream.Next() {
			chunk := stream.Current()
			requireStrict(t, chunk)
			require.True(t, all.AddChunk(chunk))
			if len(chunk.Choices) == 0 {
				reports++
			}
		}
		require.NoError(t, stream.Err())
		require.NoError(t, stream.Close())
		require.Len(t, strings.Fields(all.Choices[0].Message.Content), 6)
		if include {
			require.Equal(t, 1, reports)
			require.Equal(t, int64(6), all.Usage.CompletionTokens)
		} else {
			require.Zero(t, reports, "nobody asked for the usage")
		}
	}
}

func TestChatTools(t *testing.T) {
	w := newWorld(t, nil)
	q := chat("how is the weather")
	q.Tools = weatherTool()
	answer, err := w.openai.Chat.Completions.New(t.Context(), q)
	require.NoError(t, err)
	requireStrict(t, answer)
	require.Equal(t, "tool_calls", answer.Choices[0].FinishReason)
	call := answer.Choices[0].Message.ToolCalls[0]
	require.Equal(t, "weather", call.Function.Name)
	require.JSONEq(t, `{"city":"Exchequer"}`, call.Function.Arguments)

	stream := w.openai.Chat.Completions.NewStreaming(t.Context(), q)
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		requireStrict(t, stream.Current())
		require.True(t, all.AddChunk(stream.Current()))
	}
	require.NoError(t, stream.Err())
	require.JSONEq(t, `{"city":"Exchequer"}`, all.Choices[0].Message.ToolCalls[0].Function.Arguments)

	q.Messages = append(q.Messages, answer.Choices[0].Message.ToParam(), openai.ToolMessage("rain", call.ID))
	answer, err = w.openai.Chat.Completions.New(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, "stop", answer.Choices[0].FinishReason, "after the tool's result the model speaks")
}

func TestEmbeddingsAndModels(t *testing.T) {
	w := newWorld(t, nil)
	for _, format := range []openai.EmbeddingNewParamsEncodingFormat{openai.EmbeddingNewParamsEncodingFormatFloat, openai.EmbeddingNewParamsEncodingFormatBase64} {
		answer, err := w.openai.Embeddings.New(t.Context(), openai.EmbeddingNewParams{
			Model: "text-embedding-3-small", EncodingFormat: format,
			Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"one", "two and more"}},
		})
		if format == openai.EmbeddingNewParamsEncodingFormatFloat {
			require.NoError(t, err)
			requireStrict(t, answer)
			require.Len(t, answer.Data, 2)
			require.Equal(t, int64(4), answer.Usage.PromptTokens)
		}
	}
	page, err := w.openai.Models.List(t.Context())
	require.NoError(t, err)
	require.Len(t, page.Data, len(provider.DefaultModels))
	requireStrict(t, page.Data)
	one, err := w.openai.Models.Get(t.Context(), "gpt-4o")
	require.NoError(t, err)
	requireStrict(t, one)
}

func TestOpenAIErrors(t *testing.T) {
	w := newWorld(t, &provider.Options{Credential: "sk-test"})
	for prompt, status := range map[string]int{
		"{{provider: error=400}}":               400,
		"{{provider: error=429 retry-after=7}}": 429,
		"{{provider: error=500}}":               500,
		"{{provider: error=503}}":               503,
		"{{provider: bogus=1}}":                 400,
		"{{provider: tokens=1":                  400,
	} {
		_, err := w.openai.Chat.Completions.New(t.Context(), chat(prompt))
		var failed *openai.Error
		require.ErrorAs(t, err, &failed, prompt)
		require.Equal(t, status, failed.StatusCode, prompt)
		requireStrict(t, failed)
		require.NotEmpty(t, failed.Type)
		if status == 429 {
			require.Equal(t, "7", failed.Response.Header.Get("Retry-After"))
		}
	}
	q := chat("hello")
	q.Model = "gpt-none"
	_, err := w.openai.Chat.Completions.New(t.Context(), q)
	var failed *openai.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "model_not_found", failed.Code)
	_, err = w.openai.Chat.Completions.New(t.Context(), chat("hello"), option.WithAPIKey("sk-other"))
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 401, failed.StatusCode)
}

func TestMessage(t *testing.T) {
	w := newWorld(t, nil)
	long := strings.Repeat("cached prefix ", 200)
	answer, err := w.anthropic.Messages.New(t.Context(), message(long+"{{provider: tokens=5 cached=300 write-5m=40 write-1h=20}}"))
	require.NoError(t, err)
	requireStrict(t, answer)
	require.Len(t, strings.Fields(answer.Content[0].AsText().Text), 5)
	u := answer.Usage
	require.Equal(t, int64(300), u.CacheReadInputTokens)
	require.Equal(t, int64(60), u.CacheCreationInputTokens)
	require.Equal(t, int64(40), u.CacheCreation.Ephemeral5mInputTokens)
	require.Equal(t, int64(20), u.CacheCreation.Ephemeral1hInputTokens)
	require.Positive(t, u.InputTokens)

	counted, err := w.anthropic.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{
		Model: "claude-sonnet-4-5", System: anthropic.MessageCountTokensParamsSystemUnion{OfString: anthropic.String("Be brief.")},
		Messages: message(long + "{{provider: tokens=5 cached=300 write-5m=40 write-1h=20}}").Messages,
	})
	require.NoError(t, err)
	requireStrict(t, counted)
	require.Equal(t, u.InputTokens+u.CacheReadInputTokens+u.CacheCreationInputTokens, counted.InputTokens,
		"a message uses what was counted")
}

func TestMessageStream(t *testing.T) {
	w := newWorld(t, nil)
	for _, tools := range []bool{false, true} {
		q := message("hello {{provider: tokens=6 cached=3}}")
		if tools {
			q.Tools = weatherToolAnthropic()
		}
		stream := w.anthropic.Messages.NewStreaming(t.Context(), q)
		var all anthropic.Message
		for stream.Next() {
			event := stream.Current()
			requireStrict(t, &event)
			require.NoError(t, all.Accumulate(event))
		}
		require.NoError(t, stream.Err())
		require.Equal(t, int64(3), all.Usage.CacheReadInputTokens)
		if tools {
			require.Equal(t, anthropic.StopReasonToolUse, all.StopReason)
			require.JSONEq(t, `{"city":"Exchequer"}`, string(all.Content[0].AsToolUse().Input))
		} else {
			require.Equal(t, int64(6), all.Usage.OutputTokens)
			require.Len(t, strings.Fields(all.Content[0].AsText().Text), 6)
		}
	}
}

func TestMessageToolsAndMaxTokens(t *testing.T) {
	w := newWorld(t, nil)
	q := message("how is the weather")
	q.Tools = weatherToolAnthropic()
	answer, err := w.anthropic.Messages.New(t.Context(), q)
	require.NoError(t, err)
	requireStrict(t, answer)
	require.Equal(t, anthropic.StopReasonToolUse, answer.StopReason)
	use := answer.Content[0].AsToolUse()

	q.MaxTokens = 3
	q.Messages = append(q.Messages, answer.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock(use.ID, "rain", false)))
	answer, err = w.anthropic.Messages.New(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, anthropic.StopReasonMaxTokens, answer.StopReason)
	require.Equal(t, int64(3), answer.Usage.OutputTokens)
}

func TestAnthropicErrors(t *testing.T) {
	w := newWorld(t, &provider.Options{Credential: "sk-test"})
	for prompt, want := range map[string]struct {
		status int
		kind   string
	}{
		"{{provider: error=529}}":               {529, "overloaded_error"},
		"{{provider: error=429 retry-after=7}}": {429, "rate_limit_error"},
		"{{provider: error=500}}":               {500, "api_error"},
		"{{provider: error=418}}":               {418, "invalid_request_error"},
		"{{provider: cached=-1}}":               {400, "invalid_request_error"},
	} {
		_, err := w.anthropic.Messages.New(t.Context(), message(prompt))
		var failed *anthropic.Error
		require.ErrorAs(t, err, &failed, prompt)
		require.Equal(t, want.status, failed.StatusCode, prompt)
		require.Equal(t, want.kind, string(failed.Type()), prompt)
		require.NotEmpty(t, failed.RequestID)
		var shape anthropic.ErrorResponse
		require.NoError(t, json.Unmarshal([]byte(failed.RawJSON()), &shape))
		requireStrict(t, shape)
	}
	_, err := w.anthropic.Messages.New(t.Context(), message("hello"), anthropicoption.WithAPIKey("sk-other"))
	var failed *anthropic.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 401, failed.StatusCode)
}

func TestBrokenAnswers(t *testing.T) {
	w := newWorld(t, nil)
	t.Run("body cut", func(t *testing.T) {
		_, err := w.openai.Chat.Completions.New(t.Context(), chat("{{provider: cut=20}}"))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
	t.Run("stream cut", func(t *testing.T) {
		stream := w.openai.Chat.Completions.NewStreaming(t.Context(), chat("{{provider: cut=3}}"))
		seen := 0
		for stream.Next() {
			seen++
		}
		require.Equal(t, 3, seen)
		require.ErrorIs(t, stream.Err(), io.ErrUnexpectedEOF)
	})
	t.Run("error in an OpenAI stream", func(t *testing.T) {
		stream := w.openai.Chat.Completions.NewStreaming(t.Context(), chat("{{provider: stream-error=3}}"))
		for stream.Next() {
			continue
		}
		require.Error(t, stream.Err())
	})
	t.Run("error in an Anthropic stream", func(t *testing.T) {
		stream := w.anthropic.Messages.NewStreaming(t.Context(), message("{{provider: stream-error=4}}"))
		for stream.Next() {
			continue
		}
		var failed *anthropic.Error
		require.ErrorAs(t, stream.Err(), &failed)
		require.Equal(t, "overloaded_error", string(failed.Type()))
	})
	t.Run("no usage", func(t *testing.T) {
		answer, err := w.openai.Chat.Completions.New(t.Context(), chat("{{provider: usage=none}}"))
		require.NoError(t, err)
		require.False(t, answer.JSON.Usage.Valid())
		said, err := w.anthropic.Messages.New(t.Context(), message("{{provider: usage=none}}"))
		require.NoError(t, err)
		require.False(t, said.JSON.Usage.Valid())
	})
	t.Run("negative usage", func(t *testing.T) {
		answer, err := w.openai.Chat.Completions.New(t.Context(), chat("{{provider: usage=negative}}"))
		require.NoError(t, err)
		require.Equal(t, int64(-1), answer.Usage.CompletionTokens)
	})
}

func TestHeldUntilReleased(t *testing.T) {
	arrived := make(chan provider.Received, 2)
	w := newWorld(t, &provider.Options{Observe: func(r provider.Received) { arrived <- r }})
	done := make(chan error, 1)
	go func() {
		_, err := w.openai.Chat.Completions.New(context.WithoutCancel(t.Context()), chat("{{provider: hold=gate}}"))
		done <- err
	}()
	got := <-arrived
	require.Equal(t, "/v1/chat/completions", got.Path)
	require.Equal(t, "gpt-4o-mini", got.Model)
	require.Equal(t, "sk-test", got.Credential)
	select {
	case err := <-done:
		t.Fatalf("answered while held: %v", err)
	default:
	}
	w.Release("gate")
	require.NoError(t, <-done)

	ctx, leave := context.WithCancel(t.Context())
	go func() { <-arrived; leave() }()
	_, err := w.openai.Chat.Completions.New(ctx, chat("{{provider: hold=never}}"))
	require.True(t, errors.Is(err, context.Canceled), "a client that leaves is let go: %v", err)
}

func TestModelDirectives(t *testing.T) {
	w := newWorld(t, &provider.Options{Models: []provider.Model{{Name: "gpt-4o-mini", Directives: "{{provider: error=503}}"}}})
	_, err := w.openai.Chat.Completions.New(t.Context(), chat("hello"))
	var failed *openai.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 503, failed.StatusCode)
	_, err = w.openai.Embeddings.New(t.Context(), openai.EmbeddingNewParams{Model: "gpt-4o-mini", Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("x")}})
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 404, failed.StatusCode)
}

func TestUnknownPath(t *testing.T) {
	w := newWorld(t, nil)
	response, err := http.Get(w.url + "/v1/nothing")
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, 404, response.StatusCode)
}
