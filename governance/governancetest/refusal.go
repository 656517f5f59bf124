package governancetest

import (
	"net/http"
	"slices"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
)

func refusalCases() []scenario {
	return []scenario{
		{name: "RefusalSaysHowFull", run: refusalNumbers},
		{name: "RefusalMoney", also: "ReplayF3BudgetIsNotRetried", run: refusalMoney},
		{name: "RefusalQuota", run: refusalQuota},
		{name: "RefusalReserved", run: refusalReserved},
		{name: "RefusalRate", run: refusalRate},
		{name: "RefusalConcurrency", run: refusalConcurrency},
		{name: "RefusalFrozen", run: refusalFrozen},
		{name: "RefusalNeverFits", also: "PrimitiveR16NeverIsAValue", run: refusalNever},
		{name: "RefusalNamesTheWorstFirst", run: refusalOrder},
		{name: "RefusalRetriesAfterTheLongest", run: refusalLongest},
	}
}

func refusalNumbers(e *env) {
	e.team("team-1", keys.Limits{CostPerDay: keys.Cost(100)})
	c := e.caller("team-1", keys.Limits{})
	e.settle(e.admit(c, dollars(30)), governance.Used(0, 20))
	e.settle(e.admit(c, dollars(30)), governance.Observed(0, 7))
	e.admit(c, dollars(10))
	r := e.refused(c, dollars(71), governance.ReasonMoney)
	v := r.Verdict
	if v.Limit != 100 || v.Need != 71 || v.Consumed != 20 || v.Uncertain != 30 || v.Reserved != 10 || v.Granted != 0 || v.Frozen || v.Remaining() != 40 {
		e.Fatalf("the verdict is %+v", v)
	}
	if v.Constraint.Rule != "cost_per_day" || v.Constraint.Kind != governance.KindMoney || v.Constraint.Limit != 100 {
		e.Fatalf("the constraint is %+v", v.Constraint)
	}
	e.equal("window", v.Window, e.today())
	e.equal("number of constraints that bind", len(r.All), 1)
	e.admit(c, dollars(40)) // exactly what the verdict said is left
}

func refusalMoney(e *env) {
	e.team("team-1", keys.Limits{CostPerMonth: keys.Cost(100)})
	c := e.caller("team-1", keys.Limits{})
	e.settle(e.admit(c, dollars(60)), governance.Unknown())
	r := e.refused(c, dollars(41), governance.ReasonMoney)
	e.equal("retryable", r.Retryable, false)
	e.equal("retry after", r.RetryAfter, time.Duration(0))
	e.equal("status", governance.StatusOf(r), governance.Status{Code: http.StatusPaymentRequired})
}

func refusalQuota(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(100)})
	c := e.caller("team-1", keys.Limits{})
	e.settle(e.admit(c, tokens(60)), governance.Used(60, 0))
	r := e.refused(c, tokens(41), governance.ReasonQuota)
	e.equal("retryable", r.Retryable, true)
	end, ok := r.Verdict.ResetsAt()
	e.equal("resets", ok, true)
	e.equal("reset", end, e.today().End)
	if left := time.Duration(end-e.now()) * time.Microsecond; r.RetryAfter < left || r.RetryAfter > left+time.Minute {
		e.Fatalf("retry after %s, the window ends in %s", r.RetryAfter, left)
	}
	e.equal("status", governance.StatusOf(r).Code, http.StatusTooManyRequests)
}

func refusalReserved(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(100), CostPerDay: keys.Cost(100)})
	c := e.caller("team-1", keys.Limits{})
	p := e.admit(c, both(60, 60))
	for _, b := range []governance.Bound{tokens(41), dollars(41), both(41, 41)} {
		r := e.refused(c, b, governance.ReasonReserved)
		e.equal("retryable", r.Retryable, true)
		e.equal("retry after", r.RetryAfter, time.Second)
		e.equal("status", governance.StatusOf(r).Code, http.StatusTooManyRequests)
	}
	e.ok(p.Cancel(e.ctx))
	e.admit(c, both(100, 100))
}

func refusalRate(e *env) {
	e.team("team-1", keys.Limits{TokensPerMinute: keys.Limit(60)})
	c := e.caller("team-1", keys.Limits{})
	e.admit(c, tokens(60))
	r := e.refused(c, tokens(30), governance.ReasonRate)
	e.equal("retryable", r.Retryable, true)
	if r.RetryAfter > 30*time.Second || r.RetryAfter < 10*time.Second {
		e.Fatalf("half of a bucket drains in %s, want 30 s", r.RetryAfter)
	}
	e.equal("window", r.Verdict.Window.End, int64(0))
	if _, ok := r.Verdict.ResetsAt(); ok {
		e.Fatal("a rate has no window to reset")
	}
	status := governance.StatusOf(r)
	e.equal("status", status.Code, http.StatusTooManyRequests)
	e.equal("status retry after", status.RetryAfter, r.RetryAfter)
	e.advance(r.RetryAfter)
	e.admit(c, tokens(30))
}

func refusalConcurrency(e *env) {
	e.team("team-1", keys.Limits{Concurrency: keys.Limit(2)})
	c := e.caller("team-1", keys.Limits{})
	p := e.admit(c, tokens(1))
	e.admit(c, tokens(1))
	r := e.refused(c, tokens(1), governance.ReasonConcurrency)
	e.equal("retryable", r.Retryable, true)
	if r.RetryAfter <= 0 || r.RetryAfter > time.Minute {
		e.Fatalf("a slot frees at the latest in %s, want up to a minute", r.RetryAfter)
	}
	e.ok(p.Cancel(e.ctx))
	e.admit(c, tokens(1))
}

func refusalFrozen(e *env) {
	e.team("team-1", keys.Limits{CostPerDay: keys.Cost(100)})
	c := e.caller("team-1", keys.Limits{})
	e.settle(e.admit(c, dollars(1)), impossible())
	r := e.refused(c, dollars(0), governance.ReasonFrozen)
	e.equal("retryable", r.Retryable, false)
	e.equal("frozen", r.Verdict.Frozen, true)
	e.equal("status", governance.StatusOf(r), governance.Status{Code: http.StatusLocked})
}

// impossible is a report that contradicts every convention.
func impossible() governance.Outcome {
	return governance.Outcome{Tokens: governance.Measure{Certainty: governance.Impossible, Value: -5}, Cost: governance.Measure{Certainty: governance.Impossible, Value: 1 << 62}}
}

func refusalNever(e *env) {
	for i, r := range rules {
		if r.rule == "requests_per_minute" || r.rule == "concurrency" {
			continue // one fits, or the limit is zero
		}
		var l keys.Limits
		r.limit(&l, r.need-1)
		name := "team-" + string(rune('a'+i))
		e.team(name, l)
		c := e.caller(name, keys.Limits{})
		refusal := e.refused(c, both(100, 70), governance.ReasonNeverFits)
		e.equal("retryable", refusal.Retryable, false)
		e.equal("retry after", refusal.RetryAfter, time.Duration(0))
		e.equal("status", governance.StatusOf(refusal), governance.Status{Code: http.StatusTooManyRequests})
		fits := both(99, 69)
		e.admit(c, fits) // one less is exactly the limit
	}
}

// refusalOrder adds a worse reason each time; the worst must be named.
func refusalOrder(e *env) {
	l := keys.Limits{Concurrency: keys.Limit(1), TokensPerMinute: keys.Limit(100), TokensPerDay: keys.Limit(200), CostPerDay: keys.Cost(100), CostPerMonth: keys.Cost(1000)}
	e.team("team-1", l)
	c := e.caller("team-1", keys.Limits{})
	reserved := e.admit(c, both(90, 90))
	want := func(b governance.Bound, reasons ...governance.Reason) {
		e.Helper()
		r := e.refused(c, b, slices.Min(reasons))
		var all []governance.Reason
		for _, v := range r.All {
			all = append(all, v.Reason)
		}
		slices.Sort(all)
		slices.Sort(reasons)
		if !slices.Equal(all, reasons) {
			e.Fatalf("the constraints that bind say %v, want %v", all, reasons)
		}
		e.equal("reason of the verdict", r.Verdict.Reason, r.Reason)
		if r.Retryable != (r.Reason >= governance.ReasonQuota) {
			e.Fatalf("%s: retryable is %v", r.Reason, r.Retryable)
		}
	}
	want(both(0, 20), governance.ReasonReserved, governance.ReasonConcurrency)
	want(both(20, 20), governance.ReasonReserved, governance.ReasonConcurrency, governance.ReasonRate)
	e.settle(reserved, governance.Used(150, 90)) // an overrun: the bucket owes, the quota is nearly gone
	want(both(60, 0), governance.ReasonRate, governance.ReasonQuota)
	want(both(60, 20), governance.ReasonRate, governance.ReasonQuota, governance.ReasonMoney)
	want(both(60, 101), governance.ReasonRate, governance.ReasonQuota, governance.ReasonNeverFits)
	want(both(101, 20), governance.ReasonNeverFits, governance.ReasonQuota, governance.ReasonMoney)
	e.advance(2 * time.Minute)
	e.settle(e.admit(c, dollars(1)), impossible())
	want(both(0, 101), governance.ReasonFrozen, governance.ReasonFrozen, governance.ReasonFrozen)
}

func refusalLongest(e *env) {
	e.team("team-1", keys.Limits{TokensPerMinute: keys.Limit(60), TokensPerDay: keys.Limit(100), Concurrency: keys.Limit(1)})
	c := e.caller("team-1", keys.Limits{TokensPerMinute: keys.Limit(600)})
	e.settle(e.admit(c, tokens(60)), governance.Used(60, 0))
	r := e.refused(c, tokens(50), governance.ReasonQuota) // the team's rate binds for 50 s, the quota for hours
	if len(r.All) != 2 || r.RetryAfter < 11*time.Hour {
		e.Fatalf("retry after %s of %+v, want the end of the day", r.RetryAfter, r.All)
	}
	// Equal reasons: the one that takes longest is named, wherever it stands in the
	// order of the ids.
	for i := range 10 {
		team := "team-" + string(rune('a'+i))
		e.team(team, keys.Limits{TokensPerMinute: keys.Limit(60)})
		c = e.caller(team, keys.Limits{TokensPerMinute: keys.Limit(70)})
		e.admit(c, tokens(60))
		r = e.refused(c, tokens(60), governance.ReasonRate)
		e.equal("scope", r.Verdict.Constraint.Scope, governance.ScopeTeam)
		e.equal("number of constraints that bind", len(r.All), 2)
		e.equal("retry after", r.RetryAfter, r.Verdict.RetryAfter)
	}
}
