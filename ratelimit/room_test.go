package ratelimit_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/tallystick-go/tallystick/ratelimit"
)

// What is known of the free bytes never says more than there are, however segments
// come, merge, settle and drain.
func TestRoomIsNeverOverstated(t *testing.T) {
	for _, cost := range []int64{1, 1000, 3_000_000_000, 1 << 40} {
		l := ratelimit.Per(cost * 1_000)
		var b ratelimit.Bucket
		rng := rand.New(rand.NewPCG(2, uint64(cost)))
		type held struct {
			seq    uint64
			amount int64
		}
		var open []held
		for now := int64(1e15); now < 1e15+1e8; now += 50_000 {
			for range 2 + rng.IntN(3) {
				amount := cost + rng.Int64N(cost+3)
				seq, v, err := b.Admit(now, l, amount)
				if err != nil {
					t.Fatal(err)
				}
				if v.OK && rng.IntN(3) == 0 {
					open = append(open, held{seq, amount})
				}
				if !b.Check() {
					t.Fatalf("cost %d at %d: cached sums are wrong", cost, now)
				}
			}
			if len(open) > 40 {
				i := rng.IntN(len(open))
				if _, err := b.Return(open[i].seq, open[i].amount, rng.Int64N(open[i].amount+1)); err != nil && !errors.Is(err, ratelimit.ErrMismatch) {
					t.Fatal(err)
				}
				open = append(open[:i], open[i+1:]...)
			}
			if p, err := b.MarshalBinary(); err != nil || len(p) > ratelimit.MaxEncoded {
				t.Fatal(len(p), err)
			}
		}
		if b.Segments() < 80 {
			t.Fatalf("cost %d: only %d segments: not what this is about", cost, b.Segments())
		}
	}
}
