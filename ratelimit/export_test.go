package ratelimit

// Fit applies smaller bounds than a real bucket has, so that merging happens in small
// schedules.
func (b *Bucket) Fit(segments, bytes int) { b.fit(segments, bytes) }

// Place returns the position of the segment with that member, -1 if there is none,
// and whether it was merged.
func (b *Bucket) Place(seq uint64) (i int, merged bool) {
	i = b.find(seq)
	return i, i >= 0 && b.segments[i].merged()
}

// HeadDrained is what the head has drained since it became the head, in units.
func (b *Bucket) HeadDrained() (tokens, units int64) { return b.head.drained, b.head.drainedFrac }

// Check reports whether the cached sums are what they should be.
func (b *Bucket) Check() bool {
	var held int64
	var late int
	for _, s := range b.segments {
		held += s.tokens
		if s.born != 0 {
			late++
		}
		if s.tokens <= 0 || s.born != 0 && s.born <= b.anchor {
			return false
		}
	}
	return held == b.held && late == b.late && len(b.segments) <= maxSegments &&
		(!b.anchored || b.room <= maxSegmentBytes-b.sizeOf(0, len(b.segments)))
}
