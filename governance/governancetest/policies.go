package governancetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

func policiesCases() []scenario {
	needs := Features{Policies: true}
	return []scenario{
		{name: "EveryRuleThatMatchesApplies", needs: needs, run: policiesApply},
		{name: "InForceWhenTheEditReturns", needs: needs, run: policiesInForce},
		{name: "DeletedAndAddedAgainGoesOn", needs: needs, run: policiesReturn},
		{name: "LateSettlementAfterDeletion", needs: needs, run: policiesLate},
		{name: "SoftRefusesNothing", needs: needs, run: policiesSoft},
		{name: "MetersRefuseWhatHasNoPrice", needs: needs, run: policiesUnpriced},
		{name: "SoftBecomesHard", needs: needs, run: policiesHarden},
		{name: "SoftDoesNotWeakenHard", needs: needs, run: policiesBoth},
		{name: "PendingSwitchesNoTier", needs: needs, run: policiesPending},
		{name: "TierStaysUntilTheWindowEnds", needs: needs, run: policiesLatch},
		{name: "SettlementLatches", needs: needs, run: policiesSettled},
		{name: "StrictTierReplacesTheModel", needs: needs, run: policiesStrict},
		{name: "OptionalTierLeavesTheModel", needs: needs, run: policiesOptional},
		{name: "ListsOfModelsAreIntersected", needs: needs, run: policiesModels},
		{name: "UnenforceableGatesItsSubject", needs: needs, run: policiesGate},
		{name: "EditsDoNotDisturbOthers", needs: needs, run: policiesOthers},
		{name: "NoAdmissionAboveALoweredBudget", needs: needs, run: policiesRace},
		{name: "RaiseUnderThePolicyInForce", needs: needs, run: policiesRaise},
		{name: "TwoHandlesOneSet", needs: Features{Policies: true, Shared: true}, run: policiesShared},
	}
}

// policies puts a set in force, whatever was.
func (e *env) policies(documents ...policy.Document) {
	e.Helper()
	e.ok(replacePolicies(e.ctx, e.b.Backend().Policies, documents...))
}

func replacePolicies(ctx context.Context, store policy.Store, documents ...policy.Document) error {
	now, err := store.Load(ctx)
	if err == nil {
		_, err = store.Replace(ctx, policy.Replace{Documents: documents, Expect: now.Generation})
	}
	return err
}

func document(name string, s policy.Subject, rules ...policy.Rule) policy.Document {
	return policy.Document{Name: name, Subject: s, Rules: rules}
}

func budget(name string, milliUSD int64, hard bool) policy.Rule {
	r := policy.Rule{Name: name, FailurePolicy: policy.FailOpen, Budget: &policy.Budget{
		LimitMilliUSD: milliUSD, HardCap: hard, Calendar: quota.Calendar{Period: quota.Month},
	}}
	if hard {
		r.FailurePolicy = policy.FailClosed
	}
	return r
}

// thrift replaces model-1 by model-2 from half of a budget on.
func thrift(strict bool) policy.Rule {
	return policy.Rule{Name: "thrift", FailurePolicy: policy.FailOpen, Routing: &policy.Routing{Tiers: []policy.RoutingTier{
		{Threshold: 50, Strict: strict, Substitutions: map[string]string{"model-1": "model-2"}},
	}}}
}

var team1 = policy.Subject{Team: "team-1"}

const milli = 1000 // microUSD

func policiesApply(e *env) {
	e.team("team-1", keys.Limits{})
	e.team("team-2", keys.Limits{})
	a := e.create(keys.CreateKey{TeamID: "team-1", Owner: "ada"})
	b := e.create(keys.CreateKey{TeamID: "team-2", Owner: "ada"})
	c := e.create(keys.CreateKey{TeamID: "team-1", Owner: "bob"})
	e.policies(
		document("of-team", team1, budget("month", 10, true)),
		document("of-user", policy.Subject{User: "ada"}, budget("month", 6, true)),
		document("of-both", policy.Subject{Team: "team-1", User: "ada"}, budget("month", 3, true)),
	)
	// In every profile that shares its store; where only teams are known, the others gate.
	if _, enforced, err := e.g.Policies(e.ctx); err != nil || len(enforced.Gates()) > 0 {
		e.ok(err)
		e.refused(a, dollars(1), governance.ReasonGated)
		e.admit(c, dollars(10*milli))
		e.refused(c, dollars(1), governance.ReasonReserved)
		return
	}
	e.admit(a, dollars(3*milli))
	r := e.refused(a, dollars(1), governance.ReasonReserved)
	e.equal("policy", r.Verdict.Constraint.Policy, "of-both")
	e.admit(b, dollars(3*milli)) // the same user elsewhere
	r = e.refused(b, dollars(1), governance.ReasonReserved)
	e.equal("policy", r.Verdict.Constraint.Policy, "of-user")
	e.admit(c, dollars(7*milli))
	r = e.refused(c, dollars(1), governance.ReasonReserved)
	e.equal("policy", r.Verdict.Constraint.Policy, "of-team")
}

func policiesInForce(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	e.admit(c, dollars(5*milli)) // ungoverned; the Governor has read the empty set
	e.policies(document("p", team1, budget("month", 4, true)))
	e.admit(c, dollars(4*milli))
	e.refused(c, dollars(1), governance.ReasonReserved)
	e.policies(document("p", team1, budget("month", 6, true)))
	e.limits(e.g, 6*milli)
	e.admit(c, dollars(2*milli))
	e.refused(c, dollars(1), governance.ReasonReserved)
	e.policies(document("p", team1, budget("month", 1, true)))
	e.refused(c, dollars(1), governance.ReasonReserved)
	e.policies()
	e.admit(c, dollars(9*milli))
}

func policiesReturn(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	e.policies(document("p", team1, budget("month", 5, true)))
	e.settle(e.admit(c, dollars(3*milli)), governance.Used(0, 3*milli))
	e.policies()
	e.settle(e.admit(c, dollars(100*milli)), governance.Used(0, 100*milli))
	e.policies(document("p", team1, budget("month", 5, true)))
	e.held(c, governance.ScopeTeam, "month", 3*milli, 0, 0)
	e.admit(c, dollars(2*milli))
	e.refused(c, dollars(1), governance.ReasonReserved)
}

// policiesUnpriced: a meter cannot count what nothing bounds either, and is not filled by it.
func policiesUnpriced(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	unpriced := governance.Bound{Tokens: 10, Unpriced: true}
	e.admit(c, unpriced)
	for _, hard := range []bool{false, true} {
		e.policies(document("p", team1, budget("month", 5, hard), thrift(true)))
		r := e.refused(c, unpriced, governance.ReasonUnpriced)
		e.equal("policy", r.Verdict.Constraint.Policy, "p")
		e.held(c, governance.ScopeTeam, "month", 0, 0, 0)
		e.settle(e.admit(c, dollars(1)), governance.NotSent()) // no tier was reached
	}
	e.policies()
	e.admit(c, unpriced)
}

func policiesLate(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	e.policies(document("p", team1, budget("month", 5, true)))
	p := e.admit(c, dollars(3*milli))
	account := e.account(c, governance.ScopeTeam, "month")
	e.policies()
	e.settle(p, governance.Used(0, 2*milli))
	cell := e.cell(account)
	e.equal("consumed", cell.Account.Consumed, int64(2*milli))
	e.equal("reserved", cell.Account.Reserved, int64(0))
}

func policiesSoft(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	e.policies(document("p", team1, budget("month", 5, false)))
	e.admit(c, dollars(100*milli))
	e.settle(e.admit(c, dollars(7*milli)), governance.Used(0, 8*milli))
	e.held(c, governance.ScopeTeam, "month", 8*milli, 0, 100*milli)
	if v := e.verdict(c, governance.ScopeTeam, "month"); !v.Constraint.Soft || v.Limit != 5*milli || v.Reason != 0 {
		e.Fatalf("a meter says %+v", v)
	}
	// What is impossible stops a meter too: nobody knows what it shows.
	e.settle(e.admit(c, dollars(1)), governance.Outcome{Cost: governance.Measure{Certainty: governance.Impossible}, Tokens: governance.Measure{Certainty: governance.Known}})
	e.refused(c, dollars(1), governance.ReasonFrozen)
}

func policiesHarden(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	e.policies(document("p", team1, budget("month", 5, false)))
	open := e.admit(c, dollars(7*milli))
	e.policies(document("p", team1, budget("month", 10, true)))
	e.admit(c, dollars(3*milli))
	e.refused(c, dollars(1), governance.ReasonReserved)
	e.settle(open, governance.Used(0, 9*milli)) // reported later, counted all the same
	e.held(c, governance.ScopeTeam, "month", 9*milli, 0, 3*milli)
	e.refused(c, dollars(1), governance.ReasonReserved)
}

func policiesBoth(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	free := policy.Rule{Name: "open", FailurePolicy: policy.FailOpen, Budget: &policy.Budget{Unlimited: true}}
	e.policies(
		document("a", team1, budget("meter", 1000, false), free),
		document("b", team1, budget("cap", 5, true)),
	)
	e.admit(c, dollars(5*milli))
	r := e.refused(c, dollars(1), governance.ReasonReserved)
	e.equal("rule", r.Verdict.Constraint.Rule, "cap")
}

// tierOf is the tier of a budget as Usage shows it.
func (e *env) tierOf(c *caller) policy.Percent {
	e.Helper()
	return e.verdict(c, governance.ScopeTeam, "month").Tier
}

func policiesPending(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	e.policies(document("p", team1, budget("month", 10, false), thrift(true)))
	p := e.admit(c, dollars(9*milli))
	e.equal("tier while it is pending", e.tierOf(c), policy.Percent(0))
	e.equal("model", e.route(c).Model, "model-1")
	e.settle(p, governance.Unknown())
	e.equal("tier once it is uncertain", e.tierOf(c), policy.Percent(50))
}

func (e *env) route(c *caller) *governance.Route {
	e.Helper()
	r, err := e.g.Route(e.ctx, c.p, "model-1")
	e.ok(err)
	return r
}

func policiesLatch(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	e.policies(document("p", team1, budget("month", 10, true), thrift(false)))
	e.ok(e.admit(c, dollars(6*milli)).Cancel(e.ctx))
	e.equal("tier after a refund", e.tierOf(c), policy.Percent(50))
	e.policies(document("p", team1, budget("month", 1000, true), thrift(false)))
	e.equal("tier after an edit", e.tierOf(c), policy.Percent(50))
	account := e.account(c, governance.ScopeTeam, "month")
	e.equal("what is stored", e.cell(account).Latch, policy.Percent(50))
	e.advance(40 * 24 * time.Hour)
	e.resolve(c)
	e.admit(c, dollars(1))
	e.equal("tier in the next window", e.tierOf(c), policy.Percent(0))
}

func policiesSettled(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	e.policies(document("p", team1, budget("month", 10, false), thrift(true)))
	p := e.admit(c, dollars(6*milli))
	account := e.account(c, governance.ScopeTeam, "month")
	e.settle(p, governance.Unknown())
	e.equal("latch", e.cell(account).Latch, policy.Percent(50))
	_, err := e.g.Resolve(e.ctx, governance.Evidence{ID: p.ID(), Outcome: governance.NotSent(), Actor: "op", Reason: "never arrived"})
	e.ok(err)
	e.equal("latch after the resolution", e.cell(account).Latch, policy.Percent(50))
}

func policiesStrict(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	e.policies(document("p", team1, budget("month", 10, false), thrift(true)))
	before := e.route(c)
	e.equal("model", before.Model, "model-1")
	e.settle(e.admit(c, dollars(5*milli)), governance.Used(0, 5*milli))

	r := request(c, dollars(1))
	r.Route = before // selected before the tier was reached
	_, err := e.g.Admit(e.ctx, r)
	e.is(err, governance.ErrStale)
	e.refused(c, dollars(1), governance.ReasonModel) // nobody routed: the model must not be used any more

	after := e.route(c)
	e.equal("model", after.Model, "model-2")
	r.Route, r.Model = after, after.Model
	_, err = e.g.Admit(e.ctx, r)
	e.ok(err)
}

func policiesOptional(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	e.policies(document("p", team1, budget("month", 10, false), thrift(false)))
	before := e.route(c)
	e.settle(e.admit(c, dollars(5*milli)), governance.Used(0, 5*milli))
	r := request(c, dollars(1))
	r.Route = before
	_, err := e.g.Admit(e.ctx, r)
	e.ok(err)
	e.admit(c, dollars(1))
	e.equal("model", e.route(c).Model, "model-2")
}

func policiesModels(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	allow := func(models ...string) policy.Rule {
		return policy.Rule{Name: "models", FailurePolicy: policy.FailClosed, ModelAccess: &policy.ModelAccess{Allow: models}}
	}
	e.policies(document("a", team1, allow("model-1", "model-2")))
	e.admit(c, tokens(1))
	e.policies(document("a", team1, allow("model-1", "model-2")), document("b", team1, allow("model-2", "model-3")))
	e.refused(c, tokens(1), governance.ReasonModel)
	for model, want := range map[string]bool{"model-2": true, "model-3": false, "": false} {
		r := request(c, tokens(1))
		r.Model = model
		_, err := e.g.Admit(e.ctx, r)
		if want {
			e.ok(err)
		} else {
			e.refusal(err, governance.ReasonModel)
		}
	}
}

func policiesGate(e *env) {
	e.team("team-1", keys.Limits{})
	e.team("team-2", keys.Limits{})
	a, b := e.caller("team-1", keys.Limits{}), e.caller("team-2", keys.Limits{})
	e.policies(document("p", team1, policy.Rule{Name: "day", FailurePolicy: policy.FailClosed, TokenQuota: &policy.TokenQuota{
		LimitTokens: 100, Calendar: quota.Calendar{Period: quota.Day},
	}}))
	if e.b.Backend().Profile == policy.Shared { // the only one that can enforce it
		e.admit(a, tokens(100))
		e.refused(a, tokens(1), governance.ReasonReserved)
	} else {
		r := e.refused(a, tokens(1), governance.ReasonGated)
		e.equal("rule", fmt.Sprint(r.Gate.Policy, " ", r.Gate.Rule), "p day")
		_, err := e.g.Route(e.ctx, a.p, "model-1")
		e.refusal(err, governance.ReasonGated)
		x, err := e.g.Explain(e.ctx, request(a, tokens(1)))
		e.ok(err)
		e.refusal(x.Refusal, governance.ReasonGated)
	}
	e.admit(b, tokens(1))
	e.policies()
	e.admit(a, tokens(1))
}

func policiesOthers(e *env) {
	e.team("team-1", keys.Limits{})
	e.team("team-2", keys.Limits{})
	c := e.caller("team-2", keys.Limits{})
	e.policies(document("mine", policy.Subject{Team: "team-2"}, budget("month", 1_000_000, true)))
	var calls [8]atomic.Int64
	var done atomic.Bool
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			for !done.Load() || calls[i].Load() < 25 {
				p, err := e.g.Admit(e.ctx, request(c, dollars(1)))
				if err != nil {
					e.background(err)
					return
				}
				e.background(p.Cancel(e.ctx))
				calls[i].Add(1)
			}
		})
	}
	for i := range int64(10) {
		// A call that two edits overtake is refused. So each caller ends the call that the last edit met, and one
		// more, before the next.
		for j := range calls {
			for before := calls[j].Load(); calls[j].Load() < before+2 && !e.Failed() && e.ctx.Err() == nil; {
				time.Sleep(time.Millisecond)
			}
		}
		e.background(replacePolicies(e.ctx, e.b.Backend().Policies,
			document("mine", policy.Subject{Team: "team-2"}, budget("month", 1_000_000, true)),
			document("other", team1, budget("month", 5+i, true))))
	}
	done.Store(true)
	wg.Wait()
}

func policiesRace(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	const high, low = 1000, 5
	asking := *c // c is resolved again meanwhile
	e.policies(document("p", team1, budget("month", high, true)))
	var stop atomic.Bool
	var lowered atomic.Bool
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for !stop.Load() {
				after := lowered.Load() // the edit had returned before the call began
				p, err := e.g.Admit(e.ctx, request(&asking, dollars(milli)))
				var refused *governance.Refusal
				switch {
				case err == nil && after:
					e.Errorf("permit %s was given above the limit in force", p.ID())
					return
				case err != nil && !errors.As(err, &refused):
					e.background(err)
					return
				}
			}
		})
	}
	e.eventually("twenty admissions", func() bool {
		return e.verdict(c, governance.ScopeTeam, "month").Reserved >= 20*milli
	})
	e.background(replacePolicies(e.ctx, e.b.Backend().Policies, document("p", team1, budget("month", low, true))))
	lowered.Store(true)
	for range 20 {
		_, _ = e.g.Admit(e.ctx, request(c, dollars(milli)))
	}
	stop.Store(true)
	wg.Wait()
}

func policiesRaise(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	e.policies(document("p", team1, budget("month", 10, true)))
	p := e.admit(c, dollars(4*milli))
	e.policies(document("p", team1, budget("month", 5, true)))
	e.refusal(p.Raise(e.ctx, dollars(6*milli)), governance.ReasonReserved)
	e.ok(p.Raise(e.ctx, dollars(5*milli)))
	e.policies()
	e.ok(p.Raise(e.ctx, dollars(50*milli))) // in the captured account, without a limit
	e.settle(p, governance.Used(0, 50*milli))
}

// limits checks that the Governor's policies are one budget of team-1, and in force.
func (e *env) limits(g *governance.Governor, want int64) {
	e.Helper()
	mark, enforced, err := g.Policies(e.ctx)
	e.ok(err)
	now, err := e.b.Backend().Policies.Load(e.ctx)
	e.ok(err)
	e.equal("mark", mark, now.Mark)
	last, _ := g.LastPolicies()
	e.equal("the mark that was read last", last, mark)
	for _, m := range enforced.Match("team-1", "") {
		for _, l := range m.Rule.Limits() {
			e.equal("limit", l.Amount, want)
			want = 0
		}
	}
	e.equal("limits that are missing", want, int64(0))
}

func policiesShared(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	other := e.h.Reopen(e, e.b)
	g := e.governor(other, nil)
	e.policies(document("p", team1, budget("month", 5, true)))
	if other.Backend().Profile != policy.Shared {
		return // each process reads its own files
	}
	for i, governor := range []*governance.Governor{g, e.g, g, e.g, g} {
		if _, err := governor.Admit(e.ctx, request(c, dollars(milli))); err != nil {
			e.Fatalf("admission %d: %v", i, err)
		}
	}
	for _, governor := range []*governance.Governor{g, e.g} {
		_, err := governor.Admit(e.ctx, request(c, dollars(1)))
		e.refusal(err, governance.ReasonReserved)
	}
	e.ok(replacePolicies(e.ctx, other.Backend().Policies, document("p", team1, budget("month", 6, true))))
	for _, governor := range []*governance.Governor{g, e.g} { // neither has decided anything since
		e.limits(governor, 6*milli)
	}
	e.admit(c, dollars(milli))
	_, err := g.Admit(e.ctx, request(c, dollars(1)))
	e.refusal(err, governance.ReasonReserved)
}
