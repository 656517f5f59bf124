package ratelimit_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/tallystick-go/tallystick/ratelimit"
)

// A bucket keeps its bounds, and every member behind the head its exact return.
func TestBoundsHold(t *testing.T) {
	for _, cost := range []int64{1, 1000, 600_000, 3_000_000_000, 1 << 48} {
		l := ratelimit.Per(ratelimit.MaxPerMinute / 2)
		var b ratelimit.Bucket
		var seqs []uint64
		for i := range int64(1000) {
			seqs = append(seqs, admit(t, &b, epoch, l, cost+i%3))
			if n := b.Segments(); n > 256 {
				t.Fatalf("%d segments", n)
			}
			if p := encode(t, &b); len(p) > ratelimit.MaxEncoded {
				t.Fatalf("%d bytes", len(p))
			}
		}
		total := int64(0)
		for i := range int64(1000) {
			total += cost + i%3
		}
		rng := rand.New(rand.NewPCG(1, uint64(cost)))
		for _, i := range rng.Perm(1000) {
			amount := cost + int64(i)%3
			keep := rng.Int64N(amount + 1)
			giveBack(t, &b, seqs[i], amount, keep, amount-keep)
			total -= amount - keep
			debt(t, &b, epoch, l, total)
			if p := encode(t, &b); len(p) > ratelimit.MaxEncoded {
				t.Fatalf("%d bytes", len(p))
			}
			if !b.Check() {
				t.Fatal("cached sums are wrong")
			}
		}
	}
}

// Once a merged segment is the head, a member gets back what it reserved less all that
// the segment has drained.
func TestMergedHead(t *testing.T) {
	l := ratelimit.Limit{PerMinute: 60, Burst: 100}
	var b ratelimit.Bucket
	first := admit(t, &b, epoch, l, 10)
	a, c, d := admit(t, &b, epoch, l, 10), admit(t, &b, epoch, l, 12), admit(t, &b, epoch, l, 50)
	b.Fit(3, 1<<20)
	giveBack(t, &b, first, 10, 0, 10)
	debt(t, &b, epoch, l, 72)
	admit(t, &b, epoch+4*second+second/2, l, 1) // a and c have drained 4.5 together
	giveBack(t, &b, a, 10, 0, 5)                // 5.5 of its 10
	giveBack(t, &b, c, 12, 6, 6)                // 7.5 of 12 before, 1.5 after
	giveBack(t, &b, d, 50, 0, 50)
	debt(t, &b, epoch+4*second+second/2, l, 7) // 22 - 4.5 - 5.5 - 6, and the one admitted

	// A second return of a member is told when it asks for more than there is.
	if n, err := b.Return(a, 12, 0); n != 0 || !errors.Is(err, ratelimit.ErrMismatch) {
		t.Fatal(n, err)
	}
}

// Debt that many settlements add does not crowd out open reservations.
func TestOverrunsMerge(t *testing.T) {
	l := ratelimit.Limit{PerMinute: 60, Burst: 1_000_000}
	var b ratelimit.Bucket
	seq := admit(t, &b, epoch, l, 1)
	open := admit(t, &b, epoch, l, 100)
	for i := range int64(5000) {
		if err := b.Overrun(epoch+i, 10); err != nil {
			t.Fatal(err)
		}
		if p := encode(t, &b); len(p) > ratelimit.MaxEncoded {
			t.Fatalf("%d bytes", len(p))
		}
	}
	admit(t, &b, epoch+5000, l, 1)
	if n := b.Segments(); n > 4 {
		t.Fatalf("%d segments after an admission", n)
	}
	giveBack(t, &b, open, 100, 0, 100)
	giveBack(t, &b, seq, 1, 0, 0)
}
