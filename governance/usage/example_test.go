package usage_test

import (
	"fmt"
	"io"
	"strings"

	"github.com/tallystick-go/tallystick/governance/usage"
)

func ExampleFromJSON() {
	u, err := usage.FromJSON(usage.OpenAIChat, []byte(`{"model":"gpt-4o-mini","choices":[],
		"usage":{"prompt_tokens":1200,"completion_tokens":80,"total_tokens":1280,"prompt_tokens_details":{"cached_tokens":1000}}}`))
	if err != nil {
		panic(err)
	}
	fmt.Println(u.State(), "fresh", u.Input.N, "cached", u.CacheRead.N, "out", u.Output.N, "total", u.Total().N)

	u, _ = usage.FromJSON(usage.OpenAIChat, []byte(`{"choices":[]}`)) // absent is not zero
	fmt.Println(u.State())
	// Output:
	// known fresh 200 cached 1000 out 80 total 1280
	// unknown
}

func ExampleStream() {
	upstream := strings.NewReader(`event: message_start
data: {"type":"message_start","message":{"model":"claude-x","usage":{"input_tokens":1000,"output_tokens":1}}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":300}}

event: message_stop
data: {"type":"message_stop"}

`)
	s := usage.NewStream(usage.AnthropicMessages)
	if _, err := io.Copy(io.Discard, io.TeeReader(upstream, s)); err != nil { // the client instead of io.Discard
		panic(err)
	}
	s.Close()
	u := s.Result()
	fmt.Println(u.State(), u.Input.N, u.Output.N)
	// Output: known 1000 300
}

func ExampleProvesNothingUsed() {
	e, complete := usage.ParseError(usage.AnthropicMessages, 529, []byte(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`))
	fmt.Println(e, usage.ProvesNothingUsed(usage.AnthropicMessages, e.Status, complete, false))

	_, complete = usage.ParseError(usage.AnthropicMessages, 529, []byte(`<html>overloaded</html>`))
	fmt.Println(usage.ProvesNothingUsed(usage.AnthropicMessages, 529, complete, false))
	// Output:
	// provider error: status 529, type "overloaded_error" true
	// false
}
