package governance

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/quota"
)

func genID[T ~[16]byte](t *rapid.T, name string) (id T) {
	copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name))
	return id
}

func genTerms(t *rapid.T) *terms {
	text := func(name string) string { return rapid.StringN(0, 20, 60).Draw(t, name) }
	tm := &terms{
		keyID: text("key"), teamID: text("team"), user: text("user"), model: text("model"), region: text("region"), guardrail: text("guardrail"),
		price: rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "price"), incarnation: rapid.Uint64().Draw(t, "incarnation"),
		holds: make([]hold, rapid.IntRange(0, 12).Draw(t, "holds")),
	}
	for i := range tm.holds {
		h := &tm.holds[i]
		h.constraint, h.kind, h.window = genID[ConstraintID](t, "id"), Kind(rapid.IntRange(1, 5).Draw(t, "kind")), allTime
		if h.kind.isAccount() {
			h.window.Start = rapid.Int64Range(-1<<60, 1<<60).Draw(t, "start")
			h.window.End = h.window.Start + rapid.Int64Range(1, 1<<61).Draw(t, "length")
		}
	}
	return tm
}

func equalTerms(a, b *terms) bool {
	return a.keyID == b.keyID && a.teamID == b.teamID && a.user == b.user && a.model == b.model && a.region == b.region && a.guardrail == b.guardrail &&
		bytes.Equal(a.price, b.price) && a.incarnation == b.incarnation && slices.Equal(a.holds, b.holds)
}

func TestTermsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tm := genTerms(t)
		p := tm.append([]byte("before"))
		if !bytes.HasPrefix(p, []byte("before")) {
			t.Fatal("append does not append")
		}
		p = p[len("before"):]
		again, err := decodeTerms(p)
		if err != nil || !equalTerms(tm, again) {
			t.Fatalf("%+v becomes %+v: %v", tm, again, err)
		}
		for cut := range p {
			if _, err := decodeTerms(p[:cut]); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("cut at %d of %d: %v", cut, len(p), err)
			}
		}
		if _, err := decodeTerms(append(p, 0)); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("with a byte behind it: %v", err)
		}
	})
}

// The encoding is stored: what one release wrote, every later one reads.
func TestTermsEncodingStays(t *testing.T) {
	tm := &terms{
		keyID: "k", teamID: "t", user: "u", model: "m", region: "r", guardrail: "g", price: []byte{1, 2}, incarnation: 0x0102030405060708,
		holds: []hold{
			{constraint: ConstraintID{1}, kind: KindRequestRate, window: allTime},
			{constraint: ConstraintID{2}, kind: KindMoney, window: quota.Window{Start: 1000, End: 1300}},
		},
	}
	const want = "01" + "016b" + "0174" + "0175" + "016d" + "0172" + "0167" + "020102" + "0102030405060708" + "02" +
		"01000000000000000000000000000000" + "01" +
		"02000000000000000000000000000000" + "04" + "d00f" + "ac02"
	if have := hex.EncodeToString(tm.append(nil)); have != want {
		t.Fatalf("terms are now encoded as\n%s, they were\n%s", have, want)
	}
	again, err := decodeTerms(tm.append(nil))
	if err != nil || !equalTerms(tm, again) {
		t.Fatalf("%+v, %v", again, err)
	}
}

func TestTermsAreRefusedWhenCorrupt(t *testing.T) {
	good := (&terms{keyID: "k", holds: []hold{{kind: KindMoney, window: quota.Window{Start: 5, End: 9}}}}).append(nil)
	for name, p := range map[string][]byte{
		"nothing":           nil,
		"another version":   append([]byte{2}, good[1:]...),
		"a length too long": {1, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"a longer form":     append([]byte{1, 0x81, 0x00}, good[2:]...),
		"too many holds":    append(slices.Clone(good[:16]), 65),
		"an unknown kind":   replaced(good, len(good)-3, 6),
		"no kind":           replaced(good, len(good)-3, 0),
		"an empty window":   replaced(good, len(good)-1, 0),
	} {
		if tm, err := decodeTerms(p); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, tm, err)
		}
	}
	if _, err := decodeTerms(good); err != nil {
		t.Fatal(err)
	}
}

func replaced(p []byte, i int, b byte) []byte {
	p = slices.Clone(p)
	p[i] = b
	return p
}

func TestSegmentsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := make([]segment, rapid.IntRange(0, maxSegmentsPerPermit).Draw(t, "segments"))
		for i := range list {
			list[i] = segment{rapid.IntRange(0, 6).Draw(t, "hold"), rapid.Uint64().Draw(t, "seq"), rapid.Int64Range(0, math.MaxInt64).Draw(t, "amount")}
		}
		p := appendSegments(nil, list)
		again, err := decodeSegments(p, 7)
		if err != nil || !slices.Equal(list, again) {
			t.Fatalf("%v becomes %v: %v", list, again, err)
		}
		if len(list) > 0 {
			if _, err := decodeSegments(p[:len(p)-1], 7); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("cut: %v", err)
			}
		}
	})
}

func TestSegmentsAreRefusedWhenCorrupt(t *testing.T) {
	for name, p := range map[string][]byte{
		"a hold that is not there": appendSegments(nil, []segment{{2, 1, 1}}),
		"a negative amount":        appendSegments(nil, []segment{{0, 1, -1}}),
		"more than there are":      {3, 0, 1, 1},
		"an absurd number":         {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		"a hold beyond an int":     {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 1, 1},
		"a byte behind":            append(appendSegments(nil, []segment{{1, 1, 1}}), 0),
	} {
		if list, err := decodeSegments(p, 2); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, %v", name, list, err)
		}
	}
	if list, err := decodeSegments(nil, 0); err != nil || list != nil {
		t.Fatal(list, err)
	}
}

func genStored(t *rapid.T) Outcome {
	if rapid.IntRange(0, 4).Draw(t, "unsent") == 0 {
		return NotSent()
	}
	m := func(name string, most int64) Measure {
		return Measure{Certainty(rapid.IntRange(0, 2).Draw(t, name)), rapid.Int64Range(0, most).Draw(t, name+" value")}
	}
	return Outcome{Tokens: m("tokens", int64(MaxTokens)), Cost: m("cost", int64(MaxCost))}.clean()
}

func TestOutcomeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := genStored(t)
		p := o.AppendBinary(nil)
		again := Outcome{Tokens: Measure{Known, 7}}
		if err := again.UnmarshalBinary(p); err != nil || again != o || len(p) > 23 {
			t.Fatalf("%+v becomes %+v: %v (%d bytes)", o, again, err, len(p))
		}
	})
}

func TestOutcomeIsRefusedWhenCorrupt(t *testing.T) {
	for name, p := range map[string][]byte{
		"a version alone":            {1},
		"another version":            {2, 0, 0, 0},
		"an unknown certainty":       {1, 3, 0, 0},
		"unknown bits":               {1, 0x20, 0, 0},
		"unsent and used":            {1, 0x10 | 1, 5, 0},
		"more than the most":         append(append([]byte{1, 1}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f), 0),
		"a negative observed amount": {1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0},
		"a byte behind":              {1, 0, 0, 0, 0},
	} {
		o := Used(3, 4)
		if err := o.UnmarshalBinary(p); !errors.Is(err, ErrCorrupt) || o != Used(3, 4) {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
	o := Used(3, 4)
	if err := o.UnmarshalBinary(nil); err != nil || o != Unknown() {
		t.Fatal(o, err)
	}
}

func TestSlotsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Slots
		now := int64(1_000_000)
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			switch id := uint64(rapid.IntRange(1, 5).Draw(t, "incarnation")); rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				s.acquire(id, now)
			case 2:
				s.release(id)
			default:
				now += rapid.Int64Range(0, 70_000_000).Draw(t, "tick")
			}
			p := s.AppendBinary(nil)
			again := Slots{Holders: []SlotHolder{{9, 9, 9}}}
			if err := again.UnmarshalBinary(p); err != nil || !slices.Equal(again.Holders, s.Holders) {
				t.Fatalf("%+v becomes %+v: %v", s, again, err)
			}
			c := s.Clone()
			if len(c.Holders) > 0 {
				c.Holders[0].Count++
				if c.Holders[0] == s.Holders[0] {
					t.Fatal("a clone shares memory")
				}
			}
		}
	})
}

func TestSlotsAreRefusedWhenCorrupt(t *testing.T) {
	one := Slots{Holders: []SlotHolder{{1, 2, 3}}}
	two := Slots{Holders: []SlotHolder{{2, 2, 3}, {1, 2, 3}}}
	for name, p := range map[string][]byte{
		"another version":    append([]byte{2}, one.AppendBinary(nil)[1:]...),
		"a version alone":    {1},
		"an absurd number":   {1, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"more than there is": {1, 2, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1},
		"not sorted":         two.AppendBinary(nil),
		"no incarnation":     Slots{Holders: []SlotHolder{{0, 1, 1}}}.AppendBinary(nil),
		"no count":           Slots{Holders: []SlotHolder{{1, 0, 1}}}.AppendBinary(nil),
		"a negative count":   Slots{Holders: []SlotHolder{{1, -1, 1}}}.AppendBinary(nil),
		"an absurd count":    Slots{Holders: []SlotHolder{{1, 1 << 41, 1}}}.AppendBinary(nil),
		"a negative expiry":  Slots{Holders: []SlotHolder{{1, 1, -1}}}.AppendBinary(nil),
		"a byte behind":      append(one.AppendBinary(nil), 0),
	} {
		var s Slots
		if err := s.UnmarshalBinary(p); !errors.Is(err, ErrCorrupt) || s.Holders != nil {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

func TestPermitIDs(t *testing.T) {
	at := time.UnixMilli(1_773_144_000_123)
	seen := map[PermitID]bool{}
	for range 1000 {
		id := NewPermitID(at)
		if !id.Valid() || id.IsZero() || id.UnixMilli() != at.UnixMilli() || seen[id] {
			t.Fatalf("id %s", id)
		}
		seen[id] = true
		again, err := ParsePermitID(id.String())
		if err != nil || again != id {
			t.Fatalf("%s becomes %s: %v", id, again, err)
		}
	}
	if a, b := NewPermitID(at), NewPermitID(at.Add(time.Millisecond)); bytes.Compare(a[:], b[:]) >= 0 {
		t.Fatal("ids do not sort by time")
	}
	good := NewPermitID(at).String()
	for _, bad := range []string{
		"", " " + good, good + " ", good[:35], strings.ToUpper("018f" + good[4:]), strings.ReplaceAll(good, "-", ""), "{" + good + "}", "urn:uuid:" + good,
		good[:14] + "4" + good[15:], good[:19] + "0" + good[20:], strings.Repeat("0", 8) + "-0000-0000-0000-" + strings.Repeat("0", 12), good[:8] + "_" + good[9:],
		good[:35] + "g", good[:35] + "\x00",
	} {
		if _, err := ParsePermitID(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q is accepted: %v", bad, err)
		}
	}
	var id PermitID
	if err := id.UnmarshalText([]byte(good)); err != nil || id.String() != good {
		t.Fatal(id, err)
	}
	if text, err := id.MarshalText(); err != nil || string(text) != good {
		t.Fatal(string(text), err)
	}
	if err := id.UnmarshalText([]byte("x")); err == nil || id.String() != good {
		t.Fatal("a bad text changes the id")
	}
}

func TestConstraintIDs(t *testing.T) {
	id := ConstraintID{0xab, 1}
	text, _ := id.MarshalText()
	var again ConstraintID
	if err := again.UnmarshalText(text); err != nil || again != id || len(text) != 32 {
		t.Fatalf("%s becomes %s: %v", text, again, err)
	}
	for _, bad := range []string{"", id.String()[:31], id.String() + "0", strings.ToUpper(id.String()), id.String()[:31] + "g"} {
		if err := again.UnmarshalText([]byte(bad)); !errors.Is(err, ErrInvalid) || again != id {
			t.Errorf("%q is accepted: %v", bad, err)
		}
	}
}

// Cells of every kind carry their state, and refuse another's.
func TestCellState(t *testing.T) {
	var rate, slots Cell
	rate.Kind, slots.Kind = KindTokenRate, KindConcurrency
	if _, _, err := rate.Bucket.Admit(noon, (&Constraint{Limit: 100}).rate(), 7); err != nil {
		t.Fatal(err)
	}
	slots.Slots.acquire(7, noon)
	for _, c := range []*Cell{&rate, &slots, {Kind: KindMoney}} {
		p, err := c.AppendState(nil)
		if err != nil {
			t.Fatal(err)
		}
		again := Cell{Kind: c.Kind}
		if err := again.UnmarshalState(p); err != nil || shelve(&again) != shelve(c) {
			t.Fatalf("%s: %+v becomes %+v: %v", c.Kind, c, again, err)
		}
		bad := Cell{Kind: c.Kind}
		if err := bad.UnmarshalState([]byte{99, 99}); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%s takes anything: %v", c.Kind, err)
		}
	}
}
