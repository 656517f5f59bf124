package provider

import (
	"net/http"
	"strings"
)

// streamResponse sends a response event by event, each with its number.
func (p *Provider) streamResponse(w http.ResponseWriter, r *http.Request, a *responseAnswer) {
	e := startEvents(w, r, a.directives)
	number := 0
	numbered := func(kind string, fields map[string]any) map[string]any {
		fields["type"], fields["sequence_number"] = kind, number
		number++
		return fields
	}
	say := func(kind string, fields map[string]any) { e.send(kind, numbered(kind, fields)) }
	e.failure = func() {
		e.write("error", string(encode(numbered("error", map[string]any{
			"code": "server_error", "message": "The built-in provider was asked to fail.", "param": nil,
		}))))
	}
	say("response.created", map[string]any{"response": a.response})
	say("response.in_progress", map[string]any{"response": a.response})
	if a.tool != nil {
		begun := *a.tool
		begun.Status, begun.Arguments = "in_progress", ""
		say("response.output_item.added", map[string]any{"output_index": 0, "item": begun})
		for _, piece := range pieces(a.tool.Arguments, 6) {
			say("response.function_call_arguments.delta", map[string]any{"item_id": a.item, "output_index": 0, "delta": piece})
		}
		say("response.function_call_arguments.done", map[string]any{
			"item_id": a.item, "output_index": 0, "arguments": a.tool.Arguments,
		})
		say("response.output_item.done", map[string]any{"output_index": 0, "item": a.tool})
	} else {
		part := func(more map[string]any) map[string]any {
			more["item_id"], more["output_index"], more["content_index"] = a.item, 0, 0
			return more
		}
		whole := text(strings.Join(a.words, ""))
		say("response.output_item.added", map[string]any{"output_index": 0, "item": a.message("in_progress")})
		say("response.content_part.added", part(map[string]any{"part": text("")}))
		for _, word := range a.words {
			say("response.output_text.delta", part(map[string]any{"delta": word, "logprobs": []struct{}{}}))
		}
		say("response.output_text.done", part(map[string]any{"text": whole.Text, "logprobs": []struct{}{}}))
		say("response.content_part.done", part(map[string]any{"part": whole}))
		say("response.output_item.done", map[string]any{"output_index": 0, "item": a.message(a.status(), whole)})
	}
	say("response."+a.status(), map[string]any{"response": a.whole()})
}
