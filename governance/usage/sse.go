package usage

import "bytes"

// DefaultMaxEvent is how many bytes of one event an [EventScanner] keeps.
const DefaultMaxEvent = 1 << 20

// Event is one server-sent event.
type Event struct {
	// Raw is every byte of it, comments, blank line and line ends as they came.
	// The Raw of all events in a row are the stream, byte for byte.
	Raw []byte
	// Name is the event field, empty where there is none.
	Name []byte
	// Data is the data lines joined with line feeds. HasData tells an empty
	// one from none, as with a comment.
	Data    []byte
	HasData bool
	// Oversize marks a piece of an event that was too long to keep; it has
	// neither name nor data. Pass Raw on like any other.
	Oversize bool
}

// EventScanner cuts a stream of server-sent events, fed in pieces of any size,
// into events. Where the pieces are cut makes no difference: within a line
// end, a UTF-8 character or the byte order mark.
//
// The zero value is ready to use. It keeps at most MaxEvent bytes of one event;
// a longer one passes through in pieces marked Oversize. An event that ends with
// a lone CR is held until the next byte: an LF would still belong to it.
//
// Concurrency: none.
type EventScanner struct {
	MaxEvent int // 0 means DefaultMaxEvent

	buf       []byte // the event so far
	lineStart int    // where the current line starts in buf
	lineEnd   int    // where its content ends, once cr is set
	cr        bool   // the line ended with a CR
	content   bool   // the current line is not empty
	oversize  bool   // in the middle of an event that is not kept
	started   bool   // the first line is over, and with it the byte order mark

	name, data []byte
	hasData    bool
}

// Feed takes the next bytes and calls emit for every event that they complete.
// The event's slices are valid until emit returns.
func (s *EventScanner) Feed(p []byte, emit func(Event)) {
	for len(p) > 0 {
		if s.cr {
			if p[0] == '\n' {
				s.keep(p[:1], emit)
				p = p[1:]
			}
			s.endLine(emit)
			continue
		}
		i := lineEnd(p)
		if i < 0 {
			s.content = true
			s.keep(p, emit)
			break
		}
		s.content = s.content || i > 0
		s.keep(p[:i+1], emit)
		s.lineEnd = len(s.buf) - 1
		if p[i] == '\r' {
			s.cr = true
		} else {
			s.endLine(emit)
		}
		p = p[i+1:]
	}
}

// Close says that the stream has ended. What came after the last blank line is
// emitted as one more event, so that no byte is lost; whether it is whole, only
// its content can tell.
func (s *EventScanner) Close(emit func(Event)) {
	if s.cr {
		s.endLine(emit)
	}
	if s.lineStart < len(s.buf) && !s.oversize {
		s.field(s.buf[s.lineStart:])
	}
	if len(s.buf) > 0 {
		s.dispatch(emit)
	}
	s.reset()
}

func lineEnd(p []byte) int {
	i := bytes.IndexByte(p, '\n')
	head := p
	if i >= 0 {
		head = p[:i]
	}
	if j := bytes.IndexByte(head, '\r'); j >= 0 {
		return j
	}
	return i
}

// keep adds bytes to the event, or passes them on if it is too long to keep.
func (s *EventScanner) keep(p []byte, emit func(Event)) {
	limit := s.MaxEvent
	if limit <= 0 {
		limit = DefaultMaxEvent
	}
	if !s.oversize && len(s.buf)+len(p) <= limit {
		s.buf = append(s.buf, p...)
		return
	}
	s.oversize = true
	if len(s.buf) > 0 {
		emit(Event{Raw: s.buf, Oversize: true})
		s.buf, s.lineStart = s.buf[:0], 0
	}
	emit(Event{Raw: p, Oversize: true})
}

func (s *EventScanner) endLine(emit func(Event)) {
	s.cr = false
	if s.oversize {
		s.started = true
		if !s.content {
			s.reset()
		}
		s.content = false
		return
	}
	line := s.buf[s.lineStart:s.lineEnd]
	first := !s.started
	s.started, s.content, s.lineStart = true, false, len(s.buf)
	if first {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	if len(line) == 0 {
		s.dispatch(emit)
		s.reset()
		return
	}
	s.field(line)
}

// field takes one line that is not empty.
func (s *EventScanner) field(line []byte) {
	if !s.started {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		if s.hasData {
			s.data = append(s.data, '\n')
		}
		s.data, s.hasData = append(s.data, value...), true
	case "event":
		s.name = append(s.name[:0], value...)
	}
}

func (s *EventScanner) dispatch(emit func(Event)) {
	emit(Event{Raw: s.buf, Name: s.name, Data: s.data, HasData: s.hasData})
}

// reset makes ready for the next event. Room for an unusually long one is given back.
func (s *EventScanner) reset() {
	const usual = 64 << 10
	if cap(s.buf) > usual {
		s.buf, s.data = nil, nil
	}
	s.buf, s.name, s.data = s.buf[:0], s.name[:0], s.data[:0]
	s.lineStart, s.hasData, s.content, s.cr, s.oversize = 0, false, false, false, false
}
