package httpgov

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// document is a JSON text that was found to be valid once, so that walking it
// needs no more checks. encoding/json would build values of a body of megabytes
// to look at ten of them, hide names that occur twice and take them in any case,
// and then we and the provider could read two different requests.
type document []byte

// span is a value of a document.
type span struct{ start, end int }

var (
	errNotJSON  = errors.New("must be one JSON object in UTF-8")
	errTwice    = errors.New("has a member twice; which of them counts is anybody's guess")
	errNotArray = errors.New("must be an array")
	errObject   = errors.New("must be an object")
)

// parse checks the text. Bytes that are not UTF-8 are refused: a provider that
// replaces them counts more than what was sent.
func parse(text []byte) (document, span, error) {
	if !utf8.Valid(text) || !json.Valid(text) {
		return nil, span{}, errNotJSON
	}
	d := document(text)
	root := span{d.space(0), 0}
	root.end = d.skip(root.start)
	if d[root.start] != '{' {
		return nil, span{}, errNotJSON
	}
	return d, root, nil
}

func (d document) space(i int) int {
	for i < len(d) && (d[i] == ' ' || d[i] == '\t' || d[i] == '\n' || d[i] == '\r') {
		i++
	}
	return i
}

// skip returns the end of the value that begins at i.
func (d document) skip(i int) int {
	switch d[i] {
	case '"':
		return d.skipString(i)
	case '{', '[':
		depth := 0
		for ; ; i++ {
			switch d[i] {
			case '"':
				i = d.skipString(i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	}
	for i < len(d) && strings.IndexByte(" \t\n\r,]}", d[i]) < 0 {
		i++
	}
	return i
}

func (d document) skipString(i int) int {
	for i++; ; {
		j := i + bytes.IndexByte(d[i:], '"')
		backslashes := 0
		for k := j - 1; k >= i && d[k] == '\\'; k-- {
			backslashes++
		}
		if i = j + 1; backslashes%2 == 0 {
			return i
		}
	}
}

// kind is the first byte of a value: one of { [ " t f n or a digit or sign.
func (d document) kind(v span) byte { return d[v.start] }

func (d document) isNull(v span) bool { return d[v.start] == 'n' }

func (d document) raw(v span) []byte { return d[v.start:v.end] }

// text returns a string value.
func (d document) text(v span) (string, bool) {
	if d.kind(v) != '"' {
		return "", false
	}
	raw := d[v.start+1 : v.end-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw), true
	}
	var s string
	if json.Unmarshal(d.raw(v), &s) != nil {
		return "", false
	}
	return s, true
}

// integer returns a number that is written as plain digits.
func (d document) integer(v span) (int64, bool) {
	raw := d.raw(v)
	if raw[0] < '0' || raw[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil
}

// boolean returns true or false.
func (d document) boolean(v span) (value, ok bool) {
	k := d.kind(v)
	return k == 't', k == 't' || k == 'f'
}

// members calls f for each member of an object, in order. A name that occurs
// twice is refused before anything is done with the object.
func (d document) members(v span, f func(name string, value span) error) error {
	if d.kind(v) != '{' {
		return errObject
	}
	type member struct {
		name  string
		value span
	}
	var list []member
	seen := map[string]struct{}{}
	for i := d.space(v.start + 1); d[i] != '}'; {
		name := span{i, d.skipString(i)}
		i = d.space(d.space(name.end) + 1) // over the colon
		value := span{i, d.skip(i)}
		text, _ := d.text(name)
		if _, twice := seen[text]; twice {
			return errTwice
		}
		seen[text] = struct{}{}
		list = append(list, member{text, value})
		if i = d.space(value.end); d[i] == ',' {
			i = d.space(i + 1)
		}
	}
	for _, m := range list {
		if err := f(m.name, m.value); err != nil {
			return err
		}
	}
	return nil
}

// elements calls f for each element of an array, in order.
func (d document) elements(v span, f func(value span) error) error {
	if d.kind(v) != '[' {
		return errNotArray
	}
	for i := d.space(v.start + 1); d[i] != ']'; {
		value := span{i, d.skip(i)}
		if err := f(value); err != nil {
			return err
		}
		if i = d.space(value.end); d[i] == ',' {
			i = d.space(i + 1)
		}
	}
	return nil
}

// folded is a name as a decoder reads it that does not mind upper and lower case.
func folded(name string) string { return strings.ToLower(strings.ToUpper(name)) }
