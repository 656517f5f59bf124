package httpgov

import "errors"

// responsesFields are the members of an OpenAI response request whose effect on
// tokens and price is known.
var responsesFields = vocabulary(map[string]spell{
	"model": readModel, "stream": readStream, "stream_options": plain, "max_output_tokens": readOutput,
	"input": readItems, "instructions": readInstructions, "tools": readResponsesTools, "background": readBackground,
	"previous_response_id": readElsewhere, "conversation": readElsewhere, "prompt": readElsewhere,
	"service_tier": readLabel(func(a *ask) *string { return &a.tier }),

	"temperature": plain, "top_p": plain, "top_logprobs": plain, "text": plain, "reasoning": plain, "truncation": plain,
	"tool_choice": plain, "parallel_tool_calls": plain, "max_tool_calls": plain, "include": plain,
	"metadata": plain, "store": plain, "user": plain,
	"safety_identifier": plain, "prompt_cache_key": plain, "prompt_cache_retention": plain,
})

// readElsewhere takes what the provider keeps: an earlier response, a conversation,
// a stored prompt. Nobody here knows how long it is, nor what it holds.
func readElsewhere(a *ask, _ string, _ span) error {
	a.beyondText()
	return nil
}

// readBackground refuses an answer that would come outside of its reservation.
func readBackground(a *ask, _ string, v span) error {
	on, ok := a.doc.boolean(v)
	if !ok || on {
		return errors.New("must be false: what is answered later cannot be counted here")
	}
	return nil
}

func readInstructions(a *ask, _ string, v span) error {
	if a.messages++; a.doc.kind(v) != '"' {
		a.beyondText()
	}
	return nil
}

// readItems takes the input: a text, or items.
func readItems(a *ask, _ string, v span) error {
	if a.doc.kind(v) == '"' {
		a.messages++
		return nil
	}
	return a.doc.elements(v, func(v span) error {
		a.messages++
		return readItem(a, v)
	})
}

// itemFields are the members of an item that are nothing but text, by its type. What
// an item of another type stands for is not bounded by its own length: reasoning
// that is shown as a summary or encrypted, references, the work of hosted tools.
var itemFields = map[string]map[string]bool{
	"message":                 {"role": true, "phase": true},
	"function_call":           {"name": true, "arguments": true, "call_id": true},
	"function_call_output":    {"call_id": true},
	"custom_tool_call":        {"name": true, "input": true, "call_id": true},
	"custom_tool_call_output": {"call_id": true},
}

func readItem(a *ask, v span) error {
	kind, err := a.typeOf(v)
	if err != nil {
		return err
	}
	if kind == "" {
		kind = "message"
	}
	known, ok := itemFields[kind]
	if !ok {
		a.beyondText()
		return nil
	}
	return a.doc.members(v, func(name string, v span) error {
		switch {
		case a.doc.isNull(v) || known[name] || name == "type" || name == "id" || name == "status":
		case name == "content" && kind == "message", name == "output":
			return a.content(v, responsePart)
		default:
			a.beyondText()
		}
		return nil
	})
}

func responsePart(a *ask, v span) error {
	kind, err := a.typeOf(v)
	switch {
	case err != nil:
		return err
	case kind != "input_text" && kind != "output_text" && kind != "refusal":
		a.beyondText()
	}
	return nil
}

// readResponsesTools takes tools. Those that the client runs, but the provider
// describes, add instructions of the provider's own.
func readResponsesTools(a *ask, _ string, v span) error {
	return a.doc.elements(v, func(v span) error {
		kind, err := a.typeOf(v)
		a.tools++
		switch {
		case err != nil:
			return err
		case kind == "function", kind == "custom":
		case kind == "local_shell", kind == "apply_patch":
			a.window = true
		case len(kind) > maxKind:
			return errors.New("type is too long")
		default:
			a.hosted = append(a.hosted, kind)
		}
		return nil
	})
}

// maxKind is longer than the name of any type of tool.
const maxKind = 64
