package usage

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// ErrFrame reports bytes that are not AWS's event-stream encoding. What follows
// them cannot be read either: the frames have no mark to find the next one by.
var ErrFrame = errors.New("usage: not an event-stream frame")

// Frame is one message in AWS's event-stream encoding (application/vnd.amazon.eventstream).
type Frame struct {
	Kind    []byte // ":message-type": "event", "exception" or "error"
	Name    []byte // what kind of event, exception or error it is
	Payload []byte
	// Oversize marks a frame that was too long to keep; it has nothing else.
	Oversize bool
}

// The encoding's own limits, and the parts of a frame that always are there: two
// lengths and their checksum before, the checksum of all of it behind.
const (
	preludeSize     = 12
	checksumSize    = 4
	maxFrameHeaders = 128 << 10
	maxFramePayload = 24 << 20
	largestFrame    = preludeSize + maxFrameHeaders + maxFramePayload + checksumSize
)

// FrameScanner cuts a stream in AWS's event-stream encoding, fed in pieces of any
// size, into frames. Lengths and both checksums must hold; after the first frame
// that is none it reads nothing more.
//
// The zero value is ready to use. It keeps at most MaxFrame bytes of one frame; of
// a longer one only the checksum is looked at.
//
// Concurrency: none.
type FrameScanner struct {
	MaxFrame int // 0 means DefaultMaxEvent

	buf  []byte // the frame so far, or the part of a long one that is not summed yet
	size int    // of the whole frame; 0: its prelude is not complete
	long bool   // it is not kept
	left int    // of a long frame, what is to come before its checksum
	sum  uint32 // of a long frame, so far
	err  error
}

// Err returns ErrFrame once something was no frame, or nil.
func (s *FrameScanner) Err() error { return s.err }

// Partial reports whether a frame has begun and not ended.
func (s *FrameScanner) Partial() bool { return s.size > 0 || len(s.buf) > 0 }

// Feed takes the next bytes and calls emit for every frame that they complete. The
// frame's slices are valid until emit returns.
func (s *FrameScanner) Feed(p []byte, emit func(Frame)) {
	for s.err == nil {
		switch {
		case s.size == 0:
			if p = s.fill(p, preludeSize); len(s.buf) < preludeSize {
				return
			}
			s.prelude()
		case s.long:
			if p = s.skip(p); s.left > 0 || len(s.buf) < checksumSize {
				return
			}
			s.end(Frame{Oversize: true}, s.sum, s.buf, emit)
		default:
			if p = s.fill(p, s.size); len(s.buf) < s.size {
				return
			}
			body := s.buf[:s.size-checksumSize]
			f, ok := readFrame(body)
			if !ok {
				s.err = ErrFrame
				return
			}
			s.end(f, crc32.ChecksumIEEE(body), s.buf[len(body):], emit)
		}
	}
}

// fill takes bytes until the buffer holds n, and returns the rest.
func (s *FrameScanner) fill(p []byte, n int) []byte {
	take := min(n-len(s.buf), len(p))
	s.buf = append(s.buf, p[:take]...)
	return p[take:]
}

// prelude checks the lengths of the frame that begins.
func (s *FrameScanner) prelude() {
	size, headers := binary.BigEndian.Uint32(s.buf), binary.BigEndian.Uint32(s.buf[4:])
	sum := binary.BigEndian.Uint32(s.buf[8:])
	if crc32.ChecksumIEEE(s.buf[:8]) != sum || size < preludeSize+checksumSize || size > largestFrame ||
		headers > maxFrameHeaders || headers > size-preludeSize-checksumSize {
		s.err = ErrFrame
		return
	}
	limit := s.MaxFrame
	if limit <= 0 {
		limit = DefaultMaxEvent
	}
	s.size = int(size)
	if s.long = s.size > limit; s.long {
		s.left = s.size - preludeSize - checksumSize
		s.sum = crc32.ChecksumIEEE(s.buf)
		s.buf = s.buf[:0]
	}
}

// skip passes over a long frame, and keeps its checksum.
func (s *FrameScanner) skip(p []byte) []byte {
	n := min(s.left, len(p))
	s.sum = crc32.Update(s.sum, crc32.IEEETable, p[:n])
	s.left -= n
	if p = p[n:]; s.left > 0 {
		return p
	}
	return s.fill(p, checksumSize)
}

// end emits a frame if its checksum holds, and makes ready for the next one. Room
// for an unusually long one is given back.
func (s *FrameScanner) end(f Frame, sum uint32, want []byte, emit func(Frame)) {
	if binary.BigEndian.Uint32(want) != sum {
		s.err = ErrFrame
		return
	}
	emit(f)
	const usual = 64 << 10
	if cap(s.buf) > usual {
		s.buf = nil
	}
	s.buf, s.size, s.long = s.buf[:0], 0, false
}

// readFrame takes a frame apart whose lengths were checked.
func readFrame(body []byte) (Frame, bool) {
	headers := binary.BigEndian.Uint32(body[4:])
	rest, payload := body[preludeSize:preludeSize+headers], body[preludeSize+headers:]
	f := Frame{Payload: payload}
	var event, exception, code []byte
	for len(rest) > 0 {
		name, value, after, ok := readHeader(rest)
		if !ok {
			return Frame{}, false
		}
		rest = after
		var into *[]byte
		switch string(name) {
		case ":message-type":
			into = &f.Kind
		case ":event-type":
			into = &event
		case ":exception-type":
			into = &exception
		case ":error-code":
			into = &code
		default:
			continue
		}
		if *into != nil || value == nil {
			return Frame{}, false // twice, or no text: its meaning would be a guess
		}
		*into = value
	}
	switch string(f.Kind) {
	case "event":
		f.Name = event
	case "exception":
		f.Name = exception
	case "error":
		f.Name = code
	}
	return f, f.Name != nil
}

// fixed is the size of a header's value by its type; -1: its length stands before it.
var fixed = [...]int{0, 0, 1, 2, 4, 8, -1, -1, 8, 16}

const textHeader = 7

// readHeader takes one header. The value is nil unless it is a text.
func readHeader(b []byte) (name, value, rest []byte, ok bool) {
	n := int(b[0])
	if n == 0 || len(b) < 1+n+1 {
		return nil, nil, nil, false
	}
	name, b = b[1:1+n], b[1+n:]
	kind := int(b[0])
	if b = b[1:]; kind >= len(fixed) {
		return nil, nil, nil, false
	}
	size := fixed[kind]
	if size < 0 {
		if len(b) < 2 {
			return nil, nil, nil, false
		}
		size = int(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) < size {
		return nil, nil, nil, false
	}
	if kind == textHeader {
		value = b[:size:size]
	}
	return name, value, b[size:], true
}
