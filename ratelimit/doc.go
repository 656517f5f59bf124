// Package ratelimit is an exact token bucket whose reservations can be given back.
//
// A [Bucket] is a plain value. It has no clock and does no I/O: the caller
// passes the time, keeps the bytes, and serializes the calls. The decision is
// therefore the same in memory, in a file and in a database that many gateways
// share, and whoever stores the bytes decides how far the limit reaches.
//
//	v, err := b.Peek(now, limit, cost)       // would it fit? when?
//	seq, v, err := b.Admit(now, limit, cost) // reserve
//	_, err = b.Return(seq, cost, actual)     // it used less; 0 cancels it
//	err = b.Overrun(now, actual-cost)        // it used more
//
// # The rules
//
// What was admitted and has not been drained yet is the bucket's debt. A cost is
// admitted when debt + cost is at most the burst. A limit of L per minute drains
// L tokens per minute. The debt is counted in units of a 60 000 000th of a token, so
// that one microsecond drains exactly L units: nothing is ever rounded, and asking
// often refills as much as asking rarely.
//
// The debt is a queue of segments, one for each reservation, and the oldest is
// drained first. Giving back a reservation returns what its own segment still
// holds. What has been drained is gone: it is not credited to a neighbour. So a
// bucket is never more permissive than if a reservation that was cancelled had
// reserved nothing.
//
// In any stretch of time of T minutes a limit admits at most Burst + PerMinute × T
// tokens: a bucket that has been idle admits its burst at once and goes on at its
// rate. Whoever needs "never more than N from midnight to midnight" wants package
// quota.
//
// An edit of the limit is seen by the next admission. The time between the last
// admission and that one drains at the lower of the two rates: lowering a limit does
// not drain old debt at the old speed, and raising one is not retroactive. A
// caller who knows when the edit happened may tell the bucket with [Bucket.See].
//
// A clock that goes back is no time passed. A refusal changes nothing.
//
// # Bounds
//
// A bucket has at most 256 segments and at most 1024 bytes when encoded. Beyond
// that the smallest two neighbours behind the head are merged. As only the head
// is drained, their members still get back exactly what is theirs; once the merged
// segment has become the head, a member gets back what it reserved less all that the
// segment has drained since.
//
// [Limiter] wraps buckets for a single process that needs nothing else.
package ratelimit
