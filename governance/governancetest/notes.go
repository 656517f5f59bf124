package governancetest

import (
	"strconv"
	"strings"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

func notesCases() []scenario {
	return []scenario{
		{name: "WhatOperatorsDid", run: notesOfOperators},
		{name: "WhatElseTheyDid", run: notesOfOthers},
	}
}

// notesOfOperators: each act once, in order, in pages, with what was before and after.
func notesOfOperators(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(1000)})
	c := e.caller("team-1", keys.Limits{})
	var want []governance.PermitID
	for i := range 5 {
		p := e.admit(c, tokens(10))
		want = append(want, p.ID())
		finding := governance.Evidence{ID: p.ID(), Outcome: governance.Used(1, 1), Actor: "zo\u00eb", Reason: "bill no. " + strconv.Itoa(i)}
		for range 2 { // repeating it is no second note
			_, err := e.g.Resolve(e.ctx, finding)
			e.ok(err)
		}
	}
	e.settle(e.admit(c, tokens(10)), governance.Outcome{Tokens: governance.Measure{Certainty: governance.Impossible}})
	frozen, err := e.g.FrozenAccounts(e.ctx, governance.AccountQuery{Limit: 10})
	e.ok(err)
	if len(frozen) != 1 {
		e.Fatalf("%d accounts are frozen, want 1", len(frozen))
	}
	// The label says what the account counts, though its id is a hash.
	e.equal("label", frozen[0].Label, governance.Label{
		Scope: governance.ScopeTeam, Subject: "team-1", Kind: governance.KindTokenQuota, Rule: "tokens_per_day", Period: quota.Day,
	})
	e.ok(e.g.Unfreeze(e.ctx, governance.Release{Account: frozen[0].Key, Actor: "ops", Reason: "corrected"}))
	var notes []governance.Note
	for after := int64(0); ; {
		page, err := e.g.Notes(e.ctx, governance.NoteQuery{After: after, Limit: 2})
		e.ok(err)
		for _, n := range page {
			if n.Number <= after {
				e.Fatalf("note %d comes after %d", n.Number, after)
			}
			after = n.Number
		}
		notes = append(notes, page...)
		if len(page) < 2 {
			break
		}
	}
	if len(notes) != 6 {
		e.Fatalf("%d notes, want 6: %+v", len(notes), notes)
	}
	for i, n := range notes[:5] {
		if n.Permit != want[i] || n.Action != "resolve" || n.Actor != "zo\u00eb" || n.Reason != "bill no. "+strconv.Itoa(i) || n.At == 0 ||
			!strings.Contains(n.Before, `"open"`) || !strings.Contains(n.After, `"resolved"`) {
			e.Fatalf("note %d is %+v", i, n)
		}
	}
	if n := notes[5]; n.Action != "unfreeze" || n.Account != frozen[0].Key || n.Permit != (governance.PermitID{}) || n.Reason != "corrected" {
		e.Fatalf("the last note is %+v", n)
	}
}

// notesOfOthers: what is done outside the books is recorded among the rest.
func notesOfOthers(e *env) {
	for _, bad := range []governance.Note{
		{Actor: "ops", Reason: "why"}, {Actor: "ops", Action: "edit"}, {Action: "edit", Reason: "why"},
		{Actor: "ops", Action: "edit", Reason: "why", Before: "{"}, {Actor: "ops", Action: "edit\n", Reason: "why"},
		{Actor: "ops", Action: "edit", Reason: "why", Permit: governance.PermitID{1}},
		{Actor: "ops", Action: "edit", Reason: "why", Account: governance.AccountKey{WindowStart: 1}},
		{Actor: "ops", Action: "edit", Reason: "why", After: `"` + strings.Repeat("x", 5000) + `"`},
	} {
		e.is(e.g.Note(e.ctx, bad), governance.ErrInvalid)
	}
	want := governance.Note{Actor: "ops", Action: "edit policies", Reason: "a new quarter", Before: `{"revision":1}`, After: `{"revision":2}`}
	e.ok(e.g.Note(e.ctx, want))
	notes, err := e.g.Notes(e.ctx, governance.NoteQuery{Limit: 10})
	e.ok(err)
	if len(notes) != 1 || notes[0].At == 0 || notes[0].Number == 0 {
		e.Fatalf("the notes are %+v", notes)
	}
	want.At, want.Number = notes[0].At, notes[0].Number
	e.equal("note", notes[0], want)
}
