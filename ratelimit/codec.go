package ratelimit

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// The encoding, version 1. All numbers are minimal varints.
//
//	version, flags
//	next, anchor, rate + 1                if anchored; else nothing follows
//	next - the first open member's number if hasOpen
//	number of segments
//	head: frac                            if hasFrac
//	head: drained, drainedFrac            if hasDrained
//	segments: tokens << 2 | kind, then
//	  terminal  nothing
//	  open      nothing: one member, numbered as expected
//	  ranged    zigzag(first - expected), 1 + last - first if merged, else 0
//	  born      another kind, born - anchor, then what that kind has
//
// The number expected after a member is the next one, and a terminal segment counts
// as one member, so that settled and open reservations in turn cost no extra byte.
const version = 1

const (
	anchored   = 1 << 0
	hasOpen    = 1 << 1
	hasFrac    = 1 << 2
	hasDrained = 1 << 3
	flagsMask  = 1<<4 - 1
)

const (
	kindTerminal = iota
	kindOpen
	kindRanged
	kindBorn
)

// numbering follows the expected member numbers along the queue.
type numbering struct{ expected uint64 }

// kind returns how a segment is written and moves on.
func (n *numbering) kind(s *segment) (kind uint64, gap int64) {
	if s.terminal() {
		if n.expected != 0 {
			n.expected++
		}
		return kindTerminal, 0
	}
	if n.expected == 0 {
		n.expected = s.first
	}
	gap = int64(s.first - n.expected)
	n.expected = s.last + 1
	if gap == 0 && !s.merged {
		return kindOpen, 0
	}
	return kindRanged, gap
}

// members is how many numbers a merged segment spans; zero if it is not merged.
func (s *segment) members() uint64 {
	if !s.merged {
		return 0
	}
	return 1 + s.last - s.first
}

// AppendBinary appends the encoding, at most MaxEncoded bytes. Equal states have
// equal encodings. The error is always nil.
func (b *Bucket) AppendBinary(dst []byte) ([]byte, error) {
	if !b.anchored {
		return append(dst, version, 0), nil
	}
	flags, open := byte(anchored), b.firstOpen()
	if open != 0 {
		flags |= hasOpen
	}
	if b.head.frac != 0 {
		flags |= hasFrac
	}
	if b.head.drained != 0 || b.head.drainedFrac != 0 {
		flags |= hasDrained
	}
	dst = append(dst, version, flags)
	dst = binary.AppendUvarint(dst, b.next)
	dst = binary.AppendUvarint(dst, uint64(b.anchor))
	dst = binary.AppendUvarint(dst, uint64(b.rate+1))
	if flags&hasOpen != 0 {
		dst = binary.AppendUvarint(dst, b.next-open)
	}
	dst = binary.AppendUvarint(dst, uint64(len(b.segments)))
	if flags&hasFrac != 0 {
		dst = binary.AppendUvarint(dst, uint64(b.head.frac))
	}
	if flags&hasDrained != 0 {
		dst = binary.AppendUvarint(dst, uint64(b.head.drained))
		dst = binary.AppendUvarint(dst, uint64(b.head.drainedFrac))
	}
	var n numbering
	for i := range b.segments {
		s := &b.segments[i]
		kind, gap := n.kind(s)
		if s.born == 0 {
			dst = binary.AppendUvarint(dst, uint64(s.tokens)<<2|kind)
		} else {
			dst = binary.AppendUvarint(dst, uint64(s.tokens)<<2|kindBorn)
			dst = append(dst, byte(kind))
			dst = binary.AppendUvarint(dst, uint64(s.born-b.anchor))
		}
		if kind == kindRanged {
			dst = binary.AppendVarint(dst, gap)
			dst = binary.AppendUvarint(dst, s.members())
		}
	}
	return dst, nil
}

// MarshalBinary returns the encoding. The error is always nil.
func (b *Bucket) MarshalBinary() ([]byte, error) { return b.AppendBinary(nil) }

func (b *Bucket) firstOpen() uint64 {
	for i := range b.segments {
		if s := &b.segments[i]; !s.terminal() {
			return s.first
		}
	}
	return 0
}

// segmentBytes is the size of the segments in the encoding.
func (b *Bucket) segmentBytes() (size int) {
	var n numbering
	for i := range b.segments {
		s := &b.segments[i]
		kind, gap := n.kind(s)
		size += uvarintLen(uint64(s.tokens) << 2)
		if s.born != 0 {
			size += 1 + uvarintLen(uint64(s.born-b.anchor))
		}
		if kind == kindRanged {
			size += uvarintLen(uint64(gap<<1)^uint64(gap>>63)) + uvarintLen(s.members())
		}
	}
	return size
}

func uvarintLen(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// UnmarshalBinary replaces the bucket by the encoded one. It reuses the bucket's
// memory. Bytes that AppendBinary would not have written are refused and leave the
// bucket as it was.
//
// Errors: ErrCorrupt.
func (b *Bucket) UnmarshalBinary(p []byte) error {
	var (
		d     = decoder{p: p}
		out   Bucket
		space [maxSegments]segment
	)
	segments := d.bucket(&out, &space)
	switch {
	case d.wrong != "":
		return fmt.Errorf("%w: %s", ErrCorrupt, d.wrong)
	case len(d.p) > 0:
		return fmt.Errorf("%w: %d bytes follow it", ErrCorrupt, len(d.p))
	case len(p) > MaxEncoded:
		return fmt.Errorf("%w: %d bytes are more than %d", ErrCorrupt, len(p), MaxEncoded)
	}
	keep := b.segments[:0]
	if cap(keep) < len(segments) {
		keep = make([]segment, 0, min(len(segments)+32, maxSegments+1))
	}
	out.segments = append(keep, segments...)
	*b = out
	return nil
}

// decoder reads an encoding. The first thing wrong sticks, and all reads after it
// give zero.
type decoder struct {
	p     []byte
	wrong string
}

func (d *decoder) fail(wrong string) {
	if d.wrong == "" {
		d.wrong = wrong
	}
	d.p = nil
}

func (d *decoder) byte() byte {
	if len(d.p) == 0 {
		d.fail("it is cut off")
		return 0
	}
	c := d.p[0]
	d.p = d.p[1:]
	return c
}

// number reads a minimal varint of at most most.
func (d *decoder) number(most uint64) uint64 {
	if len(d.p) > 0 && d.p[0] < 0x80 && uint64(d.p[0]) <= most {
		v := uint64(d.p[0])
		d.p = d.p[1:]
		return v
	}
	v, n := binary.Uvarint(d.p)
	switch {
	case n == 0:
		d.fail("it is cut off")
		return 0
	case n < 0 || v > most:
		d.fail("a number is too large")
		return 0
	case n > 1 && d.p[n-1] == 0:
		d.fail("a number is longer than need be")
		return 0
	}
	d.p = d.p[n:]
	return v
}

func (d *decoder) bucket(b *Bucket, space *[maxSegments]segment) []segment {
	if v := d.byte(); d.wrong == "" && v != version {
		d.fail(fmt.Sprintf("version %d is not known here; it may come from a newer release", v))
	}
	flags := d.byte()
	if flags&^flagsMask != 0 || flags != 0 && flags&anchored == 0 {
		d.fail("unknown flags")
	}
	if flags == 0 {
		return nil
	}
	b.anchored = true
	b.next = d.number(maxSeq)
	b.anchor = int64(d.number(math.MaxInt64))
	b.rate = int64(d.number(uint64(MaxPerMinute)+1)) - 1
	var open uint64
	if flags&hasOpen != 0 {
		if open = b.next - d.number(b.next); open == b.next || open == 0 {
			d.fail("an open member has no number")
		}
	}
	segments := space[:d.number(maxSegments)]
	if flags&hasFrac != 0 {
		if b.head.frac = int64(d.number(unitsPerToken - 1)); b.head.frac == 0 || len(segments) == 0 {
			d.fail("a fraction of nothing")
		}
	}
	if flags&hasDrained != 0 {
		b.head.drained = int64(d.number(uint64(maxHeld)))
		b.head.drainedFrac = int64(d.number(unitsPerToken - 1))
		if b.head.drained == 0 && b.head.drainedFrac == 0 {
			d.fail("nothing drained")
		}
	}
	if b.next == 0 {
		d.fail("numbers start at 1")
	}
	before := len(d.p)
	d.segments(b, segments, open)
	b.room = maxSegmentBytes - (before - len(d.p))
	if d.wrong == "" && b.room < 0 {
		d.fail("the segments are too long")
	}
	if d.wrong == "" && !b.headFits(flags, segments) {
		d.fail("the head is not what can be left of it")
	}
	return segments
}

func (d *decoder) segments(b *Bucket, segments []segment, open uint64) {
	var last uint64 // the latest member's number
	expected := uint64(0)
	for i := range segments {
		if d.wrong != "" {
			return
		}
		s := &segments[i]
		v := d.number(uint64(maxHeld)<<2 | 3)
		kind := v & 3
		if s.tokens = int64(v >> 2); s.tokens == 0 || s.tokens > maxHeld-b.held {
			d.fail("a segment holds nothing or too much")
			return
		}
		b.held += s.tokens
		if kind == kindBorn {
			if kind = uint64(d.byte()); kind >= kindBorn {
				d.fail("unknown kind of segment")
			}
			if s.born = b.anchor + int64(d.number(uint64(math.MaxInt64-b.anchor))); s.born == b.anchor {
				d.fail("a segment is not late")
			}
			b.late++
		}
		if kind == kindTerminal {
			if expected != 0 {
				expected++
			}
			continue
		}
		if expected == 0 {
			expected = open
		}
		s.first, s.last = expected, expected
		if kind == kindRanged {
			gap, members := d.gap(), d.number(maxSeq)
			s.first += uint64(gap)
			s.last = s.first
			if members > 0 {
				s.merged, s.last = true, s.first+members-1
			}
			if gap == 0 && members == 0 || gap != 0 && last == 0 {
				d.fail("a range says nothing")
			}
		}
		if s.first <= last || s.first > maxSeq || s.last >= b.next {
			d.fail("members are out of order")
			return
		}
		last, expected = s.last, s.last+1
	}
	if (last == 0) != (open == 0) {
		d.fail("the open members are not where they should be")
	}
}

func (d *decoder) gap() int64 {
	v := d.number(2*maxSeq - 1)
	return int64(v>>1) ^ -int64(v&1)
}

// headFits reports whether the head's numbers are ones that draining leaves.
func (b *Bucket) headFits(flags byte, segments []segment) bool {
	if flags&(hasFrac|hasDrained) == 0 {
		return true
	}
	if len(segments) == 0 || segments[0].born != 0 {
		return false
	}
	switch s := &segments[0]; {
	case s.terminal():
		return flags&hasDrained == 0
	case flags&hasDrained == 0 || b.head.drained > maxHeld-s.tokens:
		return false
	}
	return segments[0].merged || b.head.drainedFrac == b.head.frac
}
