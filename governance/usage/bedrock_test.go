package usage_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/usage"
)

var (
	converseStream = framed("messageStart", `{"role":"assistant"}`) + framed("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"Grüße"}}`) +
		framed("contentBlockStop", `{"contentBlockIndex":0}`) + framed("messageStop", `{"stopReason":"end_turn"}`) +
		framed("metadata", `{"usage":{"inputTokens":20,"outputTokens":7,"totalTokens":27,"cacheReadInputTokens":16,"cacheWriteInputTokens":0},"metrics":{"latencyMs":5},"serviceTier":{"type":"priority"},"performanceConfig":{"latency":"optimized"}}`)
	invokeStream = chunk(`{"type":"message_start","message":{"id":"m","model":"claude-x","content":[],"usage":{"input_tokens":1000,"cache_read_input_tokens":30,"output_tokens":1}}}`) +
		chunk(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Grüße"}}`) +
		chunk(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":300}}`) +
		chunk(`{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":1000,"outputTokenCount":300,"invocationLatency":1,"firstByteLatency":1}}`)
)

func TestFromJSONBedrock(t *testing.T) {
	const converse, invoke = usage.BedrockConverse, usage.BedrockInvoke
	known, unknown, invalid := usage.Known, usage.Unknown, usage.Invalid
	for _, c := range []struct {
		name  string
		p     usage.Protocol
		usage string
		state usage.State
		want  classes
	}{
		{"plain", converse, `{"inputTokens":9,"outputTokens":12,"totalTokens":21}`, known, classes{in: 9, out: 12}},
		{"explicit zeros", converse, `{"inputTokens":0,"outputTokens":0,"totalTokens":0}`, known, classes{}},
		{"cached beside the input, in the total", converse, `{"inputTokens":9,"outputTokens":12,"totalTokens":151,"cacheReadInputTokens":100,"cacheWriteInputTokens":30}`, known, classes{in: 9, read: 100, wUnknown: 30, out: 12}},
		{"cached beside the input, not in the total", converse, `{"inputTokens":9,"outputTokens":12,"totalTokens":21,"cacheReadInputTokens":100}`, known, classes{in: 9, read: 100, out: 12}},
		{"both names", converse, `{"inputTokens":9,"outputTokens":12,"totalTokens":21,"cacheReadInputTokens":100,"cacheReadInputTokenCount":100,"cacheWriteInputTokenCount":0}`, known, classes{in: 9, read: 100, out: 12}},
		{"both names, and they differ", converse, `{"inputTokens":9,"outputTokens":12,"cacheReadInputTokens":100,"cacheReadInputTokenCount":50}`, unknown, classes{in: 9, read: 100, out: 12}},
		{"lifetimes", converse, `{"inputTokens":9,"outputTokens":12,"totalTokens":51,"cacheWriteInputTokens":30,"cacheDetails":[{"ttl":"1h","inputTokens":20},{"ttl":"5m","inputTokens":10}]}`, known, classes{in: 9, w1: 20, w5: 10, out: 12}},
		{"a lifetime that is not known", converse, `{"inputTokens":9,"outputTokens":12,"cacheWriteInputTokens":30,"cacheDetails":[{"ttl":"1d","inputTokens":20},{"ttl":"5m","inputTokens":10}]}`, known, classes{in: 9, w5: 10, wUnknown: 20, out: 12}},
		{"a lifetime twice", converse, `{"inputTokens":9,"outputTokens":12,"cacheWriteInputTokens":30,"cacheDetails":[{"ttl":"5m","inputTokens":20},{"ttl":"5m","inputTokens":10}]}`, unknown, classes{in: 9, w5: 20, wUnknown: 10, out: 12}},
		{"lifetimes above the sum", converse, `{"inputTokens":9,"outputTokens":12,"cacheWriteInputTokens":3,"cacheDetails":[{"ttl":"5m","inputTokens":20}]}`, invalid, classes{in: 9, w5: 20, out: 12}},
		{"lifetimes that are no list", converse, `{"inputTokens":9,"outputTokens":12,"cacheWriteInputTokens":3,"cacheDetails":{}}`, unknown, classes{in: 9, wUnknown: 3, out: 12}},
		{"no lifetimes", converse, `{"inputTokens":9,"outputTokens":12,"cacheWriteInputTokens":3,"cacheDetails":null}`, known, classes{in: 9, wUnknown: 3, out: 12}},
		{"total above", converse, `{"inputTokens":9,"outputTokens":12,"totalTokens":22}`, unknown, classes{in: 9, out: 12}},
		{"total between", converse, `{"inputTokens":9,"outputTokens":12,"totalTokens":30,"cacheReadInputTokens":100}`, unknown, classes{in: 9, read: 100, out: 12}},
		{"total below", converse, `{"inputTokens":9,"outputTokens":12,"totalTokens":20}`, invalid, classes{in: 9, out: 12}},
		{"total negative", converse, `{"inputTokens":9,"outputTokens":12,"totalTokens":-1}`, invalid, classes{in: 9, out: 12}},
		{"total that is a text", converse, `{"inputTokens":9,"outputTokens":12,"totalTokens":"21"}`, unknown, classes{in: 9, out: 12}},
		{"absent input", converse, `{"outputTokens":12}`, unknown, classes{out: 12}},
		{"negative", converse, `{"inputTokens":9,"outputTokens":-12,"totalTokens":21}`, invalid, classes{in: 9}},
		{"another protocol's names", converse, `{"input_tokens":9,"output_tokens":12}`, unknown, classes{}},
		{"null", converse, `null`, unknown, classes{}},
		{"invoke", invoke, `{"input_tokens":9,"cache_read_input_tokens":4,"output_tokens":12}`, known, classes{in: 9, read: 4, out: 12}},
		{"invoke without", invoke, `null`, unknown, classes{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, err := usage.FromJSON(c.p, []byte(`{"output":{},"usage":`+c.usage+`,"serviceTier":{"type":"flex"},"performanceConfig":{"latency":"optimized"}}`))
			require.NoError(t, err)
			require.Equal(t, c.state, u.State(), "%+v", u)
			require.Equal(t, c.want, classesOf(u))
			require.Equal(t, "flex", u.ServiceTier)
			require.Equal(t, "optimized", u.Speed)
			requireSane(t, u)
		})
	}
}

func TestFromHeader(t *testing.T) {
	counts := map[string]string{
		"X-Amzn-Bedrock-Input-Token-Count": "9", "X-Amzn-Bedrock-Output-Token-Count": "12",
		"X-Amzn-Bedrock-Cache-Read-Input-Token-Count": "4", "X-Amzn-Bedrock-Service-Tier": "flex", "X-Amzn-Bedrock-Performanceconfig-Latency": "x\x00",
	}
	get := func(name string) string { return counts[name] }
	u := usage.FromHeader(usage.BedrockInvoke, get)
	require.Equal(t, classes{in: 9, read: 4, out: 12}, classesOf(u))
	require.Equal(t, usage.Unknown, u.State(), "whether the answer came whole, a header cannot know")
	require.Equal(t, "flex", u.ServiceTier)
	require.Empty(t, u.Speed)
	require.Equal(t, usage.Usage{}, usage.FromHeader(usage.BedrockConverse, get))
	require.Equal(t, usage.Usage{}, usage.FromHeader(usage.BedrockInvoke, func(string) string { return "" }))

	silent, err := usage.FromJSON(usage.BedrockInvoke, []byte(`{"model":"m","generation":"hi"}`))
	require.NoError(t, err)
	got := silent.Beside(u)
	require.Equal(t, usage.Known, got.State(), "the body says nothing, and came whole")
	require.Equal(t, "m", got.Model)
	same, err := usage.FromJSON(usage.BedrockInvoke, []byte(`{"usage":{"input_tokens":9,"cache_read_input_tokens":4,"output_tokens":12}}`))
	require.NoError(t, err)
	require.Equal(t, usage.Known, same.Beside(u).State())
	other, err := usage.FromJSON(usage.BedrockInvoke, []byte(`{"usage":{"input_tokens":9,"output_tokens":13}}`))
	require.NoError(t, err)
	require.Equal(t, usage.Unknown, other.Beside(u).State(), "one of the two is wrong")
	require.Equal(t, other, other.Beside(usage.Usage{}))
	require.Equal(t, usage.Unknown, (usage.Usage{}).Beside(u).State(), "half an answer")

	for text, want := range map[string]usage.Count{"-1": {State: usage.Invalid}, "1.5": {State: usage.Invalid}, "x": {}, "-": {}, "007": usage.Of(7)} {
		counts["X-Amzn-Bedrock-Input-Token-Count"] = text
		require.Equal(t, want, usage.FromHeader(usage.BedrockInvoke, get).Input, text)
	}
}

func TestStreamBedrock(t *testing.T) {
	const converse, invoke = usage.BedrockConverse, usage.BedrockInvoke
	metadata := func(u string) string { return framed("metadata", `{"usage":`+u+`}`) }
	const nine = `{"inputTokens":9,"outputTokens":12,"totalTokens":21}`
	content, stop := framed("contentBlockDelta", `{}`), framed("messageStop", `{"stopReason":"max_tokens"}`)
	start := func(u string) string { return chunk(`{"type":"message_start","message":{"usage":` + u + `}}`) }
	delta := func(u string) string {
		return chunk(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":` + u + `}`)
	}
	end := func(metrics string) string {
		return chunk(`{"type":"message_stop","amazon-bedrock-invocationMetrics":` + metrics + `}`)
	}
	const metrics = `{"inputTokenCount":9,"outputTokenCount":12}`
	big := strings.Repeat("x", usage.DefaultMaxEvent)
	for _, c := range []struct {
		name     string
		p        usage.Protocol
		stream   string
		state    usage.State
		complete bool
		want     classes
	}{
		{"converse", converse, converseStream, usage.Known, true, classes{in: 20, read: 16, out: 7}},
		{"converse, cut before the metadata", converse, content + stop, usage.Unknown, false, classes{}},
		{"converse, cut in the metadata", converse, content + stop + metadata(nine)[:90], usage.Unknown, false, classes{}},
		{"no usage", converse, content + stop + framed("metadata", `{"metrics":{}}`), usage.Unknown, false, classes{}},
		{"usage null", converse, content + stop + metadata("null"), usage.Unknown, false, classes{}},
		{"usage twice", converse, stop + framed("metadata", `{"usage":`+nine+`,"usage":`+nine+`}`), usage.Unknown, true, classes{in: 9, out: 12}},
		{"usage is a number", converse, stop + metadata("7"), usage.Unknown, true, classes{}},
		{"metadata is no JSON", converse, stop + framed("metadata", `{"usage":`+nine), usage.Unknown, false, classes{}},
		{"metadata before the stop", converse, content + metadata(nine) + stop, usage.Known, true, classes{in: 9, out: 12}},
		{"metadata before the content", converse, metadata(nine) + content + stop, usage.Unknown, false, classes{in: 9, out: 12}},
		{"reports are folded", converse, metadata(`{"inputTokens":9,"outputTokens":1}`) + metadata(nine) + stop, usage.Known, true, classes{in: 9, out: 12}},
		{"without a stop", converse, content + metadata(nine), usage.Unknown, false, classes{in: 9, out: 12}},
		{"after the end", converse, stop + metadata(nine) + content + exception("x"), usage.Known, true, classes{in: 9, out: 12}},
		{"rubbish after the end", converse, stop + metadata(nine) + "rubbish, and more of it", usage.Known, true, classes{in: 9, out: 12}},
		{"rubbish before it", converse, content + "rubbish, and more of it" + stop + metadata(nine), usage.Unknown, false, classes{}},
		{"exception in the middle", converse, content + exception("modelStreamErrorException") + stop + metadata(nine), usage.Unknown, false, classes{in: 9, out: 12}},
		{"oversize content", converse, framed("contentBlockDelta", big) + stop + metadata(nine), usage.Known, true, classes{in: 9, out: 12}},
		{"oversize metadata", converse, stop + framed("metadata", `{"usage":`+nine+`,"x":"`+big+`"}`), usage.Unknown, false, classes{}},
		{"server-sent events", converse, anthropicStream, usage.Unknown, false, classes{}},

		{"invoke", invoke, invokeStream, usage.Known, true, classes{in: 1000, read: 30, out: 300}},
		{"cumulative deltas", invoke, start(`{"input_tokens":9,"output_tokens":1}`) + delta(`{"output_tokens":5}`) + delta(`{"output_tokens":12}`) + end(metrics), usage.Known, true, classes{in: 9, out: 12}},
		{"no usage of its own, but Bedrock's", invoke, chunk(`{"type":"message_start","message":{}}`) + end(metrics), usage.Known, true, classes{in: 9, out: 12}},
		{"the last usage is missing, but Bedrock's", invoke, start(`{"input_tokens":9,"output_tokens":1}`) + end(metrics), usage.Known, true, classes{in: 9, out: 12}},
		{"another vendor's", invoke, chunk(`{"generation":"hi"}`) + chunk(`{"generation":"","stop_reason":"stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":9,"outputTokenCount":12,"cacheReadInputTokenCount":4}}`), usage.Known, true, classes{in: 9, read: 4, out: 12}},
		{"another vendor's, cut", invoke, chunk(`{"generation":"hi"}`), usage.Unknown, false, classes{}},
		{"no usage anywhere", invoke, chunk(`{"type":"message_start","message":{}}`) + chunk(`{"type":"message_stop"}`), usage.Unknown, false, classes{}},
		{"cut", invoke, start(`{"input_tokens":9,"output_tokens":1}`), usage.Unknown, false, classes{in: 9, out: 1}},
		{"negative", invoke, chunk(`{"amazon-bedrock-invocationMetrics":{"inputTokenCount":-9,"outputTokenCount":12}}`), usage.Invalid, true, classes{out: 12}},
		{"chunk without bytes", invoke, start(`{"input_tokens":9,"output_tokens":1}`) + framed("chunk", `{"p":"x"}`), usage.Unknown, false, classes{in: 9, out: 1}},
		{"bytes that are none", invoke, framed("chunk", `{"bytes":"*"}`) + start(`{"input_tokens":9,"output_tokens":1}`) + delta(`{"output_tokens":12}`) + end(metrics), usage.Known, true, classes{in: 9, out: 12}},
		{"an event that is not known", invoke, framed("else", `{}`) + start(`{"input_tokens":9,"output_tokens":1}`) + delta(`{"output_tokens":12}`) + end(metrics), usage.Known, true, classes{in: 9, out: 12}},
		{"exception, then Bedrock's count", invoke, start(`{"input_tokens":9,"output_tokens":1}`) + exception("modelTimeoutException") + end(metrics), usage.Unknown, false, classes{in: 9, out: 12}},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := read(c.p, c.stream, 0).Result()
			require.Equal(t, c.state, u.State(), "%+v", u)
			require.Equal(t, c.complete, u.Complete)
			require.Equal(t, c.want, classesOf(u))
			for _, n := range []int{1, 7, 4096} {
				if len(c.stream) < 1<<16 || n > 100 {
					require.Equal(t, u, read(c.p, c.stream, n).Result(), "in pieces of %d", n)
				}
			}
		})
	}
	u := read(converse, converseStream, 0).Result()
	require.Equal(t, "priority", u.ServiceTier)
	require.Equal(t, "optimized", u.Speed)
}

func TestStreamBedrockErrors(t *testing.T) {
	content := framed("messageStart", `{"role":"assistant"}`)
	for _, c := range []struct {
		name, stream string
		want         *usage.ProviderError
		seen         bool
	}{
		{"before any data", exception("throttlingException"), &usage.ProviderError{Status: 429, Type: "throttlingException"}, false},
		{"in the other spelling", exception("ValidationException"), &usage.ProviderError{Status: 400, Type: "ValidationException"}, false},
		{"after data", content + exception("internalServerException"), &usage.ProviderError{Status: 500, Type: "internalServerException"}, true},
		{"not known", exception("surpriseException"), &usage.ProviderError{Type: "surpriseException"}, false},
		{"an error of the transport", encode(header(":message-type", 7, "error")+header(":error-code", 7, "InternalError")+header(":error-message", 7, "m"), ""), &usage.ProviderError{Type: "InternalError"}, false},
		{"rubbish", "rubbish, and more of it", nil, true},
		{"half a frame", content[:20], nil, true},
		{"nothing", "", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, p := range []usage.Protocol{usage.BedrockConverse, usage.BedrockInvoke} {
				s := read(p, c.stream, 0)
				require.Equal(t, c.want, s.Err())
				require.Equal(t, c.seen, s.DataSeen())
				require.False(t, s.Result().Complete)
			}
		})
	}
}

func TestParseNamedError(t *testing.T) {
	const message = `{"message":"no"}`
	for _, c := range []struct {
		name, kind, body string
		complete         bool
		want             string
	}{
		{"in the header", "ThrottlingException", message, true, "ThrottlingException"},
		{"with what is around it", "com.amazon.x#ThrottlingException:http://internal/", message, true, "ThrottlingException"},
		{"in the body", "", `{"__type":"com.amazon.x#AccessDeniedException","Message":"no"}`, true, "AccessDeniedException"},
		{"in the body's code", "", `{"code":"AccessDeniedException","message":"no"}`, true, "AccessDeniedException"},
		{"nowhere", "", message, false, ""},
		{"no message", "ThrottlingException", `{}`, false, "ThrottlingException"},
		{"message twice", "ThrottlingException", `{"message":"no","Message":"no"}`, false, "ThrottlingException"},
		{"message that is no text", "ThrottlingException", `{"message":{}}`, false, "ThrottlingException"},
		{"cut", "ThrottlingException", `{"message":"no"`, false, "ThrottlingException"},
		{"html of a proxy", "", `<html>429</html>`, false, ""},
		{"a name that is none", "Thr\x00ttling", message, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, p := range []usage.Protocol{usage.BedrockConverse, usage.BedrockInvoke} {
				e, complete := usage.ParseNamedError(p, 429, c.kind, []byte(c.body))
				require.Equal(t, c.complete, complete)
				require.Equal(t, usage.ProviderError{Status: 429, Type: c.want}, *e)
			}
		})
	}
	e, complete := usage.ParseNamedError(usage.OpenAIChat, 429, "ThrottlingException", []byte(message))
	require.False(t, complete, "another protocol's envelope: %v", e)
	e, _ = usage.ParseError(usage.BedrockConverse, 0, []byte(`{"__type":"ModelErrorException","message":"no"}`))
	require.Equal(t, 424, e.Status)
}

func TestStreamBedrockPrefixesAreNeverComplete(t *testing.T) {
	for p, stream := range map[usage.Protocol]string{usage.BedrockConverse: converseStream, usage.BedrockInvoke: invokeStream} {
		last := len(stream)
		if p == usage.BedrockInvoke { // the report itself is complete before message_stop
			last = strings.LastIndex(stream, ":message-type") - 13
		}
		for i := range len(stream) + 1 {
			s := read(p, stream[:i], 0)
			require.Equal(t, i >= last, s.Result().Complete, fmt.Sprintf("%v after %d bytes", p, i))
			requireSane(t, s.Result())
		}
	}
}
