package provider_test

import (
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"
)

func ask(prompt string) responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: "gpt-4o-mini", Instructions: openai.String("Be brief."),
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(prompt)},
	}
}

func weatherToolResponses() []responses.ToolUnionParam {
	return []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{
		Name: "weather", Strict: openai.Bool(true),
		Parameters: map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}},
	}}}
}

func TestResponse(t *testing.T) {
	w := newWorld(t, nil)
	answer, err := w.openai.Responses.New(t.Context(), ask(strings.Repeat("cached prefix ", 100)+"{{provider: tokens=5 cached=64 reasoning=2}}"))
	require.NoError(t, err)
	requireStrict(t, answer)
	require.Len(t, strings.Fields(answer.OutputText()), 5)
	require.Equal(t, responses.ResponseStatusCompleted, answer.Status)
	u := answer.Usage
	require.Equal(t, int64(64), u.InputTokensDetails.CachedTokens)
	require.Equal(t, int64(2), u.OutputTokensDetails.ReasoningTokens)
	require.Equal(t, u.InputTokens+u.OutputTokens, u.TotalTokens)

	q := ask("hello")
	q.MaxOutputTokens = openai.Int(3)
	answer, err = w.openai.Responses.New(t.Context(), q)
	require.NoError(t, err)
	requireStrict(t, answer)
	require.Equal(t, responses.ResponseStatusIncomplete, answer.Status)
	require.Equal(t, "max_output_tokens", answer.IncompleteDetails.Reason)
	require.Equal(t, int64(3), answer.Usage.OutputTokens)
}

func TestResponseStream(t *testing.T) {
	w := newWorld(t, nil)
	for _, tools := range []bool{false, true} {
		q := ask("hello {{provider: tokens=6}}")
		if tools {
			q.Tools = weatherToolResponses()
		}
		stream := w.openai.Responses.NewStreaming(t.Context(), q)
		var text, input string
		var last responses.ResponseStreamEventUnion
		number := int64(0)
		for stream.Next() {
			last = stream.Current()
			requireStrict(t, &last)
			require.Equal(t, number, last.SequenceNumber)
			number++
			switch e := last.AsAny().(type) {
			case responses.ResponseTextDeltaEvent:
				text += e.Delta
			case responses.ResponseFunctionCallArgumentsDeltaEvent:
				input += e.Delta
			case nil:
				t.Fatalf("an event that the SDK does not know: %s", last.RawJSON())
			}
		}
		require.NoError(t, stream.Err())
		ended, ok := last.AsAny().(responses.ResponseCompletedEvent)
		require.True(t, ok, last.Type)
		if tools {
			require.JSONEq(t, `{"city":"Exchequer"}`, input)
			require.Equal(t, "weather", ended.Response.Output[0].Name)
		} else {
			require.Len(t, strings.Fields(text), 6)
			require.Equal(t, text, ended.Response.OutputText())
			require.Equal(t, int64(6), ended.Response.Usage.OutputTokens)
		}
	}
}

func TestResponseTools(t *testing.T) {
	w := newWorld(t, nil)
	q := ask("how is the weather")
	q.Tools = weatherToolResponses()
	answer, err := w.openai.Responses.New(t.Context(), q)
	require.NoError(t, err)
	requireStrict(t, answer)
	call := answer.Output[0].AsFunctionCall()
	require.Equal(t, "weather", call.Name)
	result := responses.ResponseInputItemParamOfFunctionCallOutput("rain")
	result.OfFunctionCallOutput.CallID = openai.String(call.CallID)
	q.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
		responses.ResponseInputItemParamOfMessage("how is the weather", responses.EasyInputMessageRoleUser),
		responses.ResponseInputItemParamOfFunctionCall(call.Arguments, call.CallID, call.Name),
		result,
	}}
	answer, err = w.openai.Responses.New(t.Context(), q)
	require.NoError(t, err)
	require.NotEmpty(t, answer.OutputText(), "after the tool's result the model speaks")
}

func TestBrokenResponses(t *testing.T) {
	w := newWorld(t, nil)
	_, err := w.openai.Responses.New(t.Context(), ask("{{provider: error=429}}"))
	var failed *openai.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 429, failed.StatusCode)
	answer, err := w.openai.Responses.New(t.Context(), ask("{{provider: usage=none}}"))
	require.NoError(t, err)
	require.False(t, answer.JSON.Usage.Valid())
	for _, prompt := range []string{"{{provider: cut=3}}", "{{provider: stream-error=3}}"} {
		stream := w.openai.Responses.NewStreaming(t.Context(), ask(prompt))
		ended, said := false, false
		for stream.Next() {
			ended = ended || stream.Current().Type == "response.completed"
			said = said || stream.Current().Type == "error"
		}
		require.False(t, ended)
		require.True(t, said || stream.Err() != nil)
	}
}
