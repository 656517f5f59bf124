package governancetest

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

func settleCases() []scenario {
	return slices.Concat([]scenario{
		{name: "KnownReleasesTheUnused", run: settleKnown},
		{name: "KnownZeroIsNotAbsent", also: "ReplayS2KnownZero", run: settleZero},
		{name: "UnknownKeepsTheBound", also: "ReplayS5TimeoutAfterTheResult EdgeMissingUsageKeepsTheBound", run: settleUnknown},
		{name: "ObservedIsStoredApart", also: "ReplayS1DisconnectKeepsTheBound EdgeBrokenStreamSettlesSomething", run: settleObserved},
		{name: "TokensAndCostAreApart", also: "ReplayS4OnlyTypedUsage", run: settleApart},
		{name: "OverrunIsRecordedInFull", run: settleOverrun},
		{name: "OverrunOwesTheRate", also: "ReplayX8DebtIsNotForgiven", run: settleOverrunRate},
		{name: "InvalidFreezes", run: settleInvalid},
		{name: "ReplayIsANoOp", also: "ReplayI5ReadHasNoAttempt", run: settleReplay},
		{name: "OtherOutcomeConflicts", run: settleConflict},
		{name: "ManyAtOnceEndOnce", run: settleRace},
		{name: "BadOutcomeIsRefused", run: settleBad},
		{name: "AfterRevocationAndDeletion", also: "EdgePolicyDeletedWhileOpen", run: settleRevoked},
		{name: "LargestAmounts", run: settleLargest},
		{name: "RaiseAndSettleInOneTransaction", run: settleWithRaise},
		{name: "FailureIsTriedAgain", run: settleTriedAgain},
		{name: "LostAnswerIsReplayed", run: settleLost},
	}, settleReplays())
}

// spender makes a caller of a team with one limit of each account and rate.
func (e *env) spender() *caller {
	e.Helper()
	e.team("team-1", keys.Limits{TokensPerMinute: keys.Limit(1000), TokensPerDay: keys.Limit(1000), CostPerDay: keys.Cost(1000), RequestsPerMinute: keys.Limit(100), Concurrency: keys.Limit(10)})
	return e.caller("team-1", keys.Limits{})
}

func settleKnown(e *env) {
	c := e.spender()
	p := e.admit(c, both(100, 70))
	e.settle(p, governance.Used(40, 30))
	e.held(c, governance.ScopeTeam, "tokens_per_day", 40, 0, 0)
	e.held(c, governance.ScopeTeam, "cost_per_day", 30, 0, 0)
	e.held(c, governance.ScopeTeam, "concurrency", 0, 0, 0)
	if d := e.debt(c); d > 40 || d < 30 {
		e.Fatalf("the rate holds %d, want the 40 that were used", d)
	}
	rec := e.record(p.ID())
	if rec.State != governance.StateSettled || rec.Flags != 0 || rec.Version != 2 || rec.EndedAt < rec.At || rec.Outcome != governance.Used(40, 30) {
		e.Fatalf("the permit is %s", describeRecord(&rec))
	}
}

func settleZero(e *env) {
	c := e.spender()
	p := e.admit(c, both(100, 70))
	e.settle(p, governance.Used(0, 0))
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 0, 0)
	e.held(c, governance.ScopeTeam, "cost_per_day", 0, 0, 0)
	e.equal("state", e.record(p.ID()).State, governance.StateSettled)
	v := e.verdict(c, governance.ScopeTeam, "requests_per_minute")
	e.equal("requests", v.Reserved, int64(1)) // it was a request all the same
}

func settleUnknown(e *env) {
	c := e.spender()
	p := e.admit(c, both(100, 70))
	e.settle(p, governance.Unknown())
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 100, 0)
	e.held(c, governance.ScopeTeam, "cost_per_day", 0, 70, 0)
	e.held(c, governance.ScopeTeam, "concurrency", 0, 0, 0) // the slot is free: the call is over
	rec := e.record(p.ID())
	if rec.State != governance.StateSettled || rec.Flags != governance.FlagTokensUncertain|governance.FlagCostUncertain {
		e.Fatalf("the permit is %s", describeRecord(&rec))
	}
	e.refused(c, tokens(901), governance.ReasonQuota) // what may have been used binds like what was
	if d := e.debt(c); d < 90 {
		e.Fatalf("the rate holds %d, want the bound of 100", d)
	}
}

func settleObserved(e *env) {
	c := e.spender()
	p := e.admit(c, both(100, 70))
	e.settle(p, governance.Observed(30, 999)) // more was seen than reserved: still only seen
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 100, 0)
	e.held(c, governance.ScopeTeam, "cost_per_day", 0, 70, 0)
	e.equal("observed tokens", e.cell(e.account(c, governance.ScopeTeam, "tokens_per_day")).Account.Observed, int64(30))
	e.equal("observed cost", e.cell(e.account(c, governance.ScopeTeam, "cost_per_day")).Account.Observed, int64(999))
	holds, err := e.g.Holds(e.ctx, governance.HoldQuery{})
	e.ok(err)
	if len(holds) != 1 || holds[0].Observed != both(30, 999) || holds[0].Bound != both(100, 70) {
		e.Fatalf("the holds are %+v", holds)
	}
}

func settleApart(e *env) {
	c := e.spender()
	known, unsure := governance.Measure{Certainty: governance.Known, Value: 40}, governance.Measure{Value: 11}
	e.settle(e.admit(c, both(100, 70)), governance.Outcome{Tokens: known, Cost: unsure})
	e.held(c, governance.ScopeTeam, "tokens_per_day", 40, 0, 0)
	e.held(c, governance.ScopeTeam, "cost_per_day", 0, 70, 0)
	e.settle(e.admit(c, both(100, 70)), governance.Outcome{Tokens: unsure, Cost: known})
	e.held(c, governance.ScopeTeam, "tokens_per_day", 40, 100, 0)
	e.held(c, governance.ScopeTeam, "cost_per_day", 40, 70, 0)
}

func settleOverrun(e *env) {
	c := e.spender()
	p := e.admit(c, both(100, 70))
	e.settle(p, governance.Used(5000, 71))
	e.held(c, governance.ScopeTeam, "tokens_per_day", 5000, 0, 0)
	e.held(c, governance.ScopeTeam, "cost_per_day", 71, 0, 0)
	e.equal("flags", e.record(p.ID()).Flags, governance.FlagOverrun)
	r := e.refused(c, tokens(0), governance.ReasonQuota)
	e.equal("remaining", r.Verdict.Remaining(), int64(0))
	holds, err := e.g.Holds(e.ctx, governance.HoldQuery{})
	e.ok(err)
	e.equal("holds", len(holds), 0) // known is known
}

func settleOverrunRate(e *env) {
	c := e.rated(60)
	e.settle(e.admit(c, tokens(10)), governance.Used(160, 0))
	r := e.refused(c, tokens(1), governance.ReasonRate)
	if r.RetryAfter < 95*time.Second || r.RetryAfter > 101*time.Second {
		e.Fatalf("a debt of 160 at 60 per minute leaves room for one in %s, want 101 s", r.RetryAfter)
	}
	e.advance(r.RetryAfter)
	e.admit(c, tokens(1))
}

func settleInvalid(e *env) {
	c := e.spender()
	other := e.caller("team-1", keys.Limits{})
	open := e.admit(other, both(10, 10))
	p := e.admit(c, both(100, 70))
	e.settle(p, impossible())
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 100, 10)
	rec := e.record(p.ID())
	if rec.Flags != governance.FlagTokensUncertain|governance.FlagCostUncertain|governance.FlagInvalid || rec.Outcome.Tokens.Value != 0 {
		e.Fatalf("the permit is %s", describeRecord(&rec))
	}
	e.refused(other, both(1, 1), governance.ReasonFrozen)
	frozen, err := e.g.FrozenAccounts(e.ctx, governance.AccountQuery{Limit: 10})
	e.ok(err)
	e.equal("frozen accounts", len(frozen), 2)
	e.settle(open, governance.Used(5, 5)) // what was admitted before is settled
	e.settle(p, impossible())             // and the report can be repeated
	// Only the quantity that is impossible freezes.
	e.team("team-2", keys.Limits{TokensPerDay: keys.Limit(100), CostPerDay: keys.Cost(100)})
	c = e.caller("team-2", keys.Limits{})
	e.settle(e.admit(c, both(1, 1)), governance.Outcome{Tokens: governance.Measure{Certainty: governance.Impossible}, Cost: governance.Measure{Certainty: governance.Known, Value: 1}})
	r := e.refused(c, both(1, 1), governance.ReasonFrozen)
	e.equal("frozen rule", r.Verdict.Constraint.Rule, "tokens_per_day")
	e.equal("number of constraints that bind", len(r.All), 1)
}

// someOutcomes are one of each kind.
func someOutcomes() []governance.Outcome {
	return []governance.Outcome{
		governance.Used(40, 30), governance.Used(0, 0), governance.Used(200, 200), governance.Unknown(), governance.Observed(3, 4), governance.NotSent(), impossible(),
		{Tokens: governance.Measure{Certainty: governance.Known, Value: 40}},
	}
}

func settleReplay(e *env) {
	for i, o := range someOutcomes() {
		team := "team-" + string(rune('a'+i))
		e.team(team, everyLimit())
		c := e.caller(team, everyLimit())
		p := e.admit(c, both(100, 70))
		e.settle(p, o)
		ids := e.constraintsOf(c)
		before := e.snapshot(ids...)
		for range 3 {
			e.settle(p, o)
		}
		e.unchanged(before, ids...)
	}
}

func settleConflict(e *env) {
	for i, o := range someOutcomes() {
		team := "team-" + string(rune('a'+i))
		e.team(team, everyLimit())
		c := e.caller(team, everyLimit())
		p := e.admit(c, both(100, 70))
		e.settle(p, o)
		before := e.snapshot()
		for j, other := range someOutcomes() {
			if j == i {
				continue
			}
			err := p.Settle(e.ctx, other)
			e.is(err, governance.ErrConflict)
			e.equal("status", governance.StatusOf(err).Code, http.StatusConflict)
		}
		e.unchanged(before)
	}
}

func settleRace(e *env) {
	c := e.spender()
	for range 10 {
		p := e.admit(c, both(50, 50))
		var wg sync.WaitGroup
		var mu sync.Mutex
		settled := map[int64]bool{}
		for i := range 24 {
			wg.Go(func() {
				n := int64(i % 3)
				err := p.Settle(e.ctx, governance.Outcome{Tokens: governance.Measure{Certainty: governance.Known, Value: n}, Cost: governance.Measure{Certainty: governance.Known}})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					settled[n] = true
				} else if !errors.Is(err, governance.ErrConflict) {
					e.Errorf("error is %v, want ErrConflict", err)
				}
			})
		}
		wg.Wait()
		e.equal("outcomes that were recorded", len(settled), 1)
	}
	e.held(c, governance.ScopeTeam, "concurrency", 0, 0, 0)
}

func settleBad(e *env) {
	c := e.spender()
	p := e.admit(c, both(100, 70))
	before := e.snapshot()
	known := func(n int64) governance.Measure { return governance.Measure{Certainty: governance.Known, Value: n} }
	for _, o := range []governance.Outcome{
		{Tokens: known(-1)}, {Cost: known(-1)}, {Tokens: known(math.MaxInt64)}, {Cost: known(int64(governance.MaxCost) + 1)},
		{Tokens: governance.Measure{Value: -1}}, {Tokens: governance.Measure{Certainty: 3}}, {Unsent: true, Tokens: known(1)}, {Unsent: true, Cost: known(0)},
	} {
		err := p.Settle(e.ctx, o)
		e.is(err, governance.ErrInvalid)
		e.unchanged(before)
	}
	e.settle(p, governance.Used(1, 1))
}

func settleRevoked(e *env) {
	c := e.spender()
	p, q := e.admit(c, both(100, 70)), e.admit(c, both(100, 70))
	key := e.account(c, governance.ScopeTeam, "cost_per_day")
	e.limitTeam("team-1", keys.LimitsChange{CostPerDay: keys.Set[*amount.MicroUSD](nil), TokensPerDay: keys.Set(keys.Limit(1))})
	e.settle(p, governance.Used(40, 30))
	e.equal("account of a deleted limit", e.cell(key).Account, quota.Account{Consumed: 30, Reserved: 70})
	_, err := e.keys.RevokeKey(e.ctx, keys.RevokeKey{ID: c.id})
	e.ok(err)
	_, err = e.keys.DeleteTeam(e.ctx, keys.DeleteTeam{ID: "team-1"})
	e.ok(err)
	e.settle(q, governance.Unknown())
	e.equal("account of a deleted team", e.cell(key).Account, quota.Account{Consumed: 30, Uncertain: 70})
}

func settleLargest(e *env) {
	l := keys.Limits{TokensPerDay: keys.Limit(math.MaxInt64), CostPerMonth: keys.Cost(math.MaxInt64)}
	e.team("team-1", l)
	c := e.caller("team-1", l)
	for range 3 {
		e.settle(e.admit(c, both(governance.MaxTokens, governance.MaxCost)), governance.Used(governance.MaxTokens, governance.MaxCost))
		e.settle(e.admit(c, both(governance.MaxTokens, governance.MaxCost)), governance.Unknown())
	}
	e.held(c, governance.ScopeTeam, "cost_per_month", 3*int64(governance.MaxCost), 3*int64(governance.MaxCost), 0)
}

// settleWithRaise has one permit raised and settled by tasks that share a
// transaction, and others beside it that must not suffer.
func settleWithRaise(e *env) {
	c := e.spender()
	p, q := e.admit(c, both(10, 10)), e.admit(c, both(10, 10))
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			if err := p.Raise(e.ctx, both(10+amount.Tokens(i), 10)); err != nil && !errors.Is(err, governance.ErrTerminal) {
				e.Errorf("raise: %v", err)
			}
		})
		wg.Go(func() {
			if err := q.Raise(e.ctx, both(20, 20)); err != nil && !errors.Is(err, governance.ErrTerminal) {
				e.Errorf("raise: %v", err)
			}
		})
	}
	wg.Go(func() { e.background(p.Settle(e.ctx, governance.Used(5, 5))) })
	wg.Wait()
	e.settle(q, governance.Used(5, 5))
	e.held(c, governance.ScopeTeam, "tokens_per_day", 10, 0, 0)
}

// settleTriedAgain: the reply is good, the reservation stands, and the Governor goes
// on trying.
func settleTriedAgain(e *env) {
	c := e.spender()
	var down sync.Map
	g := e.through(nil, func(_ context.Context, _ *governance.Plan, commit func() error) error {
		if _, is := down.Load("down"); is {
			return governance.ErrUnavailable
		}
		return commit()
	})
	p, err := g.Admit(e.ctx, request(c, both(100, 70)))
	e.ok(err)
	down.Store("down", true)
	err = p.Settle(e.ctx, governance.Used(40, 30))
	var failed *governance.SettleError
	if !errors.As(err, &failed) || failed.ID != p.ID() || !errors.Is(err, governance.ErrUnavailable) {
		e.Fatalf("error is %v, want a SettleError", err)
	}
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 0, 100)
	down.Delete("down")
	e.eventually("the outcome is recorded", func() bool { return e.record(p.ID()).State == governance.StateSettled })
	e.held(c, governance.ScopeTeam, "tokens_per_day", 40, 0, 0)
	e.settle(p, governance.Used(40, 30))
}

func settleLost(e *env) {
	c := e.spender()
	var n int
	g := e.through(nil, func(_ context.Context, _ *governance.Plan, commit func() error) error {
		err := commit()
		if n++; n == 2 && err == nil { // the settlement's answer is lost
			return unknown()
		}
		return err
	})
	p, err := g.Admit(e.ctx, request(c, both(100, 70)))
	e.ok(err)
	if err := p.Settle(e.ctx, governance.Used(40, 30)); err != nil {
		e.is(err, governance.ErrUnknownOutcome)
	}
	e.ok(g.Close(e.ctx))
	e.held(c, governance.ScopeTeam, "tokens_per_day", 40, 0, 0)
	e.held(c, governance.ScopeTeam, "cost_per_day", 30, 0, 0)
	rec := e.record(p.ID())
	e.equal("version", rec.Version, int32(2))
}
