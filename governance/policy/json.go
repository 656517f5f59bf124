package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// node is a JSON value before anybody knows what it means.
type node struct {
	path  string
	kind  nodeKind
	text  string // of a text; the literal of a number
	truth bool
	names []string // of an object's members
	list  []node   // of a list; the values of an object's members
}

type nodeKind uint8

const (
	nullNode nodeKind = iota + 1
	boolNode
	numberNode
	textNode
	listNode
	objectNode
)

const (
	maxDepth = 16 // documents have 7
	maxNodes = 500_000
)

// parse reads exactly one JSON value, whose place is path.
func parse(path string, data []byte) (node, error) {
	switch {
	case len(data) > MaxInputBytes:
		return node{}, refuse("", fmt.Sprintf("must be at most %d bytes", MaxInputBytes))
	case !utf8.Valid(data):
		return node{}, refuse("", "must be UTF-8")
	case !json.Valid(data):
		return node{}, notJSON(data)
	}
	p := parser{decoder: json.NewDecoder(bytes.NewReader(data))}
	p.decoder.UseNumber()
	return p.value(path, 0)
}

// notJSON says where the input stops being JSON.
func notJSON(data []byte) error {
	e := &Error{Why: "must be one JSON value"}
	var ignored json.RawMessage
	if syntax, is := json.Unmarshal(data, &ignored).(*json.SyntaxError); is {
		e.Line = 1 + bytes.Count(data[:min(int(syntax.Offset), len(data))], []byte("\n"))
	}
	return e
}

type parser struct {
	decoder *json.Decoder
	nodes   int
}

// value reads the next value of an input that is known to be valid.
func (p *parser) value(path string, depth int) (node, error) {
	n := node{path: path}
	if p.nodes++; p.nodes > maxNodes {
		return n, refuse("", fmt.Sprintf("must have at most %d values", maxNodes))
	}
	token, err := p.decoder.Token()
	if err != nil {
		return n, refuse(path, "must be JSON")
	}
	switch t := token.(type) {
	case nil:
		n.kind = nullNode
	case bool:
		n.kind, n.truth = boolNode, t
	case json.Number:
		n.kind, n.text = numberNode, string(t)
	case string:
		n.kind, n.text = textNode, t
	case json.Delim:
		if depth == maxDepth {
			return n, refuse(path, "must not be nested so deep")
		}
		n.kind = listNode
		if t == '{' {
			n.kind = objectNode
		}
		for p.decoder.More() {
			if err := p.member(&n, depth); err != nil {
				return n, err
			}
		}
		if _, err := p.decoder.Token(); err != nil {
			return n, refuse(path, "must be JSON")
		}
	}
	return n, nil
}

func (p *parser) member(n *node, depth int) error {
	path := index(n.path, len(n.list))
	if n.kind == objectNode {
		token, err := p.decoder.Token()
		name, is := token.(string)
		if err != nil || !is {
			return refuse(n.path, "must be JSON")
		}
		n.names = append(n.names, name)
		path = Member(n.path, name)
	}
	v, err := p.value(path, depth+1)
	n.list = append(n.list, v)
	return err
}

// Member is the place of an object's member below path, as [Error] names it: path.name, and
// path["name"] where the name is not made of letters and digits alone. A name is the
// author's text: one that is too long or cannot be printed is shown as a question mark.
// It is for decoders of other formats.
func Member(path, name string) string {
	plain := name != ""
	for i := range len(name) {
		c := name[i]
		plain = plain && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9')
	}
	switch {
	case name == "" || len(name) > MaxModelBytes || !printable(name):
		return join(path, "?")
	case !plain:
		return join(path, fmt.Sprintf("[%q]", name))
	}
	return join(path, name)
}

// object reads an object's members by exact name.
func (n node) object(fields map[string]func(node) error) error {
	if n.kind != objectNode {
		return refuse(n.path, "must be an object")
	}
	for i, name := range n.names {
		v := n.list[i]
		read := fields[name]
		switch {
		case read == nil:
			return refuse(v.path, "unknown field")
		case slices.Contains(n.names[:i], name):
			return refuse(v.path, "must not stand here twice")
		case v.kind == nullNode:
			return refuse(v.path, "must not be null; leave it out")
		}
		if err := read(v); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether an object has a member.
func (n node) has(name string) bool { return slices.Contains(n.names, name) }

func (n node) each(most int, read func(node) error) error {
	if n.kind != listNode {
		return refuse(n.path, "must be a list")
	}
	if len(n.list) == 0 {
		return refuse(n.path, "must not be empty")
	}
	if len(n.list) > most {
		return refuse(n.path, fmt.Sprintf("must have at most %d entries", most))
	}
	for _, v := range n.list {
		if err := read(v); err != nil {
			return err
		}
	}
	return nil
}

// str is a reader of a text that is not empty.
func str(to *string) func(node) error {
	return func(n node) error {
		if n.kind != textNode {
			return refuse(n.path, "must be a text")
		}
		if n.text == "" {
			return refuse(n.path, "must not be empty")
		}
		*to = n.text
		return nil
	}
}

func flag(to *bool) func(node) error {
	return func(n node) error {
		if n.kind != boolNode {
			return refuse(n.path, "must be true or false")
		}
		*to = n.truth
		return nil
	}
}

// whole is a reader of a whole number, written as one: 1.0 and 1e3 are not.
func whole[T ~int | ~int32 | ~int64](to *T) func(node) error {
	return func(n node) error {
		if n.kind != numberNode {
			return refuse(n.path, "must be a whole number")
		}
		v, err := strconv.ParseInt(n.text, 10, 64)
		switch {
		case err != nil && err.(*strconv.NumError).Err == strconv.ErrRange:
			return refuse(n.path, "must fit 64 bits")
		case err != nil || (v == 0 && n.text != "0"):
			return refuse(n.path, "must be a whole number, without a fraction or an exponent")
		case int64(T(v)) != v:
			return refuse(n.path, "must not be so large")
		}
		*to = T(v)
		return nil
	}
}
