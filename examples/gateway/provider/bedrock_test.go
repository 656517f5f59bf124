package provider_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/document"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/examples/gateway/loopback"
	"github.com/tallystick-go/tallystick/examples/gateway/provider"
	"github.com/tallystick-go/tallystick/governance/usage"
)

func (w *world) bedrock(key string) *bedrockruntime.Client {
	return loopback.Bedrock(w.url, key, w.client.Transport, aws.NopRetryer{})
}

const bedrockModel = "us.anthropic.claude-sonnet-4-5-v1:0"

func converse(prompt string) *bedrockruntime.ConverseInput {
	return &bedrockruntime.ConverseInput{
		ModelId:  aws.String(bedrockModel),
		System:   []types.SystemContentBlock{&types.SystemContentBlockMemberText{Value: "Be brief."}},
		Messages: []types.Message{{Role: types.ConversationRoleUser, Content: []types.ContentBlock{&types.ContentBlockMemberText{Value: prompt}}}},
	}
}

func weatherToolBedrock() *types.ToolConfiguration {
	return &types.ToolConfiguration{Tools: []types.Tool{&types.ToolMemberToolSpec{Value: types.ToolSpecification{
		Name: aws.String("weather"),
		InputSchema: &types.ToolInputSchemaMemberJson{Value: document.NewLazyDocument(map[string]any{
			"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"},
		})},
	}}}}
}

func TestConverse(t *testing.T) {
	w := newWorld(t, nil)
	long := strings.Repeat("cached prefix ", 200)
	out, err := w.bedrock("key").Converse(t.Context(), converse(long+"{{provider: tokens=5 cached=300 write-5m=40 write-1h=20}}"))
	require.NoError(t, err)
	message := out.Output.(*types.ConverseOutputMemberMessage).Value
	require.Equal(t, types.ConversationRoleAssistant, message.Role)
	require.Len(t, strings.Fields(message.Content[0].(*types.ContentBlockMemberText).Value), 5)
	require.Equal(t, types.StopReasonEndTurn, out.StopReason)
	require.Positive(t, *out.Metrics.LatencyMs)
	u := out.Usage
	require.Equal(t, int32(300), *u.CacheReadInputTokens)
	require.Equal(t, int32(60), *u.CacheWriteInputTokens)
	require.Equal(t, []types.CacheTTL{types.CacheTTLOneHour, types.CacheTTLFiveMinutes}, []types.CacheTTL{u.CacheDetails[0].Ttl, u.CacheDetails[1].Ttl})
	require.Equal(t, int32(5), *u.OutputTokens)
	require.Equal(t, *u.TotalTokens, *u.InputTokens+*u.OutputTokens+360)

	in := converse("hello")
	in.InferenceConfig = &types.InferenceConfiguration{MaxTokens: aws.Int32(3)}
	out, err = w.bedrock("key").Converse(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, types.StopReasonMaxTokens, out.StopReason)
	require.Equal(t, int32(3), *out.Usage.OutputTokens)
}

func TestConverseStream(t *testing.T) {
	w := newWorld(t, nil)
	for _, tools := range []bool{false, true} {
		in := converse("hello {{provider: tokens=6 cached=3}}")
		stream := &bedrockruntime.ConverseStreamInput{ModelId: in.ModelId, Messages: in.Messages, System: in.System}
		if tools {
			stream.ToolConfig = weatherToolBedrock()
		}
		out, err := w.bedrock("key").ConverseStream(t.Context(), stream)
		require.NoError(t, err)
		var text, input string
		var order []string
		var usage *types.TokenUsage
		var stop types.StopReason
		for e := range out.GetStream().Events() {
			switch e := e.(type) {
			case *types.ConverseStreamOutputMemberMessageStart:
				order = append(order, "start")
			case *types.ConverseStreamOutputMemberContentBlockStart:
				require.Equal(t, "weather", *e.Value.Start.(*types.ContentBlockStartMemberToolUse).Value.Name)
			case *types.ConverseStreamOutputMemberContentBlockDelta:
				switch d := e.Value.Delta.(type) {
				case *types.ContentBlockDeltaMemberText:
					text += d.Value
				case *types.ContentBlockDeltaMemberToolUse:
					input += *d.Value.Input
				}
			case *types.ConverseStreamOutputMemberContentBlockStop:
				order = append(order, "block")
			case *types.ConverseStreamOutputMemberMessageStop:
				order, stop = append(order, "stop"), e.Value.StopReason
			case *types.ConverseStreamOutputMemberMetadata:
				order, usage = append(order, "metadata"), e.Value.Usage
				require.Positive(t, *e.Value.Metrics.LatencyMs)
			default:
				t.Fatalf("an event that the SDK does not know: %T", e)
			}
		}
		require.NoError(t, out.GetStream().Err())
		require.NoError(t, out.GetStream().Close())
		require.Equal(t, []string{"start", "block", "stop", "metadata"}, order)
		require.Equal(t, int32(3), *usage.CacheReadInputTokens)
		if tools {
			require.Equal(t, types.StopReasonToolUse, stop)
			require.JSONEq(t, `{"city":"Exchequer"}`, input)
		} else {
			require.Equal(t, types.StopReasonEndTurn, stop)
			require.Len(t, strings.Fields(text), 6)
			require.Equal(t, int32(6), *usage.OutputTokens)
		}
	}
}

func TestConverseTools(t *testing.T) {
	w := newWorld(t, nil)
	in := converse("how is the weather")
	in.ToolConfig = weatherToolBedrock()
	out, err := w.bedrock("key").Converse(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, types.StopReasonToolUse, out.StopReason)
	message := out.Output.(*types.ConverseOutputMemberMessage).Value
	use := message.Content[0].(*types.ContentBlockMemberToolUse).Value
	require.Equal(t, "weather", *use.Name)
	in.Messages = append(in.Messages, message, types.Message{Role: types.ConversationRoleUser, Content: []types.ContentBlock{
		&types.ContentBlockMemberToolResult{Value: types.ToolResultBlock{
			ToolUseId: use.ToolUseId, Content: []types.ToolResultContentBlock{&types.ToolResultContentBlockMemberText{Value: "rain"}},
		}},
	}})
	out, err = w.bedrock("key").Converse(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, types.StopReasonEndTurn, out.StopReason, "after the tool's result the model speaks")
}

func invokeBody(t *testing.T, prompt string) []byte {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"anthropic_version": "bedrock-2023-05-31", "max_tokens": 100, "messages": []any{map[string]string{"role": "user", "content": prompt}},
	})
	require.NoError(t, err)
	return body
}

func TestInvoke(t *testing.T) {
	w := newWorld(t, nil)
	client := w.bedrock("key")
	body := invokeBody(t, strings.Repeat("cached prefix ", 100)+"{{provider: tokens=5 cached=30 write-5m=4}}")
	out, err := client.InvokeModel(t.Context(), &bedrockruntime.InvokeModelInput{ModelId: aws.String(bedrockModel), Body: body})
	require.NoError(t, err)
	require.Equal(t, "application/json", *out.ContentType)
	var whole anthropic.Message
	require.NoError(t, json.Unmarshal(out.Body, &whole))
	requireStrict(t, whole)
	require.Equal(t, int64(5), whole.Usage.OutputTokens)
	require.Equal(t, int64(30), whole.Usage.CacheReadInputTokens)

	stream, err := client.InvokeModelWithResponseStream(t.Context(), &bedrockruntime.InvokeModelWithResponseStreamInput{ModelId: aws.String(bedrockModel), Body: body})
	require.NoError(t, err)
	var all anthropic.Message
	var last []byte
	for e := range stream.GetStream().Events() {
		last = e.(*types.ResponseStreamMemberChunk).Value.Bytes
		var event anthropic.MessageStreamEventUnion
		require.NoError(t, json.Unmarshal(last, &event))
		if !bytes.Contains(last, []byte("amazon-bedrock")) { // which Anthropic's SDK does not know
			requireStrict(t, &event)
		}
		require.NoError(t, all.Accumulate(event))
	}
	require.NoError(t, stream.GetStream().Err())
	require.NoError(t, stream.GetStream().Close())
	require.Equal(t, whole.Usage.InputTokens, all.Usage.InputTokens)
	require.Equal(t, int64(5), all.Usage.OutputTokens)
	require.Contains(t, string(last), `"amazon-bedrock-invocationMetrics":{"inputTokenCount":`)
}

func TestBedrockErrors(t *testing.T) {
	w := newWorld(t, &provider.Options{Credential: "key"})
	ask := func(prompt string) error {
		_, err := w.bedrock("key").Converse(t.Context(), converse(prompt))
		return err
	}
	var throttled *types.ThrottlingException
	require.ErrorAs(t, ask("{{provider: error=429 retry-after=7}}"), &throttled)
	require.NotEmpty(t, throttled.ErrorMessage())
	var failed *types.InternalServerException
	require.ErrorAs(t, ask("{{provider: error=500}}"), &failed)
	var busy *types.ServiceUnavailableException
	require.ErrorAs(t, ask("{{provider: error=503}}"), &busy)
	var model *types.ModelErrorException
	require.ErrorAs(t, ask("{{provider: error=424}}"), &model)
	var invalid *types.ValidationException
	require.ErrorAs(t, ask("{{provider: bogus=1}}"), &invalid)
	in := converse("hello")
	in.ModelId = aws.String("anthropic.none")
	_, err := w.bedrock("key").Converse(t.Context(), in)
	require.ErrorAs(t, err, &invalid)
	var denied *types.AccessDeniedException
	_, err = w.bedrock("other").Converse(t.Context(), converse("hello"))
	require.ErrorAs(t, err, &denied)
	_, err = w.bedrock("key").InvokeModel(t.Context(), &bedrockruntime.InvokeModelInput{ModelId: aws.String(bedrockModel), Body: []byte(`{"messages":[]}`)})
	require.ErrorAs(t, err, &invalid)
}

func TestBrokenBedrockStreams(t *testing.T) {
	w := newWorld(t, nil)
	read := func(prompt string) (events int, err error) {
		in := converse(prompt)
		out, err := w.bedrock("key").ConverseStream(t.Context(), &bedrockruntime.ConverseStreamInput{ModelId: in.ModelId, Messages: in.Messages})
		require.NoError(t, err)
		defer out.GetStream().Close()
		for range out.GetStream().Events() {
			events++
		}
		return events, out.GetStream().Err()
	}
	n, _ := read("{{provider: cut=3}}")
	require.Equal(t, 3, n, "the SDK takes a cut between two frames for the end: only the missing metadata tells")
	n, err := read("{{provider: stream-error=4}}")
	require.Equal(t, 4, n)
	var failed *types.ModelStreamErrorException
	require.ErrorAs(t, err, &failed)
	n, err = read("{{provider: usage=none tokens=2}}")
	require.NoError(t, err)
	require.Equal(t, 6, n)
}

// What AWS's own encoder writes is what our reader reads: every kind of header, every
// size, whatever the pieces.
func TestFramesOfAWSsOwnEncoder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type event struct{ kind, name, payload string }
		var want []event
		var stream bytes.Buffer
		encoder := eventstream.NewEncoder()
		for range rapid.IntRange(0, 5).Draw(t, "frames") {
			e := event{
				kind: rapid.SampledFrom([]string{"event", "exception", "error"}).Draw(t, "kind"),
				name: rapid.StringMatching(`[a-zA-Z]{1,20}`).Draw(t, "name"), payload: rapid.StringN(0, 300, -1).Draw(t, "payload"),
			}
			m := eventstream.Message{Payload: []byte(e.payload)}
			for i := range rapid.IntRange(0, 3).Draw(t, "headers") {
				m.Headers.Set(strings.Repeat("x", i+1), rapid.SampledFrom([]eventstream.Value{
					eventstream.BoolValue(true), eventstream.BoolValue(false), eventstream.Int8Value(-1), eventstream.Int16Value(2), eventstream.Int32Value(3),
					eventstream.Int64Value(4), eventstream.BytesValue("bytes"), eventstream.StringValue("text"), eventstream.TimestampValue{},
					eventstream.UUIDValue{1}, eventstream.StringValue(""),
				}).Draw(t, "value"))
			}
			m.Headers.Set(":message-type", eventstream.StringValue(e.kind))
			m.Headers.Set(map[string]string{"event": ":event-type", "exception": ":exception-type", "error": ":error-code"}[e.kind], eventstream.StringValue(e.name))
			if err := encoder.Encode(&stream, m); err != nil {
				t.Fatal(err)
			}
			want = append(want, e)
		}
		var got []event
		var scanner usage.FrameScanner
		for stream.Len() > 0 {
			scanner.Feed(stream.Next(rapid.IntRange(1, stream.Len()).Draw(t, "piece")), func(f usage.Frame) {
				got = append(got, event{string(f.Kind), string(f.Name), string(f.Payload)})
			})
		}
		require.NoError(t, scanner.Err())
		require.False(t, scanner.Partial())
		require.Equal(t, want, got)
	})
}

func TestBedrockPaths(t *testing.T) {
	arrived := make(chan provider.Received, 1)
	w := newWorld(t, &provider.Options{
		Models:  []provider.Model{{Name: "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.x-v1:0"}},
		Observe: func(r provider.Received) { arrived <- r },
	})
	in := converse("hello")
	in.ModelId = aws.String("arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.x-v1:0")
	_, err := w.bedrock("key").Converse(t.Context(), in)
	require.NoError(t, err)
	got := <-arrived
	require.Equal(t, *in.ModelId, got.Model)
	require.Equal(t, "key", got.Credential)
	require.False(t, got.Stream)
	require.Equal(t, http.Header{"Content-Type": {"application/json"}}["Content-Type"], got.Header["Content-Type"])
}
