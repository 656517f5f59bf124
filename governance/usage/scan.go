package usage

import (
	"bytes"
	"encoding/json"
	"errors"
)

// ErrSyntax reports bytes that are not one whole JSON object. The usage that
// comes with it is wholly unknown.
var ErrSyntax = errors.New("usage: not a whole JSON object")

// maxDepth bounds the nesting that is read; deeper JSON counts as malformed.
const maxDepth = 128

// scanner walks JSON without building values: a response of a megabyte is
// looked at for the sake of ten numbers. encoding/json would also hide names
// that occur twice and accept them in any case.
type scanner struct {
	b []byte
	i int
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek returns the next byte that is not white space, or 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.i++
	return true
}

// skip passes over one value and checks its syntax on the way.
func (s *scanner) skip(depth int) bool {
	if depth > maxDepth {
		return false
	}
	switch c := s.peek(); {
	case c == '{':
		return s.skipAll(depth, '}', true)
	case c == '[':
		return s.skipAll(depth, ']', false)
	case c == '"':
		return s.skipString()
	case c == '-' || c >= '0' && c <= '9':
		return s.skipNumber()
	case c == 't':
		return s.skipWord("true")
	case c == 'f':
		return s.skipWord("false")
	case c == 'n':
		return s.skipWord("null")
	default:
		return false
	}
}

func (s *scanner) skipAll(depth int, end byte, named bool) bool {
	s.i++
	if s.take(end) {
		return true
	}
	for {
		if named && (s.peek() != '"' || !s.skipString() || !s.take(':')) {
			return false
		}
		if !s.skip(depth + 1) {
			return false
		}
		if s.take(end) {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

func (s *scanner) skipString() bool {
	b := s.b
	for i := s.i + 1; i < len(b); i++ {
		c := b[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		if c == '"' {
			s.i = i + 1
			return true
		}
		if c != '\\' || i+1 == len(b) {
			return false
		}
		i++
		switch b[i] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		case 'u':
			for range 4 {
				i++
				if i == len(b) || !isHex(b[i]) {
					return false
				}
			}
		default:
			return false
		}
	}
	return false
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func (s *scanner) skipNumber() bool {
	if s.b[s.i] == '-' {
		s.i++
	}
	whole := s.i
	if s.digits() == 0 || s.b[whole] == '0' && s.i > whole+1 {
		return false
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if s.digits() == 0 {
			return false
		}
	}
	if s.i < len(s.b) && (s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		return s.digits() > 0
	}
	return true
}

func (s *scanner) digits() int {
	from := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i - from
}

func (s *scanner) skipWord(w string) bool {
	if !bytes.HasPrefix(s.b[s.i:], []byte(w)) {
		return false
	}
	s.i += len(w)
	return true
}

// members calls f for each member of the object that raw is, values as they
// are written. It reports whether raw is one whole object and nothing else.
func members(raw []byte, f func(name, value []byte)) bool {
	s := scanner{b: raw}
	if !s.take('{') {
		return false
	}
	if s.take('}') {
		return s.peek() == 0 && s.i == len(s.b)
	}
	for {
		if s.peek() != '"' {
			return false
		}
		from := s.i
		if !s.skipString() {
			return false
		}
		name := plain(s.b[from:s.i])
		if !s.take(':') {
			return false
		}
		s.space()
		from = s.i
		if !s.skip(1) {
			return false
		}
		f(name, s.b[from:s.i])
		if s.take('}') {
			s.space()
			return s.i == len(s.b)
		}
		if !s.take(',') {
			return false
		}
	}
}

// elements calls f for each element of the array that raw is.
func elements(raw []byte, f func(value []byte)) bool {
	s := scanner{b: raw}
	if !s.take('[') {
		return false
	}
	if s.take(']') {
		return true
	}
	for {
		s.space()
		from := s.i
		if !s.skip(1) {
			return false
		}
		f(s.b[from:s.i])
		if s.take(']') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

// plain returns what a quoted string means. Only a string with escapes costs
// an allocation.
func plain(quoted []byte) []byte {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return inner
	}
	return []byte(s)
}

func isNull(raw []byte) bool   { return string(raw) == "null" }
func isString(raw []byte) bool { return len(raw) >= 2 && raw[0] == '"' }
func isObject(raw []byte) bool { return len(raw) > 0 && raw[0] == '{' }

// label returns a short name that a provider reported, such as a model or a
// tier. One that is too long or has control characters is dropped: it would
// end in logs and rows.
func label(raw []byte, max int) string {
	if !isString(raw) {
		return ""
	}
	return short(plain(raw), max)
}

func short(s []byte, max int) string {
	if len(s) > max {
		return ""
	}
	for _, c := range s {
		if c < 0x20 || c == 0x7f {
			return ""
		}
	}
	return string(s)
}

// relabel returns the label in raw, or have where raw holds none. Every chunk of
// a stream repeats its model: that costs nothing here.
func relabel(have string, raw []byte, max int) string {
	if isString(raw) && string(plain(raw)) == have {
		return have
	}
	if s := label(raw, max); s != "" {
		return s
	}
	return have
}

const (
	maxModel = 256
	maxLabel = 64
)
