package ratelimit

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Errors of a Limiter.
var (
	// ErrTooManyKeys reports that a Limiter holds debt for as many keys as it may.
	// Nothing was reserved; a key is free again once its debt is drained.
	ErrTooManyKeys = errors.New("ratelimit: too many keys hold debt at once")
	// ErrClosed reports a reservation that was settled or cancelled before.
	ErrClosed = errors.New("ratelimit: reservation is closed")
)

// LimiterOptions are the parts of a Limiter that have defaults.
type LimiterOptions struct {
	// Now is the clock; nil is time.Now, read on its monotonic side, so that
	// setting the wall clock neither refills nor stops anything.
	Now func() time.Time
	// MaxKeys bounds the keys that hold debt at the same time; 0 is 65 536.
	MaxKeys int
}

// Limiter holds one bucket per key in memory, all under one limit. It counts what this
// process admits: N processes admit N times the limit. A limit that several
// processes share needs a store that they share; see package governance.
//
// Who needs one bucket only uses the empty key.
//
// Concurrency: safe.
type Limiter struct {
	now     func() time.Time
	start   time.Time
	maxKeys int

	mu      sync.Mutex
	limit   Limit
	buckets map[string]*Bucket
}

// NewLimiter returns a Limiter; nil options are the defaults.
//
// Errors: ErrInvalid.
func NewLimiter(limit Limit, o *LimiterOptions) (*Limiter, error) {
	if err := limit.Validate(); err != nil {
		return nil, err
	}
	l := &Limiter{now: time.Now, maxKeys: 1 << 16, limit: limit, buckets: make(map[string]*Bucket)}
	if o != nil {
		if o.MaxKeys < 0 {
			return nil, fmt.Errorf("%w: MaxKeys %d is negative", ErrInvalid, o.MaxKeys)
		}
		if o.MaxKeys > 0 {
			l.maxKeys = o.MaxKeys
		}
		if o.Now != nil {
			l.now = o.Now
		}
	}
	l.start = l.now()
	return l, nil
}

// micros reads the clock. Sub uses the monotonic reading where there is one.
func (l *Limiter) micros() int64 {
	now := l.now()
	return l.start.UnixMicro() + now.Sub(l.start).Microseconds()
}

// Allow admits the cost for good if it fits.
//
// Errors: ErrInvalid, ErrTooManyKeys.
func (l *Limiter) Allow(key string, cost int64) (Verdict, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.micros()
	b, known := l.bucket(key)
	v, err := b.spend(now, l.limit, cost)
	if err == nil && v.OK && cost > 0 && !known && !l.remember(key, b, now) {
		return Verdict{}, ErrTooManyKeys
	}
	return v, err
}

// Reserve admits the cost if it fits. The reservation, nil unless the verdict is OK,
// may be settled or cancelled later; it need not be.
//
// Errors: ErrInvalid, ErrTooManyKeys.
func (l *Limiter) Reserve(key string, cost int64) (*Reservation, Verdict, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.micros()
	b, known := l.bucket(key)
	seq, v, err := b.Admit(now, l.limit, cost)
	if err != nil || !v.OK {
		return nil, v, err
	}
	if cost > 0 && !known && !l.remember(key, b, now) {
		return nil, Verdict{}, ErrTooManyKeys
	}
	return &Reservation{limiter: l, key: key, bucket: b, seq: seq, amount: cost}, v, nil
}

// bucket returns the key's bucket, or one that is not remembered yet.
func (l *Limiter) bucket(key string) (b *Bucket, known bool) {
	if b, known = l.buckets[key]; !known {
		b = new(Bucket)
	}
	return b, known
}

// remember keeps a bucket that holds something, if there is room.
func (l *Limiter) remember(key string, b *Bucket, now int64) bool {
	if !l.makeRoom(now) {
		return false
	}
	l.buckets[key] = b
	return true
}

// makeRoom forgets a few buckets that are empty, which is what a bucket is that was
// never there, and reports whether there is room for another. It looks at a
// bounded number of them: each new key pays for about two old ones.
func (l *Limiter) makeRoom(now int64) bool {
	looks := 0
	for key, b := range l.buckets { // starts anywhere
		if looks++; looks > 8 {
			break
		}
		if debt, err := b.Debt(now, l.limit); err == nil && debt == 0 {
			delete(l.buckets, key)
		}
	}
	return len(l.buckets) < l.maxKeys
}

// SetLimit changes the limit from now on. Time up to now drains at the old rate.
//
// Errors: ErrInvalid.
func (l *Limiter) SetLimit(limit Limit) error {
	if err := limit.Validate(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.micros()
	for _, b := range l.buckets {
		for _, seen := range [...]Limit{l.limit, limit} {
			if err := b.See(now, seen); err != nil {
				return err
			}
		}
	}
	l.limit = limit
	return nil
}

// Len returns the number of keys that are remembered.
func (l *Limiter) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.buckets)
}

// Reservation is a cost that a Limiter has admitted.
//
// Concurrency: safe. The first call of Settle or Cancel counts, every later one is
// ErrClosed and changes nothing, so that a deferred Cancel is harmless.
type Reservation struct {
	limiter *Limiter
	key     string
	bucket  *Bucket
	seq     uint64
	amount  int64
	closed  bool
}

// Settle replaces the reserved cost by what was really used. Less gives back the rest
// as far as it has not been drained; more becomes debt above the limit.
//
// Errors: ErrInvalid, ErrOverflow, ErrClosed.
func (r *Reservation) Settle(actual int64) error {
	if actual < 0 {
		return fmt.Errorf("%w: settlement of %d is negative", ErrInvalid, actual)
	}
	l := r.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	if actual > r.amount {
		b := r.bucketForDebt()
		if err := b.Overrun(l.micros(), actual-r.amount); err != nil {
			return err
		}
	}
	if _, err := r.bucket.Return(r.seq, r.amount, min(actual, r.amount)); err != nil {
		return err
	}
	r.closed = true
	return nil
}

// bucketForDebt returns the bucket that the key has now: the one of the reservation
// may have been drained and forgotten since. Debt is never refused for want of room.
func (r *Reservation) bucketForDebt() *Bucket {
	b, ok := r.limiter.buckets[r.key]
	if !ok {
		b = new(Bucket)
		r.limiter.buckets[r.key] = b
	}
	return b
}

// Cancel gives back the whole reservation as far as it has not been drained.
//
// Errors: ErrClosed.
func (r *Reservation) Cancel() error { return r.Settle(0) }
