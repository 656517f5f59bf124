package provider

import (
	"encoding/json"
	"net/http"
)

type blockStart struct {
	Type         string `json:"type"`
	Index        int    `json:"index"`
	ContentBlock any    `json:"content_block"`
}

type blockDelta struct {
	Type  string `json:"type"`
	Index int    `json:"index"`
	Delta any    `json:"delta"`
}

type blockStop struct {
	Type  string `json:"type"`
	Index int    `json:"index"`
}

type textDelta struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type inputDelta struct {
	Type        string `json:"type"`
	PartialJSON string `json:"partial_json"`
}

type messageDelta struct {
	Type  string `json:"type"`
	Delta struct {
		StopReason   string    `json:"stop_reason"`
		StopSequence *string   `json:"stop_sequence"`
		StopDetails  *struct{} `json:"stop_details"`
		Container    *struct{} `json:"container"`
	} `json:"delta"`
	Usage *messageDeltaUsage `json:"usage,omitempty"`
}

// messageDeltaUsage is cumulative, and names fewer fields than message_start.
type messageDeltaUsage struct {
	InputTokens              int64     `json:"input_tokens"`
	CacheCreationInputTokens int64     `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     int64     `json:"cache_read_input_tokens"`
	OutputTokens             int64     `json:"output_tokens"`
	OutputTokensDetails      *struct{} `json:"output_tokens_details"`
	ServerToolUse            *struct{} `json:"server_tool_use"`
}

type messageStop struct {
	Type    string             `json:"type"`
	Metrics *invocationMetrics `json:"amazon-bedrock-invocationMetrics,omitempty"`
}

func (p *Provider) streamMessage(w http.ResponseWriter, r *http.Request, a *messageAnswer) {
	var e *events
	if a.bedrock {
		e = startChunks(w, r, a.directives)
	} else {
		e = startEvents(w, r, a.directives)
		e.failure = func() {
			e.write("error", string(encode(newAnthropicError(529, "Overloaded", w.Header().Get("Request-Id")))))
		}
	}
	start := a.message()
	start.Usage = a.usage(1)
	e.send("message_start", struct {
		Type    string  `json:"type"`
		Message message `json:"message"`
	}{"message_start", start})

	block := any(textBlock{Type: "text"})
	if a.tool != nil {
		empty := *a.tool
		empty.Input = json.RawMessage("{}")
		block = empty
	}
	e.send("content_block_start", blockStart{"content_block_start", 0, block})
	e.send("ping", map[string]string{"type": "ping"})
	for _, word := range a.words {
		e.send("content_block_delta", blockDelta{"content_block_delta", 0, textDelta{"text_delta", word}})
	}
	if a.tool != nil {
		for _, piece := range pieces(string(a.tool.Input), 6) {
			e.send("content_block_delta", blockDelta{"content_block_delta", 0, inputDelta{"input_json_delta", piece}})
		}
	}
	e.send("content_block_stop", blockStop{"content_block_stop", 0})

	end := messageDelta{Type: "message_delta"}
	end.Delta.StopReason = a.stop
	if u := a.usage(a.output); u != nil {
		end.Usage = &messageDeltaUsage{
			InputTokens: u.InputTokens, OutputTokens: u.OutputTokens,
			CacheCreationInputTokens: u.CacheCreationInputTokens, CacheReadInputTokens: u.CacheReadInputTokens,
		}
	}
	e.send("message_delta", end)
	e.send("message_stop", messageStop{"message_stop", a.invocationMetrics()})
}
