package ratelimit

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Errors. Whatever a call that returns one of them was given is unchanged.
var (
	// ErrInvalid reports an argument that makes no sense, such as a negative cost.
	ErrInvalid = errors.New("ratelimit: invalid argument")
	// ErrOverflow reports a debt or a sequence number above what a bucket can hold.
	ErrOverflow = errors.New("ratelimit: overflow")
	// ErrMismatch reports a return of more than was reserved under that number:
	// the caller's record and the bucket disagree.
	ErrMismatch = errors.New("ratelimit: return does not match the reservation")
	// ErrCorrupt reports bytes that are not an encoded bucket.
	ErrCorrupt = errors.New("ratelimit: not an encoded bucket")
)

// MaxPerMinute is the largest rate and the largest burst of a limit. Whoever wants
// more wants no limit.
const MaxPerMinute int64 = 1_000_000_000_000_000_000

// Limit is a rate and the burst above it.
//
// Units: tokens, whatever a token stands for: a request, a provider token.
type Limit struct {
	PerMinute int64 // drained per minute
	Burst     int64 // the most that may be held at once
}

// Per returns the limit of n per minute with a burst of n. Per(0) is a limit of
// zero: it admits nothing.
func Per(n int64) Limit { return Limit{PerMinute: n, Burst: n} }

// Validate reports whether the limit makes sense. A burst without a rate is
// refused: it would admit once and never again.
//
// Errors: ErrInvalid.
func (l Limit) Validate() error {
	switch {
	case l.PerMinute < 0 || l.Burst < 0:
		return fmt.Errorf("%w: limit of %d per minute with a burst of %d is negative; leave the limit out if there is none", ErrInvalid, l.PerMinute, l.Burst)
	case l.PerMinute > MaxPerMinute || l.Burst > MaxPerMinute:
		return fmt.Errorf("%w: limit of %d per minute with a burst of %d is above %d; leave the limit out if there is none", ErrInvalid, l.PerMinute, l.Burst, MaxPerMinute)
	case l.PerMinute == 0 && l.Burst > 0:
		return fmt.Errorf("%w: a burst of %d that nothing refills is a quota, not a rate", ErrInvalid, l.Burst)
	}
	return nil
}

// MaxRetryAfter is the longest wait that a Verdict states, about 292 years. It
// stands for every longer one.
const MaxRetryAfter = math.MaxInt64 / time.Microsecond * time.Microsecond

// Verdict is the answer to one cost. All of it comes from one reading of the bucket.
type Verdict struct {
	// OK: it fits.
	OK bool
	// Never: no wait makes it fit, because the cost is above the burst or the
	// rate is zero.
	Never bool
	// RetryAfter is the wait after which it fits if nothing else is admitted
	// and the limit stays; a microsecond earlier it does not fit. Zero when OK or Never.
	RetryAfter time.Duration
	// Debt is what the bucket holds at this moment without the cost, in tokens,
	// rounded up.
	Debt int64
}

// RetryAfterSeconds is RetryAfter in whole seconds, rounded up, as the HTTP header
// wants it.
func (v Verdict) RetryAfterSeconds() int64 {
	s := int64(v.RetryAfter / time.Second)
	if v.RetryAfter%time.Second > 0 {
		s++
	}
	return s
}

// unitsPerToken makes a limit of L per minute drain L units per microsecond.
const unitsPerToken = 60_000_000

// maxHeld is the most that a bucket can hold, in tokens. It is above MaxPerMinute
// and leaves room for the two bits that the codec adds.
const maxHeld int64 = 1 << 60

// maxSeq keeps sequence numbers inside a signed database column.
const maxSeq uint64 = 1 << 62
