package escrow_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/quota"
)

// What reports do to a grant of 100, one after another.
func TestReportsOfAGrant(t *testing.T) {
	type step struct {
		consumed, uncertain int64
		ending              escrow.Ending
		d                   escrow.Delta
		late, refused       bool
	}
	const open, closed, burned = escrow.Open, escrow.Closed, escrow.Burned
	for name, steps := range map[string][]step{
		"use moves from granted to consumed": {{30, 0, open, escrow.Delta{Consumed: 30, Granted: -30}, false, false}, {30, 0, open, escrow.Delta{}, false, false}},
		"the first closure gives back what is proved unused": {
			{30, 10, open, escrow.Delta{Consumed: 30, Uncertain: 10, Granted: -40}, false, false},
			{40, 10, closed, escrow.Delta{Consumed: 10, Granted: -60}, false, false},
			{40, 10, closed, escrow.Delta{}, false, false},
			{40, 0, closed, escrow.Delta{}, true, false}, {40, 60, burned, escrow.Delta{}, true, false}, {99, 1, open, escrow.Delta{}, true, false},
		},
		"a burn takes all that is not known to be consumed": {
			{30, 10, open, escrow.Delta{Consumed: 30, Uncertain: 10, Granted: -40}, false, false},
			{35, 10, burned, escrow.Delta{Consumed: 5, Uncertain: 55, Granted: -60}, false, false},
			{35, 0, burned, escrow.Delta{}, false, false}, {35, 0, closed, escrow.Delta{}, true, false},
		},
		"an overrun is recorded in full": {{90, 30, open, escrow.Delta{Consumed: 90, Uncertain: 30, Granted: -100}, false, false}, {130, 30, closed, escrow.Delta{Consumed: 40}, false, false}},
		"an overrun burns nothing more":  {{130, 0, burned, escrow.Delta{Consumed: 130, Granted: -100}, false, false}},
		"sums never fall":                {{30, 5, open, escrow.Delta{Consumed: 30, Uncertain: 5, Granted: -35}, false, false}, {29, 6, open, escrow.Delta{}, false, true}, {30, 4, closed, escrow.Delta{}, false, true}, {29, 5, burned, escrow.Delta{}, false, true}},
		"sums do not overflow":           {{math.MaxInt64, 1, open, escrow.Delta{}, false, true}},
	} {
		h, d := escrow.Granting(100)
		if d != (escrow.Delta{Granted: 100}) {
			t.Fatal(d)
		}
		for i, s := range steps {
			next, d, late, err := h.Apply(&escrow.Report{Consumed: usd(s.consumed), Uncertain: usd(s.uncertain), Ending: s.ending})
			var e *escrow.Error
			if d != s.d || late != s.late || errors.As(err, &e) != s.refused || (err != nil && next != h) || (late && next != h) {
				t.Errorf("%s: step %d makes %+v with %+v, late: %v, %v", name, i, next, d, late, err)
			}
			h = next
		}
	}
}

// A meter has no amount: pending money is a liability, never use, and may fall.
func TestMeters(t *testing.T) {
	h := escrow.Held{Meter: true}
	steps := []struct {
		m escrow.Meter
		d escrow.Delta
	}{
		{escrow.Meter{Pending: 7}, escrow.Delta{Granted: 7}},
		{escrow.Meter{Pending: 2, Consumed: 4, Uncertain: 1, Observed: 1}, escrow.Delta{Granted: -5, Consumed: 4, Uncertain: 1, Observed: 1}},
		{escrow.Meter{Consumed: 900, Uncertain: 1, Observed: 1}, escrow.Delta{Granted: -2, Consumed: 896}},
	}
	for _, s := range steps {
		next, d, late, err := h.Measure(&s.m)
		if err != nil || late || d != s.d || next.Overrun() != 0 {
			t.Errorf("%+v makes %+v with %+v, %v", s.m, next, d, err)
		}
		h = next
	}
	if _, _, _, err := h.Measure(&escrow.Meter{Consumed: 899, Uncertain: 1, Observed: 1}); err == nil {
		t.Error("a meter fell")
	}
	if _, _, _, err := h.Apply(&escrow.Report{Consumed: 900, Uncertain: 1}); err == nil {
		t.Error("a meter was reported like a grant")
	}
	g, _ := escrow.Granting(1)
	if _, _, _, err := g.Measure(&escrow.Meter{}); err == nil {
		t.Error("a grant was measured")
	}
	h, _, _, _ = h.Measure(&escrow.Meter{Consumed: 900, Uncertain: 1, Observed: 1, Pending: 5})
	h, d, err := h.Burn()
	if err != nil || d != (escrow.Delta{Uncertain: 5, Granted: -5}) {
		t.Error(d, err)
	}
	if next, d, late, err := h.Measure(&escrow.Meter{Consumed: 950, Uncertain: 1, Observed: 1}); !late || err != nil || !d.IsZero() || next != h {
		t.Errorf("after its end a meter still counts: %+v, %v", d, err)
	}
}

// An operator looks into what is uncertain; the node goes on with its own sums.
func TestResolve(t *testing.T) {
	h, _ := escrow.Granting(100)
	h, _, _, _ = h.Apply(&escrow.Report{Consumed: 10, Uncertain: 30})
	if _, _, err := h.Resolve(31, 0); err == nil {
		t.Error("more was resolved than is uncertain")
	}
	if _, _, err := h.Resolve(-1, 0); err == nil {
		t.Error("a negative amount was resolved")
	}
	h, d, err := h.Resolve(30, 12)
	if err != nil || d != (escrow.Delta{Consumed: 12, Uncertain: -30}) {
		t.Error(d, err)
	}
	h, d, _, err = h.Apply(&escrow.Report{Consumed: 20, Uncertain: 40})
	if err != nil || d != (escrow.Delta{Consumed: 10, Uncertain: 10, Granted: -20}) {
		t.Error(d, err)
	}
	h, d, err = h.Burn()
	if err != nil || d != (escrow.Delta{Uncertain: 40, Granted: -40}) {
		t.Error(d, err)
	}
	h, d, err = h.Resolve(50, 0)
	if err != nil || d != (escrow.Delta{Uncertain: -50}) || h.Share() != (escrow.Share{Consumed: 32}) {
		t.Error(d, err, h.Share())
	}
	if next, d, err := h.Burn(); next != h || !d.IsZero() || err != nil {
		t.Error("a second burn changed something")
	}
}

// Whatever is reported and done, the account is the sum of what is held, nothing is negative, and
// what was refused changed nothing.
func TestPropertyAccountIsTheSumOfShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		held := make([]escrow.Held, rapid.IntRange(1, 4).Draw(t, "grants"))
		var a quota.Account
		add := func(i int, next escrow.Held, d escrow.Delta) {
			var err error
			if a, err = d.Add(a); err != nil {
				t.Fatal(err)
			}
			held[i] = next
		}
		for i := range held {
			if i == 0 {
				held[i].Meter = true
				continue
			}
			h, d := escrow.Granting(usd(rapid.Int64Range(1, 100).Draw(t, "amount")))
			add(i, h, d)
		}
		money := func(name string) amount.MicroUSD {
			return usd(rapid.OneOf(rapid.Int64Range(0, 120), rapid.Int64()).Draw(t, name))
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
			h := held[i]
			var next escrow.Held
			var d escrow.Delta
			var err error
			switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
			case op == 0:
				next, d, err = h.Burn()
			case op < 3:
				next, d, err = h.Resolve(money("uncertain"), money("used"))
			case h.Meter:
				next, d, _, err = h.Measure(&escrow.Meter{Consumed: money("consumed"), Uncertain: money("uncertain"), Observed: money("observed"), Pending: money("pending")})
			default:
				ending := escrow.Ending(rapid.IntRange(0, 3).Draw(t, "ending"))
				next, d, _, err = h.Apply(&escrow.Report{Consumed: money("consumed"), Uncertain: money("uncertain"), Observed: money("observed"), Ending: ending})
			}
			if err != nil || next.Validate() != nil {
				if err == nil || next != h || !d.IsZero() {
					t.Fatalf("%+v was refused (%v) and changed to %+v", h, err, next)
				}
				continue
			}
			if after, err := d.Add(a); err == nil {
				a, held[i] = after, next
			} else if !errors.As(err, new(*escrow.Error)) {
				t.Fatal(err)
			}
			stored, err := held[i].AppendBinary(nil)
			var back escrow.Held
			if err != nil || back.UnmarshalBinary(stored) != nil || back != held[i] {
				t.Fatalf("%+v is stored as %+v, %v", held[i], back, err)
			}
		}
		var sum quota.Account
		for _, h := range held {
			s := h.Share()
			sum.Consumed += int64(s.Consumed)
			sum.Uncertain += int64(s.Uncertain)
			sum.Granted += int64(s.Granted)
			sum.Observed += int64(s.Observed)
		}
		if sum != a || a.Validate() != nil {
			t.Fatalf("the account is %+v, and holds %+v", a, sum)
		}
	})
}

func TestDeltaNeverTakesMoreThanIsThere(t *testing.T) {
	if _, err := (escrow.Delta{Granted: -1}).Add(quota.Account{}); !errors.Is(err, quota.ErrUnderflow) {
		t.Error(err)
	}
	var e *escrow.Error
	if _, err := (escrow.Delta{Consumed: 1}).Add(quota.Account{Consumed: math.MaxInt64}); !errors.As(err, &e) {
		t.Error(err)
	}
}

// What is decoded is encoded to the same bytes. Everything else is ErrCorrupt.

func FuzzHeld(f *testing.F) {
	for _, h := range []escrow.Held{{Amount: 1}, {Meter: true, Pending: 4}, {Amount: 300, Consumed: 1, Uncertain: 299, Observed: 7, Ending: escrow.Burned, Resolved: 5, Found: 1 << 40}} {
		b, err := h.AppendBinary(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		var h escrow.Held
		if err := h.UnmarshalBinary(p); err != nil {
			if !errors.Is(err, escrow.ErrCorrupt) || h != (escrow.Held{}) {
				t.Fatal(h, err)
			}
			return
		}
		if again, err := h.AppendBinary(nil); err != nil || !bytes.Equal(again, p) {
			t.Fatalf("% x becomes % x, %v", p, again, err)
		}
	})
}

func FuzzNode(f *testing.F) {
	n := escrow.Node{Boot: bootID(3), BootNumber: 300, Sequence: 2, Digest: [32]byte{9}, Bye: true, Earlier: []escrow.Opening{{Boot: bootID(2), Number: 7}, {Boot: bootID(1), Number: 1}}}
	b, err := n.AppendBinary(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, p []byte) {
		var n escrow.Node
		if err := n.UnmarshalBinary(p); err != nil {
			if !errors.Is(err, escrow.ErrCorrupt) || !n.Boot.IsZero() {
				t.Fatal(n, err)
			}
			return
		}
		if again, err := n.AppendBinary(nil); err != nil || !bytes.Equal(again, p) {
			t.Fatalf("% x becomes % x, %v", p, again, err)
		}
	})
}
