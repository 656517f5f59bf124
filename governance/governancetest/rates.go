package governancetest

import (
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

func rateCases() []scenario {
	return []scenario{
		{name: "ReplayO1TokensPerMinute", run: rateO1},
		{name: "ReplayO11HundredAtOnce", run: rateO11},
		{name: "ReplayR1ThreeReplicas", also: "PrimitiveR19ManyNodes EdgeReplicasDoNotMultiply", run: rateReplicas},
		{name: "ReplayR3TwoRegions", run: rateRegions},
		{name: "ReplayW13RefusedDoNotCount", also: "PrimitiveR19LimitChanges", run: rateW13},
		{name: "ReplayL15BoundAboveTheBurst", run: rateL15},
		{name: "PrimitiveR2ClockBackIsNoRefill", run: rateClockBack},
		{name: "PrimitiveR3RetryAfterSurvivesTheClock", run: rateRetryClock},
		{name: "PrimitiveR5IdleForACentury", run: rateIdle},
		{name: "PrimitiveR6CostIsCheckedFirst", run: rateHuge},
		{name: "PrimitiveR7BoundaryOfTheBurst", also: "PrimitiveR24OneAboveTheCapacity", run: rateBoundary},
		{name: "PrimitiveR10PollingLosesNoRefill", also: "ReplayX5FractionsAreKept", run: ratePolled},
		{name: "PrimitiveR12DenialIsARead", also: "ReplayX5RefusedEmptiesNothing", run: rateDenial},
		{name: "PrimitiveR17RetryAfterIsExact", run: rateRetryAfter},
		{name: "PrimitiveR20BurstAndRateBoundAMinute", run: rateMinute},
		{name: "PrimitiveR21LoweredWithOpenReservations", also: "EdgeLoweredLimitDrainsOldDebtSlowly", run: rateLowered},
		{name: "EdgeRaisedLimitIsNotRetroactive", run: rateRaised},
		{name: "EdgeRuleEditDoesNotReset", run: rateEdit},
	}
}

// rated makes a caller of a team whose only limit is a rate.
func (e *env) rated(perMinute int64) *caller {
	e.Helper()
	e.team("team-1", keys.Limits{TokensPerMinute: keys.Limit(perMinute)})
	return e.caller("team-1", keys.Limits{})
}

func (e *env) debt(c *caller) int64 {
	e.Helper()
	return e.verdict(c, governance.ScopeTeam, "tokens_per_minute").Reserved
}

// atMost checks what a rate let through since an instant of the store.
func (e *env) atMost(admitted, perMinute, since int64) {
	e.Helper()
	if most := perMinute + perMinute*(e.now()-since)/60_000_000 + 1; admitted > most {
		e.Fatalf("%d admitted in %d µs at %d per minute", admitted, e.now()-since, perMinute)
	}
}

func rateO1(e *env) {
	c := e.rated(100)
	bounds := []amount.Tokens{58, 80, 175, 175, 175}
	out := e.flood(5, func(i int) (*governance.Permit, error) { return e.g.Admit(e.ctx, request(c, tokens(bounds[i]))) })
	e.wantAdmitted(out, 1)
	e.equal("never fit", out.refused[governance.ReasonNeverFits], 3)
	e.equal("refused by rate", out.refused[governance.ReasonRate], 1)
}

func rateO11(e *env) {
	c := e.rated(100)
	start := e.now()
	out := e.admits(100, c, tokens(20))
	if out.admitted < 5 {
		e.Fatalf("%d admitted, want at least 5", out.admitted)
	}
	e.atMost(int64(out.admitted)*20, 100, start)
}

func rateReplicas(e *env) {
	e.team("team-1", keys.Limits{RequestsPerMinute: keys.Limit(10)})
	c := e.caller("team-1", keys.Limits{})
	start := e.now()
	out := e.spend(30, c, tokens(1), e.g, e.governor(e.b, nil), e.governor(e.b, nil))
	if out.admitted < 10 {
		e.Fatalf("%d admitted, want 10", out.admitted)
	}
	e.atMost(int64(out.admitted), 10, start)
}

func rateRegions(e *env) {
	e.team("team-1", keys.Limits{RequestsPerMinute: keys.Limit(4)})
	c := e.caller("team-1", keys.Limits{})
	start := e.now()
	for range 3 {
		e.admit(c, tokens(1))
	}
	out := e.spend(4, c, tokens(1), e.governor(e.b, nil))
	e.atMost(int64(out.admitted+3), 4, start)
}

func rateW13(e *env) {
	e.team("team-1", keys.Limits{RequestsPerMinute: keys.Limit(10)})
	c := e.caller("team-1", keys.Limits{})
	start := e.now()
	first := e.admits(50, c, tokens(1)).admitted
	e.atMost(int64(first), 10, start)
	e.limitTeam("team-1", keys.LimitsChange{RequestsPerMinute: keys.Set(keys.Limit(20))})
	second := e.admits(50, c, tokens(1)).admitted
	if first < 10 || first+second < 20 {
		e.Fatalf("%d admitted of 10, %d more when the limit became 20", first, second)
	}
	e.atMost(int64(first+second), 20, start)
}

func rateL15(e *env) {
	c := e.rated(100)
	r := e.refused(c, tokens(1024), governance.ReasonNeverFits)
	e.equal("retryable", r.Retryable, false)
	e.admit(c, tokens(100))
}

func rateClockBack(e *env) {
	c := e.rated(60)
	e.admit(c, tokens(60))
	for range 20 { // two clocks, an hour apart, in turn
		e.advance(-time.Hour)
		e.refused(c, tokens(2), governance.ReasonRate)
		e.advance(time.Hour)
		e.refused(c, tokens(20), governance.ReasonRate)
	}
	if d := e.debt(c); d < 50 {
		e.Fatalf("a clock that goes back and forth drained %d of 60", 60-d)
	}
}

func rateRetryClock(e *env) {
	c := e.rated(60)
	e.admit(c, tokens(60))
	e.advance(-time.Hour)
	r := e.refused(c, tokens(1), governance.ReasonRate)
	if r.RetryAfter > time.Hour+time.Minute {
		e.Fatalf("after a step back of an hour, retry after %s", r.RetryAfter)
	}
	e.advance(r.RetryAfter)
	e.admit(c, tokens(1))
}

func rateIdle(e *env) {
	e.team("team-1", keys.Limits{TokensPerMinute: keys.Limit(1_000_000_000), TokensPerDay: keys.Limit(1_000_000_000)})
	c := e.caller("team-1", keys.Limits{})
	e.admit(c, tokens(1_000_000_000))
	e.advance(100 * 365 * 24 * time.Hour)
	e.equal("debt", e.debt(c), int64(0))
	p := e.admit(c, tokens(1_000_000_000)) // full again, no more
	e.refused(c, tokens(1_000_000_000), governance.ReasonRate)
	e.ok(p.Cancel(e.ctx))
}

func rateHuge(e *env) {
	c := e.rated(100)
	e.refused(c, tokens(governance.MaxTokens), governance.ReasonNeverFits)
	e.refused(c, tokens(20_000_000), governance.ReasonNeverFits)
	e.equal("debt", e.debt(c), int64(0))
}

func rateBoundary(e *env) {
	c := e.rated(100)
	e.refused(c, tokens(101), governance.ReasonNeverFits)
	e.admit(c, tokens(100))
}

// ratePolled asks all the time; the refill must be that of one long wait.
func ratePolled(e *env) {
	c := e.rated(100)
	e.admit(c, tokens(100))
	start := e.now()
	admitted := int64(0)
	for range 100 { // every 599 ms, for a minute
		e.advance(599 * time.Millisecond)
		if _, err := e.g.Admit(e.ctx, request(c, tokens(1))); err == nil {
			admitted++
		}
	}
	if due := 100 * (e.now() - start) / 60_000_000; admitted < min(due, 100)-1 {
		e.Fatalf("%d admitted, %d were due", admitted, due)
	}
	e.atMost(admitted+100, 100, start)
}

func rateDenial(e *env) {
	c := e.rated(100)
	e.admit(c, tokens(40))
	ids := e.constraintsOf(c)
	before := e.snapshot(ids...)
	for range 50 {
		_, err := e.g.Admit(e.ctx, request(c, tokens(90)))
		e.refusal(err, governance.ReasonRate)
	}
	e.unchanged(before, ids...)
	e.admit(c, tokens(60)) // what was left before is left
}

// rateRetryAfter asks around the instant that Retry-After named: before it the
// request does not fit, from it on it does.
func rateRetryAfter(e *env) {
	c := e.rated(7)
	e.admit(c, tokens(7))
	x, err := e.g.Explain(e.ctx, request(c, tokens(3)))
	e.ok(err)
	if x.Admitted || x.Refusal == nil {
		e.Fatalf("explained: %+v", x)
	}
	due := x.Now + x.Refusal.RetryAfter.Microseconds()
	try := func() {
		e.Helper()
		x, err := e.g.Explain(e.ctx, request(c, tokens(3)))
		e.ok(err)
		if x.Admitted != (x.Now >= due) {
			e.Fatalf("at %d µs from the instant that Retry-After named, admitted is %v", x.Now-due, x.Admitted)
		}
	}
	for _, left := range []time.Duration{5 * time.Second, 100 * time.Millisecond, time.Microsecond, 0, -time.Microsecond, -time.Second} {
		e.advance(time.Duration(due-e.now())*time.Microsecond - left)
		try()
	}
	e.admit(c, tokens(3))
}

// rateMinute shows the documented bound: burst plus rate times time, never more.
func rateMinute(e *env) {
	c := e.rated(60)
	e.advance(time.Hour) // long idle fills the burst once
	start := e.now()
	admitted := int64(0)
	for range 40 {
		for {
			if _, err := e.g.Admit(e.ctx, request(c, tokens(1))); err != nil {
				e.refusal(err, governance.ReasonRate)
				break
			}
			admitted++
			e.atMost(admitted, 60, start)
		}
		e.atMost(admitted, 60, start)
		e.advance(1500 * time.Millisecond)
	}
	if admitted < 60+57 {
		e.Fatalf("%d admitted in a minute, want the burst and about 58 more", admitted)
	}
}

// rateLowered: old debt drains at the lower of the two rates, and never at once.
func rateLowered(e *env) {
	c := e.rated(600)
	open := e.admit(c, tokens(500))
	e.admit(c, tokens(100))
	e.limitTeam("team-1", keys.LimitsChange{TokensPerMinute: keys.Set(keys.Limit(60))})
	r := e.refused(c, tokens(1), governance.ReasonRate)
	if r.RetryAfter < 8*time.Minute+50*time.Second || r.RetryAfter > 9*time.Minute+10*time.Second {
		e.Fatalf("541 of 600 tokens drain at 60 per minute in %s, want about 9 minutes", r.RetryAfter)
	}
	e.advance(time.Minute)
	if d := e.debt(c); d < 530 || d > 541 {
		e.Fatalf("the debt is %d after a minute at the lowered rate, want about 540", d)
	}
	e.ok(open.Cancel(e.ctx)) // as if it had never been: a minute's worth of the other 100 is gone
	if d := e.debt(c); d < 30 || d > 41 {
		e.Fatalf("the debt is %d after the cancellation, want about 40", d)
	}
}

// rateRaised: time before the edit was seen drains at the old rate.
func rateRaised(e *env) {
	c := e.rated(60)
	e.admit(c, tokens(60))
	e.advance(30 * time.Second)
	e.limitTeam("team-1", keys.LimitsChange{TokensPerMinute: keys.Set(keys.Limit(6000))})
	if d := e.debt(c); d < 25 || d > 31 {
		e.Fatalf("the debt is %d after half a minute at 60 per minute, want 30", d)
	}
	e.admit(c, tokens(1)) // sees the edit
	e.advance(time.Second)
	if d := e.debt(c); d != 0 {
		e.Fatalf("the debt is %d a second after the raise was seen, want 0", d)
	}
}

func rateEdit(e *env) {
	c := e.rated(100)
	e.admit(c, tokens(100))
	for _, change := range []*int64{keys.Limit(101), nil, keys.Limit(100)} { // edit, delete, add again
		e.limitTeam("team-1", keys.LimitsChange{TokensPerMinute: keys.Set(change)})
		e.resolve(c)
	}
	e.refused(c, tokens(90), governance.ReasonRate)
}
