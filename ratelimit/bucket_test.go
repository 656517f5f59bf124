package ratelimit_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/ratelimit"
)

const (
	epoch  int64 = 1_700_000_000_000_000
	second int64 = 1_000_000
	minute       = 60 * second
)

func admit(t testing.TB, b *ratelimit.Bucket, now int64, l ratelimit.Limit, cost int64) uint64 {
	t.Helper()
	seq, v, err := b.Admit(now, l, cost)
	if err != nil || !v.OK {
		t.Fatalf("admit %d: %+v, %v", cost, v, err)
	}
	return seq
}

func refuse(t testing.TB, b *ratelimit.Bucket, now int64, l ratelimit.Limit, cost int64) ratelimit.Verdict {
	t.Helper()
	before := encode(t, b)
	_, v, err := b.Admit(now, l, cost)
	if err != nil || v.OK {
		t.Fatalf("admit %d should be refused: %+v, %v", cost, v, err)
	}
	if string(before) != string(encode(t, b)) {
		t.Fatal("a refusal changed the bucket")
	}
	return v
}

func giveBack(t testing.TB, b *ratelimit.Bucket, seq uint64, amount, keep, want int64) {
	t.Helper()
	got, err := b.Return(seq, amount, keep)
	if err != nil || got != want {
		t.Fatalf("return of %d keeping %d gave %d, %v; want %d", amount, keep, got, err, want)
	}
}

func debt(t testing.TB, b *ratelimit.Bucket, now int64, l ratelimit.Limit, want int64) {
	t.Helper()
	got, err := b.Debt(now, l)
	if err != nil || got != want {
		t.Fatalf("debt %d, %v; want %d", got, err, want)
	}
}

// R1: a reservation is given back once, and only as far as it is not drained.
func TestReturnIsBoundedAndOnce(t *testing.T) {
	l := ratelimit.Per(60)
	var b ratelimit.Bucket
	first := admit(t, &b, epoch, l, 10)
	giveBack(t, &b, first, 10, 0, 10)
	giveBack(t, &b, first, 10, 0, 0)
	debt(t, &b, epoch, l, 0)

	second2 := admit(t, &b, epoch, l, 10)
	admit(t, &b, epoch+second+1000, l, 1) // drains one token and a thousandth
	giveBack(t, &b, second2, 10, 0, 8)
	debt(t, &b, epoch+second+1000, l, 1)
}

// R2, R3: clocks that disagree neither create tokens nor stop the refill for longer
// than they disagree.
func TestClockGoesBack(t *testing.T) {
	l := ratelimit.Limit{PerMinute: 60, Burst: 10}
	var b ratelimit.Bucket
	admitted := 0
	for i := range int64(200) {
		now := epoch - i%2*second
		if _, v, err := b.Admit(now, l, 1); err != nil {
			t.Fatal(err)
		} else if v.OK {
			admitted++
		}
	}
	if admitted != 10 {
		t.Fatalf("two clocks a second apart admitted %d of a burst of 10", admitted)
	}
	if v := refuse(t, &b, epoch-3600*second, l, 1); v.RetryAfter != time.Hour+time.Second {
		t.Fatalf("an hour behind: %v", v.RetryAfter)
	}
	debt(t, &b, epoch+5*second, l, 5)
}

// R5: a hundred years of idling do not overflow, with any limit.
func TestIdleForACentury(t *testing.T) {
	century := int64(100 * 366 * 24 * 3600 * second)
	for _, rate := range []int64{1, 60, math.MaxInt32, 1 << 53, ratelimit.MaxPerMinute} {
		l := ratelimit.Per(rate)
		var b ratelimit.Bucket
		admit(t, &b, epoch, l, rate)
		debt(t, &b, epoch+century, l, 0)
		admit(t, &b, epoch+century, l, rate)
		debt(t, &b, epoch+century, l, rate)
		refuse(t, &b, epoch+century, l, 1)
	}
	var b ratelimit.Bucket
	admit(t, &b, 0, ratelimit.Per(1), 1)
	debt(t, &b, math.MaxInt64, ratelimit.Per(1), 0)
	debt(t, &b, math.MinInt64, ratelimit.Per(1), 1)
	refuse(t, &b, math.MinInt64, ratelimit.Per(1), 1)
}

// R6, R7, R16, R24, L15: a cost above the burst never fits, and is told so before any
// multiplication; the burst itself fits.
func TestNever(t *testing.T) {
	for _, l := range []ratelimit.Limit{{100, 100}, {3, 3}, {1, 1}, {60, 0}, {0, 0}, ratelimit.Per(ratelimit.MaxPerMinute)} {
		var b ratelimit.Bucket
		for _, cost := range []int64{l.Burst + 1, 20_000_000 + l.Burst, 1 << 62, math.MaxInt64} {
			if v := refuse(t, &b, epoch, l, cost); !v.Never || v.RetryAfter != 0 {
				t.Fatalf("%+v, cost %d: %+v", l, cost, v)
			}
		}
		admit(t, &b, epoch, l, l.Burst)
	}
}

// R8, R10, X5: rates far below and far above one per polling interval refill exactly.
func TestRefillCarriesTheRemainder(t *testing.T) {
	for _, pause := range []int64{1, 7, 599_000, 999_983} {
		l := ratelimit.Per(100)
		var b ratelimit.Bucket
		admit(t, &b, epoch, l, 100)
		admitted := int64(0)
		end := epoch + minute
		if pause < 1000 {
			end = epoch + 3*second
		}
		now := epoch
		for ; now+pause <= end; now += pause {
			for {
				_, v, err := b.Admit(now+pause, l, 1)
				if err != nil {
					t.Fatal(err)
				}
				if !v.OK {
					break
				}
				admitted++
			}
		}
		if due := (now - epoch) * 100 / minute; admitted != due {
			t.Fatalf("polling every %d µs admitted %d of %d", pause, admitted, due)
		}
	}
}

// R12, R13, R15, X5, L13, W13: what was refused counts for nothing.
func TestRefusalChangesNothing(t *testing.T) {
	l := ratelimit.Per(100)
	var b ratelimit.Bucket
	admit(t, &b, epoch, l, 40)
	refuse(t, &b, epoch, l, 70)
	admit(t, &b, epoch, l, 10)

	var hour ratelimit.Bucket
	ten, twenty := ratelimit.Limit{PerMinute: 1, Burst: 10}, ratelimit.Limit{PerMinute: 1, Burst: 20}
	for i := range 50 {
		if i < 10 {
			admit(t, &hour, epoch, ten, 1)
		} else {
			refuse(t, &hour, epoch, ten, 1)
		}
	}
	for range 10 {
		admit(t, &hour, epoch, twenty, 1)
	}
	refuse(t, &hour, epoch, twenty, 1)

	// The number of a refusal is nobody's.
	giveBack(t, &hour, 0, 60, 0, 0)
}

// R16, R17, R24: the wait is exact to the microsecond and rounded up for a header.
func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		l      ratelimit.Limit
		cost   int64
		micros int64
		header int64
	}{
		{ratelimit.Per(6), 1, 10 * second, 10},
		{ratelimit.Per(7), 1, 8_571_429, 9},
		{ratelimit.Per(60_000_000), 1, 1, 1},
		{ratelimit.Per(90_000_000), 1, 1, 1},
		{ratelimit.Per(90_000_000), 2, 2, 1},
		{ratelimit.Limit{PerMinute: 3_000_000, Burst: 3_600_000}, 3_600_000, 72 * second, 72},
	} {
		var b ratelimit.Bucket
		admit(t, &b, epoch, c.l, c.l.Burst)
		v := refuse(t, &b, epoch, c.l, c.cost)
		if v.RetryAfter != time.Duration(c.micros)*time.Microsecond || v.RetryAfterSeconds() != c.header {
			t.Fatalf("%+v, cost %d: %v, header %d", c.l, c.cost, v.RetryAfter, v.RetryAfterSeconds())
		}
		refuse(t, &b, epoch+c.micros-1, c.l, c.cost)
		admit(t, &b, epoch+c.micros, c.l, c.cost)
	}
	// A wait that no Duration holds is the longest one, not a short or negative one.
	l := ratelimit.Limit{PerMinute: 1, Burst: ratelimit.MaxPerMinute}
	var b ratelimit.Bucket
	admit(t, &b, epoch, l, l.Burst)
	for _, now := range []int64{epoch, math.MinInt64, 1 << 62} {
		if v := refuse(t, &b, now, l, l.Burst); v.RetryAfter != ratelimit.MaxRetryAfter {
			t.Fatalf("at %d: %v", now, v.RetryAfter)
		}
	}
}

// R20: burst and rate are separate, and the bound on a stretch is burst + rate × time.
func TestBurstAndRateAreSeparate(t *testing.T) {
	l := ratelimit.Limit{PerMinute: 15, Burst: 3}
	var b ratelimit.Bucket
	admitted := 0
	for now := epoch; now < epoch+minute; now += second / 10 {
		if _, v, _ := b.Admit(now, l, 1); v.OK {
			admitted++
		}
	}
	if admitted != 3+14 { // the fifteenth is due at the end of the minute
		t.Fatalf("%d in a minute", admitted)
	}
}

// R19, R21: lowering does not refill old debt at the old speed and underflows nothing;
// raising is not retroactive; neither resets the bucket.
func TestEdits(t *testing.T) {
	fast, slow := ratelimit.Per(600), ratelimit.Per(60)
	var b ratelimit.Bucket
	admit(t, &b, epoch, fast, 600)
	debt(t, &b, epoch+10*second, fast, 500)
	debt(t, &b, epoch+10*second, slow, 590)
	if v := refuse(t, &b, epoch+10*second, slow, 1); v.Never || v.RetryAfter != 531*time.Second {
		t.Fatalf("%+v", v)
	}

	var r ratelimit.Bucket
	admit(t, &r, epoch, slow, 60)
	admit(t, &r, epoch+10*second, fast, 1)  // the gap drained at 60 per minute
	debt(t, &r, epoch+10*second, fast, 51)  // 50 and the new one
	debt(t, &r, epoch+11*second, fast, 41)  // from then on at 600
	debt(t, &r, epoch+11*second, slow, 50)  // lowered: the gap drains at 60
	admit(t, &r, epoch+11*second, slow, 10) // seen here
	debt(t, &r, epoch+12*second, fast, 59)  // raised, not seen yet
}

// See makes an edit known when no admission can.
func TestSee(t *testing.T) {
	slow, fast := ratelimit.Per(1), ratelimit.Per(6000)
	var b ratelimit.Bucket
	admit(t, &b, epoch, slow, 1)
	if err := b.Overrun(epoch, 100_000); err != nil {
		t.Fatal(err)
	}
	if v := refuse(t, &b, epoch, fast, 1); v.RetryAfter < 1000*time.Hour {
		t.Fatalf("%+v", v)
	}
	if err := b.See(epoch+minute, fast); err != nil {
		t.Fatal(err)
	}
	debt(t, &b, epoch+minute, fast, 100_000)
	if v := refuse(t, &b, epoch+minute, fast, 1); v.RetryAfter != 940010*time.Millisecond {
		t.Fatalf("%+v", v)
	}
	// A rate of zero that was seen drains nothing until another one is.
	if err := b.See(epoch+minute, ratelimit.Per(0)); err != nil {
		t.Fatal(err)
	}
	if v := refuse(t, &b, epoch+9*minute, fast, 1); !v.Never || v.Debt != 100_000 {
		t.Fatalf("%+v", v)
	}
}

// Edge cases "Refund of an already refilled reservation" and "Overlapping
// cancellations"; X2.
func TestReturnCreditsNoNeighbour(t *testing.T) {
	l := ratelimit.Limit{PerMinute: 60, Burst: 100}
	var b ratelimit.Bucket
	old := admit(t, &b, epoch, l, 100)
	fresh := admit(t, &b, epoch+100*second, l, 100) // old is drained by now
	giveBack(t, &b, old, 100, 0, 0)
	refuse(t, &b, epoch+100*second, l, 1)
	giveBack(t, &b, fresh, 100, 0, 100)

	var o ratelimit.Bucket
	var seqs []uint64
	for range 10 {
		seqs = append(seqs, admit(t, &o, epoch, l, 10))
	}
	for _, i := range []int{3, 4, 9, 0, 1, 2, 8, 6, 5, 7} {
		giveBack(t, &o, seqs[i], 10, 0, 10)
	}
	debt(t, &o, epoch, l, 0)
}

// Edge case "Negative true-up can block"; O10, X1: an overrun is debt in full, beyond
// the burst, and the wait says until when.
func TestOverrun(t *testing.T) {
	l := ratelimit.Per(1000)
	var b ratelimit.Bucket
	seq := admit(t, &b, epoch, l, 900)
	giveBack(t, &b, seq, 900, 900, 0)
	if err := b.Overrun(epoch, 600); err != nil {
		t.Fatal(err)
	}
	debt(t, &b, epoch, l, 1500)
	if v := refuse(t, &b, epoch, l, 1); v.RetryAfter != 30060*time.Millisecond {
		t.Fatalf("%+v", v)
	}
	if err := b.Overrun(epoch, math.MaxInt64); !errors.Is(err, ratelimit.ErrOverflow) {
		t.Fatal(err)
	}
	if err := b.Overrun(epoch, -1); !errors.Is(err, ratelimit.ErrInvalid) {
		t.Fatal(err)
	}
	debt(t, &b, epoch, l, 1500)
}

// Time that passed before debt joined does not drain it, neither at once nor after what
// was before it is given back.
func TestDebtIsNotDrainedByTimeBeforeIt(t *testing.T) {
	l := ratelimit.Per(60)
	var idle ratelimit.Bucket
	admit(t, &idle, epoch, l, 5)
	if err := idle.Overrun(epoch+3600*second, 30); err != nil {
		t.Fatal(err)
	}
	debt(t, &idle, epoch+3600*second, l, 30)
	debt(t, &idle, epoch+3610*second, l, 20)

	var b ratelimit.Bucket
	first := admit(t, &b, epoch, l, 5)
	if _, v, err := b.Raise(epoch+3*second, l, 5); err != nil || !v.OK {
		t.Fatal(v, err)
	}
	giveBack(t, &b, first, 5, 0, 5)
	debt(t, &b, epoch+5*second, l, 3)
	if v, _ := b.Peek(epoch+3*second, l, 56); v.OK || v.RetryAfter != time.Second {
		t.Fatalf("%+v", v)
	}
	admit(t, &b, epoch+5*second, l, 57)

	// A bucket that only ever held an overrun drains at the first limit it is told.
	var only ratelimit.Bucket
	if err := only.Overrun(epoch, 30); err != nil {
		t.Fatal(err)
	}
	debt(t, &only, epoch+10*second, l, 20)
	admit(t, &only, epoch+10*second, l, 40)
}

// X6, O1, O11: the bound decides, whatever is used in the end.
func TestConcurrentBoundsAreSummed(t *testing.T) {
	l := ratelimit.Per(100)
	var b ratelimit.Bucket
	admitted := int64(0)
	for _, bound := range []int64{58, 80, 175, 175, 175} {
		if _, v, err := b.Admit(epoch, l, bound); err != nil {
			t.Fatal(err)
		} else if v.OK {
			admitted += bound
		}
	}
	if admitted != 58 {
		t.Fatal(admitted)
	}
}

// A bucket that was thrown away and made anew does not answer for old members.
func TestNumbersAreNotReused(t *testing.T) {
	l := ratelimit.Per(60)
	var b ratelimit.Bucket
	old := admit(t, &b, epoch, l, 10)
	b = ratelimit.Bucket{}
	fresh := admit(t, &b, epoch+minute, l, 10)
	if old == fresh {
		t.Fatal("the same number twice")
	}
	giveBack(t, &b, old, 10, 0, 0)
	giveBack(t, &b, fresh, 10, 4, 6)
}

func TestMismatch(t *testing.T) {
	l := ratelimit.Per(60)
	var b ratelimit.Bucket
	first, second2 := admit(t, &b, epoch, l, 10), admit(t, &b, epoch, l, 20)
	admit(t, &b, epoch+second, l, 1)
	before := encode(t, &b)
	for _, c := range []struct {
		seq          uint64
		amount, keep int64
		want         error
	}{
		{first, 9, 0, ratelimit.ErrMismatch},
		{first, 11, 0, ratelimit.ErrMismatch},
		{second2, 21, 21, ratelimit.ErrMismatch},
		{second2, 19, 0, ratelimit.ErrMismatch},
		{second2, 20, 21, ratelimit.ErrInvalid},
		{second2, -1, -1, ratelimit.ErrInvalid},
		{second2, 20, -1, ratelimit.ErrInvalid},
	} {
		if n, err := b.Return(c.seq, c.amount, c.keep); n != 0 || !errors.Is(err, c.want) {
			t.Errorf("Return(%d, %d, %d) = %d, %v; want %v", c.seq, c.amount, c.keep, n, err, c.want)
		}
	}
	if string(before) != string(encode(t, &b)) {
		t.Fatal("a refused return changed the bucket")
	}
}

func TestBadInput(t *testing.T) {
	for _, l := range []ratelimit.Limit{{-1, 1}, {1, -1}, {0, 1}, {ratelimit.MaxPerMinute + 1, 1}, {1, ratelimit.MaxPerMinute + 1}, ratelimit.Per(math.MinInt64)} {
		var b ratelimit.Bucket
		if err := l.Validate(); !errors.Is(err, ratelimit.ErrInvalid) {
			t.Errorf("%+v: %v", l, err)
		}
		if _, _, err := b.Admit(epoch, l, 1); !errors.Is(err, ratelimit.ErrInvalid) {
			t.Errorf("%+v: %v", l, err)
		}
		if _, _, err := b.Raise(epoch, l, 1); !errors.Is(err, ratelimit.ErrInvalid) {
			t.Errorf("%+v: %v", l, err)
		}
		if _, err := b.Debt(epoch, l); !errors.Is(err, ratelimit.ErrInvalid) {
			t.Errorf("%+v: %v", l, err)
		}
		if err := b.See(epoch, l); !errors.Is(err, ratelimit.ErrInvalid) {
			t.Errorf("%+v: %v", l, err)
		}
	}
	var b ratelimit.Bucket
	if _, _, err := b.Admit(epoch, ratelimit.Per(1), -1); !errors.Is(err, ratelimit.ErrInvalid) {
		t.Error(err)
	}
	if string(encode(t, &b)) != string(encode(t, new(ratelimit.Bucket))) {
		t.Error("bad input changed the bucket")
	}
}

// Raised debt that the bucket cannot count is refused, not clamped.
func TestRaiseOverflow(t *testing.T) {
	l := ratelimit.Per(ratelimit.MaxPerMinute)
	var b ratelimit.Bucket
	admit(t, &b, epoch, l, l.Burst)
	before := encode(t, &b)
	if _, _, err := b.Raise(epoch+minute, l, l.Burst); !errors.Is(err, ratelimit.ErrOverflow) {
		t.Fatal(err)
	}
	if string(before) != string(encode(t, &b)) {
		t.Fatal("a refused raise changed the bucket")
	}
	admit(t, &b, epoch+minute, l, l.Burst)
}

func TestCloneSharesNothing(t *testing.T) {
	b := sample(t)
	c := b.Clone()
	before := encode(t, b)
	if string(before) != string(encode(t, &c)) {
		t.Fatal("the clone differs")
	}
	l := ratelimit.Per(6000)
	for range 5 {
		admit(t, &c, epoch+second, l, 100)
	}
	if string(before) != string(encode(t, b)) {
		t.Fatal("using the clone changed the original")
	}
}
