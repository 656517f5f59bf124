package httpgov

import "bytes"

const (
	maxMember  = 16 << 10 // a member that is longer is dropped while it passes
	maxSkimmed = 64 << 10 // of all that is kept
)

// skim keeps the small members of one JSON object that passes in pieces, and
// drops the large ones: an answer of a hundred megabytes is looked at for the
// sake of ten numbers at its end. What it keeps is again a JSON object. It only
// follows quotes and brackets; the reader of the result checks the rest.
//
// Concurrency: none.
type skim struct {
	out    []byte // "{" and the members kept so far
	member []byte // the member that is passing
	drop   bool   // it is too long

	depth   int
	quoted  bool
	escaped bool
	began   bool
	more    bool // a comma was seen: another member must follow
	whole   bool // the object is complete
	bad     bool // something that is no object, or more than one
}

// Write takes the next piece. It never fails.
func (s *skim) Write(p []byte) (int, error) {
	for i := 0; i < len(p) && !s.bad; {
		i += s.step(p[i:])
	}
	return len(p), nil
}

// step takes at least one byte.
func (s *skim) step(p []byte) int {
	c := p[0]
	switch {
	case s.quoted:
		return s.text(p)
	case s.depth == 0 || s.whole:
		s.outside(c)
		return 1
	case c == '"':
		s.quoted = true
	case c == '{' || c == '[':
		s.depth++
	case c == '}' || c == ']':
		if s.depth--; s.depth == 0 {
			s.end(c)
			return 1
		}
	case c == ',' && s.depth == 1:
		s.bad, s.more = !s.keep(), true
		return 1
	}
	s.add(p[:1])
	return 1
}

func (s *skim) outside(c byte) {
	switch {
	case c == ' ' || c == '\t' || c == '\n' || c == '\r':
	case c == '{' && !s.began:
		s.began, s.depth, s.out = true, 1, append(s.out, '{')
	default:
		s.bad = true
	}
}

// text passes over the inside of a string.
func (s *skim) text(p []byte) int {
	if s.escaped {
		s.escaped = false
		s.add(p[:1])
		return 1
	}
	i := bytes.IndexAny(p, "\"\\")
	if i < 0 {
		s.add(p)
		return len(p)
	}
	s.add(p[:i+1])
	if p[i] == '\\' {
		s.escaped = true
	} else {
		s.quoted = false
	}
	return i + 1
}

func (s *skim) add(p []byte) {
	if s.drop || len(s.member)+len(p) > maxMember {
		s.drop, s.member = true, s.member[:0]
		return
	}
	s.member = append(s.member, p...)
}

// keep ends a member and reports whether there was one.
func (s *skim) keep() bool {
	member := bytes.Trim(s.member, " \t\r\n")
	there := s.drop || len(member) > 0
	if !s.drop && len(member) > 0 && len(s.out)+len(member) < maxSkimmed {
		if len(s.out) > 1 {
			s.out = append(s.out, ',')
		}
		s.out = append(s.out, member...)
	}
	s.member, s.drop = s.member[:0], false
	return there
}

func (s *skim) end(c byte) {
	there := s.keep()
	s.out = append(s.out, '}')
	s.whole, s.bad = true, c != '}' || s.more && !there
}

// object returns what was kept of one whole object, or nil.
func (s *skim) object() []byte {
	if !s.whole || s.bad {
		return nil
	}
	return s.out
}
