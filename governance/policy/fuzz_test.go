package policy_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/governance/policy/policytest"
)

// Whatever the input, it is refused with a place, or is a set that is read back as itself.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(research))
	for _, c := range policytest.Mistakes() {
		if len(c.Input) < 4096 {
			f.Add([]byte(c.Input))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		documents, err := policy.Decode(data)
		if err != nil {
			if !errors.Is(err, policy.ErrInvalid) || documents != nil {
				t.Fatal(documents, err)
			}
			return
		}
		s, err := policy.NewSet(documents)
		if err != nil {
			if !errors.Is(err, policy.ErrInvalid) { // two of one name
				t.Fatal(err)
			}
			return
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := policy.Decode(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if other, err := policy.NewSet(again); err != nil || other.Generation() != s.Generation() {
			t.Fatalf("%s is another generation, %v", text, err)
		}
		for _, p := range []policy.Profile{policy.Local, policy.Node, policy.Shared} {
			if len(s.Enforce(p, policy.Enforcing{}).Verdicts()) == 0 && s.Len() > 0 {
				t.Fatal("no verdicts")
			}
		}
	})
}

// What a store kept is a set only if it is the one of the stored generation.
func FuzzRestore(f *testing.F) {
	f.Add("research", research)
	f.Add("", "{}")
	f.Fuzz(func(t *testing.T, name, text string) {
		var d policy.Document
		valid := d.UnmarshalJSON([]byte(text)) == nil && d.Name == name
		var mark policy.Mark
		if valid {
			s, err := policy.NewSet([]policy.Document{d})
			if err != nil {
				t.Fatal(err)
			}
			mark.Generation = s.Generation()
		}
		s, err := policy.Restore(nil, mark, []policy.Row{{Name: name, Text: text}})
		if (err == nil) != valid || (err != nil && !errors.Is(err, policy.ErrCorrupt)) || (s == nil) != (err != nil) {
			t.Fatalf("%v of %q, which is valid: %v", err, text, valid)
		}
	})
}

func FuzzParseGeneration(f *testing.F) {
	f.Add("50b5da85b5e3949540f8f9e3896bdb5c35bbe74472c3485d6f629c04454e5274")
	f.Fuzz(func(t *testing.T, text string) {
		if g, err := policy.ParseGeneration(text); err == nil && g.String() != text {
			t.Fatal(g, text)
		}
	})
}
