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
//	  ranged    zigzag(first - expected), span
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
	n.expected = s.last() + 1
	if gap == 0 && !s.merged() {
		return kindOpen, 0
	}
	return kindRanged, gap
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
			dst = binary.AppendUvarint(dst, s.span)
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

// numberingAt is where the numbering stands before segment i.
func (b *Bucket) numberingAt(i int) (n numbering) {
	terminals := uint64(0)
	for i--; i >= 0; i-- {
		if s := &b.segments[i]; !s.terminal() {
			return numbering{s.last() + 1 + terminals}
		}
		terminals++
	}
	return numbering{}
}

// sizeOf is the size of the segments from i up to before end in the encoding.
func (b *Bucket) sizeOf(i, end int) (size int) {
	n := b.numberingAt(i)
	for ; i < end; i++ {
		s := &b.segments[i]
		kind, gap := n.kind(s)
		size += uvarintLen(uint64(s.tokens) << 2)
		if s.born != 0 {
			size += 1 + uvarintLen(uint64(s.born-b.anchor))
		}
		if kind == kindRanged {
			size += uvarintLen(uint64(gap<<1)^uint64(gap>>63)) + uvarintLen(s.span)
		}
	}
	return size
}

// uvarintLen is the bits in sevens, rounded up, without a division.
func uvarintLen(v uint64) int { return (9*bits.Len64(v|1) + 64) >> 6 }

// UnmarshalBinary replaces the bucket by the encoded one. It reuses the bucket's
// memory, so that plain copies made of it before must not be used any more. Bytes that
// AppendBinary would not have written are refused and leave the bucket as it was.
//
// Errors: ErrCorrupt.
func (b *Bucket) UnmarshalBinary(p []byte) error {
	var (
		d   = decoder{p: p}
		out Bucket
	)
	count := d.header(&out)
	if len(b.segments) > 0 { // not to be lost if something is wrong further on
		return d.aside(b, out, count, len(p))
	}
	if b.space = b.space[:0]; cap(b.space) < count {
		b.space = make([]segment, 0, capacity(count))
	}
	if err := d.rest(&out, b.space[:count], len(p)); err != nil {
		return err
	}
	out.space, out.segments = b.space, b.space[:count]
	*b = out
	return nil
}

// aside decodes the segments elsewhere and replaces the bucket when all is well.
func (d *decoder) aside(b *Bucket, out Bucket, count, size int) error {
	var space [maxSegments]segment
	if err := d.rest(&out, space[:count], size); err != nil {
		return err
	}
	if out.space = b.space[:0]; cap(out.space) < count {
		out.space = make([]segment, 0, capacity(count))
	}
	out.segments = append(out.space, space[:count]...)
	*b = out
	return nil
}

// decoder reads an encoding. The first thing wrong sticks, and all reads after it
// give zero.
type decoder struct {
	p     []byte
	flags byte
	open  uint64 // the first open member's number
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
	var v uint64
	for i, c := range d.p {
		if i == 9 && c > 1 {
			break
		}
		v |= uint64(c&0x7f) << (7 * i)
		if c >= 0x80 {
			continue
		}
		if i > 0 && c == 0 {
			d.fail("a number is longer than need be")
			return 0
		}
		if v > most {
			break
		}
		d.p = d.p[i+1:]
		return v
	}
	d.fail("a number is too large or cut off")
	return 0
}

// header reads everything before the segments and returns their number.
func (d *decoder) header(b *Bucket) (count int) {
	if v := d.byte(); d.wrong == "" && v != version {
		d.fail(fmt.Sprintf("version %d is not known here; it may come from a newer release", v))
	}
	d.flags = d.byte()
	if d.flags&^flagsMask != 0 || d.flags != 0 && d.flags&anchored == 0 {
		d.fail("unknown flags")
	}
	if d.flags == 0 || d.wrong != "" {
		return 0
	}
	b.anchored = true
	if b.next = d.number(maxSeq); b.next == 0 {
		d.fail("numbers start at 1")
	}
	b.anchor = int64(d.number(math.MaxInt64))
	b.rate = int64(d.number(uint64(MaxPerMinute)+1)) - 1
	if d.flags&hasOpen != 0 {
		if d.open = b.next - d.number(b.next); d.open == b.next || d.open == 0 {
			d.fail("an open member has no number")
		}
	}
	count = int(d.number(maxSegments))
	if d.flags&hasFrac != 0 {
		if b.head.frac = int64(d.number(unitsPerToken - 1)); b.head.frac == 0 {
			d.fail("a fraction of nothing")
		}
	}
	if d.flags&hasDrained != 0 {
		b.head.drained = int64(d.number(uint64(maxHeld)))
		b.head.drainedFrac = int64(d.number(unitsPerToken - 1))
		if b.head.drained == 0 && b.head.drainedFrac == 0 {
			d.fail("nothing drained")
		}
	}
	return count
}

// rest reads the segments and judges the whole.
func (d *decoder) rest(b *Bucket, segments []segment, size int) error {
	before := len(d.p)
	d.segments(b, segments)
	b.room = maxSegmentBytes - (before - len(d.p))
	switch {
	case d.wrong != "":
	case b.room < 0 || size > MaxEncoded:
		d.fail("it is too long")
	case len(d.p) > 0:
		d.fail("something follows it")
	case !d.headFits(b, segments):
		d.fail("the head is not what can be left of it")
	}
	if d.wrong != "" {
		return fmt.Errorf("%w: %s", ErrCorrupt, d.wrong)
	}
	return nil
}

func (d *decoder) segments(b *Bucket, segments []segment) {
	var last, expected uint64 // the latest member's number, the next one's
	for i := range segments {
		if d.wrong != "" {
			return
		}
		s := &segments[i]
		*s = segment{}
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
			expected = d.open
		}
		s.first = expected
		if kind == kindRanged {
			gap := d.gap()
			s.first += uint64(gap)
			s.span = d.number(maxSeq)
			if gap == 0 && s.span == 0 || gap != 0 && last == 0 {
				d.fail("a range says nothing")
			}
		}
		if s.first <= last || s.first > maxSeq || s.last() >= b.next {
			d.fail("members are out of order")
			return
		}
		last = s.last()
		expected = last + 1
	}
	if (last == 0) != (d.open == 0) {
		d.fail("the open members are not where they should be")
	}
}

func (d *decoder) gap() int64 {
	v := d.number(2*maxSeq - 1)
	return int64(v>>1) ^ -int64(v&1)
}

// headFits reports whether the head's numbers are ones that draining leaves.
func (d *decoder) headFits(b *Bucket, segments []segment) bool {
	if d.flags&(hasFrac|hasDrained) == 0 {
		return true
	}
	if len(segments) == 0 || segments[0].born != 0 {
		return false
	}
	switch s := &segments[0]; {
	case s.terminal():
		return d.flags&hasDrained == 0
	case d.flags&hasDrained == 0 || b.head.drained > maxHeld-s.tokens:
		return false
	default:
		return s.merged() || b.head.drainedFrac == b.head.frac
	}
}
