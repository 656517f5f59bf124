package usage_test

import (
	"strings"
	"testing"

	"github.com/tallystick-go/tallystick/governance/usage"
)

func BenchmarkStreamChunk(b *testing.B) {
	chunk := []byte(`data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":"Hello"},"logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n")
	s := usage.NewStream(usage.OpenAIChat)
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		_, _ = s.Write(chunk)
	}
}

func BenchmarkStreamChunkAnthropic(b *testing.B) {
	chunk := []byte("event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello there"}}` + "\n\n")
	s := usage.NewStream(usage.AnthropicMessages)
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		_, _ = s.Write(chunk)
	}
}

func BenchmarkFromJSON(b *testing.B) {
	body := []byte(`{"id":"x","model":"gpt-4o-mini","choices":[{"message":{"content":"` + strings.Repeat("Lorem ipsum ", 200) +
		`"}}],"usage":{"prompt_tokens":20,"completion_tokens":7,"total_tokens":27,"prompt_tokens_details":{"cached_tokens":16}}}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := usage.FromJSON(usage.OpenAIChat, body); err != nil {
			b.Fatal(err)
		}
	}
}
