package usage_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/usage"
)

const responsesStream = `event: response.created
data: {"type":"response.created","sequence_number":0,"response":{"id":"r","model":"gpt-x","service_tier":"auto","status":"in_progress","usage":null}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":1,"delta":"Grüße, \"response.completed\" 你好"}

event: response.completed
data: {"type":"response.completed","sequence_number":2,"response":{"id":"r","model":"gpt-x","service_tier":"default","status":"completed","error":null,"usage":{"input_tokens":20,"input_tokens_details":{"cached_tokens":16},"output_tokens":7,"output_tokens_details":{"reasoning_tokens":3},"total_tokens":27}}}

`

func TestFromJSONResponses(t *testing.T) {
	known, unknown, invalid := usage.Known, usage.Unknown, usage.Invalid
	for _, c := range []struct {
		name, usage string
		state       usage.State
		want        classes
	}{
		{"plain", `{"input_tokens":9,"output_tokens":12,"total_tokens":21}`, known, classes{in: 9, out: 12}},
		{"cached inside the input", `{"input_tokens":30,"input_tokens_details":{"cached_tokens":20},"output_tokens":12,"output_tokens_details":{"reasoning_tokens":4},"total_tokens":42}`, known, classes{in: 10, read: 20, out: 12}},
		{"explicit zeros", `{"input_tokens":0,"output_tokens":0,"total_tokens":0}`, known, classes{}},
		{"more cached than input", `{"input_tokens":9,"input_tokens_details":{"cached_tokens":20},"output_tokens":12,"total_tokens":21}`, invalid, classes{in: 9, read: 20, out: 12}},
		{"reasoning above the output", `{"input_tokens":9,"output_tokens":12,"output_tokens_details":{"reasoning_tokens":14},"total_tokens":21}`, invalid, classes{in: 9, out: 12}},
		{"total above", `{"input_tokens":9,"output_tokens":12,"total_tokens":30}`, unknown, classes{in: 9, out: 12}},
		{"total below", `{"input_tokens":9,"output_tokens":12,"total_tokens":20}`, invalid, classes{in: 9, out: 12}},
		{"absent output", `{"input_tokens":9}`, unknown, classes{in: 9}},
		{"negative", `{"input_tokens":9,"output_tokens":-1}`, invalid, classes{in: 9}},
		{"names of chat completions", `{"prompt_tokens":9,"completion_tokens":12}`, unknown, classes{}},
		{"null, as while it runs", `null`, unknown, classes{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, err := usage.FromJSON(usage.OpenAIResponses, []byte(`{"id":"r","object":"response","status":"completed","error":null,"model":"gpt-x","service_tier":"flex","usage":`+c.usage+`}`))
			require.NoError(t, err)
			require.Equal(t, c.state, u.State(), "%+v", u)
			require.Equal(t, c.want, classesOf(u))
			require.Equal(t, "gpt-x", u.Model)
			require.Equal(t, "flex", u.ServiceTier)
			requireSane(t, u)
		})
	}
}

func TestStreamResponses(t *testing.T) {
	s := read(usage.OpenAIResponses, responsesStream, 0)
	u := s.Result()
	require.Equal(t, usage.Known, u.State())
	require.Equal(t, classes{in: 4, read: 16, out: 7}, classesOf(u))
	require.Equal(t, usage.Of(3), u.Reasoning)
	require.Equal(t, "gpt-x", u.Model)
	require.Equal(t, "default", u.ServiceTier)
	require.True(t, s.Done() && s.DataSeen())
	final := strings.LastIndex(responsesStream, "\n\n")
	for i := range len(responsesStream) + 1 {
		require.Equal(t, i >= final, read(usage.OpenAIResponses, responsesStream[:i], 0).Result().Complete, "after %d bytes", i)
	}
}

func TestStreamResponsesCases(t *testing.T) {
	const created = `data: {"type":"response.created","response":{"model":"m","usage":null}}` + "\n\n"
	const delta = `data: {"type":"response.output_text.delta","delta":"x"}` + "\n\n"
	ends := func(how, rest string) string {
		return `data: {"type":"response.` + how + `","response":{` + rest + `}}` + "\n\n"
	}
	const nine = `"usage":{"input_tokens":9,"output_tokens":12,"total_tokens":21}`
	const failed = `"error":{"code":"server_error","message":"m"},`
	const failure = `data: {"type":"error","code":"rate_limit_exceeded","message":"m","param":null}` + "\n\n"
	big := strings.Repeat("x", 4<<20)
	for _, c := range []struct {
		name, stream string
		state        usage.State
		complete     bool
		want         classes
		err          *usage.ProviderError
		seen         bool
	}{
		{"incomplete is an end", created + delta + ends("incomplete", `"incomplete_details":{"reason":"max_output_tokens"},`+nine), usage.Known, true, classes{in: 9, out: 12}, nil, true},
		{"completed without a usage", created + delta + ends("completed", `"usage":null`), usage.Unknown, false, classes{}, nil, true},
		{"failed, and says what it used", created + delta + ends("failed", failed+nine), usage.Known, true, classes{in: 9, out: 12}, &usage.ProviderError{Status: 500, Code: "server_error"}, true},
		{"failed without a usage", created + ends("failed", failed+`"usage":null`), usage.Unknown, false, classes{}, &usage.ProviderError{Status: 500, Code: "server_error"}, true},
		{"an error before any data", failure, usage.Unknown, false, classes{}, &usage.ProviderError{Status: 429, Type: "error", Code: "rate_limit_exceeded"}, false},
		{"an error with an envelope", `data: {"type":"error","error":{"type":"invalid_request_error","message":"m"}}` + "\n\n", usage.Unknown, false, classes{}, &usage.ProviderError{Status: 400, Type: "invalid_request_error"}, false},
		{"an error in the middle", created + delta + failure, usage.Unknown, false, classes{}, &usage.ProviderError{Status: 429, Type: "error", Code: "rate_limit_exceeded"}, true},
		{"cut", created + delta, usage.Unknown, false, classes{}, nil, true},
		{"cut in the last event", created + delta + `data: {"type":"response.completed","response":{` + nine, usage.Unknown, false, classes{}, nil, true},
		{"usage before the end is none", `data: {"type":"response.in_progress","response":{` + nine + `}}` + "\n\n" + delta, usage.Unknown, false, classes{}, nil, true},
		{"usage twice", ends("completed", nine+","+nine), usage.Unknown, true, classes{in: 9, out: 12}, nil, true},
		{"a large last event", created + ends("completed", `"output":"`+big+`",`+nine), usage.Known, true, classes{in: 9, out: 12}, nil, true},
		{"a last event too large to keep", created + ends("completed", `"output":"`+big+big+`",`+nine), usage.Unknown, false, classes{}, nil, true},
		{"after the end", ends("completed", nine) + delta + failure, usage.Known, true, classes{in: 9, out: 12}, nil, true},
		{"another protocol's end mark", ends("completed", nine) + "data: [DONE]\n\n", usage.Known, true, classes{in: 9, out: 12}, nil, true},
		{"no JSON", "data: x\n\n" + ends("completed", nine), usage.Known, true, classes{in: 9, out: 12}, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := read(usage.OpenAIResponses, c.stream, 0)
			u := s.Result()
			require.Equal(t, c.state, u.State(), "%+v", u)
			require.Equal(t, c.complete, u.Complete)
			require.Equal(t, c.want, classesOf(u))
			require.Equal(t, c.err, s.Err())
			require.Equal(t, c.seen, s.DataSeen())
			for _, n := range []int{1, 7, 4096} {
				if len(c.stream) < 1<<16 || n > 100 {
					require.Equal(t, u, read(usage.OpenAIResponses, c.stream, n).Result(), "in pieces of %d", n)
				}
			}
		})
	}
}
