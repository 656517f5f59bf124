package usage_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/governance/usage"
)

const (
	openaiStream = `data: {"id":"c","object":"chat.completion.chunk","model":"gpt-x","service_tier":"default","choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"usage":null}

data: {"id":"c","model":"gpt-x","choices":[{"index":0,"delta":{"content":"Grüße, \"data: [DONE]\" 你好"}}],"usage":null}

data: {"id":"c","model":"gpt-x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}

data: {"id":"c","model":"gpt-x","choices":[],"usage":{"prompt_tokens":20,"completion_tokens":7,"total_tokens":27,"prompt_tokens_details":{"cached_tokens":16}}}

data: [DONE]

`
	anthropicStream = `event: message_start
data: {"type":"message_start","message":{"id":"m","model":"claude-x","content":[],"usage":{"input_tokens":1000,"cache_creation_input_tokens":50,"cache_read_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":20,"ephemeral_1h_input_tokens":30},"output_tokens":1,"service_tier":"standard"}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Grüße"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":300}}

event: message_stop
data: {"type":"message_stop"}

`
)

// read feeds a stream in pieces of n bytes; zero means at once.
func read(p usage.Protocol, text string, n int) *usage.Stream {
	s := usage.NewStream(p)
	if n <= 0 {
		n = len(text)
	}
	for len(text) > 0 {
		n = min(n, len(text))
		if wrote, err := s.Write([]byte(text[:n])); wrote != n || err != nil {
			panic(fmt.Sprint(wrote, err))
		}
		text = text[n:]
	}
	if err := s.Close(); err != nil {
		panic(err)
	}
	return s
}

func TestStreamOpenAI(t *testing.T) {
	s := read(usage.OpenAIChat, openaiStream, 0)
	u := s.Result()
	require.Equal(t, usage.Known, u.State())
	require.Equal(t, classes{in: 4, read: 16, out: 7}, classesOf(u))
	require.Equal(t, "gpt-x", u.Model)
	require.Equal(t, "default", u.ServiceTier)
	require.True(t, s.Done() && s.DataSeen() && u.Complete)
	require.Nil(t, s.Err())
}

// Replay I6: the second report replaces the first, it is no second record.
func TestStreamAnthropicFolds(t *testing.T) {
	s := read(usage.AnthropicMessages, anthropicStream, 0)
	u := s.Result()
	require.Equal(t, usage.Known, u.State())
	require.Equal(t, classes{in: 1000, read: 30, w5: 20, w1: 30, out: 300}, classesOf(u))
	require.Equal(t, usage.Of(1380), u.Total())
	require.Equal(t, "claude-x", u.Model)
	require.Equal(t, "standard", u.ServiceTier)
	require.True(t, s.Done() && s.DataSeen())
}

func TestStreamPrefixesAreNeverComplete(t *testing.T) {
	for p, c := range map[usage.Protocol]struct{ stream, final string }{
		usage.OpenAIChat:        {openaiStream, `"cached_tokens":16}}}`},
		usage.AnthropicMessages: {anthropicStream, `"usage":{"output_tokens":300}}`},
	} {
		final := strings.Index(c.stream, c.final) + len(c.final)
		for i := range len(c.stream) + 1 {
			s := read(p, c.stream[:i], 0)
			require.Equal(t, i >= final, s.Result().Complete, "%v after %d bytes: %q", p, i, c.stream[:i])
			requireSane(t, s.Result())
		}
	}
}

func TestStreamCases(t *testing.T) {
	const chat, anthropic = usage.OpenAIChat, usage.AnthropicMessages
	start := func(u string) string {
		return `data: {"type":"message_start","message":{"usage":` + u + `}}` + "\n\n"
	}
	delta := func(u string) string {
		return `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":` + u + `}` + "\n\n"
	}
	const stop = `data: {"type":"message_stop"}` + "\n\n"
	const content = `data: {"choices":[{"delta":{"content":"x"}}]}` + "\n\n"
	final := func(u string) string { return `data: {"choices":[],"usage":` + u + `}` + "\n\n" }
	const done = "data: [DONE]\n\n"
	big := strings.Repeat("x", usage.DefaultMaxEvent)
	for _, c := range []struct {
		name     string
		p        usage.Protocol
		stream   string
		state    usage.State
		complete bool
		want     classes
	}{
		{"replay S2: explicit zeros", chat, final(`{"prompt_tokens":0,"completion_tokens":0}`) + done, usage.Known, true, classes{}},
		{"no usage at all", chat, content + done, usage.Unknown, false, classes{}},
		{"nothing", chat, "", usage.Unknown, false, classes{}},
		{"only the end", chat, done, usage.Unknown, false, classes{}},
		{"usage so far in every chunk", chat, `data: {"choices":[{}],"usage":{"prompt_tokens":5,"completion_tokens":1}}` + "\n\n" + `data: {"choices":[{}],"usage":{"prompt_tokens":5,"completion_tokens":9}}` + "\n\n" + done, usage.Known, true, classes{in: 5, out: 9}},
		{"usage so far, then cut", chat, `data: {"choices":[{}],"usage":{"prompt_tokens":5,"completion_tokens":1}}` + "\n\n", usage.Unknown, false, classes{in: 5, out: 1}},
		{"counts that go down", chat, `data: {"choices":[{}],"usage":{"prompt_tokens":5,"completion_tokens":9}}` + "\n\n" + final(`{"prompt_tokens":5,"completion_tokens":1}`) + done, usage.Unknown, true, classes{in: 5, out: 9}},
		{"content after the usage", chat, final(`{"prompt_tokens":5,"completion_tokens":1}`) + content, usage.Unknown, false, classes{in: 5, out: 1}},
		{"usage after the end", chat, final(`{"prompt_tokens":5,"completion_tokens":1}`) + done + final(`{"prompt_tokens":6,"completion_tokens":9}`), usage.Known, true, classes{in: 5, out: 1}},
		{"cached above the prompt", chat, final(`{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":6}}`) + done, usage.Invalid, true, classes{in: 5, read: 6, out: 1}},
		{"usage twice in one chunk", chat, `data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1},"usage":{"prompt_tokens":5,"completion_tokens":1}}` + "\n\n" + done, usage.Unknown, true, classes{in: 5, out: 1}},
		{"usage is a number", chat, `data: {"choices":[],"usage":7}` + "\n\n" + final(`{"prompt_tokens":5,"completion_tokens":1}`) + done, usage.Unknown, true, classes{in: 5, out: 1}},
		{"broken chunk before the usage", chat, "data: {\"choices\":[\n\n" + final(`{"prompt_tokens":5,"completion_tokens":1}`) + done, usage.Known, true, classes{in: 5, out: 1}},
		{"broken chunk after the usage", chat, final(`{"prompt_tokens":5,"completion_tokens":1}`) + "data: {\"choices\":[\n\n" + done, usage.Unknown, false, classes{in: 5, out: 1}},
		{"oversize before the usage", chat, `data: {"choices":[{"delta":{"content":"` + big + `"}}]}` + "\n\n" + final(`{"prompt_tokens":5,"completion_tokens":1}`) + done, usage.Known, true, classes{in: 5, out: 1}},
		{"oversize usage", chat, `data: {"choices":[],"pad":"` + big + `","usage":{"prompt_tokens":5,"completion_tokens":1}}` + "\n\n" + done, usage.Unknown, false, classes{}},
		{"oversize after the usage", chat, final(`{"prompt_tokens":5,"completion_tokens":1}`) + "data: " + big + "\n\n" + done, usage.Unknown, false, classes{in: 5, out: 1}},
		{"usage over several data lines", chat, "data: {\"choices\":[],\ndata: \"usage\":{\"prompt_tokens\":5,\ndata:\"completion_tokens\":1}}\n\n" + done, usage.Known, true, classes{in: 5, out: 1}},
		{"no blank line at the end", chat, content + final(`{"prompt_tokens":5,"completion_tokens":1}`) + "data: [DONE]", usage.Known, true, classes{in: 5, out: 1}},
		{"error text is no usage (replay S4)", chat, content + `data: {"error":{"message":"a long upstream error text","type":"server_error"}}` + "\n\n" + done, usage.Unknown, false, classes{}},
		{"error after the usage", chat, final(`{"prompt_tokens":5,"completion_tokens":1}`) + `data: {"error":{"message":"m"}}` + "\n\n" + done, usage.Unknown, false, classes{in: 5, out: 1}},

		{"cumulative deltas", anthropic, start(`{"input_tokens":9,"output_tokens":1}`) + `data: {"type":"message_delta","delta":{},"usage":{"output_tokens":5}}` + "\n\n" + delta(`{"output_tokens":12}`) + stop, usage.Known, true, classes{in: 9, out: 12}},
		{"input grows by a server tool", anthropic, start(`{"input_tokens":9,"output_tokens":1}`) + delta(`{"input_tokens":900,"output_tokens":12,"server_tool_use":{"web_search_requests":1}}`) + stop, usage.Known, true, classes{in: 900, out: 12}},
		{"input only at the end", anthropic, start(`{"input_tokens":0,"output_tokens":0}`) + delta(`{"input_tokens":9,"output_tokens":12}`) + stop, usage.Known, true, classes{in: 9, out: 12}},
		{"input taken back at the end", anthropic, start(`{"input_tokens":9,"output_tokens":0}`) + delta(`{"input_tokens":0,"output_tokens":12}`) + stop, usage.Unknown, true, classes{in: 9, out: 12}},
		{"no message_start", anthropic, delta(`{"input_tokens":9,"output_tokens":12}`) + stop, usage.Unknown, false, classes{in: 9, out: 12}},
		{"no message_delta", anthropic, start(`{"input_tokens":9,"output_tokens":1}`) + stop, usage.Unknown, false, classes{in: 9, out: 1}},
		{"stop instead of a reason", anthropic, start(`{"input_tokens":9,"output_tokens":1}`) + `data: {"type":"message_delta","delta":{},"usage":{"output_tokens":5}}` + "\n\n" + stop, usage.Known, true, classes{in: 9, out: 5}},
		{"cut after the reason", anthropic, start(`{"input_tokens":9,"output_tokens":1}`) + delta(`{"output_tokens":12}`), usage.Known, true, classes{in: 9, out: 12}},
		{"null cache counts in the delta", anthropic, start(`{"input_tokens":9,"cache_read_input_tokens":4,"output_tokens":1}`) + delta(`{"cache_read_input_tokens":null,"output_tokens":12}`) + stop, usage.Known, true, classes{in: 9, read: 4, out: 12}},
		{"cache writes grow without a lifetime", anthropic, start(`{"input_tokens":9,"cache_creation_input_tokens":4,"cache_creation":{"ephemeral_5m_input_tokens":4},"output_tokens":1}`) + delta(`{"cache_creation_input_tokens":10,"output_tokens":12}`) + stop, usage.Known, true, classes{in: 9, w5: 4, wUnknown: 6, out: 12}},
		{"oversize content", anthropic, start(`{"input_tokens":9,"output_tokens":1}`) + "data: " + big + "\n\n" + delta(`{"output_tokens":12}`) + stop, usage.Known, true, classes{in: 9, out: 12}},
		{"oversize at the end", anthropic, start(`{"input_tokens":9,"output_tokens":1}`) + delta(`{"output_tokens":12}`) + "data: " + big + "\n\n" + stop, usage.Unknown, false, classes{in: 9, out: 12}},
		{"foreign end mark", anthropic, start(`{"input_tokens":9,"output_tokens":1}`) + delta(`{"output_tokens":12}`) + stop + done, usage.Known, true, classes{in: 9, out: 12}},
		{"error in the middle", anthropic, start(`{"input_tokens":9,"output_tokens":1}`) + `data: {"type":"error","error":{"type":"overloaded_error","message":"no"}}` + "\n\n", usage.Unknown, false, classes{in: 9, out: 1}},
		{"unknown protocol", 0, openaiStream, usage.Unknown, false, classes{}},
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
}

func TestStreamErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		p      usage.Protocol
		stream string
		want   usage.ProviderError
		seen   bool
	}{
		{"openai before any data", usage.OpenAIChat, `data: {"error":{"message":"m","type":"server_error","code":null}}` + "\n\n", usage.ProviderError{Status: 500, Type: "server_error"}, false},
		{"openai after data", usage.OpenAIChat, `data: {"choices":[{}]}` + "\n\n" + `data: {"error":{"message":"m","code":"rate_limit_exceeded"}}` + "\n\n", usage.ProviderError{Status: 429, Code: "rate_limit_exceeded"}, true},
		{"openai with choices", usage.OpenAIChat, `data: {"choices":[{"finish_reason":"error"}],"error":{"message":"m","code":502}}` + "\n\n", usage.ProviderError{Status: 502, Code: "502"}, true},
		{"openai as an error event", usage.OpenAIChat, "event: error\n" + `data: {"message":"m","type":"invalid_request_error"}` + "\n\n", usage.ProviderError{Status: 400, Type: "invalid_request_error"}, false},
		{"openai text", usage.OpenAIChat, `data: {"error":"boom"}` + "\n\n", usage.ProviderError{}, false},
		{"the first one stays", usage.OpenAIChat, `data: {"error":{"code":"a"}}` + "\n\n" + `data: {"error":{"code":"b"}}` + "\n\n", usage.ProviderError{Code: "a"}, false},
		{"anthropic before any data", usage.AnthropicMessages, ": hello\n\n" + `event: ping` + "\n" + `data: {"type":"ping"}` + "\n\n" + `event: error` + "\n" + `data: {"type":"error","error":{"type":"overloaded_error","message":"m"}}` + "\n\n", usage.ProviderError{Status: 529, Type: "overloaded_error"}, false},
		{"anthropic after the start", usage.AnthropicMessages, `data: {"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1}}}` + "\n\n" + `data: {"type":"error","error":{"type":"api_error","message":"m"}}` + "\n\n", usage.ProviderError{Status: 500, Type: "api_error"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := read(c.p, c.stream, 0)
			require.Equal(t, &c.want, s.Err())
			require.Equal(t, c.seen, s.DataSeen())
			require.False(t, s.Result().Complete)
		})
	}
	s := read(usage.OpenAIChat, "data: not json\n\n", 0)
	require.True(t, s.DataSeen(), "what cannot be read may be an answer")
}

// A stream gives the same result wherever the network cuts it.
func TestStreamIsIndependentOfChunks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom([]usage.Protocol{
			usage.OpenAIChat, usage.AnthropicMessages, usage.OpenAIResponses, usage.BedrockConverse, usage.BedrockInvoke,
		}).Draw(t, "protocol")
		text := map[usage.Protocol]string{
			usage.OpenAIChat: openaiStream, usage.AnthropicMessages: anthropicStream, usage.OpenAIResponses: responsesStream,
			usage.BedrockConverse: converseStream, usage.BedrockInvoke: invokeStream,
		}[p]
		if p < usage.BedrockConverse {
			text = strings.ReplaceAll(text, "\n", rapid.SampledFrom([]string{"\n", "\r\n", "\r"}).Draw(t, "line end"))
			if rapid.Bool().Draw(t, "bom") {
				text = "\ufeff" + text
			}
		}
		text = text[:rapid.IntRange(0, len(text)).Draw(t, "cut")]
		whole := read(p, text, 0)
		s := usage.NewStream(p)
		for rest := text; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			_, _ = s.Write([]byte(rest[:n]))
			rest = rest[n:]
		}
		_ = s.Close()
		require.Equal(t, whole.Result(), s.Result())
		require.Equal(t, whole.Done(), s.Done())
		require.Equal(t, whole.DataSeen(), s.DataSeen())
		require.Equal(t, whole.Err(), s.Err())
	})
}

// event is an Event that outlives its callback.
type event struct {
	raw, name, data string
	has             bool
}

func scan(text string, max int, pieces func(rest string) int) (events []event, raw string) {
	s := usage.EventScanner{MaxEvent: max}
	emit := func(e usage.Event) {
		raw += string(e.Raw)
		if e.Oversize {
			if n := len(events); n > 0 && events[n-1].name == "oversize" {
				return
			}
			events = append(events, event{name: "oversize"})
			return
		}
		events = append(events, event{string(e.Raw), string(e.Name), string(e.Data), e.HasData})
	}
	for rest := text; len(rest) > 0; {
		n := pieces(rest)
		s.Feed([]byte(rest[:n]), emit)
		rest = rest[n:]
	}
	s.Close(emit)
	return events, raw
}

func whole(rest string) int { return len(rest) }
func byOne(string) int      { return 1 }

func TestEventScanner(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []event
	}{
		{"plain", "data: a\n\n", []event{{"data: a\n\n", "", "a", true}}},
		{"no space", "data:a\n\n", []event{{"data:a\n\n", "", "a", true}}},
		{"only one space goes", "data:  a\n\n", []event{{"data:  a\n\n", "", " a", true}}},
		{"crlf", "event: e\r\ndata: a\r\n\r\ndata: b\r\n\r\n", []event{{"event: e\r\ndata: a\r\n\r\n", "e", "a", true}, {"data: b\r\n\r\n", "", "b", true}}},
		{"cr", "data: a\r\rdata: b\r\r", []event{{"data: a\r\r", "", "a", true}, {"data: b\r\r", "", "b", true}}},
		{"mixed", "data: a\r\n\ndata: b\n\r", []event{{"data: a\r\n\n", "", "a", true}, {"data: b\n\r", "", "b", true}}},
		{"many lines", "data: a\ndata\ndata: c\n\n", []event{{"data: a\ndata\ndata: c\n\n", "", "a\n\nc", true}}},
		{"comment", ": ping\n\n", []event{{": ping\n\n", "", "", false}}},
		{"empty data", "data:\n\n", []event{{"data:\n\n", "", "", true}}},
		{"bom", "\ufeffdata: a\n\n\ufeffdata: b\n\n", []event{{"\ufeffdata: a\n\n", "", "a", true}, {"\ufeffdata: b\n\n", "", "", false}}},
		{"other fields", "id: 1\nretry: 5\nx\ndatax: 1\ndata: a: b\n\n", []event{{"id: 1\nretry: 5\nx\ndatax: 1\ndata: a: b\n\n", "", "a: b", true}}},
		{"blank lines", "\n\ndata: a\n\n\n", []event{{"\n", "", "", false}, {"\n", "", "", false}, {"data: a\n\n", "", "a", true}, {"\n", "", "", false}}},
		{"cut", "data: a\n\ndata: b", []event{{"data: a\n\n", "", "a", true}, {"data: b", "", "b", true}}},
		{"cut after a line", "data: b\n", []event{{"data: b\n", "", "b", true}}},
		{"utf-8", "data: ü你\U0001f600\n\n", []event{{"data: ü你\U0001f600\n\n", "", "ü你\U0001f600", true}}},
		{"oversize", "data: a\n\ndata: 0123456789012345\n\ndata: b\n\n", []event{{"data: a\n\n", "", "a", true}, {name: "oversize"}, {"data: b\n\n", "", "b", true}}},
		{"oversize by many lines", "data: 012345\ndata: 012345\ndata: 012345\n\ndata: b\n\n", []event{{name: "oversize"}, {"data: b\n\n", "", "b", true}}},
		{"oversize by its last byte", "data: 01234567890\r\n\r\ndata: b\n\n", []event{{name: "oversize"}, {"data: b\n\n", "", "b", true}}},
		{"just fits", "data: 0123456789\r\n\r\n", []event{{"data: 0123456789\r\n\r\n", "", "0123456789", true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			limit := 100
			if strings.HasPrefix(c.name, "oversize") || c.name == "just fits" {
				limit = 20
			}
			for _, pieces := range []func(string) int{whole, byOne} {
				events, raw := scan(c.text, limit, pieces)
				require.Equal(t, c.want, events)
				require.Equal(t, c.text, raw)
			}
		})
	}
}

func TestEventScannerIsIndependentOfChunks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.SampledFrom([]string{
			"\n", "\r", "\r\n", "data: ", "data", "event: x", ": c", "ü", "\ufeff", "0123456789", "\n\n", "\x00", "\xff", "{}",
		})).Draw(t, "parts")
		text := strings.Join(parts, "")
		events, raw := scan(text, 24, whole)
		require.Equal(t, text, raw)
		pieces := func(rest string) int { return rapid.IntRange(1, len(rest)).Draw(t, "piece") }
		again, raw := scan(text, 24, pieces)
		require.Equal(t, text, raw)
		require.Equal(t, events, again)
	})
}

// The usage chunk that only the gateway asked for can be left out, and every
// other byte goes to the client as it came.
func TestUsageChunkCanBeStripped(t *testing.T) {
	stream := usage.NewStream(usage.OpenAIChat)
	var scanner usage.EventScanner
	var client strings.Builder
	relay := func(e usage.Event) {
		if !stream.Event(e) {
			client.Write(e.Raw)
		}
	}
	for i := range len(openaiStream) {
		scanner.Feed([]byte(openaiStream[i:i+1]), relay)
	}
	scanner.Close(relay)
	require.NoError(t, stream.Close())
	chunk := openaiStream[strings.Index(openaiStream, `data: {"id":"c","model":"gpt-x","choices":[],`):strings.Index(openaiStream, "data: [DONE]\n")]
	require.Equal(t, strings.Replace(openaiStream, chunk, "", 1), client.String())
	require.Equal(t, usage.Known, stream.Result().State())

	for _, keep := range []string{
		`data: {"choices":[],"prompt_filter_results":[]}`, `data: {"choices":[{}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`,
		`data: {"usage":{"prompt_tokens":1,"completion_tokens":1}}`, `data: {"choices":[],"usage":null}`, `data: [DONE]`, `: comment`,
		`data: {"choices":[],"usage":{},"error":{"code":"x"}}`,
	} {
		s := usage.NewStream(usage.OpenAIChat)
		var scanner usage.EventScanner
		scanner.Feed([]byte(keep+"\n\n"), func(e usage.Event) { require.False(t, s.Event(e), keep) })
	}
}
