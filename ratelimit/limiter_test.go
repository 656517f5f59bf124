package ratelimit_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/ratelimit"
)

// clock is a time that only the test moves.
type clock struct{ micros atomic.Int64 }

func (c *clock) Now() time.Time          { return time.UnixMicro(epoch + c.micros.Load()) }
func (c *clock) Advance(d time.Duration) { c.micros.Add(d.Microseconds()) }

func newLimiter(t testing.TB, l ratelimit.Limit, keys int) (*ratelimit.Limiter, *clock) {
	t.Helper()
	c := new(clock)
	limiter, err := ratelimit.NewLimiter(l, &ratelimit.LimiterOptions{Now: c.Now, MaxKeys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return limiter, c
}

func reserve(t testing.TB, l *ratelimit.Limiter, key string, cost int64) *ratelimit.Reservation {
	t.Helper()
	r, v, err := l.Reserve(key, cost)
	if err != nil || !v.OK || r == nil {
		t.Fatalf("reserve %d: %+v, %v", cost, v, err)
	}
	return r
}

func TestLimiterConcurrentCallers(t *testing.T) {
	l, _ := newLimiter(t, ratelimit.Per(777), 0)
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 100 {
				if v, err := l.Allow("", 1); err != nil {
					t.Error(err)
				} else if v.OK {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := admitted.Load(); n != 777 {
		t.Fatalf("%d of 777", n)
	}
}

// R1, R11, R15: settle and cancel work after the fact, once, and by what is left.
func TestReservation(t *testing.T) {
	l, c := newLimiter(t, ratelimit.Per(60), 0)
	r := reserve(t, l, "a", 60)
	if refused, v, err := l.Reserve("a", 1); refused != nil || v.OK || v.RetryAfter != time.Second || err != nil {
		t.Fatal(v, err)
	}
	c.Advance(10 * time.Second)
	if err := r.Settle(-1); !errors.Is(err, ratelimit.ErrInvalid) {
		t.Fatal(err)
	}
	if err := r.Settle(30); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{r.Settle(0), r.Cancel(), r.Settle(90)} {
		if !errors.Is(err, ratelimit.ErrClosed) {
			t.Fatal(err)
		}
	}
	if v, _ := l.Allow("a", 41); v.OK || v.Debt != 20 {
		t.Fatalf("%+v", v)
	}
	more := reserve(t, l, "a", 40)
	if err := more.Settle(100); err != nil {
		t.Fatal(err)
	}
	if v, _ := l.Allow("a", 0); v.OK || v.Debt != 120 || v.RetryAfter != time.Minute {
		t.Fatalf("%+v", v)
	}
	free := reserve(t, l, "b", 0)
	if err := free.Cancel(); err != nil {
		t.Fatal(err)
	}
}

func TestLimiterKeysAreBounded(t *testing.T) {
	l, c := newLimiter(t, ratelimit.Per(60), 100)
	for i := range 100 {
		reserve(t, l, fmt.Sprint("key", i), 1)
	}
	if _, _, err := l.Reserve("one more", 1); !errors.Is(err, ratelimit.ErrTooManyKeys) {
		t.Fatal(err)
	}
	if _, err := l.Allow("key7", 1); err != nil {
		t.Fatal(err) // known keys go on
	}
	if v, err := l.Allow("one more", 61); err != nil || !v.Never {
		t.Fatal(v, err) // a refusal needs no room
	}
	c.Advance(time.Minute)
	for i := range 1000 {
		reserve(t, l, fmt.Sprint("later", i), 1)
		c.Advance(time.Second)
		if n := l.Len(); n > 100 {
			t.Fatalf("%d keys", n)
		}
	}
}

// A reservation of a key that was forgotten returns nothing to the key's new bucket,
// and its overrun is not lost.
func TestForgottenKey(t *testing.T) {
	l, c := newLimiter(t, ratelimit.Per(60), 1)
	old := reserve(t, l, "a", 60)
	over := reserve(t, l, "free", 0)
	c.Advance(time.Minute)
	reserve(t, l, "b", 1)
	c.Advance(time.Minute)
	fresh := reserve(t, l, "a", 60)
	if err := old.Cancel(); err != nil {
		t.Fatal(err)
	}
	if v, _ := l.Allow("a", 1); v.OK {
		t.Fatal("an old cancellation made room")
	}
	if err := over.Settle(90); err != nil {
		t.Fatal(err)
	}
	if v, _ := l.Allow("free", 1); v.OK || v.Debt != 90 {
		t.Fatalf("%+v", v)
	}
	if err := fresh.Cancel(); err != nil {
		t.Fatal(err)
	}
}

func TestSetLimit(t *testing.T) {
	l, c := newLimiter(t, ratelimit.Per(60), 0)
	reserve(t, l, "", 60)
	c.Advance(10 * time.Second)
	if err := l.SetLimit(ratelimit.Per(600)); err != nil {
		t.Fatal(err)
	}
	c.Advance(time.Second)
	if v, _ := l.Allow("", 600); v.OK || v.Debt != 40 {
		t.Fatalf("%+v", v)
	}
	if err := l.SetLimit(ratelimit.Per(0)); err != nil {
		t.Fatal(err)
	}
	c.Advance(time.Hour)
	if v, _ := l.Allow("", 1); !v.Never || v.Debt != 40 {
		t.Fatalf("%+v", v)
	}
	if err := l.SetLimit(ratelimit.Per(60)); err != nil {
		t.Fatal(err)
	}
	if v, _ := l.Allow("", 21); v.OK || v.Debt != 40 || v.RetryAfter != time.Second {
		t.Fatalf("%+v", v)
	}
	if err := l.SetLimit(ratelimit.Per(-1)); !errors.Is(err, ratelimit.ErrInvalid) {
		t.Fatal(err)
	}
	reserve(t, l, "", 20)
}

func TestNewLimiterRefusesBadInput(t *testing.T) {
	if _, err := ratelimit.NewLimiter(ratelimit.Per(-1), nil); !errors.Is(err, ratelimit.ErrInvalid) {
		t.Error(err)
	}
	if _, err := ratelimit.NewLimiter(ratelimit.Per(1), &ratelimit.LimiterOptions{MaxKeys: -1}); !errors.Is(err, ratelimit.ErrInvalid) {
		t.Error(err)
	}
	l, err := ratelimit.NewLimiter(ratelimit.Per(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Allow("", -1); !errors.Is(err, ratelimit.ErrInvalid) {
		t.Error(err)
	}
	if v, err := l.Allow("", 1); err != nil || !v.OK {
		t.Error(v, err)
	}
}
