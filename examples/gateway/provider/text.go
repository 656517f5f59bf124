package provider

import (
	"encoding/json"
	"hash/fnv"
	"strings"
)

// count is the tokenizer: four bytes are a token, and every text has one.
func count(text string) int64 { return int64(len(text)+3) / 4 }

// Every message and every tool costs a little more than its text.
const (
	perMessage = 3
	perTool    = 8
)

var words = strings.Fields(`
	tally stick split notch foil stock hazel reeve pence mark ledger pound owed
	paid half each keeps one grain cut deep enough that both can read it`)

// write returns n words, the same ones for the same prompt.
func write(prompt string, n int64) []string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(prompt))
	at := h.Sum64()
	out := make([]string, n)
	for i := range out {
		at = at*6364136223846793005 + 1442695040888963407
		out[i] = words[at>>33%uint64(len(words))]
		if i > 0 {
			out[i] = " " + out[i]
		}
	}
	return out
}

// arguments makes up what a schema requires.
func arguments(schema json.RawMessage) string {
	var s struct {
		Properties map[string]struct {
			Type any   `json:"type"`
			Enum []any `json:"enum"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	_ = json.Unmarshal(schema, &s) // a schema that says nothing requires nothing
	out := map[string]any{}
	for _, name := range s.Required {
		property := s.Properties[name]
		switch {
		case len(property.Enum) > 0:
			out[name] = property.Enum[0]
		case property.Type == "integer", property.Type == "number":
			out[name] = 1
		case property.Type == "boolean":
			out[name] = true
		case property.Type == "array":
			out[name] = []any{}
		case property.Type == "object":
			out[name] = map[string]any{}
		default:
			out[name] = "Exchequer"
		}
	}
	return string(encode(out))
}

// pieces cuts a text as a stream would.
func pieces(text string, size int) []string {
	var out []string
	for len(text) > size {
		out = append(out, text[:size])
		text = text[size:]
	}
	return append(out, text)
}

// content is a message's content: a text, or a list of blocks of which those with
// a text count.
type content string

func (c *content) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*c = content(text)
		return nil
	}
	var blocks []struct {
		Text    string  `json:"text"`
		Content content `json:"content"`
	}
	if err := json.Unmarshal(data, &blocks); err != nil {
		return err
	}
	var b strings.Builder
	for _, block := range blocks {
		b.WriteString(block.Text)
		b.WriteString(string(block.Content))
	}
	*c = content(b.String())
	return nil
}
