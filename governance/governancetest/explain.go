package governancetest

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

func explainCases() []scenario {
	return []scenario{
		{name: "EqualsAdmit", run: explainEquals},
		{name: "ReservesNothing", run: explainNothing},
		{name: "StaleAndRevoked", run: explainStale},
		{name: "SelectionIsChecked", run: explainSelection},
		{name: "InvalidIsRefused", run: explainInvalid},
		{name: "PrimitiveR26VerdictOfOneInstant", run: explainConsistent},
	}
}

// explainEquals asks both, many times, over every kind of state.
func explainEquals(e *env) {
	seed := uint64(time.Now().UnixNano())
	e.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	e.team("team-1", keys.Limits{TokensPerMinute: keys.Limit(500), RequestsPerMinute: keys.Limit(30), TokensPerDay: keys.Limit(900), CostPerDay: keys.Cost(700), Concurrency: keys.Limit(6)})
	c := e.caller("team-1", keys.Limits{CostPerMonth: keys.Cost(2000), TokensPerDay: keys.Limit(600)})
	for range 150 {
		b := both(amount.Tokens(r.IntN(300)), amount.MicroUSD(r.IntN(250)))
		if r.IntN(5) == 0 {
			b.Cost, b.Free = 0, true
		} else if r.IntN(20) == 0 {
			b.Cost, b.Unpriced = 0, true
		}
		x, err := e.g.Explain(e.ctx, request(c, b))
		e.ok(err)
		p, err := e.g.Admit(e.ctx, request(c, b))
		var refusal *governance.Refusal
		switch {
		case err == nil:
			if !x.Admitted || x.Refusal != nil {
				e.Fatalf("admitted %+v, explained %+v", b, x.Refusal)
			}
			if r.IntN(4) > 0 {
				e.settle(p, someOutcomes()[r.IntN(6)])
			}
		case errors.As(err, &refusal):
			if x.Admitted || x.Refusal == nil || x.Refusal.Reason != refusal.Reason || x.Refusal.Retryable != refusal.Retryable ||
				len(x.Refusal.All) != len(refusal.All) || x.Refusal.Verdict.Constraint.ID != refusal.Verdict.Constraint.ID ||
				x.Refusal.Verdict.Consumed != refusal.Verdict.Consumed {
				e.Fatalf("refused %v, explained %v", refusal, x.Refusal)
			}
			e.advance(time.Duration(r.IntN(20)) * time.Second)
		default:
			e.Fatalf("admit: %v", err)
		}
		if r.IntN(30) == 0 {
			e.advance(24 * time.Hour)
		}
	}
}

func explainNothing(e *env) {
	c := e.spender()
	e.admit(c, both(10, 10))
	ids := e.constraintsOf(c)
	before := e.snapshot(ids...)
	for range 20 {
		x, err := e.g.Explain(e.ctx, request(c, both(100, 70)))
		e.ok(err)
		e.equal("admitted", x.Admitted, true)
		e.equal("verdicts", len(x.Verdicts), 5)
	}
	e.unchanged(before, ids...)
}

func explainStale(e *env) {
	c := e.spender()
	e.limitKey(c.id, keys.LimitsChange{TokensPerDay: keys.Set(keys.Limit(7))})
	_, err := e.g.Explain(e.ctx, request(c, both(1, 1)))
	e.is(err, governance.ErrStale)
	e.resolve(c)
	x, err := e.g.Explain(e.ctx, request(c, both(8, 1)))
	e.ok(err)
	e.equal("reason", x.Refusal.Reason, governance.ReasonNeverFits)
	_, err = e.keys.RevokeKey(e.ctx, keys.RevokeKey{ID: c.id})
	e.ok(err)
	x, err = e.g.Explain(e.ctx, request(c, both(1, 1)))
	e.ok(err)
	e.equal("admitted", x.Admitted, false)
	e.equal("reason", x.Refusal.Reason, governance.ReasonUnauthenticated)
}

func explainSelection(e *env) {
	e.team("team-1", everyLimit())
	c := e.create(keys.CreateKey{TeamID: "team-1", AllowedModels: []string{"model-2"}})
	x, err := e.g.Explain(e.ctx, request(c, both(1, 1)))
	e.ok(err)
	e.equal("admitted", x.Admitted, false)
	e.equal("reason", x.Refusal.Reason, governance.ReasonModel)
}

func explainInvalid(e *env) {
	c := e.spender()
	_, err := e.g.Explain(e.ctx, request(c, both(-1, 1)))
	e.is(err, governance.ErrInvalid)
	_, err = e.g.Explain(e.ctx, governance.Request{})
	e.is(err, governance.ErrInvalid)
	_, err = e.g.Usage(e.ctx, governance.UsageQuery{})
	e.is(err, governance.ErrInvalid)
}

func explainConsistent(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(1000)})
	c := e.caller("team-1", keys.Limits{})
	out := e.flood(60, func(int) (*governance.Permit, error) {
		p, err := e.g.Admit(e.ctx, request(c, tokens(50)))
		var r *governance.Refusal
		if errors.As(err, &r) {
			v := r.Verdict
			if v.Consumed+v.Uncertain+v.Reserved+v.Granted+v.Need <= v.Limit || v.Remaining() >= v.Need {
				e.Errorf("refused, and the numbers say that it fits: %+v", v)
			}
		}
		return p, err
	})
	e.wantAdmitted(out, 20)
}

func usageCases() []scenario {
	return []scenario{
		{name: "ListsEveryConstraint", run: usageLists},
		{name: "OfNewCallerIsZero", run: usageNew},
		{name: "RollsWithTheClock", run: usageRolls},
	}
}

func usageLists(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	e.settle(e.admit(c, both(100, 70)), governance.Used(40, 30))
	usage, err := e.g.Usage(e.ctx, governance.UsageQuery{Principal: c.p})
	e.ok(err)
	e.equal("verdicts", len(usage.Verdicts), 12)
	for i, v := range usage.Verdicts {
		if i > 0 && usage.Verdicts[i-1].Constraint.Scope > v.Constraint.Scope {
			e.Fatalf("verdict %d of scope %s comes behind scope %s", i, v.Constraint.Scope, usage.Verdicts[i-1].Constraint.Scope)
		}
		if v.Reason != 0 || v.Constraint.Limit != v.Limit || v.Limit == 0 {
			e.Fatalf("verdict %+v", v)
		}
		if v.Constraint.Rule == "cost_per_month" && v.Remaining() != 1_000_000-30 {
			e.Fatalf("remaining %d", v.Remaining())
		}
	}
}

func usageNew(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	usage, err := e.g.Usage(e.ctx, governance.UsageQuery{Principal: c.p})
	e.ok(err)
	for _, v := range usage.Verdicts {
		if v.Consumed != 0 || v.Reserved != 0 || v.Remaining() != v.Limit {
			e.Fatalf("nothing happened, and the verdict is %+v", v)
		}
	}
	e.equal("accounts", len(e.everyAccount()), 0) // looking created nothing
}

func usageRolls(e *env) {
	c := e.daily(100, 1000)
	e.settle(e.admit(c, dollars(60)), governance.Used(0, 60))
	before := e.snapshot()
	e.advance(24 * time.Hour)
	e.held(c, governance.ScopeTeam, "cost_per_day", 0, 0, 0)
	e.held(c, governance.ScopeTeam, "cost_per_month", 60, 0, 0)
	e.unchanged(before) // nothing has to run at midnight
}
