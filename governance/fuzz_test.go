package governance

import (
	"bytes"
	"errors"
	"testing"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/quota"
)

// What is decoded is encoded to the same bytes: there is one encoding of each value,
// so that equal rows have equal bytes. Everything else is ErrCorrupt, never a
// panic, and takes memory in proportion to its own length only.

func FuzzTerms(f *testing.F) {
	f.Add([]byte(nil))
	f.Add((&terms{}).append(nil))
	f.Add((&terms{keyID: "k", teamID: "t", user: "u", model: "m", region: "r", guardrail: "g", price: []byte{1}, incarnation: 9, holds: []hold{
		{constraint: ConstraintID{1}, kind: KindTokenRate, window: allTime}, {constraint: ConstraintID{2}, kind: KindMoney, window: quota.Window{Start: -5, End: 5}},
	}}).append(nil))
	f.Add((&grantTerms{
		node: "n", number: 3, boot: escrow.BootID{7}, expires: 9, account: escrow.Account{
			Policy: "p", Rule: "r", Subject: policy.Subject{Team: "t", User: "u"}, Period: quota.Week, Window: quota.Window{Start: -5, End: 5},
		},
	}).append(nil))
	f.Add((&grantTerms{node: "n", number: 1, meter: true, account: escrow.Account{
		Policy: "p", Rule: "r", Subject: policy.Subject{User: "u"}, Period: quota.Day, Window: quota.Window{End: 1 << 60},
	}}).append(nil))
	f.Fuzz(func(t *testing.T, p []byte) {
		tm, err := decodeTerms(p)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) || tm != nil {
				t.Fatal(tm, err)
			}
			return
		}
		if again := tm.append(nil); !bytes.Equal(again, p) {
			t.Fatalf("% x becomes % x", p, again)
		}
	})
}

func FuzzSegments(f *testing.F) {
	f.Add([]byte(nil), uint8(0))
	f.Add(appendSegments(nil, nil), uint8(1))
	f.Add(appendSegments(nil, []segment{{0, 1, 2}, {3, 1 << 60, 5}}), uint8(4))
	f.Fuzz(func(t *testing.T, p []byte, holds uint8) {
		list, err := decodeSegments(p, int(holds))
		if err != nil {
			if !errors.Is(err, ErrCorrupt) || list != nil {
				t.Fatal(list, err)
			}
			return
		}
		if again := appendSegments(nil, list); len(p) > 0 && !bytes.Equal(again, p) {
			t.Fatalf("% x becomes % x", p, again)
		}
		for _, s := range list {
			if s.hold < 0 || s.hold >= int(holds) || s.amount < 0 {
				t.Fatalf("segment %+v", s)
			}
		}
	})
}

func FuzzOutcome(f *testing.F) {
	f.Add([]byte(nil))
	for _, o := range []Outcome{Unknown(), NotSent(), Used(3, 4), Observed(5, 6), {Tokens: Measure{Certainty: Impossible}}} {
		f.Add(o.AppendBinary(nil))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		o := Used(1, 1)
		if err := o.UnmarshalBinary(p); err != nil {
			if !errors.Is(err, ErrCorrupt) || o != Used(1, 1) {
				t.Fatal(o, err)
			}
			return
		}
		if again := o.AppendBinary(nil); len(p) > 0 && !bytes.Equal(again, p) {
			t.Fatalf("% x becomes % x", p, again)
		}
		if o.validate() != nil {
			t.Fatalf("outcome %+v", o)
		}
	})
}

func FuzzSlots(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(Slots{}.AppendBinary(nil))
	f.Add(Slots{Holders: []SlotHolder{{1, 2, 3}, {4, 5, 1 << 50}}}.AppendBinary(nil))
	f.Fuzz(func(t *testing.T, p []byte) {
		var s Slots
		if err := s.UnmarshalBinary(p); err != nil {
			if !errors.Is(err, ErrCorrupt) || s.Holders != nil {
				t.Fatal(s, err)
			}
			return
		}
		if again := s.AppendBinary(nil); len(p) > 0 && !bytes.Equal(again, p) {
			t.Fatalf("% x becomes % x", p, again)
		}
		if used := s.used(0); used < 0 {
			t.Fatalf("%d slots are used", used)
		}
		s.acquire(7, 2)
		s.release(7)
	})
}

func FuzzPermitID(f *testing.F) {
	f.Add("01890a5d-ac96-774b-bcce-b302099a8057")
	f.Add("")
	f.Add("01890A5D-AC96-774B-BCCE-B302099A8057")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParsePermitID(s)
		if err != nil {
			if !errors.Is(err, ErrInvalid) || !id.IsZero() {
				t.Fatal(id, err)
			}
			return
		}
		if id.String() != s || !id.Valid() || id.UnixMilli() < 0 {
			t.Fatalf("%q becomes %s", s, id)
		}
	})
}
