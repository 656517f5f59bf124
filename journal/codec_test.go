package journal_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
)

// FuzzPortions: whatever can be read is written the same way again.
func FuzzPortions(f *testing.F) {
	f.Add(journal.AppendPortions(nil, nil))
	f.Add(journal.AppendPortions(nil, []journal.Portion{{Need: 0, Grant: escrow.GrantID{1}, Amount: 1<<63 - 1}, {Need: 255, Grant: escrow.GrantID{2}, Amount: 300}}))
	f.Add([]byte{1, 0x80, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := journal.ParsePortions(data)
		if err != nil {
			return
		}
		again := journal.AppendPortions(nil, list)
		if !bytes.Equal(again, data) {
			t.Fatalf("%x is read as %v and written as %x", data, list, again)
		}
		for _, p := range list {
			if p.Amount < 0 || p.Need < 0 {
				t.Fatalf("%x is read as %v", data, list)
			}
		}
	})
}

func TestPortionsAreRefused(t *testing.T) {
	good := journal.AppendPortions(nil, []journal.Portion{{Need: 1, Grant: escrow.GrantID{1}, Amount: 7}, {Need: 2, Grant: escrow.GrantID{2}, Amount: 300}})
	if list, err := journal.ParsePortions(good); err != nil || !reflect.DeepEqual(list[1], journal.Portion{Need: 2, Grant: escrow.GrantID{2}, Amount: 300}) {
		t.Fatal(list, err)
	}
	for n := range len(good) {
		if list, err := journal.ParsePortions(good[:n]); err == nil && (n == 0 || len(list) == 2) {
			t.Fatalf("the first %d bytes are read as %v", n, list)
		}
	}
	swapped := journal.AppendPortions(nil, []journal.Portion{{Need: 2}, {Need: 1}})
	for _, bad := range [][]byte{{}, {2}, append(good, 0), swapped} {
		if _, err := journal.ParsePortions(bad); err == nil {
			t.Fatalf("%x is read", bad)
		}
	}
}

// Accounts that differ in anything have other keys: no two texts run into one another.
func TestAccountKeysDiffer(t *testing.T) {
	base := escrow.Account{Policy: "ab", Rule: "c", Subject: policy.Subject{Team: "d", User: "e"}, Period: 1}
	list := []escrow.Account{base}
	for _, change := range []func(*escrow.Account){
		func(a *escrow.Account) { a.Policy, a.Rule = "a", "bc" },
		func(a *escrow.Account) { a.Rule, a.Subject.Team = "cd", "" },
		func(a *escrow.Account) { a.Subject.Team, a.Subject.User = "de", "" },
		func(a *escrow.Account) { a.Subject.Team, a.Subject.User = "", "de" },
		func(a *escrow.Account) { a.Period = 2 },
		func(a *escrow.Account) { a.Window.Start = 1 },
		func(a *escrow.Account) { a.Window.End = 1 },
	} {
		a := base
		change(&a)
		list = append(list, a)
	}
	seen := map[[16]byte]bool{}
	for _, a := range list {
		if key := journal.AccountKey(a); seen[key] {
			t.Fatalf("%+v has the key of another account", a)
		} else {
			seen[key] = true
		}
	}
}
