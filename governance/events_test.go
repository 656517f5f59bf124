package governance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

// steps is a routing rule that notices shares of the budget.
func steps(shares ...policy.Percent) policy.Rule {
	r := policy.Rule{Name: "steps", FailurePolicy: policy.FailOpen, Routing: &policy.Routing{}}
	for _, share := range shares {
		r.Routing.Tiers = append(r.Routing.Tiers, policy.RoutingTier{Threshold: share, Substitutions: map[string]string{"model-9": "model-1"}})
	}
	return r
}

// told are the events of one type that the shelf was given, as "id-less" text that says enough.
func (r *rig) told(kind string) (list []Event) {
	r.Helper()
	r.shelf.with(func() {
		for _, e := range r.shelf.events {
			if e.Type == kind {
				list = append(list, e)
			}
		}
	})
	return list
}

func (r *rig) thresholds(want ...policy.Percent) {
	r.Helper()
	var have []policy.Percent
	for _, e := range r.told(EventThreshold) {
		var data ThresholdEvent
		r.ok(json.Unmarshal(e.Data, &data))
		have = append(have, data.Threshold)
	}
	if !slices.Equal(have, want) {
		r.Fatalf("told of %v, want %v", have, want)
	}
}

func TestThresholdsAreToldOnce(t *testing.T) {
	r := newRuled(t, policy.Shared)
	r.put([]policy.Rule{month(10, true), steps(50, 80, 100)})
	r.ok(r.admit(r.p, milliUSD(4)).Cancel(r.ctx))
	r.thresholds()
	p := r.admit(r.p, milliUSD(8))
	r.thresholds(50, 80)
	r.ok(p.Cancel(r.ctx))
	p = r.admit(r.p, milliUSD(9)) // the latch stays
	r.thresholds(50, 80)
	r.ok(p.Raise(r.ctx, milliUSD(10)))
	r.thresholds(50, 80, 100)
	r.ok(p.Settle(r.ctx, Used(0, 10_000)))
	r.refused(r.ask(milliUSD(1)), ReasonMoney)
	r.thresholds(50, 80, 100)
	e := r.told(EventThreshold)[1]
	id := r.constraint(r.p).ID
	want := fmt.Sprintf(`{"constraint":"%s","scope":"team","subject":"red","kind":"money","policy":"a","rule":"month","period":"month",`+
		`"window_start_us":1772323200000000,"window_end_us":1775001600000000,"threshold_percent":80,"limit_microusd":10000,"hard":true,`+
		`"consumed_microusd":0,"uncertain_microusd":0,"reserved_microusd":8000,"granted_microusd":0,"at_us":%d}`, id, noon)
	if string(e.Data) != want || e.Stream != "account/"+id.String() || e.ID != "budget.threshold/"+id.String()+"/1772323200000000/80" || e.Schema != 1 {
		t.Fatalf("%+v: %s\nwant %s", e, e.Data, want)
	}
}

// constraint is the one limit of a principal.
func (r *ruled) constraint(p *keys.Principal) *Constraint {
	r.Helper()
	usage, err := r.g.Usage(r.ctx, UsageQuery{Principal: p})
	r.ok(err)
	return usage.Verdicts[0].Constraint
}

// A threshold that an edit adds is told when it is noticed, and one below what was reached is not.
func TestThresholdsThatAnEditAdds(t *testing.T) {
	r := newRuled(t, policy.Shared)
	r.put([]policy.Rule{month(10, true), steps(50)})
	r.admit(r.p, milliUSD(7))
	r.put([]policy.Rule{month(10, true), steps(30, 50, 60, 90)})
	r.thresholds(50)
	r.admit(r.p, milliUSD(1))
	r.thresholds(50, 60)
	r.put([]policy.Rule{month(9, true), steps(30, 50, 60, 80)})
	r.admit(r.p, milliUSD(1))
	r.thresholds(50, 60, 80)
}

// What a settlement under other rules, or an operator, has reached is told by the next request, though it is refused.
func TestRefusalTellsOfThresholds(t *testing.T) {
	for _, resolved := range []bool{false, true} {
		r := newRuled(t, policy.Shared)
		rules := []policy.Rule{month(10, true), steps(50, 100)}
		r.put(rules)
		p := r.admit(r.p, milliUSD(6))
		r.put(rules, []policy.Rule{{Name: "rate", FailurePolicy: policy.FailClosed, Rate: &policy.Rate{Unlimited: true}}})
		if resolved {
			_, err := r.g.Resolve(r.ctx, Evidence{ID: p.ID(), Outcome: Used(0, 11_000), Actor: "ops", Reason: "the bill"})
			r.ok(err)
		} else {
			r.ok(p.Settle(r.ctx, Used(0, 11_000)))
		}
		r.thresholds(50)
		for range 2 {
			r.refused(r.ask(milliUSD(1)), ReasonMoney)
			r.thresholds(50, 100)
		}
		if r.latch() != 100 {
			t.Fatalf("latch %d", r.latch())
		}
		r.verify()
	}
}

func TestHoldsAndNotesAreTold(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", keys.Limits{TokensPerDay: keys.Limit(1000), CostPerDay: keys.Cost(1_000_000)}, keys.Limits{})
	r.ok(r.admit(p, Bound{Tokens: 10, Cost: 10}).Settle(r.ctx, Used(5, 5)))
	if len(r.shelf.events) > 0 {
		t.Fatalf("a call was told: %+v", r.shelf.events)
	}
	r.ok(r.admit(p, Bound{Tokens: 10, Cost: 10}).Settle(r.ctx, Used(20, 5)))
	held := r.admit(p, Bound{Tokens: 10, Cost: 10})
	for range 2 {
		r.ok(held.Settle(r.ctx, Observed(3, 4)))
	}
	for range 2 {
		_, err := r.g.Resolve(r.ctx, Evidence{ID: held.ID(), Outcome: Used(7, 8), Actor: "ops", Reason: "<the bill>"})
		r.ok(err)
	}
	r.ok(r.g.Note(r.ctx, Note{Actor: "ops", Action: "edit", Reason: "a new quarter", Before: `{"n":1}`}))
	id := held.ID()
	var have []string
	for _, e := range r.shelf.events {
		have = append(have, e.Type)
	}
	if want := []string{EventOverrun, EventHoldOpened, EventHoldResolved, EventNote, EventNote}; !slices.Equal(have, want) {
		t.Fatalf("told %v, want %v", have, want)
	}
	var opened, resolved HoldEvent
	r.ok(json.Unmarshal(r.shelf.events[1].Data, &opened))
	r.ok(json.Unmarshal(r.shelf.events[2].Data, &resolved))
	want := HoldEvent{
		Permit: id, State: StateSettled, Flags: []string{"tokens_uncertain", "cost_uncertain"}, Key: "k", Team: "red", User: "ann",
		Tokens: HeldAmount{Bound: 10, Uncertain: 10, Observed: 3}, Cost: HeldAmount{Bound: 10, Uncertain: 10, Observed: 4}, AdmittedAt: noon, At: noon,
	}
	if fmt.Sprint(opened) != fmt.Sprint(want) {
		t.Fatalf("opened %+v\nwant %+v", opened, want)
	}
	want.State, want.Flags = StateResolved, []string{}
	want.Tokens, want.Cost = HeldAmount{Bound: 10, Consumed: 7, Observed: 3}, HeldAmount{Bound: 10, Consumed: 8, Observed: 4}
	if fmt.Sprint(resolved) != fmt.Sprint(want) {
		t.Fatalf("resolved %+v\nwant %+v", resolved, want)
	}
	var note NoteEvent
	r.ok(json.Unmarshal(r.shelf.events[3].Data, &note))
	if note.Actor != "ops" || note.Action != "resolve" || note.Reason != "<the bill>" || note.Permit != id || note.At != noon ||
		!strings.Contains(string(note.Before), `"settled"`) || !strings.Contains(string(note.After), `"resolved"`) {
		t.Fatalf("%+v", note)
	}
	for i, stream := range []string{"permit/", "permit/" + id.String(), "permit/" + id.String(), "permit/" + id.String(), "note/"} {
		if e := r.shelf.events[i]; !strings.HasPrefix(e.Stream, stream) {
			t.Fatalf("event %d is in %s, want %s", i, e.Stream, stream)
		}
	}
}

// The largest note and the longest names make an event within the bound.
func TestEventsAreBounded(t *testing.T) {
	r := newRig(t, nil)
	long := strings.Repeat("<", MaxNameBytes)
	most := `"` + strings.Repeat("<", maxNoteBytes-2) + `"`
	r.ok(r.g.Note(r.ctx, Note{Actor: long, Action: long, Reason: long, Before: most, After: most}))
	if n := len(r.told(EventNote)[0].Data); n > MaxEventData {
		t.Fatalf("%d bytes", n)
	}
	s := newSheet(&Plan{}, &Loaded{})
	c := &cell{Cell: &Cell{Latch: 100}, limit: &Constraint{
		Kind: KindMoney, Scope: ScopeTeamUser, Subject: long + "/" + long, Policy: long, Rule: long, Calendar: quota.Calendar{Period: quota.Month}, thresholds: []policy.Percent{100},
	}}
	s.crossed(c)
	s.turned(&Record{}, &Record{State: StateSettled, Flags: FlagCostUncertain | FlagOverrun}, &terms{keyID: long, teamID: long, user: long, model: long})
	if len(s.events) != 3 {
		t.Fatalf("%d events", len(s.events))
	}
	for _, e := range s.events {
		if len(e.Data) > MaxEventData || len(e.ID) > 200 || len(e.Stream) > 200 {
			t.Fatalf("%s: %d bytes", e.ID, len(e.Data))
		}
	}
}
