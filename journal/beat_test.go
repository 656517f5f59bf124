package journal_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/journal/journaltest"
	"github.com/tallystick-go/tallystick/quota"
)

// TestIDsFollowTheAuthoritysClock: a node whose clock is wrong asks by ids that the authority takes.
func TestIDsFollowTheAuthoritysClock(t *testing.T) {
	for _, ahead := range [...]time.Duration{-2 * time.Hour, 100 * 24 * time.Hour} {
		theirs := time.Now().Add(ahead).UnixMicro()
		account := escrow.Account{Policy: "p", Rule: "r", Period: quota.Month, Window: quota.Window{Start: theirs - 1, End: theirs + 1e12}}
		j, err := journal.Open(t.Context(), journaltest.NewMemory(), &journal.Options{Node: "n"})
		if err != nil {
			t.Fatal(err)
		}
		h, err := j.Next(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		answer := &escrow.Answer{Now: theirs, Documents: &policy.Set{}, Definitions: []escrow.Definition{{Account: account, Limit: 1000, Hard: true, Grant: 100, Renew: time.Second}}}
		if err := j.Take(t.Context(), h, answer, time.Now()); err != nil {
			t.Fatal(err)
		}
		err = j.Reserve(t.Context(), journal.Reservation{ID: journal.NewID(), Needs: []journal.Need{{Account: account, Amount: 5}}})
		if !errors.Is(err, journal.ErrShortage) {
			t.Fatal(err)
		}
		h, err = j.Next(t.Context(), false)
		if err != nil || len(h.Requests) == 0 {
			t.Fatal(h, err)
		}
		const near = 5 * 60 * 1000
		for _, r := range h.Requests {
			if off := r.ID.UnixMilli() - theirs/1000; off < -near || off > near {
				t.Errorf("an id lies %d ms from the authority's clock", off)
			}
		}
	}
}
