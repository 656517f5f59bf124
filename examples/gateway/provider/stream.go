package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// events writes a stream: server-sent events, or what put writes.
type events struct {
	put        func(name, data string)
	flush      *http.ResponseController
	ctx        context.Context
	directives Directives
	sent       int
	failure    func() // writes the error event of the protocol
	over       bool
}

func startEvents(w http.ResponseWriter, r *http.Request, d Directives) *events {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	e := begin(w, r, d)
	e.put = func(name, data string) {
		if name != "" {
			_, _ = fmt.Fprintf(w, "event: %s\n", name)
		}
		_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
		_ = e.flush.Flush()
	}
	return e
}

// begin sends the header of a stream.
func begin(w http.ResponseWriter, r *http.Request, d Directives) *events {
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	e := &events{flush: http.NewResponseController(w), ctx: r.Context(), directives: d}
	_ = e.flush.Flush()
	return e
}

// send writes one event, unless the directives say that the stream has ended.
func (e *events) send(name string, v any) {
	if e.over {
		return
	}
	switch e.sent {
	case e.directives.Cut:
		panic(http.ErrAbortHandler)
	case e.directives.StreamError:
		e.over = true
		e.failure()
		return
	}
	if e.sent > 0 && pause(e.ctx, e.directives.Pace) != nil {
		panic(http.ErrAbortHandler) // nobody is listening any more
	}
	e.write(name, string(encode(v)))
	e.sent++
}

func (e *events) write(name, data string) { e.put(name, data) }

type chatChunk struct {
	ID                string            `json:"id"`
	Object            string            `json:"object"`
	Created           int64             `json:"created"`
	Model             string            `json:"model"`
	ServiceTier       string            `json:"service_tier"`
	SystemFingerprint string            `json:"system_fingerprint"`
	Choices           []chatChunkChoice `json:"choices"`
	Usage             json.RawMessage   `json:"usage,omitempty"`
}

type chatChunkChoice struct {
	Index        int64     `json:"index"`
	Delta        chatDelta `json:"delta"`
	Logprobs     *struct{} `json:"logprobs"`
	FinishReason *string   `json:"finish_reason"`
}

type chatDelta struct {
	Role      string          `json:"role,omitempty"`
	Content   *string         `json:"content,omitempty"`
	Refusal   json.RawMessage `json:"refusal,omitempty"`
	ToolCalls []chatToolDelta `json:"tool_calls,omitempty"`
}

type chatToolDelta struct {
	Index    int64  `json:"index"`
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

var jsonNull = json.RawMessage("null")

func (p *Provider) streamChat(w http.ResponseWriter, r *http.Request, a *chatAnswer, includeUsage bool) {
	e := startEvents(w, r, a.directives)
	e.failure = func() {
		e.write("", string(encode(newOpenAIError(http.StatusInternalServerError, "The built-in provider was asked to fail.", "", ""))))
	}
	chunk := chatChunk{
		ID: a.id, Object: "chat.completion.chunk", Created: a.created, Model: a.model,
		ServiceTier: "default", SystemFingerprint: "fp_tally",
	}
	if includeUsage {
		chunk.Usage = jsonNull
	}
	say := func(choice int64, d chatDelta, finish *string) {
		chunk.Choices = []chatChunkChoice{{Index: choice, Delta: d, FinishReason: finish}}
		e.send("", chunk)
	}
	for i := range a.n {
		empty := ""
		first := chatDelta{Role: "assistant", Content: &empty, Refusal: jsonNull}
		if a.tool != nil {
			first.Content = nil
			call := chatToolDelta{ID: a.tool.ID, Type: a.tool.Type}
			call.Function.Name = a.tool.Function.Name
			first.ToolCalls = []chatToolDelta{call}
		}
		say(i, first, nil)
		for _, word := range a.words {
			say(i, chatDelta{Content: &word}, nil)
		}
		if a.tool != nil {
			for _, piece := range pieces(a.tool.Function.Arguments, 6) {
				var call chatToolDelta
				call.Function.Arguments = piece
				say(i, chatDelta{ToolCalls: []chatToolDelta{call}}, nil)
			}
		}
		say(i, chatDelta{}, &a.finish)
	}
	if usage := a.usage(); includeUsage && usage != nil {
		chunk.Choices = []chatChunkChoice{}
		chunk.Usage = encode(usage)
		e.send("", chunk)
	}
	if !e.over {
		e.write("", "[DONE]")
	}
}
