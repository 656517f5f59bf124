package httpgov

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
)

// editor changes single members of a body and leaves every other byte alone.
type editor struct {
	ask   *ask
	edits []edit
	added []byte // new members, each with a comma behind it
}

type edit struct {
	at   span
	text []byte
}

// set gives a member that is absent or null a number.
func (e *editor) set(name string, n int64) {
	e.put(name, strconv.AppendInt(nil, n, 10))
}

func (e *editor) put(name string, text []byte) {
	if at, null := e.ask.nulls[name]; null {
		e.edits = append(e.edits, edit{at, text})
		return
	}
	e.added = append(e.added, quoted(name)...)
	e.added = append(e.added, ':')
	e.added = append(e.added, text...)
	e.added = append(e.added, ',')
}

// replace gives a member another value, wherever it is now.
func (e *editor) replace(name string, at span, text []byte) {
	if at != (span{}) {
		e.edits = append(e.edits, edit{at, text})
		return
	}
	e.put(name, text)
}

// setMaxTokens puts a maximum into Converse's inferenceConfig.
func (e *editor) setMaxTokens(n int64) {
	text := strconv.AppendInt(nil, n, 10)
	if at, null := e.ask.nulls[maxTokensField]; null {
		e.edits = append(e.edits, edit{at, text})
		return
	}
	member := append([]byte(`"maxTokens":`), text...)
	at := e.ask.inference
	if at == (span{}) {
		e.put("inferenceConfig", append(append([]byte{'{'}, member...), '}'))
		return
	}
	inside := at.start + 1
	if e.ask.doc[e.ask.doc.space(inside)] != '}' {
		member = append(member, ',')
	}
	e.edits = append(e.edits, edit{span{inside, inside}, member})
}

// askUsage makes the provider report usage at the end of the stream.
func (e *editor) askUsage() {
	text := []byte(`{"include_usage":true`)
	at := e.ask.streamOptions
	if at != (span{}) {
		_ = e.ask.doc.members(at, func(name string, v span) error { // walked before, without an error
			if name != "include_usage" {
				text = append(text, ',')
				text = append(text, quoted(name)...)
				text = append(text, ':')
				text = append(text, e.ask.doc.raw(v)...)
			}
			return nil
		})
	}
	text = append(text, '}')
	if at != (span{}) {
		e.edits = append(e.edits, edit{at, text})
		return
	}
	e.put("stream_options", text)
}

// apply returns the new body.
func (e *editor) apply() []byte {
	doc := e.ask.doc
	if len(e.edits) == 0 && len(e.added) == 0 {
		return doc
	}
	slices.SortFunc(e.edits, func(a, b edit) int { return a.at.start - b.at.start })
	var out bytes.Buffer
	open := e.ask.root.start + 1
	if doc[doc.space(open)] == '}' { // nothing comes behind the last one that is added
		e.added = bytes.TrimSuffix(e.added, []byte{','})
	}
	out.Grow(len(doc) + len(e.added) + 64)
	out.Write(doc[:open])
	out.Write(e.added)
	for _, c := range e.edits {
		out.Write(doc[open:c.at.start])
		out.Write(c.text)
		open = c.at.end
	}
	out.Write(doc[open:])
	return out.Bytes()
}

func quoted(s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic("httpgov: a string cannot be encoded: " + err.Error())
	}
	return text
}
