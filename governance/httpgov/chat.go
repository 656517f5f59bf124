package httpgov

import "errors"

// chatFields are the members of an OpenAI chat completion whose effect on tokens
// and price is known. What is not here is not understood.
var chatFields = vocabulary(map[string]spell{
	"model": readModel, "stream": readStream, "stream_options": readStreamOptions,
	"max_tokens": readOutput, "max_completion_tokens": readOutput, "n": readN,
	"messages": readChatMessages, "tools": readChatTools, "functions": readFunctions,
	"prediction": readPrediction, "modalities": readModalities, "audio": readAudio,
	"service_tier":       readLabel(func(a *ask) *string { return &a.tier }),
	"web_search_options": func(a *ask, name string, _ span) error { a.hosted = append(a.hosted, name); return nil },

	"temperature": plain, "top_p": plain, "stop": plain, "seed": plain, "user": plain,
	"presence_penalty": plain, "frequency_penalty": plain, "logit_bias": plain,
	"top_k": plain, "min_p": plain, "repetition_penalty": plain, // of servers that speak OpenAI's format
	"logprobs": plain, "top_logprobs": plain, "response_format": plain,
	"tool_choice": plain, "parallel_tool_calls": plain, "function_call": plain,
	"metadata": plain, "store": plain, "reasoning_effort": plain, "verbosity": plain,
	"safety_identifier": plain, "prompt_cache_key": plain, "prompt_cache_retention": plain,
})

// embeddingFields are the members of an OpenAI embeddings request.
var embeddingFields = vocabulary(map[string]spell{
	"model": readModel, "input": readInput,
	"encoding_format": plain, "dimensions": plain, "user": plain,
})

// chatMessage are the members of a message that are nothing but text.
var chatMessage = map[string]bool{
	"role": true, "name": true, "tool_calls": true, "tool_call_id": true, "function_call": true,
	"refusal": true, "annotations": true, "reasoning_content": true,
}

func readChatMessages(a *ask, _ string, v span) error {
	return a.doc.elements(v, func(v span) error {
		a.messages++
		return a.doc.members(v, func(name string, v span) error {
			switch {
			case a.doc.isNull(v) || chatMessage[name]:
			case name == "content":
				return a.content(v, chatPart)
			default:
				a.beyondText()
			}
			return nil
		})
	})
}

// content reads what is said: a string, or parts.
func (a *ask) content(v span, part func(a *ask, v span) error) error {
	switch a.doc.kind(v) {
	case '"', 'n':
		return nil
	case '[':
		return a.doc.elements(v, func(v span) error { return part(a, v) })
	}
	return errors.New("content must be a string or an array of parts")
}

// beyondText notes an input that is not bounded by its own length.
func (a *ask) beyondText() { a.window, a.mediaInput = true, true }

func chatPart(a *ask, v span) error {
	kind, err := a.typeOf(v)
	if err == nil && kind != "text" && kind != "refusal" {
		a.beyondText()
	}
	return err
}

// typeOf returns the type member of an object. Other members of a part of a known
// type do not matter: whatever they are, they are text.
func (a *ask) typeOf(v span) (kind string, err error) {
	err = a.doc.members(v, func(name string, v span) error {
		if folded(name) == "type" {
			var ok bool
			if kind, ok = a.doc.text(v); !ok || name != "type" {
				return errors.New("type must be a string, in lower case")
			}
		}
		return nil
	})
	return kind, err
}

func readChatTools(a *ask, _ string, v span) error {
	return a.doc.elements(v, func(v span) error {
		kind, err := a.typeOf(v)
		a.tools++
		if err == nil && kind != "function" && kind != "custom" {
			a.hosted = append(a.hosted, kind)
		}
		return err
	})
}

func readFunctions(a *ask, _ string, v span) error {
	return a.doc.elements(v, func(span) error { a.tools++; return nil })
}

// readPrediction takes a predicted output. What of it is rejected is charged as
// output, beside the maximum.
func readPrediction(a *ask, _ string, v span) error {
	a.prediction += int64(v.end - v.start)
	return nil
}

func readModalities(a *ask, _ string, v span) error {
	return a.doc.elements(v, func(v span) error {
		kind, ok := a.doc.text(v)
		if !ok {
			return errors.New("must hold strings")
		}
		a.mediaOutput = a.mediaOutput || kind != "text"
		return nil
	})
}

func readAudio(a *ask, _ string, _ span) error {
	a.mediaOutput = true
	return nil
}

// maxInputs is far above what any provider takes.
const maxInputs = 8192

// readInput takes what is to be embedded: a text, tokens, or several of either.
// Every token takes at least the byte of its comma.
func readInput(a *ask, _ string, v span) error {
	if a.doc.kind(v) == '"' {
		a.inputs = []int64{int64(v.end - v.start)}
		return nil
	}
	tokens := false
	err := a.doc.elements(v, func(v span) error {
		switch k := a.doc.kind(v); {
		case k >= '0' && k <= '9':
			tokens = true
			return nil
		case k == '[' || k == '"':
		default:
			a.beyondText()
		}
		if len(a.inputs) == maxInputs {
			return errors.New("must not hold more than 8192 inputs")
		}
		a.inputs = append(a.inputs, int64(v.end-v.start))
		return nil
	})
	if tokens {
		a.inputs = append(a.inputs, int64(v.end-v.start))
	}
	return err
}
