package governance

import (
	"context"
	"testing"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

// ruled is a rig with policies.
type ruled struct {
	*rig
	memory *policy.Memory
	p      *keys.Principal // of team red
}

func newRuled(t *testing.T, profile policy.Profile) *ruled {
	t.Helper()
	r := &ruled{rig: newRig(t, nil), memory: policy.NewMemory()}
	r.shelf.policies = r.memory
	g, err := New(Stores{Store: r.shelf, Keys: r.registry, Policies: r.memory, Profile: profile}, &r.g.options)
	r.ok(err)
	r.g = g
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = g.Close(ctx)
	})
	r.p = r.caller("red", "k", keys.Limits{}, keys.Limits{})
	return r
}

// put puts documents about the team in force, each of one rule or more, in place of what was.
func (r *ruled) put(documents ...[]policy.Rule) {
	r.Helper()
	now, err := r.memory.Load(r.ctx)
	r.ok(err)
	edit := policy.Replace{Expect: now.Generation}
	for i, rules := range documents {
		edit.Documents = append(edit.Documents, policy.Document{Name: string(rune('a' + i)), Subject: policy.Subject{Team: "red"}, Rules: rules})
	}
	_, err = r.memory.Replace(r.ctx, edit)
	r.ok(err)
}

// month is a budget of so many thousandths of a dollar.
func month(milliUSD int64, hard bool) policy.Rule {
	rule := policy.Rule{Name: "month", FailurePolicy: policy.FailOpen, Budget: &policy.Budget{
		LimitMilliUSD: milliUSD, HardCap: hard, Calendar: quota.Calendar{Period: quota.Month},
	}}
	if hard {
		rule.FailurePolicy = policy.FailClosed
	}
	return rule
}

// half replaces model-1 by model-2 from half of the budget on.
func half(strict bool) policy.Rule {
	return policy.Rule{Name: "half", FailurePolicy: policy.FailOpen, Routing: &policy.Routing{Tiers: []policy.RoutingTier{
		{Threshold: 50, Strict: strict, Substitutions: map[string]string{"model-1": "model-2"}},
	}}}
}

func milliUSD(n int64) Bound { return Bound{Cost: amount.MicroUSD(n * 1000)} }

func (r *ruled) ask(b Bound) error {
	_, err := r.g.Admit(r.ctx, Request{Principal: r.p, Model: "model-1", Bound: b})
	return err
}

// latch is what is stored of the month's budget.
func (r *ruled) latch() (latch policy.Percent) {
	r.Helper()
	r.shelf.with(func() {
		for key := range r.shelf.cells {
			c := r.shelf.cell(key)
			latch = max(latch, c.Latch)
		}
	})
	return latch
}

func TestPoliciesAreThoseInForce(t *testing.T) {
	r := newRuled(t, policy.Shared)
	r.put([]policy.Rule{month(4, true)})
	permit := r.admit(r.p, milliUSD(2))
	r.put([]policy.Rule{month(3, true)})
	mark, enforced, err := r.g.Policies(r.ctx) // before anything was decided by them
	r.ok(err)
	now, err := r.memory.Mark(r.ctx)
	r.ok(err)
	if limits := enforced.Match("red", "")[0].Rule.Limits(); mark != now || limits[0].Amount != 3000 {
		t.Fatalf("mark %+v, limits %+v", mark, limits)
	}
	r.put([]policy.Rule{month(2, true)})
	if refusal := r.refused(r.ask(milliUSD(1)), ReasonReserved); refusal.Verdict.Limit != 2000 {
		t.Fatalf("refusal %+v", refusal)
	}
	r.put([]policy.Rule{month(3, true)})
	r.refused(permit.Raise(r.ctx, milliUSD(4)), ReasonReserved)
	r.ok(permit.Raise(r.ctx, milliUSD(3)))
	r.put()
	r.ok(r.ask(milliUSD(9)))
	r.verify()
}

func TestMeterAndCap(t *testing.T) {
	r := newRuled(t, policy.Shared)
	r.put([]policy.Rule{month(1, false)}, []policy.Rule{month(5, true)})
	r.ok(r.ask(milliUSD(3))) // above the meter
	r.ok(r.ask(milliUSD(2)))
	if refusal := r.refused(r.ask(milliUSD(1)), ReasonReserved); refusal.Verdict.Constraint.Policy != "b" || len(refusal.All) != 1 {
		t.Fatalf("refusal %+v", refusal)
	}
	r.verify()
}

// What a rule forbids outright is compared with the store's before anybody is told.
func TestGateAndModels(t *testing.T) {
	r := newRuled(t, policy.Local) // tokens of a policy cannot be counted there
	r.put([]policy.Rule{{Name: "day", FailurePolicy: policy.FailClosed, TokenQuota: &policy.TokenQuota{LimitTokens: 9, Calendar: quota.Calendar{Period: quota.Day}}}})
	r.refused(r.ask(milliUSD(1)), ReasonGated)
	r.put([]policy.Rule{{Name: "models", FailurePolicy: policy.FailClosed, ModelAccess: &policy.ModelAccess{Allow: []string{"model-2"}}}})
	r.refused(r.ask(milliUSD(1)), ReasonModel)
	r.put()
	r.ok(r.ask(milliUSD(1)))
}

func TestThresholdIsLatched(t *testing.T) {
	r := newRuled(t, policy.Shared)
	r.put([]policy.Rule{month(10, true), half(false)})
	r.ok(r.admit(r.p, milliUSD(6)).Cancel(r.ctx))
	r.put([]policy.Rule{month(1000, true), half(false)})
	r.ok(r.ask(milliUSD(1)))
	usage, err := r.g.Usage(r.ctx, UsageQuery{Principal: r.p})
	if err != nil || usage.Verdicts[0].Tier != 50 || r.latch() != 50 {
		t.Fatalf("%+v, %v, latch %d", usage.Verdicts, err, r.latch())
	}
}

func TestSettlementLatches(t *testing.T) {
	for _, edited := range []bool{false, true} {
		r := newRuled(t, policy.Shared)
		r.put([]policy.Rule{month(10, false), half(false)})
		permit := r.admit(r.p, milliUSD(6))
		want := policy.Percent(50)
		if edited { // what the threshold was then says nothing any more
			r.put([]policy.Rule{month(1000, false), half(false)})
			want = 0
		}
		r.ok(permit.Settle(r.ctx, Used(0, 6000)))
		if r.latch() != want {
			t.Fatalf("edited %v: latch %d, want %d", edited, r.latch(), want)
		}
	}
}

// TestSettlementLatchesByWhatIsInForce: nobody may come to a window after a settlement, so that it goes by an edit that
// was read meanwhile, also where the store was away and the outcome was recorded later.
func TestSettlementLatchesByWhatIsInForce(t *testing.T) {
	for _, away := range []bool{false, true} {
		r := newRuled(t, policy.Shared)
		r.put([]policy.Rule{month(1000, false)})
		permit := r.admit(r.p, milliUSD(6))
		r.put([]policy.Rule{month(10, false), half(false)})
		_, _, err := r.g.Policies(r.ctx)
		r.ok(err)
		if away {
			up := r.down()
			r.unsettled(permit.Settle(r.ctx, Used(0, 6000)), permit.ID())
			up()
			r.until("the outcome is recorded", func() bool { return r.stored(permit.ID()).State == StateSettled })
		} else {
			r.ok(permit.Settle(r.ctx, Used(0, 6000)))
		}
		if r.latch() != 50 {
			t.Fatalf("away %v: latch %d", away, r.latch())
		}
	}
}

func TestStrictTierReplacesTheModel(t *testing.T) {
	r := newRuled(t, policy.Shared)
	r.put([]policy.Rule{month(10, false), half(true)})
	before, err := r.g.Route(r.ctx, r.p, "model-1")
	r.ok(err)
	permit, err := r.g.Admit(r.ctx, Request{Principal: r.p, Model: "model-1", Route: before, Bound: milliUSD(5)})
	r.ok(err)
	r.ok(permit.Settle(r.ctx, Used(0, 5000)))
	_, err = r.g.Admit(r.ctx, Request{Principal: r.p, Model: "model-1", Route: before, Bound: milliUSD(1)})
	r.is(err, ErrStale)
	r.refused(r.ask(milliUSD(1)), ReasonModel) // nobody routed
	after, err := r.g.Route(r.ctx, r.p, "model-1")
	if err != nil || before.Model != "model-1" || after.Model != "model-2" {
		t.Fatalf("%+v, then %+v, %v", before, after, err)
	}
	_, err = r.g.Admit(r.ctx, Request{Principal: r.p, Model: after.Model, Route: after, Bound: milliUSD(1)})
	r.ok(err)
}

// Equal policies of another authority are not those that were decided by: their accounts are elsewhere.
func TestPoliciesOfAnotherAuthority(t *testing.T) {
	r := newRuled(t, policy.Shared)
	rules := []policy.Rule{month(4, true)}
	r.put(rules)
	r.ok(r.ask(milliUSD(1)))
	here, there := r.memory, policy.NewMemory()
	move := func(to *policy.Memory) {
		r.memory, r.g.rulebook.store = to, to
		r.shelf.with(func() { r.shelf.policies = to })
	}
	move(there)
	r.put(rules)
	r.is(r.ask(milliUSD(1)), ErrUnavailable)
	_, _, err := r.g.Policies(r.ctx)
	r.is(err, ErrUnavailable)
	move(here)
	r.ok(r.ask(milliUSD(1)))
}
