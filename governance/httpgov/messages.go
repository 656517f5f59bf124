package httpgov

import (
	"errors"
	"strings"
)

// messagesFields are the members of an Anthropic message request whose effect on
// tokens and price is known.
var messagesFields = vocabulary(map[string]spell{
	"model": readModel, "stream": readStream, "max_tokens": readOutput,
	"messages": readMessages, "system": readSystem, "tools": readTools,
	"service_tier":  readLabel(func(a *ask) *string { return &a.tier }),
	"speed":         readLabel(func(a *ask) *string { return &a.speed }),
	"inference_geo": readLabel(func(a *ask) *string { return &a.geo }),

	"metadata": plain, "stop_sequences": plain, "temperature": plain, "top_k": plain, "top_p": plain,
	"tool_choice": plain, "thinking": plain, "cache_control": plain,
	"output_config": plain, "output_format": plain,

	"mcp_servers": unpriced, "container": unpriced, "context_management": unpriced,
})

func readMessages(a *ask, _ string, v span) error {
	return a.doc.elements(v, func(v span) error {
		a.messages++
		return a.doc.members(v, func(name string, v span) error {
			switch name {
			case "role":
			case "content":
				return a.content(v, messagePart)
			default:
				a.beyondText()
			}
			return nil
		})
	})
}

func readSystem(a *ask, _ string, v span) error {
	a.messages++
	return a.content(v, messagePart)
}

// messagePart reads a block. Thinking is not text here: what a block shows may be
// a summary of what is charged.
func messagePart(a *ask, v span) error {
	kind, err := a.typeOf(v)
	if err != nil {
		return err
	}
	switch kind {
	case "text", "tool_use":
		return nil
	case "tool_result":
		return a.doc.members(v, func(name string, v span) error {
			if name == "content" {
				return a.content(v, resultPart)
			}
			return nil
		})
	}
	a.beyondText()
	return nil
}

// resultPart reads a block inside a tool's result, where no further results nest.
func resultPart(a *ask, v span) error {
	kind, err := a.typeOf(v)
	if err == nil && kind != "text" {
		a.beyondText()
	}
	return err
}

// clientTools are Anthropic's own tools that the client runs. The provider adds
// instructions of its own for them.
var clientTools = []string{"bash_", "text_editor_", "computer_", "memory_"}

func readTools(a *ask, _ string, v span) error {
	return a.doc.elements(v, func(v span) error {
		a.tools++
		kind, err := a.typeOf(v)
		if err != nil || kind == "" || kind == "custom" {
			return err
		}
		for _, prefix := range clientTools {
			if strings.HasPrefix(kind, prefix) {
				a.window = true
				return nil
			}
		}
		if len(kind) > maxKind {
			return errors.New("type is too long")
		}
		a.hosted = append(a.hosted, kind)
		return nil
	})
}
