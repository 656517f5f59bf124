package ratelimit

// drain takes what the time since the anchor drains from the front of the queue.
func (b *Bucket) drain(now, rate int64) {
	if b.held == 0 || rate == 0 {
		return
	}
	budget := product(b.elapsed(now), uint64(rate))
	if b.late > 0 {
		budget = b.spentByBirth(budget, rate)
	}
	gone, frac := budget.add(wide{0, uint64(b.head.frac)}).div(unitsPerToken)
	if gone >= uint64(b.held) {
		b.segments, b.held, b.head, b.late = b.space[:0], 0, head{}, 0
		b.room = maxSegmentBytes
		return
	}
	left, popped := int64(gone), 0
	for left >= b.segments[popped].tokens {
		left -= b.segments[popped].tokens
		b.room += uvarintLen(uint64(b.segments[popped].tokens) << 2) // or more
		if b.segments[popped].born != 0 {
			b.late--
		}
		popped++
	}
	b.held -= int64(gone)
	if popped > 0 {
		b.segments = b.segments[popped:]
		b.head = head{}
	}
	h := &b.segments[0]
	h.tokens -= left
	if !h.terminal() {
		b.head.drained += left
		b.head.drainedFrac += int64(frac) - b.head.frac
		if b.head.drainedFrac >= unitsPerToken {
			b.head.drained, b.head.drainedFrac = b.head.drained+1, b.head.drainedFrac-unitsPerToken
		} else if b.head.drainedFrac < 0 {
			b.head.drained, b.head.drainedFrac = b.head.drained-1, b.head.drainedFrac+unitsPerToken
		}
	}
	b.head.frac = int64(frac)
}

// spentByBirth returns how many units are drained when the time since the anchor is
// worth budget and no segment is drained by time from before it joined.
func (b *Bucket) spentByBirth(budget wide, rate int64) wide {
	var clock, spent wide // clock: what the time that was used or idle is worth
	for i := range b.segments {
		clock = b.notBefore(clock, i, rate)
		if !clock.less(budget) {
			break
		}
		units := b.units(i)
		if left := budget.sub(clock); left.less(units) {
			return spent.add(left)
		}
		clock, spent = clock.add(units), spent.add(units)
	}
	return spent
}

// needByBirth returns what the time since the anchor must be worth until the first
// need units are drained. need is at most what is held.
func (b *Bucket) needByBirth(need wide, rate int64) wide {
	var clock wide
	for i := range b.segments {
		clock = b.notBefore(clock, i, rate)
		units := b.units(i)
		if !units.less(need) {
			return clock.add(need)
		}
		clock, need = clock.add(units), need.sub(units)
	}
	return clock
}

// notBefore moves the clock on to the birth of a segment.
func (b *Bucket) notBefore(clock wide, i int, rate int64) wide {
	if born := b.segments[i].born; born != 0 {
		if at := product(b.elapsed(born), uint64(rate)); clock.less(at) {
			return at
		}
	}
	return clock
}

// units is what a segment holds.
func (b *Bucket) units(i int) wide {
	units := product(uint64(b.segments[i].tokens), unitsPerToken)
	if i == 0 {
		units = units.sub(wide{0, uint64(b.head.frac)})
	}
	return units
}

// forgetBirths drops births that are not after the anchor any more.
func (b *Bucket) forgetBirths() {
	if b.late == 0 {
		return
	}
	b.late = 0
	for i := range b.segments {
		if s := &b.segments[i]; s.born > b.anchor {
			b.late++
		} else {
			s.born = 0
		}
	}
	b.mergeTerminals()
}
