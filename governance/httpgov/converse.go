package httpgov

import "errors"

// converseFields are the members of a Bedrock Converse request whose effect on tokens
// and price is known. The model is in the path.
var converseFields = vocabulary(map[string]spell{
	"messages": readConverseMessages, "system": readConverseSystem, "inferenceConfig": readInference,
	"toolConfig": readToolConfig, "guardrailConfig": readGuardrail,
	"additionalModelRequestFields": readAdditional, "promptVariables": readElsewhere,
	"serviceTier":       readMember("type", func(a *ask) *string { return &a.tier }),
	"performanceConfig": readMember("latency", func(a *ask) *string { return &a.speed }),

	"additionalModelResponseFieldPaths": plain, "requestMetadata": plain, "outputConfig": plain,
})

func readConverseMessages(a *ask, _ string, v span) error {
	return a.doc.elements(v, func(v span) error {
		a.messages++
		return a.doc.members(v, func(name string, v span) error {
			switch {
			case a.doc.isNull(v) || name == "role":
			case name == "content":
				return a.doc.elements(v, func(v span) error { return conversePart(a, v) })
			default:
				a.beyondText()
			}
			return nil
		})
	})
}

func readConverseSystem(a *ask, _ string, v span) error {
	return a.doc.elements(v, func(v span) error {
		a.messages++
		return conversePart(a, v)
	})
}

// conversePart reads a block, which has its kind for a name. A cache point is a mark
// in the text; reasoning that is shown may be a summary of what is charged.
func conversePart(a *ask, v span) error {
	return a.doc.members(v, func(name string, v span) error {
		switch name {
		case "text", "toolUse", "cachePoint":
			return nil
		case "toolResult":
			return a.doc.members(v, func(name string, v span) error {
				if name == "content" {
					return a.doc.elements(v, func(v span) error { return converseResult(a, v) })
				}
				return nil
			})
		}
		a.beyondText()
		return nil
	})
}

// converseResult reads a block inside a tool's result.
func converseResult(a *ask, v span) error {
	return a.doc.members(v, func(name string, _ span) error {
		if name != "text" && name != "json" {
			a.beyondText()
		}
		return nil
	})
}

// readInference takes the maximum of the output and what changes no price.
func readInference(a *ask, field string, v span) error {
	a.inference = v
	return a.doc.members(v, func(name string, v span) error {
		switch name {
		case "maxTokens":
			if a.doc.isNull(v) {
				a.nulls[maxTokensField] = v
				return nil
			}
			return within(maxTokensField, readOutput(a, name, v))
		case "temperature", "topP", "stopSequences":
			return nil
		}
		return unpriced(a, field, v)
	})
}

// maxTokensField is where Converse has the maximum of the output.
const maxTokensField = "inferenceConfig.maxTokens"

func readToolConfig(a *ask, field string, v span) error {
	return a.doc.members(v, func(name string, v span) error {
		switch {
		case name == "toolChoice" || a.doc.isNull(v):
			return nil
		case name != "tools":
			return unpriced(a, field, v)
		}
		return a.doc.elements(v, func(v span) error {
			a.tools++
			return a.doc.members(v, func(name string, _ span) error {
				if len(name) > maxKind {
					return errors.New("kind is too long")
				}
				if name != "toolSpec" && name != "cachePoint" {
					a.hosted = append(a.hosted, name)
				}
				return nil
			})
		})
	})
}

// readGuardrail notes a guardrail that the client chose: it is charged by the text
// that it looks at. One that routing chose takes its place.
func readGuardrail(a *ask, name string, v span) error {
	a.guardrail = v
	return unpriced(a, name, v)
}

// readAdditional takes what is handed on to the model as it is.
func readAdditional(a *ask, field string, v span) error {
	return a.doc.members(v, func(name string, v span) error {
		if name == "thinking" || name == "top_k" {
			return nil
		}
		return unpriced(a, field, v)
	})
}

// readMember takes a short name that picks a price, from inside an object.
func readMember(member string, into func(*ask) *string) spell {
	return func(a *ask, field string, v span) error {
		return a.doc.members(v, func(name string, v span) error {
			if name != member {
				return unpriced(a, field, v)
			}
			return readLabel(into)(a, name, v)
		})
	}
}
