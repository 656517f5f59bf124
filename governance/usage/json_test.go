package usage_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/usage"
)

// classes is the part of a Usage that counts, in short form.
type classes struct {
	in, read, w5, w1, wUnknown, out int64
}

func classesOf(u usage.Usage) classes {
	return classes{u.Input.N, u.CacheRead.N, u.CacheWrite5m.N, u.CacheWrite1h.N, u.CacheWriteUnknownTTL.N, u.Output.N}
}

func TestFromJSON(t *testing.T) {
	const chat, embed, anthropic = usage.OpenAIChat, usage.OpenAIEmbeddings, usage.AnthropicMessages
	known, unknown, invalid := usage.Known, usage.Unknown, usage.Invalid
	for _, c := range []struct {
		name  string
		p     usage.Protocol
		usage string // the value of "usage"
		state usage.State
		want  classes
	}{
		// Conventions.
		{"chat/plain", chat, `{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}`, known, classes{in: 9, out: 12}},
		{"chat/replay S2: explicit zero is not absent", chat, `{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`, known, classes{}},
		{"chat/replay S2 without a total", chat, `{"prompt_tokens":0,"completion_tokens":0}`, known, classes{}},
		{"chat/replay P1: cached inside the prompt", chat, `{"prompt_tokens":262960,"completion_tokens":1744,"prompt_tokens_details":{"cached_tokens":257955}}`, known, classes{in: 5005, read: 257955, out: 1744}},
		{"chat/replay P2: more cached than prompt", chat, `{"prompt_tokens":56322,"completion_tokens":87,"prompt_tokens_details":{"cached_tokens":72960}}`, invalid, classes{in: 56322, read: 72960, out: 87}},
		{"chat/replay P2 with its total", chat, `{"prompt_tokens":56322,"completion_tokens":87,"total_tokens":56409,"prompt_tokens_details":{"cached_tokens":72960}}`, invalid, classes{in: 56322, read: 72960, out: 87}},
		{"chat/cached beside the prompt, as the total shows", chat, `{"prompt_tokens":56322,"completion_tokens":87,"total_tokens":129369,"prompt_tokens_details":{"cached_tokens":72960}}`, unknown, classes{in: 56322, read: 72960, out: 87}},
		{"anthropic/replay P2: cached beside the input", anthropic, `{"input_tokens":56322,"cache_read_input_tokens":72960,"output_tokens":87}`, known, classes{in: 56322, read: 72960, out: 87}},
		{"anthropic/replay S2", anthropic, `{"input_tokens":0,"output_tokens":0}`, known, classes{}},
		{"anthropic/all", anthropic, `{"input_tokens":1,"cache_creation_input_tokens":50,"cache_read_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":20,"ephemeral_1h_input_tokens":30},"output_tokens":7,"service_tier":"standard"}`, known, classes{in: 1, read: 30, w5: 20, w1: 30, out: 7}},
		{"anthropic/no lifetime", anthropic, `{"input_tokens":1,"cache_creation_input_tokens":50,"output_tokens":7}`, known, classes{in: 1, wUnknown: 50, out: 7}},
		{"anthropic/null lifetimes", anthropic, `{"input_tokens":1,"cache_creation_input_tokens":50,"cache_creation":null,"cache_read_input_tokens":null,"output_tokens":7}`, known, classes{in: 1, wUnknown: 50, out: 7}},
		{"anthropic/lifetime for some", anthropic, `{"input_tokens":1,"cache_creation_input_tokens":50,"cache_creation":{"ephemeral_1h_input_tokens":20},"output_tokens":7}`, known, classes{in: 1, w1: 20, wUnknown: 30, out: 7}},
		{"anthropic/lifetimes without a sum", anthropic, `{"input_tokens":1,"cache_creation":{"ephemeral_5m_input_tokens":20,"ephemeral_1h_input_tokens":3},"output_tokens":7}`, known, classes{in: 1, w5: 20, w1: 3, out: 7}},
		{"anthropic/lifetimes above the sum", anthropic, `{"input_tokens":1,"cache_creation_input_tokens":5,"cache_creation":{"ephemeral_5m_input_tokens":20},"output_tokens":7}`, invalid, classes{in: 1, w5: 20, out: 7}},
		{"anthropic/lifetimes that are no object", anthropic, `{"input_tokens":1,"cache_creation_input_tokens":5,"cache_creation":7,"output_tokens":7}`, unknown, classes{in: 1, wUnknown: 5, out: 7}},
		{"anthropic/thinking is part of the output", anthropic, `{"input_tokens":1,"output_tokens":7,"output_tokens_details":{"thinking_tokens":9}}`, known, classes{in: 1, out: 7}},
		{"anthropic/work beside the message", anthropic, `{"input_tokens":1,"output_tokens":7,"iterations":[{"type":"message"},{"type":"compaction","input_tokens":900}]}`, unknown, classes{in: 1, out: 7}},
		{"anthropic/turns of the message itself", anthropic, `{"input_tokens":1,"output_tokens":7,"iterations":[{"type":"message"},{"type":"message"}]}`, known, classes{in: 1, out: 7}},
		{"embeddings", embed, `{"prompt_tokens":8,"total_tokens":8}`, known, classes{in: 8}},
		{"embeddings/total that is larger", embed, `{"prompt_tokens":8,"total_tokens":9}`, unknown, classes{in: 8}},

		// Other dialects of the same protocol.
		{"chat/reasoning beside the completion", chat, `{"prompt_tokens":10,"completion_tokens":5,"total_tokens":115,"completion_tokens_details":{"reasoning_tokens":100}}`, known, classes{in: 10, out: 105}},
		{"chat/reasoning inside", chat, `{"prompt_tokens":10,"completion_tokens":105,"total_tokens":115,"completion_tokens_details":{"reasoning_tokens":100}}`, known, classes{in: 10, out: 105}},
		{"chat/reasoning above the completion, no total", chat, `{"prompt_tokens":10,"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":100}}`, unknown, classes{in: 10, out: 5}},
		{"chat/reasoning above the completion, total says inside", chat, `{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"completion_tokens_details":{"reasoning_tokens":100}}`, invalid, classes{in: 10, out: 5}},
		{"chat/cache hit and miss", chat, `{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_cache_hit_tokens":4,"prompt_cache_miss_tokens":6}`, known, classes{in: 6, read: 4, out: 5}},
		{"chat/hit and miss are not the prompt", chat, `{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_cache_hit_tokens":4,"prompt_cache_miss_tokens":60}`, unknown, classes{in: 6, read: 4, out: 5}},
		{"chat/two names that differ", chat, `{"prompt_tokens":10,"completion_tokens":5,"prompt_cache_hit_tokens":4,"prompt_tokens_details":{"cached_tokens":3}}`, unknown, classes{in: 6, read: 4, out: 5}},
		{"chat/two names that agree", chat, `{"prompt_tokens":10,"completion_tokens":5,"cached_tokens":4,"prompt_tokens_details":{"cached_tokens":4}}`, known, classes{in: 6, read: 4, out: 5}},
		{"chat/cache writes", chat, `{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":3,"cache_write_tokens":4}}`, known, classes{in: 3, read: 3, wUnknown: 4, out: 5}},
		{"chat/cache writes by lifetime", chat, `{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cache_write_tokens":4,"cache_write_tokens_details":{"ttl_30m_tokens":1,"ttl_12h_tokens":3}}}`, known, classes{in: 6, w5: 1, w1: 3, out: 5}},
		{"chat/more writes than prompt", chat, `{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cache_write_tokens":40}}`, invalid, classes{in: 10, wUnknown: 40, out: 5}},
		{"chat/read and written overlap", chat, `{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":8,"cache_write_tokens":8}}`, unknown, classes{read: 8, wUnknown: 8, out: 5}},

		// Totals.
		{"chat/total above", chat, `{"prompt_tokens":9,"completion_tokens":12,"total_tokens":30}`, unknown, classes{in: 9, out: 12}},
		{"chat/total below", chat, `{"prompt_tokens":9,"completion_tokens":12,"total_tokens":20}`, invalid, classes{in: 9, out: 12}},
		{"chat/total without the cached", chat, `{"prompt_tokens":9,"completion_tokens":12,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":4}}`, unknown, classes{in: 5, read: 4, out: 12}},
		{"chat/total is a string", chat, `{"prompt_tokens":9,"completion_tokens":12,"total_tokens":"21"}`, unknown, classes{in: 9, out: 12}},
		{"chat/total is null", chat, `{"prompt_tokens":9,"completion_tokens":12,"total_tokens":null}`, known, classes{in: 9, out: 12}},
		{"chat/sum above 63 bits", chat, `{"prompt_tokens":9223372036854775807,"completion_tokens":1}`, invalid, classes{in: 9223372036854775807, out: 1}},

		// Numbers.
		{"absent prompt", chat, `{"completion_tokens":12}`, unknown, classes{out: 12}},
		{"absent completion", chat, `{"prompt_tokens":12,"total_tokens":12}`, unknown, classes{in: 12}},
		{"absent input", anthropic, `{"output_tokens":12}`, unknown, classes{out: 12}},
		{"null", anthropic, `{"input_tokens":null,"output_tokens":12}`, unknown, classes{out: 12}},
		{"negative", chat, `{"prompt_tokens":-1,"completion_tokens":12}`, invalid, classes{out: 12}},
		{"negative total", chat, `{"prompt_tokens":1,"completion_tokens":2,"total_tokens":-3}`, invalid, classes{in: 1, out: 2}},
		{"negative detail", chat, `{"prompt_tokens":1,"completion_tokens":2,"completion_tokens_details":{"audio_tokens":-3}}`, invalid, classes{in: 1, out: 2}},
		{"negative cached", chat, `{"prompt_tokens":1,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":-3}}`, invalid, classes{in: 1, out: 2}},
		{"minus zero", chat, `{"prompt_tokens":-0,"completion_tokens":12}`, unknown, classes{out: 12}},
		{"half a token", chat, `{"prompt_tokens":1.5,"completion_tokens":12}`, invalid, classes{out: 12}},
		{"decimal point", chat, `{"prompt_tokens":1.0,"completion_tokens":12}`, unknown, classes{out: 12}},
		{"exponent", chat, `{"prompt_tokens":1e3,"completion_tokens":12}`, unknown, classes{out: 12}},
		{"exponent, negative", chat, `{"prompt_tokens":-1e3,"completion_tokens":12}`, invalid, classes{out: 12}},
		{"huge", chat, `{"prompt_tokens":9223372036854775808,"completion_tokens":12}`, invalid, classes{out: 12}},
		{"huge exponent", chat, `{"prompt_tokens":1e999999999,"completion_tokens":12}`, unknown, classes{out: 12}},
		{"string", chat, `{"prompt_tokens":"9","completion_tokens":12}`, unknown, classes{out: 12}},
		{"array", chat, `{"prompt_tokens":[9],"completion_tokens":12}`, unknown, classes{out: 12}},
		{"boolean", chat, `{"prompt_tokens":true,"completion_tokens":12}`, unknown, classes{out: 12}},
		{"twice", chat, `{"prompt_tokens":9,"prompt_tokens":1,"completion_tokens":12}`, unknown, classes{in: 9, out: 12}},
		{"twice through an escape", chat, `{"prompt_tokens":9,"pr\u006fmpt_tokens":1,"completion_tokens":12}`, unknown, classes{in: 9, out: 12}},
		{"twice, once negative", chat, `{"prompt_tokens":9,"prompt_tokens":-1,"completion_tokens":12}`, invalid, classes{in: 9, out: 12}},
		{"other case is another name", chat, `{"Prompt_Tokens":1,"prompt_tokens":9,"completion_tokens":12}`, known, classes{in: 9, out: 12}},
		{"details twice", chat, `{"prompt_tokens":9,"completion_tokens":12,"prompt_tokens_details":{"cached_tokens":1},"prompt_tokens_details":{"cached_tokens":1}}`, unknown, classes{in: 8, read: 1, out: 12}},
		{"details are no object", chat, `{"prompt_tokens":9,"completion_tokens":12,"prompt_tokens_details":[1]}`, unknown, classes{in: 9, out: 12}},
		{"details null", chat, `{"prompt_tokens":9,"completion_tokens":12,"prompt_tokens_details":null}`, known, classes{in: 9, out: 12}},
		{"unknown members", chat, `{"prompt_tokens":9,"completion_tokens":12,"cost":0.25,"x":{"y":[-1]}}`, known, classes{in: 9, out: 12}},
		{"audio above the prompt", chat, `{"prompt_tokens":9,"completion_tokens":12,"prompt_tokens_details":{"audio_tokens":10}}`, invalid, classes{in: 9, out: 12}},
		{"audio above the completion", chat, `{"prompt_tokens":9,"completion_tokens":12,"completion_tokens_details":{"audio_tokens":13}}`, invalid, classes{in: 9, out: 12}},
		{"usage null", chat, `null`, unknown, classes{}},
		{"usage string", chat, `"none"`, unknown, classes{}},
		{"usage empty", chat, `{}`, unknown, classes{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, err := usage.FromJSON(c.p, []byte(`{"id":"x","model":"m-1","usage":`+c.usage+`,"choices":[]}`))
			require.NoError(t, err)
			require.Equal(t, c.state, u.State(), "%+v", u)
			require.Equal(t, c.want, classesOf(u))
			require.True(t, u.Complete)
			require.Equal(t, "m-1", u.Model)
			requireSane(t, u)
		})
	}
}

// requireSane holds for every Usage, whatever was fed in.
func requireSane(t require.TestingT, u usage.Usage) {
	for _, c := range []usage.Count{
		u.Input, u.CacheRead, u.CacheWrite5m, u.CacheWrite1h, u.CacheWriteUnknownTTL, u.Output, u.Reasoning, u.AudioInput, u.ImageInput,
		u.AudioOutput, u.ImageOutput, u.PredictionAccepted, u.PredictionRejected, u.Other, u.WebSearches, u.OtherTools, u.Total(),
	} {
		require.GreaterOrEqual(t, c.N, int64(0))
	}
	if u.State() == usage.Known {
		require.True(t, u.Complete)
		total := u.Input.N + u.CacheRead.N + u.CacheWrite5m.N + u.CacheWrite1h.N + u.CacheWriteUnknownTTL.N + u.Output.N
		require.Equal(t, usage.Of(total), u.Total())
		require.LessOrEqual(t, u.AudioOutput.N, u.Output.N)
	}
}

func TestFromJSONParts(t *testing.T) {
	u, err := usage.FromJSON(usage.OpenAIChat, []byte(`{"service_tier":"priority","usage":{"prompt_tokens":100,"completion_tokens":60,"total_tokens":160,
		"prompt_tokens_details":{"cached_tokens":10,"audio_tokens":5,"image_tokens":6,"text_tokens":79,"video_tokens":4},
		"completion_tokens_details":{"reasoning_tokens":20,"audio_tokens":1,"image_tokens":2,"accepted_prediction_tokens":3,"rejected_prediction_tokens":4,"text_tokens":30,"smell_tokens":2}}}`))
	require.NoError(t, err)
	require.Equal(t, usage.Usage{
		Input: usage.Of(90), CacheRead: usage.Of(10), CacheWrite5m: usage.Of(0), CacheWrite1h: usage.Of(0), CacheWriteUnknownTTL: usage.Of(0), Output: usage.Of(60),
		Reasoning: usage.Of(20), AudioInput: usage.Of(5), ImageInput: usage.Of(6), AudioOutput: usage.Of(1), ImageOutput: usage.Of(2),
		PredictionAccepted: usage.Of(3), PredictionRejected: usage.Of(4), Other: usage.Of(6), ServiceTier: "priority", Complete: true,
	}, u)

	u, err = usage.FromJSON(usage.AnthropicMessages, []byte(`{"usage":{"input_tokens":1,"output_tokens":2,"speed":"fast","inference_geo":"us","service_tier":"batch",
		"server_tool_use":{"web_search_requests":3,"web_fetch_requests":4,"code_execution_requests":5,"x_requests":null}}}`))
	require.NoError(t, err)
	require.Equal(t, usage.Of(3), u.WebSearches)
	require.Equal(t, usage.Of(5), u.OtherTools)
	require.Equal(t, []string{"fast", "us", "batch"}, []string{u.Speed, u.Geo, u.ServiceTier})
	require.Equal(t, usage.Known, u.State())
}

func TestFromJSONRefusesBrokenBodies(t *testing.T) {
	whole := `{"usage":{"prompt_tokens":9,"completion_tokens":12}}`
	for i := range len(whole) {
		u, err := usage.FromJSON(usage.OpenAIChat, []byte(whole[:i]))
		require.ErrorIs(t, err, usage.ErrSyntax, whole[:i])
		require.Equal(t, usage.Usage{}, u)
	}
	for _, body := range []string{
		``, `null`, `[]`, `"x"`, `{} {}`, whole + `x`, `{"usage":{},}`, `{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":+1}`, `{"a":1e}`, `{"a":"` + "\n" + `"}`,
		`{"a":"\x"}`, `{"a":"\u12g4"}`, `{'a':1}`, `{"a" 1}`, `{"a":tru}`, `{"a":NaN}`, "{\"a\":1}\x00", strings.Repeat(`{"a":`, 500) + `1` + strings.Repeat(`}`, 500),
		`{"a":` + strings.Repeat(`[`, 100000),
	} {
		u, err := usage.FromJSON(usage.OpenAIChat, []byte(body))
		require.ErrorIs(t, err, usage.ErrSyntax, "%.40q", body)
		require.Equal(t, usage.Usage{}, u)
	}
	_, err := usage.FromJSON(0, []byte(whole))
	require.ErrorIs(t, err, usage.ErrProtocol)
	_, err = usage.FromJSON(99, []byte(whole))
	require.True(t, errors.Is(err, usage.ErrProtocol))
}

func TestFromJSONTwoUsageObjects(t *testing.T) {
	u, err := usage.FromJSON(usage.OpenAIChat, []byte(`{"usage":{"prompt_tokens":9,"completion_tokens":1},"usage":{"prompt_tokens":1,"completion_tokens":1}}`))
	require.NoError(t, err)
	require.Equal(t, usage.Unknown, u.State())
}

func TestLabelsThatWouldEndInLogsAreDropped(t *testing.T) {
	for _, model := range []string{`"a\nb"`, `"` + strings.Repeat("x", 300) + `"`, `7`, `{}`, `null`, `"\u0000"`} {
		u, err := usage.FromJSON(usage.OpenAIChat, []byte(`{"model":`+model+`,"usage":{"prompt_tokens":1,"completion_tokens":1}}`))
		require.NoError(t, err)
		require.Empty(t, u.Model)
		require.Equal(t, usage.Known, u.State())
	}
}

func TestParseError(t *testing.T) {
	const chat, anthropic = usage.OpenAIChat, usage.AnthropicMessages
	for _, c := range []struct {
		name     string
		p        usage.Protocol
		status   int
		body     string
		complete bool
		want     usage.ProviderError
	}{
		{"openai", chat, 429, `{"error":{"message":"slow down","type":"requests","param":null,"code":"rate_limit_exceeded"}}`, true, usage.ProviderError{Status: 429, Type: "requests", Code: "rate_limit_exceeded"}},
		{"openai numeric code", chat, 400, `{"error":{"message":"no","code":1210}}`, true, usage.ProviderError{Status: 400, Code: "1210"}},
		{"openai null code", chat, 401, `{"error":{"message":"no","type":"invalid_request_error","code":null}}`, true, usage.ProviderError{Status: 401, Type: "invalid_request_error"}},
		{"openai cut", chat, 429, `{"error":{"message":"slow`, false, usage.ProviderError{Status: 429}},
		{"openai cut at its last byte", chat, 429, `{"error":{"message":"a","type":"t"}`, false, usage.ProviderError{Status: 429, Type: "t"}},
		{"openai string", chat, 404, `{"error":"no such model"}`, false, usage.ProviderError{Status: 404}},
		{"openai empty", chat, 404, `{"error":{}}`, false, usage.ProviderError{Status: 404}},
		{"openai twice", chat, 404, `{"error":{"message":"a"},"error":{"message":"b"}}`, false, usage.ProviderError{Status: 404}},
		{"html of a proxy", chat, 429, `<html>429</html>`, false, usage.ProviderError{Status: 429}},
		{"an answer", chat, 400, `{"choices":[]}`, false, usage.ProviderError{Status: 400}},
		{"anthropic", anthropic, 529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}`, true, usage.ProviderError{Status: 529, Type: "overloaded_error"}},
		{"anthropic without a type", anthropic, 529, `{"error":{"type":"overloaded_error","message":"Overloaded"}}`, false, usage.ProviderError{Status: 529, Type: "overloaded_error"}},
		{"unknown protocol", 0, 400, `{"error":{"message":"a"}}`, false, usage.ProviderError{Status: 400}},
		{"status from the type", anthropic, 0, `{"type":"error","error":{"type":"rate_limit_error"}}`, true, usage.ProviderError{Status: 429, Type: "rate_limit_error"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, complete := usage.ParseError(c.p, c.status, []byte(c.body))
			require.Equal(t, c.complete, complete)
			require.Equal(t, c.want, *e)
			require.NotContains(t, e.Error(), "slow down")
		})
	}
	require.EqualError(t, &usage.ProviderError{Status: 429, Type: "a", Code: "b"}, `provider error: status 429, type "a", code "b"`)
}

func TestProvesNothingUsed(t *testing.T) {
	table := map[usage.Protocol][]int{
		usage.OpenAIChat:        {400, 401, 403, 404, 413, 422, 429},
		usage.OpenAIEmbeddings:  {400, 401, 403, 404, 413, 422, 429},
		usage.AnthropicMessages: {400, 401, 403, 404, 413, 422, 429, 529},
		usage.OpenAIResponses:   {400, 401, 403, 404, 413, 422, 429},
		usage.BedrockConverse:   {400, 401, 403, 404, 413, 422, 429},
		usage.BedrockInvoke:     {400, 401, 403, 404, 413, 422, 429},
		0:                       nil,
	}
	for p, statuses := range table {
		for status := range 700 {
			in := false
			for _, s := range statuses {
				in = in || s == status
			}
			require.Equal(t, in, usage.ProvesNothingUsed(p, status, true, false), "%v %d", p, status)
			require.False(t, usage.ProvesNothingUsed(p, status, false, false))
			require.False(t, usage.ProvesNothingUsed(p, status, true, true))
		}
	}
	filtered := &usage.ProviderError{Status: 400, Code: "content_filter"}
	require.False(t, filtered.ProvesNothingUsed(usage.OpenAIChat, false), "the filter's look at the prompt is charged")
	require.True(t, (&usage.ProviderError{Status: 400}).ProvesNothingUsed(usage.OpenAIChat, false))
	require.False(t, (&usage.ProviderError{Status: 500}).ProvesNothingUsed(usage.OpenAIChat, false))
}
