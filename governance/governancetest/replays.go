package governancetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

// admitReplays are reports about other systems, each told as a scenario.
func admitReplays() []scenario {
	return []scenario{
		{name: "ReplayO10DebtIsCarried", run: replayO10},
		{name: "ReplayX1OverrunsAreNotForgiven", run: replayX1},
		{name: "ReplayI9EachAttemptReserves", also: "EdgeFallbackAttemptsEachPay", run: replayI9},
		{name: "ReplayP4MissingPriceIsNotFree", run: replayP4},
		{name: "ReplayP8ProductsOfBounds", run: replayP8},
		{name: "ReplayK1NoWriteBack", run: replayK1},
		{name: "ReplayK7ExpiryIsNoCalendar", run: replayK7},
		{name: "PrimitiveG5CostTakesPart", run: replayG5},
		{name: "PrimitiveG6HoldIsNeverShrunk", run: replayG6},
		{name: "PrimitiveR13BroadLimitIsNotBurned", also: "EdgeEarlierDebitsAreTakenBack", run: replayR13},
	}
}

// settleReplays are those about settlement.
func settleReplays() []scenario {
	return []scenario{
		{name: "ReplayI1OneTransaction", run: replayI1},
		{name: "ReplayI6CumulativeUsage", run: replayI6},
		{name: "ReplayI10ByCapturedConstraint", run: replayI10},
		{name: "ReplayL10SecondReleaseIsTyped", run: replayL10},
		{name: "ReplayP6WithoutPriceKeepsTheBound", run: replayP6},
		{name: "PrimitiveR11TrueUpAfterTheFact", also: "EdgeOvercharge", run: replayR11},
	}
}

func replayO10(e *env) {
	c := e.rated(1000)
	e.settle(e.admit(c, tokens(1000)), governance.Used(1200, 0)) // a stream of more than was bounded
	r := e.refused(c, tokens(1), governance.ReasonRate)
	if r.RetryAfter < 11*time.Second || r.RetryAfter > 13*time.Second {
		e.Fatalf("201 of 1000 per minute drain in %s, want about 12 s", r.RetryAfter)
	}
	e.advance(r.RetryAfter)
	e.admit(c, tokens(1))
}

// replayX1: key 1000, team 10 000; 900 reserved, 1500 used. Both must owe it.
func replayX1(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(10_000), TokensPerMinute: keys.Limit(10_000)})
	c := e.caller("team-1", keys.Limits{TokensPerDay: keys.Limit(1000), TokensPerMinute: keys.Limit(1000)})
	e.settle(e.admit(c, tokens(900)), governance.Used(1500, 0))
	e.held(c, governance.ScopeKey, "tokens_per_day", 1500, 0, 0)
	e.held(c, governance.ScopeTeam, "tokens_per_day", 1500, 0, 0)
	for _, scope := range bothScopes {
		if v := e.verdict(c, scope, "tokens_per_minute"); v.Reserved < 1300 || v.Reserved > 1500 {
			e.Fatalf("the rate of the %s holds %d, want 1500", scope, v.Reserved)
		}
	}
	e.refused(c, tokens(1), governance.ReasonQuota)
	other := e.caller("team-1", keys.Limits{})
	e.refused(other, tokens(8501), governance.ReasonQuota)
}

// replayI9: the budget is spent; a free model fails, its fallback has a price.
func replayI9(e *env) {
	e.team("team-1", keys.Limits{CostPerDay: keys.Cost(1_000_000)})
	c := e.caller("team-1", keys.Limits{})
	e.settle(e.admit(c, dollars(1_000_000)), governance.Used(0, 1_000_000))
	e.settle(e.admit(c, governance.Bound{Tokens: 10, Free: true}), governance.NotSent())
	e.refused(c, both(10, 1), governance.ReasonMoney)
}

// replayP4: a cost of zero that nobody called free is governed by money.
func replayP4(e *env) {
	e.team("team-1", keys.Limits{CostPerDay: keys.Cost(5)})
	c := e.caller("team-1", keys.Limits{})
	e.settle(e.admit(c, dollars(5)), governance.Used(0, 10))
	e.refused(c, both(10, 0), governance.ReasonMoney)
	e.admit(c, governance.Bound{Tokens: 10, Free: true})
}

func replayP8(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(1 << 40), CostPerDay: keys.Cost(1 << 40)})
	c := e.caller("team-1", keys.Limits{})
	most := amount.Tokens(1<<63 - 1)
	for _, b := range []governance.Bound{tokens(most), tokens(-most), tokens(most/4*3 + 7), {Cost: 1<<63 - 1}, {Cost: -1 << 63}} {
		_, err := e.g.Admit(e.ctx, request(c, b))
		e.is(err, governance.ErrInvalid)
	}
	e.admit(c, both(3_542_971_632, 3_542_971_632))
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 0, 3_542_971_632)
}

func replayK1(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{CostPerDay: keys.Cost(1000)})
	p := e.admit(c, dollars(100))
	e.limitKey(c.id, keys.LimitsChange{CostPerDay: keys.Set(keys.Cost(150))})
	e.settle(p, governance.Used(0, 100)) // ends with what it knew of before
	key, err := e.keys.Key(e.ctx, c.id)
	e.ok(err)
	e.equal("limit", *key.Limits.CostPerDay, amount.MicroUSD(150))
	e.refused(c, dollars(60), governance.ReasonMoney)
}

func replayK7(e *env) {
	e.team("team-1", keys.Limits{CostPerMonth: keys.Cost(100)})
	end := time.UnixMicro(e.now()).UTC().AddDate(0, 1, 0) // the tenth, at noon
	c := e.create(keys.CreateKey{TeamID: "team-1", ExpiresAt: &end})
	e.settle(e.admit(c, dollars(100)), governance.Used(0, 100))
	e.advance(end.Sub(time.UnixMicro(e.now())) - time.Hour) // a new month began, and the key lives
	e.admit(c, dollars(100))
	e.advance(time.Hour)
	e.refused(c, dollars(0), governance.ReasonUnauthenticated)
}

func replayG5(e *env) {
	c := e.rated(100)
	e.refused(c, tokens(16_000), governance.ReasonNeverFits)
	e.admit(c, tokens(100))
}

func replayG6(e *env) {
	e.team("team-1", keys.Limits{CostPerDay: keys.Cost(2000)})
	c := e.caller("team-1", keys.Limits{})
	e.settle(e.admit(c, dollars(1900)), governance.Used(0, 1900))
	e.refused(c, dollars(144), governance.ReasonMoney)
	p := e.admit(c, dollars(100))
	e.equal("bound", p.Bound(), dollars(100))
}

func replayR13(e *env) {
	e.team("team-1", keys.Limits{TokensPerMinute: keys.Limit(1000), RequestsPerMinute: keys.Limit(1000)})
	noisy := e.caller("team-1", keys.Limits{TokensPerMinute: keys.Limit(10)})
	quiet := e.caller("team-1", keys.Limits{})
	e.admit(noisy, tokens(10))
	for range 50 {
		_, err := e.g.Admit(e.ctx, request(noisy, tokens(10)))
		e.refusal(err, governance.ReasonRate)
	}
	e.admit(quiet, tokens(980))
	if n := e.verdict(quiet, governance.ScopeTeam, "requests_per_minute").Reserved; n > 2 {
		e.Fatalf("%d requests were counted of the two that were admitted", n)
	}
}

// replayI1 fails the write three times after the decision; the amounts must move once.
func replayI1(e *env) {
	c := e.spender()
	n := 0
	g := e.through(nil, func(_ context.Context, _ *governance.Plan, commit func() error) error {
		if n++; n > 1 && n < 5 {
			return governance.ErrRetry
		}
		return commit()
	})
	p, err := g.Admit(e.ctx, request(c, both(100, 70)))
	e.ok(err)
	for range 3 {
		e.ok(p.Cancel(e.ctx))
	}
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 0, 0)
	e.held(c, governance.ScopeTeam, "cost_per_day", 0, 0, 0)
}

// replayI6: a second report for one attempt is no second charge.
func replayI6(e *env) {
	c := e.spender()
	p := e.admit(c, both(1000, 900))
	e.settle(p, governance.Used(1000, 301))
	e.is(p.Settle(e.ctx, governance.Used(300, 300)), governance.ErrConflict)
	e.held(c, governance.ScopeTeam, "cost_per_day", 301, 0, 0)
}

// replayI10 settles permits of different terms in one transaction and in another
// order than they were admitted in.
func replayI10(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(10_000), CostPerDay: keys.Cost(10_000), CostPerMonth: keys.Cost(10_000)})
	callers := []*caller{
		e.caller("team-1", keys.Limits{CostPerMonth: keys.Cost(10_000)}), e.caller("team-1", keys.Limits{TokensPerDay: keys.Limit(10_000)}),
		e.caller("team-1", keys.Limits{CostPerDay: keys.Cost(10_000), CostPerMonth: keys.Cost(10_000)}),
	}
	var permits []*governance.Permit
	for i := range 15 {
		permits = append(permits, e.admit(callers[i%3], both(amount.Tokens(100+i), amount.MicroUSD(200+i))))
	}
	var wg sync.WaitGroup
	for i := len(permits) - 1; i >= 0; i-- {
		wg.Go(func() {
			e.background(permits[i].Settle(e.ctx, governance.Used(amount.Tokens(i), amount.MicroUSD(2*i))))
		})
	}
	wg.Wait()
	e.held(callers[0], governance.ScopeKey, "cost_per_month", 2*(0+3+6+9+12), 0, 0)
	e.held(callers[1], governance.ScopeKey, "tokens_per_day", 1+4+7+10+13, 0, 0)
	e.held(callers[2], governance.ScopeKey, "cost_per_day", 2*(2+5+8+11+14), 0, 0)
	e.held(callers[0], governance.ScopeTeam, "tokens_per_day", 105, 0, 0)
	e.held(callers[0], governance.ScopeTeam, "cost_per_day", 210, 0, 0)
}

func replayL10(e *env) {
	c := e.spender()
	p, q := e.admit(c, both(100, 70)), e.admit(c, both(100, 70))
	e.settle(p, governance.Used(10, 10))
	if err := p.Cancel(e.ctx); !errors.Is(err, governance.ErrConflict) {
		e.Fatalf("a second release: %v, want ErrConflict", err)
	}
	e.ok(q.Cancel(e.ctx))
	e.ok(q.Cancel(e.ctx))
	e.held(c, governance.ScopeTeam, "tokens_per_day", 10, 0, 0)
}

func replayP6(e *env) {
	c := e.spender()
	p := e.admit(c, both(100, 70))
	e.settle(p, governance.Outcome{Tokens: governance.Measure{Certainty: governance.Known, Value: 40}})
	e.held(c, governance.ScopeTeam, "tokens_per_day", 40, 0, 0)
	e.held(c, governance.ScopeTeam, "cost_per_day", 0, 70, 0)
}

// replayR11: a cached prefix used a fraction of the estimate; the rest is free again.
func replayR11(e *env) {
	c := e.rated(1000)
	for range 9 {
		e.settle(e.admit(c, tokens(900)), governance.Used(10, 0))
	}
	if d := e.debt(c); d > 90 || d < 60 {
		e.Fatalf("the rate holds %d, want 90", d)
	}
}
