package ratelimit

import "slices"

// Clone returns a bucket that shares no memory with b.
func (b *Bucket) Clone() Bucket {
	c := *b
	c.segments = slices.Clone(b.segments)
	return c
}
