package ratelimit

import (
	"fmt"
	"math"
	"time"
)

// Bucket is the state of one limit on one subject. The zero value is an empty
// bucket that has seen no admission yet.
//
// Units: tokens in every argument and result.
// Time: nowMicros is microseconds since the epoch, from one clock for all callers
// (the store's). A time before the latest one counts as the latest one, and one
// before the epoch as the epoch.
// Concurrency: not safe; a store serializes the calls on one bucket. A copy shares
// memory with its original, so only one of them may be used on; see Clone.
//
// Source: internal/docs/guarantees.md "Rates".
type Bucket struct {
	anchored bool
	anchor   int64  // everything before this moment has been drained
	rate     int64  // per minute, as the last admission saw it; unseen if none did
	next     uint64 // the sequence number of the next reservation
	held     int64  // the sum of all segments' tokens
	head     head
	late     int // how many segments were born after the anchor
	room     int // at least so many of the encoding's bytes are free
	segments []segment
	space    []segment // the memory that segments is a part of
}

// head is what is known only of the first segment.
type head struct {
	frac        int64 // units of its first token that are drained already
	drained     int64 // tokens drained since it became the head, if members are open
	drainedFrac int64 // and units
}

// segment is a stretch of the queue: one reservation, several that were merged, or
// debt that nobody will give back.
type segment struct {
	tokens int64  // still held; the head's first token may be part drained
	first  uint64 // the first open member's number; zero if none is open
	span   uint64 // how many numbers a merged segment spans; zero if it is one reservation
	born   int64  // when it joined, if that is after the anchor; else zero
}

func (s *segment) terminal() bool { return s.first == 0 }
func (s *segment) merged() bool   { return s.span != 0 }

// last is the last open member's number.
func (s *segment) last() uint64 { return s.first + max(s.span, 1) - 1 }

// close makes it debt that nobody will give back.
func (s *segment) close() { s.first, s.span = 0, 0 }

// unseen is the rate of a bucket that holds debt though no admission told it a
// limit.
const unseen int64 = -1

// Segments returns the number of segments.
func (b *Bucket) Segments() int { return len(b.segments) }

// Debt returns what the bucket holds at the moment, in tokens, rounded up.
//
// Errors: ErrInvalid.
func (b *Bucket) Debt(nowMicros int64, l Limit) (int64, error) {
	if err := l.Validate(); err != nil {
		return 0, err
	}
	return b.debt(nowMicros, b.pace(l.PerMinute)), nil
}

// Peek returns what Admit would answer and changes nothing.
//
// Errors: ErrInvalid.
func (b *Bucket) Peek(nowMicros int64, l Limit, cost int64) (Verdict, error) {
	if err := l.Validate(); err != nil {
		return Verdict{}, err
	}
	if cost < 0 {
		return Verdict{}, fmt.Errorf("%w: cost %d is negative", ErrInvalid, cost)
	}
	rate := b.pace(l.PerMinute)
	v := Verdict{Debt: b.debt(nowMicros, rate)}
	switch {
	case cost > l.Burst:
		v.Never = true
	case v.Debt <= l.Burst-cost:
		v.OK = true
	case rate == 0:
		v.Never = true
	default:
		v.RetryAfter = b.wait(nowMicros, rate, b.held-(l.Burst-cost))
	}
	return v, nil
}

// Admit reserves the cost if it fits, and returns the number under which it can be
// given back. It changes the bucket only when the verdict is OK. A cost of zero
// that fits holds nothing, leaves the bucket as it is, and its number is 0.
//
// Errors: ErrInvalid, ErrOverflow.
func (b *Bucket) Admit(nowMicros int64, l Limit, cost int64) (seq uint64, v Verdict, err error) {
	v, err = b.Peek(nowMicros, l, cost)
	if err != nil || !v.OK || cost == 0 {
		return 0, v, err
	}
	if b.next >= maxSeq {
		return 0, Verdict{}, errNumbers
	}
	b.see(nowMicros, l.PerMinute)
	return b.reserve(cost, 0), v, nil
}

// spend is Admit for a cost that nobody will give back.
func (b *Bucket) spend(now int64, l Limit, cost int64) (Verdict, error) {
	v, err := b.Peek(now, l, cost)
	if err == nil && v.OK && cost > 0 {
		b.see(now, l.PerMinute)
		b.push(segment{tokens: cost})
	}
	return v, err
}

var errNumbers = fmt.Errorf("%w: sequence numbers are used up", ErrOverflow)

// Raise reserves more for a reservation made earlier, under the limit. It returns a
// number of its own, under which the extra alone is given back. Unlike an
// admission it neither drains nor counts as having seen the limit.
//
// Errors: ErrInvalid, ErrOverflow.
func (b *Bucket) Raise(nowMicros int64, l Limit, extra int64) (seq uint64, v Verdict, err error) {
	v, err = b.Peek(nowMicros, l, extra)
	if err != nil || !v.OK || extra == 0 {
		return 0, v, err
	}
	if b.next >= maxSeq {
		return 0, Verdict{}, errNumbers
	}
	if b.held > maxHeld-extra {
		return 0, Verdict{}, fmt.Errorf("%w: %d tokens on top of %d that are not drained yet", ErrOverflow, extra, b.held)
	}
	b.start(nowMicros)
	if b.rate == unseen {
		b.rate = l.PerMinute
	}
	return b.reserve(extra, b.birth(nowMicros)), v, nil
}

// Overrun adds what a settled reservation used above its bound. The debt joins
// the queue's end, cannot be given back, and may exceed the burst. Like Raise it
// does not drain.
//
// Errors: ErrInvalid, ErrOverflow.
func (b *Bucket) Overrun(nowMicros int64, extra int64) error {
	if extra < 0 {
		return fmt.Errorf("%w: overrun of %d is negative", ErrInvalid, extra)
	}
	if extra == 0 {
		return nil
	}
	if extra > maxHeld-b.held {
		return fmt.Errorf("%w: overrun of %d on top of %d", ErrOverflow, extra, b.held)
	}
	b.start(nowMicros)
	b.push(segment{tokens: extra, born: b.birth(nowMicros)})
	return nil
}

// See tells the bucket of an edit without admitting anything: the time up to now
// drains at the lower of the two rates, as at an admission, and later time at the
// new one. Nobody has to call it. It is for a limit that was raised while the
// bucket is so full that no admission would see that for a long time.
//
// Errors: ErrInvalid.
func (b *Bucket) See(nowMicros int64, l Limit) error {
	if err := l.Validate(); err != nil {
		return err
	}
	b.see(nowMicros, l.PerMinute)
	return nil
}

// Reanchor makes the moment the one from which all debt drains, even if it is
// earlier than one seen before. It is for a clock whose history changed, such as
// that of a standby that was promoted. No time before the moment drains anything.
func (b *Bucket) Reanchor(nowMicros int64) {
	if !b.anchored {
		return
	}
	b.anchor = max(nowMicros, 0)
	if b.late > 0 {
		for i := range b.segments {
			b.segments[i].born = 0
		}
		b.late = 0
		b.mergeTerminals()
	}
}

// Clone returns a bucket that shares nothing with b.
func (b *Bucket) Clone() Bucket {
	c := *b
	c.space = append(make([]segment, 0, capacity(len(b.segments))), b.segments...)
	c.segments = c.space
	return c
}

// start gives a bucket that has seen nothing its anchor and its first number.
func (b *Bucket) start(now int64) {
	if b.anchored {
		return
	}
	now = max(now, 0)
	b.anchored, b.anchor, b.rate = true, now, unseen
	b.room = maxSegmentBytes
	// Numbers begin at the time, so that a bucket which was thrown away and
	// made anew does not answer for the members of the old one.
	b.next = min(max(uint64(now), 1), maxSeq/2)
}

// birth returns the birth of a segment that joins without draining what is there:
// zero if that is not after the anchor.
func (b *Bucket) birth(now int64) int64 {
	if now <= b.anchor {
		return 0
	}
	return now
}

// see drains up to now and remembers the rate.
func (b *Bucket) see(now, perMinute int64) {
	b.start(now)
	if now > b.anchor {
		b.drain(now, b.pace(perMinute))
		b.anchor = now
		b.forgetBirths()
	}
	b.rate = perMinute
}

// pace is the rate at which the time since the anchor drains.
func (b *Bucket) pace(perMinute int64) int64 {
	if !b.anchored || b.rate == unseen {
		return perMinute
	}
	return min(b.rate, perMinute)
}

// elapsed is the time since the anchor. The difference of two int64 fits a uint64.
func (b *Bucket) elapsed(now int64) uint64 {
	if !b.anchored || now <= b.anchor {
		return 0
	}
	return uint64(now) - uint64(b.anchor)
}

// debt returns the tokens held at now, rounded up.
func (b *Bucket) debt(now, rate int64) int64 {
	if b.held == 0 {
		return 0
	}
	spent := product(b.elapsed(now), uint64(rate))
	if b.late > 0 {
		spent = b.spentByBirth(spent, rate)
	}
	gone, _ := spent.add(wide{0, uint64(b.head.frac)}).div(unitsPerToken)
	if gone >= uint64(b.held) {
		return 0
	}
	return b.held - int64(gone)
}

// wait returns how long it takes from now until that many tokens are gone.
func (b *Bucket) wait(now, rate, tokens int64) time.Duration {
	need := product(uint64(tokens), unitsPerToken).sub(wide{0, uint64(b.head.frac)})
	if b.late > 0 {
		need = b.needByBirth(need, rate)
	}
	micros := wide{0, need.divUp(uint64(rate))} // from the anchor
	if micros.lo == math.MaxUint64 {
		return MaxRetryAfter
	}
	if now >= b.anchor {
		micros = micros.sub(wide{0, b.elapsed(now)})
	} else {
		micros = micros.add(wide{0, uint64(b.anchor) - uint64(now)})
	}
	if most := uint64(MaxRetryAfter / time.Microsecond); !micros.less(wide{0, most}) {
		return MaxRetryAfter
	}
	return time.Duration(micros.lo) * time.Microsecond
}
