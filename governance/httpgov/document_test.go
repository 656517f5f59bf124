package httpgov

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tallystick-go/tallystick/governance/usage"
)

// values compares what the walker sees with what encoding/json decodes.
func values(t *testing.T, d document, v span) any {
	t.Helper()
	switch d.kind(v) {
	case '{':
		m := map[string]any{}
		if err := d.members(v, func(name string, v span) error { m[name] = values(t, d, v); return nil }); err != nil {
			t.Skip("a member occurs twice")
		}
		return m
	case '[':
		list := []any{}
		if err := d.elements(v, func(v span) error { list = append(list, values(t, d, v)); return nil }); err != nil {
			t.Fatal(err)
		}
		return list
	case '"':
		s, ok := d.text(v)
		if !ok {
			t.Fatalf("%q is no string", d.raw(v))
		}
		return s
	}
	var x any
	if err := json.Unmarshal(d.raw(v), &x); err != nil {
		t.Fatalf("%q: %v", d.raw(v), err)
	}
	return x
}

func FuzzDocument(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"a":1}`, ` {"a" : [1, -2.5e3 ,true,null, "x\"\\"] , "b":{"c":[]}}`, `{"\u0061":"\ud83d\ude00"}`, `{"a":{},"b":[[[]]]}`,
		`[1]`, `"x"`, `{"a":1}{}`, `{"a":"]}"}`, `{"a":"\\\\"}`, "{\"a\"\t:\r\n0}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, root, err := parse(text)
		var want any
		if json.Unmarshal(text, &want) != nil {
			if err == nil {
				t.Fatalf("%q was taken for JSON", text)
			}
			return
		}
		if err != nil {
			return
		}
		got, err := json.Marshal(values(t, d, root))
		if err != nil {
			t.Skip(err)
		}
		expect, err := json.Marshal(want)
		if err != nil {
			t.Skip(err)
		}
		if !bytes.Equal(got, expect) {
			t.Fatalf("%q is read as %s", text, got)
		}
	})
}

// Whatever is sent, reading it neither panics nor is quadratic, and what is
// forwarded is the same request but for what was put in.
func FuzzAsk(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true}`,
		`{"model":"m","stream_options":null,"max_tokens":null}`,
		`{"model":"m","stream_options":{"include_usage":false,"x":1}}`,
		`{"model":"m","input":[[1,2],["x"]],"n":3}`,
		`{"model":"m","system":[{"type":"text"}],"messages":[{"content":[{"type":"tool_result","content":[{"type":"image"}]}]}],"tools":[{"type":"bash_1"}]}`,
	} {
		f.Add([]byte(s))
	}
	for _, s := range []string{
		`{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"x"}]},{"type":"reasoning"}],"tools":[{"type":"custom"}]}`,
		`{"messages":[{"role":"user","content":[{"text":"x"},{"toolResult":{"content":[{"json":{}}]}}]}],"inferenceConfig":{"maxTokens":null},"guardrailConfig":{}}`,
		`{"inferenceConfig":{ },"toolConfig":{"tools":[{"toolSpec":{}}]}}`, `{"inferenceConfig":null}`, ` { } `, `{"anthropic_version":"x"}`,
	} {
		f.Add([]byte(s))
	}
	bedrockRequest := httptest.NewRequest(http.MethodPost, "/model/m/converse", nil)
	f.Fuzz(func(t *testing.T, text []byte) {
		for p := range vocabularies {
			a, err := parseAsk(p, bedrockRequest, text)
			if err != nil {
				continue
			}
			if !a.bounded() {
				t.Fatalf("%q is read as %+v", text, a)
			}
			e := editor{ask: a}
			e.set("max_tokens_of_a_test", 7)
			switch p {
			case usage.OpenAIChat:
				e.askUsage()
			case usage.BedrockConverse:
				if a.output < 0 {
					e.setMaxTokens(9)
				}
				e.replace(guardrailField, a.guardrail, []byte(`{}`))
			}
			out := e.apply()
			var before, after map[string]any
			if json.Unmarshal(text, &before) != nil || json.Unmarshal(out, &after) != nil {
				t.Fatalf("%q became %q", text, out)
			}
			if inference, _ := after["inferenceConfig"].(map[string]any); p == usage.BedrockConverse && a.output < 0 && inference["maxTokens"] != 9.0 {
				t.Fatalf("%q became %q", text, out)
			}
			options, _ := after["stream_options"].(map[string]any)
			if after["max_tokens_of_a_test"] != 7.0 || p == usage.OpenAIChat && options["include_usage"] != true {
				t.Fatalf("%q became %q", text, out)
			}
			for name, value := range before {
				if name == "stream_options" && p == usage.OpenAIChat || name == "max_tokens_of_a_test" ||
					p == usage.BedrockConverse && (name == "inferenceConfig" || name == guardrailField) {
					continue
				}
				x, _ := json.Marshal(value)
				y, _ := json.Marshal(after[name])
				if !bytes.Equal(x, y) {
					t.Fatalf("%s was %s and became %s", name, x, y)
				}
			}
		}
	})
}

// bounded reports whether nothing that was read is negative.
func (a *ask) bounded() bool {
	return a.model != "" && a.output >= -1 && a.n >= 1 && a.prediction >= 0 && a.messages >= 0 && a.tools >= 0
}

// skimmed feeds a text in pieces.
func skimmed(text []byte, cut func() int) []byte {
	var s skim
	for len(text) > 0 {
		n := min(len(text), max(1, cut()))
		_, _ = s.Write(text[:n])
		text = text[n:]
	}
	return s.object()
}

// What is skimmed of a whole object is an object with the same small members, and
// nothing comes of anything else.
func FuzzSkim(f *testing.F) {
	for _, s := range []string{
		`{"usage":{"a":1},"x":"}"}`, ` {"a":[1,{"b":"\"}"}], "c":null}`, `{}`, `{"a":1}{"b":2}`, `{"a":1`, `[{"a":1}]`, `{"a":"\\"}`, `{"a":1,,"b":2}`, `{,}`,
	} {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		whole := skimmed(text, func() int { return len(text) })
		if pieces := skimmed(text, func() int { return random.IntN(8) }); !bytes.Equal(whole, pieces) {
			t.Fatalf("%q is skimmed as %q, in pieces as %q", text, whole, pieces)
		}
		var want map[string]json.RawMessage
		if json.Unmarshal(text, &want) != nil || want == nil {
			if whole != nil && json.Valid(whole) && !json.Valid(text) && len(text) < maxMember {
				t.Fatalf("%q was mended to %q", text, whole)
			}
			return
		}
		var got map[string]json.RawMessage
		if err := json.Unmarshal(whole, &got); err != nil {
			t.Fatalf("%q is skimmed as %q: %v", text, whole, err)
		}
		for name, value := range want {
			if len(text) < maxMember && !bytes.Equal(got[name], value) {
				t.Fatalf("%q is skimmed as %q", text, whole)
			}
		}
	})
}

func TestSkimDropsLargeMembers(t *testing.T) {
	large := `"` + strings.Repeat("x", 2*maxMember) + `"`
	got := skimmed([]byte(`{"data":[`+large+`], "model":"m","more":`+large+`,"usage":{"a":1}}`), func() int { return 1000 })
	if string(got) != `{"model":"m","usage":{"a":1}}` {
		t.Errorf("skimmed %.100q", got)
	}
	var many strings.Builder
	many.WriteString(`{"usage":{"a":1}`)
	for range 100 {
		many.WriteString(`,"m":"` + strings.Repeat("y", 2000) + `"`)
	}
	many.WriteString(`}`)
	if got := skimmed([]byte(many.String()), func() int { return 7 }); len(got) > maxSkimmed || !json.Valid(got) {
		t.Errorf("kept %d bytes", len(got))
	}
}

func BenchmarkParseAsk(b *testing.B) {
	body := []byte(`{"model":"m","max_tokens":100,"messages":[` + strings.Repeat(`{"role":"user","content":[{"type":"text","text":"`+strings.Repeat("words \\n", 200)+`"}]},`, 100) + `{"role":"user","content":"x"}]}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := parseAsk(usage.OpenAIChat, nil, body); err != nil {
			b.Fatal(err)
		}
	}
}
