package ratelimit

import (
	"fmt"
	"math"
)

// The bounds of a bucket.
const (
	maxSegments = 256
	// MaxEncoded is the largest size of an encoded bucket, in bytes.
	MaxEncoded = 1024
	// maxSegmentBytes is what of it the segments may take: the header is at
	// most 64 bytes long.
	maxSegmentBytes = MaxEncoded - 64
)

// reserve appends an open segment and returns its number.
func (b *Bucket) reserve(tokens, born int64) uint64 {
	seq := b.next
	b.next++
	b.push(segment{tokens: tokens, first: seq, born: born})
	return seq
}

// push appends a segment and keeps the bounds.
func (b *Bucket) push(s segment) {
	b.held += s.tokens
	n := len(b.segments)
	if n > 1 && s.terminal() {
		if tail := &b.segments[n-1]; tail.terminal() && tail.born == s.born {
			tail.tokens += s.tokens
			b.grew(1)
			return
		}
	}
	if n == cap(b.segments) {
		b.move()
	}
	b.segments = append(b.segments, s)
	if s.born != 0 {
		b.late++
	}
	b.grew(b.sizeOf(n, n+1))
}

// move makes room behind the segments: at the front, where drained ones were, or in
// new memory.
func (b *Bucket) move() {
	n := len(b.segments)
	if c := capacity(n); cap(b.space) < c {
		b.space = make([]segment, c)
	}
	b.space = b.space[:cap(b.space)]
	b.segments = b.space[:copy(b.space, b.segments)]
}

// capacity leaves room for a third more, so that moving costs little per segment.
func capacity(n int) int { return n + n/3 + 8 }

// Return gives back what a reservation did not use: amount is what was reserved
// under seq, keep what of it was used, and keep 0 cancels it. It returns
// the tokens that became free, rounded down: those that the reservation's own segment
// still held. What time has drained is not returned.
//
// The reservation is then closed. A second return of it is a no-op, and so is one
// of a reservation that is drained away or was never made, with one exception: the
// members of a merged segment are not told apart, and there a second return is
// ErrMismatch only when it asks for more than is there. The caller, who keeps a
// record per reservation, must return each one once.
//
// Errors: ErrInvalid, ErrMismatch.
func (b *Bucket) Return(seq uint64, amount, keep int64) (returned int64, err error) {
	if amount < 0 || keep < 0 || keep > amount {
		return 0, fmt.Errorf("%w: return that keeps %d of %d", ErrInvalid, keep, amount)
	}
	i := b.find(seq)
	switch {
	case i < 0:
		return 0, nil
	case i > 0:
		return b.returnBehind(i, seq, amount, keep)
	case b.segments[0].merged():
		return b.returnMerged(seq, amount, keep)
	default:
		return b.returnHead(seq, amount, keep)
	}
}

// returnBehind serves a segment that has not been drained at all.
func (b *Bucket) returnBehind(i int, seq uint64, amount, keep int64) (int64, error) {
	s := &b.segments[i]
	if amount > s.tokens || !s.merged() && amount != s.tokens {
		return 0, mismatch(seq, amount, s.tokens)
	}
	free := amount - keep
	s.tokens -= free
	b.held -= free
	if s.span <= 1 {
		s.close()
	}
	if s.tokens == 0 {
		b.remove(i)
		i--
	}
	b.mergeTerminalAt(i + 1)
	b.mergeTerminalAt(i)
	b.grew(maxGrowth)
	return free, nil
}

// returnHead serves the segment that is being drained when it is one reservation.
func (b *Bucket) returnHead(seq uint64, amount, keep int64) (int64, error) {
	s := &b.segments[0]
	if reserved := s.tokens + b.head.drained; amount != reserved {
		return 0, mismatch(seq, amount, reserved)
	}
	before, frac := s.tokens, b.head.frac
	s.close()
	s.tokens = max(0, keep-b.head.drained)
	b.head = head{frac: frac}
	b.held -= before - s.tokens
	free := before - s.tokens
	if s.tokens == 0 {
		if frac > 0 {
			free-- // of the last token only a part was left
		}
		b.remove(0)
	}
	b.grew(maxGrowth)
	return free, nil
}

// returnMerged serves a merged segment that is being drained. Which member was
// drained is not known, so each is taken to be the one.
func (b *Bucket) returnMerged(seq uint64, amount, keep int64) (int64, error) {
	h := b.head
	s := &b.segments[0]
	if amount <= h.drained {
		if s.span <= 1 {
			s.close()
			b.head = head{frac: h.frac}
		}
		return 0, nil
	}
	// In units: max(0, amount - drained) - max(0, keep - drained).
	free := product(uint64(amount-max(keep, h.drained)), unitsPerToken)
	if keep <= h.drained {
		free = free.sub(wide{0, uint64(h.drainedFrac)})
	}
	left := b.units(0)
	if left.less(free) {
		return 0, mismatch(seq, amount, s.tokens+h.drained)
	}
	left = left.sub(free)
	whole, _ := free.div(unitsPerToken)
	tokens := int64(left.divUp(unitsPerToken))
	b.held -= s.tokens - tokens
	s.tokens = tokens
	b.head.frac = int64(product(uint64(tokens), unitsPerToken).sub(left).lo)
	if s.span <= 1 {
		s.close()
		b.head = head{frac: b.head.frac}
	}
	if tokens == 0 {
		b.remove(0)
	}
	b.grew(maxGrowth)
	return int64(whole), nil
}

func mismatch(seq uint64, amount, reserved int64) error {
	return fmt.Errorf("%w: %d tokens under number %d, of which the bucket has %d", ErrMismatch, amount, seq, reserved)
}

// find returns the segment with an open member of that number, -1 if there is none.
func (b *Bucket) find(seq uint64) int {
	if seq == 0 || seq >= b.next {
		return -1
	}
	for i := len(b.segments) - 1; i >= 0; i-- { // most settle long before they drain
		if s := &b.segments[i]; !s.terminal() && s.last() >= seq {
			if s.first <= seq {
				return i
			}
		} else if !s.terminal() {
			break
		}
	}
	return -1
}

// remove takes out a segment that holds nothing.
func (b *Bucket) remove(i int) {
	if b.segments[i].born != 0 {
		b.late--
	}
	if i == 0 {
		b.head = head{}
	}
	b.cut(i)
}

// cut closes the gap that segment i leaves, from the nearer end.
func (b *Bucket) cut(i int) {
	if n := len(b.segments); i < n/2 {
		copy(b.segments[1:i+1], b.segments[:i])
		b.segments = b.segments[1:]
	} else {
		copy(b.segments[i:], b.segments[i+1:])
		b.segments = b.segments[:n-1]
	}
}

// mergeTerminalAt merges segment i into its predecessor if nobody can tell.
func (b *Bucket) mergeTerminalAt(i int) {
	if i < 2 || i >= len(b.segments) {
		return // the head is not merged into
	}
	p, s := &b.segments[i-1], &b.segments[i]
	if p.terminal() && s.terminal() && p.born == s.born {
		b.merge(i - 1)
	}
}

// mergeTerminals merges all terminal neighbours.
func (b *Bucket) mergeTerminals() {
	for i := len(b.segments) - 1; i >= 2; i-- {
		b.mergeTerminalAt(i)
	}
	b.fit(maxSegments, maxSegmentBytes)
}

// merge makes one segment of i and i+1. It joins when the later one did.
func (b *Bucket) merge(i int) {
	p, s := &b.segments[i], &b.segments[i+1]
	p.tokens += s.tokens
	switch {
	case p.terminal() && s.terminal():
	case p.terminal():
		p.first, p.span = s.first, max(s.span, 1)
	case s.terminal():
		p.span = max(p.span, 1)
	default:
		p.span = 1 + s.last() - p.first
	}
	if p.born != 0 && s.born != 0 {
		b.late--
	}
	p.born = max(p.born, s.born)
	b.cut(i + 1)
}

// maxGrowth is the most that one change adds to the encoding, in bytes: a segment
// becomes a range, and so does the one after it.
const maxGrowth = 40

// grew counts down the free bytes and merges when a bound is passed.
func (b *Bucket) grew(bytes int) {
	b.room -= bytes
	for len(b.segments) > maxSegments {
		b.room += b.shrink()
	}
	if b.room < 0 {
		b.fit(maxSegments, maxSegmentBytes)
	}
}

// fit merges the smallest neighbours behind the head until the bounds hold.
func (b *Bucket) fit(segments, bytes int) {
	b.room = bytes - b.sizeOf(0, len(b.segments))
	for (len(b.segments) > segments || b.room < 0) && len(b.segments) >= 3 {
		b.room += b.shrink()
	}
}

// shrink merges the two neighbours behind the head that hold least, and returns
// how many bytes that frees in the encoding.
func (b *Bucket) shrink() int {
	i := b.smallest()
	end := i + 2 // behind the next open segment nobody notices: numbers are expected anew
	for end < len(b.segments) && b.segments[end].terminal() {
		end++
	}
	end = min(end+1, len(b.segments))
	before := b.sizeOf(i, end)
	b.merge(i)
	return before - b.sizeOf(i, end-1)
}

// smallest returns the place of the two neighbours behind the head that hold least.
func (b *Bucket) smallest() int {
	place, least := 1, int64(math.MaxInt64)
	before := b.segments[1].tokens
	for i := 2; i < len(b.segments); i++ {
		tokens := b.segments[i].tokens
		if sum := before + tokens; sum < least {
			place, least = i-1, sum
		}
		before = tokens
	}
	return place
}
