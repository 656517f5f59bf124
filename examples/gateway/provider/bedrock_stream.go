package provider

import (
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
)

// startFrames begins a stream in AWS's event-stream encoding, with AWS's own encoder.
func startFrames(w http.ResponseWriter, r *http.Request, d Directives) *events {
	w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
	e := begin(w, r, d)
	encoder := eventstream.NewEncoder()
	put := func(kind, header, name string, payload []byte) {
		m := eventstream.Message{Payload: payload}
		for _, h := range [][2]string{{":message-type", kind}, {header, name}, {":content-type", "application/json"}} {
			m.Headers.Set(h[0], eventstream.StringValue(h[1]))
		}
		if err := encoder.Encode(w, m); err != nil {
			panic(http.ErrAbortHandler) // nobody is listening any more
		}
		_ = e.flush.Flush()
	}
	e.put = func(name, data string) { put("event", ":event-type", name, []byte(data)) }
	e.failure = func() {
		put("exception", ":exception-type", "modelStreamErrorException", encode(map[string]string{"message": "The built-in provider was asked to fail."}))
	}
	return e
}

// startChunks begins a stream of an invoke: the model's own events, wrapped.
func startChunks(w http.ResponseWriter, r *http.Request, d Directives) *events {
	w.Header().Set("X-Amzn-Bedrock-Content-Type", "application/json")
	e := startFrames(w, r, d)
	put := e.put
	e.put = func(_, data string) {
		put("chunk", string(encode(map[string]any{"bytes": []byte(data), "p": "abcdefgh"})))
	}
	return e
}

func (p *Provider) streamConverse(w http.ResponseWriter, r *http.Request, a *messageAnswer) {
	e := startFrames(w, r, a.directives)
	block := func(fields map[string]any) map[string]any {
		fields["contentBlockIndex"], fields["p"] = 0, "abcdefgh"
		return fields
	}
	e.send("messageStart", map[string]string{"role": "assistant", "p": "abcd"})
	if a.tool != nil {
		e.send("contentBlockStart", block(map[string]any{"start": map[string]any{"toolUse": converseToolUse{ToolUseID: a.tool.ID, Name: a.tool.Name}}}))
		for _, piece := range pieces(string(a.tool.Input), 6) {
			e.send("contentBlockDelta", block(map[string]any{"delta": map[string]any{"toolUse": map[string]string{"input": piece}}}))
		}
	}
	for _, word := range a.words {
		e.send("contentBlockDelta", block(map[string]any{"delta": map[string]string{"text": word}}))
	}
	e.send("contentBlockStop", block(map[string]any{}))
	e.send("messageStop", map[string]string{"stopReason": a.stop})
	end := map[string]any{"metrics": converseMetric{7}}
	if u := a.converseUsage(); u != nil {
		end["usage"] = u
	}
	e.send("metadata", end)
}

// invocationMetrics is what Bedrock adds to the last chunk of an invoke's stream.
type invocationMetrics struct {
	InputTokenCount           int64 `json:"inputTokenCount"`
	OutputTokenCount          int64 `json:"outputTokenCount"`
	CacheReadInputTokenCount  int64 `json:"cacheReadInputTokenCount"`
	CacheWriteInputTokenCount int64 `json:"cacheWriteInputTokenCount"`
	InvocationLatency         int64 `json:"invocationLatency"`
	FirstByteLatency          int64 `json:"firstByteLatency"`
}

func (a *messageAnswer) invocationMetrics() *invocationMetrics {
	u := a.usage(a.output)
	if !a.bedrock || u == nil || a.directives.Negative {
		return nil
	}
	return &invocationMetrics{u.InputTokens, u.OutputTokens, u.CacheReadInputTokens, u.CacheCreationInputTokens, 7, 3}
}
