package governancetest

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

func admitCases() []scenario {
	return slices.Concat([]scenario{
		{name: "ReservesInEveryConstraint", run: admitReserves},
		{name: "AllOrNone", also: "ReplayX8EarlierLimitsAreNotConsumed", run: admitAllOrNone},
		{name: "ZeroIsALimitOfZero", also: "EdgeZeroIsNotUnlimited", run: admitZero},
		{name: "AbsentIsUnlimited", run: admitUnlimited},
		{name: "KeyAndTeamBothBind", also: "EdgeUnlimitedDoesNotEraseACap", run: admitKeyAndTeam},
		{name: "EqualNamesAreNotOneAccount", run: admitNames},
		{name: "InvalidIsRefusedBeforeAnything", run: admitInvalid},
		{name: "ModelAndRegionMustBeAllowed", run: admitSelection},
		{name: "UnpricedIsNotFree", run: admitUnpriced},
		{name: "ExplicitlyFreeSkipsMoneyOnly", also: "ReplayP5FreeModelOnEmptyBudget", run: admitFree},
		{name: "LimitsOf63Bits", run: admitLargest},
		{name: "CapturesPriceAndSelection", run: admitCaptures},
		{name: "ClosedGovernor", run: admitClosed},
		{name: "CancelledContext", run: admitCancelled},
	}, refusalCases(), identityCases(), freshCases(), raceCases(), rateCases(), doubtCases(), admitReplays())
}

// everyLimit is one of each kind.
func everyLimit() keys.Limits {
	return keys.Limits{
		RequestsPerMinute: keys.Limit(1000), TokensPerMinute: keys.Limit(1_000_000), TokensPerDay: keys.Limit(1_000_000),
		Concurrency: keys.Limit(1000), CostPerDay: keys.Cost(1_000_000), CostPerMonth: keys.Cost(1_000_000),
	}
}

// rules are the names of the limits, and what a bound of 100 tokens and 70 microUSD
// takes from each.
var rules = []struct {
	rule  string
	need  int64
	limit func(l *keys.Limits, n int64)
}{
	{"requests_per_minute", 1, func(l *keys.Limits, n int64) { l.RequestsPerMinute = &n }},
	{"tokens_per_minute", 100, func(l *keys.Limits, n int64) { l.TokensPerMinute = &n }},
	{"tokens_per_day", 100, func(l *keys.Limits, n int64) { l.TokensPerDay = &n }},
	{"cost_per_day", 70, func(l *keys.Limits, n int64) { l.CostPerDay = keys.Cost(amount.MicroUSD(n)) }},
	{"cost_per_month", 70, func(l *keys.Limits, n int64) { l.CostPerMonth = keys.Cost(amount.MicroUSD(n)) }},
	{"concurrency", 1, func(l *keys.Limits, n int64) { l.Concurrency = &n }},
}

var bothScopes = []governance.Scope{governance.ScopeKey, governance.ScopeTeam}

// constraintsOf lists the ids of all constraints of a caller.
func (e *env) constraintsOf(c *caller) []governance.ConstraintID {
	e.Helper()
	usage, err := e.g.Usage(e.ctx, governance.UsageQuery{Principal: c.p})
	e.ok(err)
	ids := make([]governance.ConstraintID, len(usage.Verdicts))
	for i := range usage.Verdicts {
		ids[i] = usage.Verdicts[i].Constraint.ID
	}
	return ids
}

func admitReserves(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	before := e.now()
	p := e.admit(c, both(100, 70))
	for _, scope := range bothScopes {
		for _, r := range rules {
			e.held(c, scope, r.rule, 0, 0, r.need)
		}
	}
	e.equal("bound", p.Bound(), both(100, 70))
	rec := e.record(p.ID())
	if rec.State != governance.StateOpen || rec.Version != 1 || rec.Tokens != 100 || rec.Cost != 70 || rec.At < before || rec.Owner == (governance.Nonce{}) {
		e.Fatalf("the permit was stored as %s", describeRecord(&rec))
	}
	if at := p.ID().UnixMilli(); !p.ID().Valid() || at != rec.At/1000 {
		e.Fatalf("the id %s is of %d, admitted at %d", p.ID(), at, rec.At)
	}
	e.ok(p.Cancel(e.ctx))
}

func admitAllOrNone(e *env) {
	const room = 2 // admissions that the tight limit lets through
	for i, r := range rules {
		for _, scope := range bothScopes {
			team, key := everyLimit(), everyLimit()
			if tight := r.need * room; scope == governance.ScopeKey {
				r.limit(&key, tight)
			} else {
				r.limit(&team, tight)
			}
			name := "team-" + string(rune('a'+i)) + scope.String()
			e.team(name, team)
			c := e.caller(name, key)
			for range room {
				e.admit(c, both(100, 70))
			}
			ids := e.constraintsOf(c)
			before := e.snapshot(ids...)
			_, err := e.g.Admit(e.ctx, request(c, both(100, 70)))
			var refusal *governance.Refusal
			if !errors.As(err, &refusal) || refusal.Verdict.Constraint.Rule != r.rule || refusal.Verdict.Constraint.Scope != scope {
				e.Fatalf("with a tight %s of %s: %v", r.rule, scope, err)
			}
			e.unchanged(before, ids...)
		}
	}
}

func admitZero(e *env) {
	for i, r := range rules {
		var l keys.Limits
		r.limit(&l, 0)
		name := "team-" + string(rune('a'+i))
		e.team(name, l)
		c := e.caller(name, keys.Limits{})
		refusal := e.refused(c, both(100, 70), governance.ReasonNeverFits)
		e.equal("limit", refusal.Verdict.Limit, int64(0))
		e.equal("retryable", refusal.Retryable, false)
		e.equal("retry after", refusal.RetryAfter, time.Duration(0))
	}
}

func admitUnlimited(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	for range 3 {
		e.settle(e.admit(c, both(governance.MaxTokens, governance.MaxCost)), governance.Used(governance.MaxTokens, governance.MaxCost))
	}
	e.equal("accounts", len(e.everyAccount()), 0)
}

func admitKeyAndTeam(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(1000)})
	capped, free := e.caller("team-1", keys.Limits{TokensPerDay: keys.Limit(150)}), e.caller("team-1", keys.Limits{})
	e.admit(capped, tokens(100))
	r := e.refused(capped, tokens(100), governance.ReasonReserved)
	e.equal("scope", r.Verdict.Constraint.Scope, governance.ScopeKey)
	e.admit(free, tokens(800)) // an unlimited key does not lift the team's cap, nor does it share its neighbour's
	r = e.refused(free, tokens(200), governance.ReasonReserved)
	e.equal("scope", r.Verdict.Constraint.Scope, governance.ScopeTeam)
	e.equal("subject", r.Verdict.Constraint.Subject, "team-1")
	e.admit(capped, tokens(50))
	e.held(free, governance.ScopeTeam, "tokens_per_day", 0, 0, 950)
}

// admitNames has a team and a key of the same id, and ids that could be confused
// when they are joined.
func admitNames(e *env) {
	limits := keys.Limits{TokensPerDay: keys.Limit(100)}
	var callers []*caller
	for _, id := range []string{"same", "same.", "Same", "sa"} {
		e.team(id, limits)
		callers = append(callers, e.create(keys.CreateKey{ID: id, TeamID: id, Limits: keys.Limits{TokensPerDay: keys.Limit(60)}}))
	}
	for _, c := range callers {
		e.admit(c, tokens(60))
		e.held(c, governance.ScopeKey, "tokens_per_day", 0, 0, 60)
		e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 0, 60)
	}
	e.equal("accounts", len(e.everyAccount()), 8)
	other := e.caller("same", keys.Limits{})
	e.admit(other, tokens(40))
	e.refused(other, tokens(1), governance.ReasonReserved)
}

func admitInvalid(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	ids := e.constraintsOf(c)
	before := e.snapshot(ids...)
	long := strings.Repeat("x", governance.MaxNameBytes+1)
	for field, spoil := range map[string]func(r *governance.Request){
		"principal":       func(r *governance.Request) { r.Principal = nil },
		"bound.tokens":    func(r *governance.Request) { r.Bound.Tokens = -1 },
		"bound.cost":      func(r *governance.Request) { r.Bound.Cost = -1 },
		"bound.tokens ":   func(r *governance.Request) { r.Bound.Tokens = governance.MaxTokens + 1 },
		"bound.cost ":     func(r *governance.Request) { r.Bound.Cost = math.MaxInt64 },
		"bound.cost  ":    func(r *governance.Request) { r.Bound.Free = true },
		"bound.unpriced":  func(r *governance.Request) { r.Bound.Unpriced = true },
		"bound.unpriced ": func(r *governance.Request) { r.Bound.Cost, r.Bound.Free, r.Bound.Unpriced = 0, true, true },
		"model":           func(r *governance.Request) { r.Model = long },
		"model ":          func(r *governance.Request) { r.Model = "gpt\n4" },
		"model  ":         func(r *governance.Request) { r.Model = "gpt\x00" },
		"region":          func(r *governance.Request) { r.Region = "\xff\xfe" },
		"guardrail":       func(r *governance.Request) { r.Guardrail = long },
		"price":           func(r *governance.Request) { r.Price = make([]byte, governance.MaxPriceBytes+1) },
		"id":              func(r *governance.Request) { r.ID[3] = 1 },
		"id ": func(r *governance.Request) {
			r.ID = governance.NewPermitID(time.UnixMicro(e.now()).Add(6 * time.Minute))
		},
		"id  ": func(r *governance.Request) { r.ID = governance.NewPermitID(time.UnixMicro(1 << 57)) },
	} {
		r := request(c, both(100, 70))
		spoil(&r)
		_, err := e.g.Admit(e.ctx, r)
		e.is(err, governance.ErrInvalid)
		var wrong *governance.FieldError
		if !errors.As(err, &wrong) || wrong.Field != strings.TrimSpace(field) || wrong.Why == "" {
			e.Fatalf("error is %v, want a FieldError of %s", err, field)
		}
		e.equal("status", governance.StatusOf(err).Code, http.StatusBadRequest)
	}
	e.unchanged(before, ids...)
}

func admitSelection(e *env) {
	_, err := e.keys.CreateTeam(e.ctx, keys.CreateTeam{ID: "team-1", Limits: everyLimit(), AllowedModels: []string{"model-1", "model-2"}, AllowedRegions: []string{"eu"}})
	e.ok(err)
	c := e.create(keys.CreateKey{TeamID: "team-1", AllowedModels: []string{"model-1", "model-3"}})
	for _, ask := range []struct {
		model, region string
		reason        governance.Reason
	}{
		{"model-1", "eu", 0}, {"", "eu", governance.ReasonModel}, {"model-1", "", governance.ReasonRegion}, {"model-2", "eu", governance.ReasonModel}, {"model-3", "eu", governance.ReasonModel},
		{"Model-1", "eu", governance.ReasonModel}, {"model-1", "us", governance.ReasonRegion}, {"model-1", "EU", governance.ReasonRegion},
	} {
		r := request(c, tokens(1))
		r.Model, r.Region = ask.model, ask.region
		p, err := e.g.Admit(e.ctx, r)
		if ask.reason == 0 {
			e.ok(err)
			e.ok(p.Cancel(e.ctx))
			continue
		}
		refusal := e.refusal(err, ask.reason)
		e.equal("retryable", refusal.Retryable, false)
		e.equal("status", governance.StatusOf(err).Code, http.StatusForbidden)
	}
}

func admitFree(e *env) {
	l := keys.Limits{CostPerDay: keys.Cost(100), CostPerMonth: keys.Cost(100), TokensPerDay: keys.Limit(1000), RequestsPerMinute: keys.Limit(3)}
	e.team("team-1", l)
	c := e.caller("team-1", keys.Limits{})
	e.settle(e.admit(c, both(100, 100)), governance.Used(100, 100))
	e.refused(c, both(1, 1), governance.ReasonMoney)
	free := governance.Bound{Tokens: 500, Free: true}
	p := e.admit(c, free)
	e.equal("bound", p.Bound(), free)
	if e.record(p.ID()).Flags&governance.FlagFree == 0 {
		e.Fatal("the permit is not flagged as free")
	}
	e.held(c, governance.ScopeTeam, "cost_per_day", 100, 0, 0)
	e.held(c, governance.ScopeTeam, "tokens_per_day", 100, 0, 500)
	free.Tokens = 900
	e.refused(c, free, governance.ReasonReserved) // quotas still bind
	e.settle(p, governance.Unknown())
	e.held(c, governance.ScopeTeam, "tokens_per_day", 100, 500, 0)
	e.held(c, governance.ScopeTeam, "cost_per_day", 100, 0, 0)
	free.Tokens = 1
	e.settle(e.admit(c, free), governance.Used(1, 0))
	e.refused(c, free, governance.ReasonRate) // and so do rates
}

// admitUnpriced: what nothing bounds passes where money is not limited, and only there.
func admitUnpriced(e *env) {
	unpriced := governance.Bound{Tokens: 10, Unpriced: true}
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(50)})
	c := e.caller("team-1", keys.Limits{})
	p := e.admit(c, unpriced)
	e.equal("bound", p.Bound(), unpriced)
	e.is(p.Raise(e.ctx, both(20, 1)), governance.ErrInvalid)
	e.ok(p.Raise(e.ctx, governance.Bound{Tokens: 20}))
	e.settle(p, governance.Used(5, 7)) // a cost that is known after all is no overrun
	e.equal("flags", e.record(p.ID()).Flags, governance.FlagUnpriced)
	e.settle(e.admit(c, unpriced), governance.Unknown()) // nothing is held for money
	e.held(c, governance.ScopeTeam, "tokens_per_day", 5, 10, 0)

	limited := e.caller("team-1", keys.Limits{CostPerMonth: keys.Cost(math.MaxInt64)})
	r := e.refused(limited, unpriced, governance.ReasonUnpriced)
	e.equal("rule", r.Verdict.Constraint.Rule, "cost_per_month")
	e.equal("retryable", r.Retryable, false)
	e.equal("status", governance.StatusOf(r).Code, http.StatusForbidden)
	x, err := e.g.Explain(e.ctx, request(limited, unpriced))
	e.ok(err)
	if x.Refusal == nil || x.Refusal.Reason != governance.ReasonUnpriced {
		e.Fatalf("explained as %+v", x.Refusal)
	}
	// An edit that no one here has heard of decides too.
	e.limitKey(c.id, keys.LimitsChange{CostPerDay: keys.Set(keys.Cost(1000))})
	e.refused(c, unpriced, governance.ReasonUnpriced)
	e.held(c, governance.ScopeKey, "cost_per_day", 0, 0, 0)
}

func admitLargest(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(math.MaxInt64), CostPerMonth: keys.Cost(math.MaxInt64), TokensPerMinute: keys.Limit(math.MaxInt64), Concurrency: keys.Limit(math.MaxInt64)})
	c := e.caller("team-1", keys.Limits{TokensPerDay: keys.Limit(3_542_971_632)})
	e.admit(c, both(3_542_971_632, governance.MaxCost)) // more than 32 bits
	e.refused(c, tokens(1), governance.ReasonReserved)
	// An account that is all but full, as after years: the sum must not wrap.
	d := e.caller("team-1", keys.Limits{})
	key := e.account(d, governance.ScopeTeam, "tokens_per_day")
	full := e.cell(key)
	genuine := full
	full.Account = quota.Account{Consumed: math.MaxInt64 - 10, Uncertain: 5, Reserved: full.Account.Reserved}
	full.Account.Reserved = 4
	e.write(&governance.Changes{Cells: []governance.Cell{full}})
	e.admit(d, tokens(1))
	e.refused(d, tokens(1), governance.ReasonReserved)
	full.Account.Granted = math.MaxInt64
	e.write(&governance.Changes{Cells: []governance.Cell{full}})
	_, err := e.g.Admit(e.ctx, request(d, tokens(1)))
	var refusal *governance.Refusal
	if !errors.As(err, &refusal) || refusal.Verdict.Remaining() != 0 {
		e.Fatalf("an account whose sum overflows answers %v", err)
	}
	genuine.Account.Reserved++
	genuine.Entries++
	e.write(&governance.Changes{Cells: []governance.Cell{genuine}})
}

func admitCaptures(e *env) {
	e.team("team-1", everyLimit())
	c := e.create(keys.CreateKey{TeamID: "team-1", Owner: "user-1"})
	r := request(c, both(10, 10))
	r.Region, r.Guardrail, r.Price = "eu", "strict", []byte("price\x00row")
	p, err := e.g.Admit(e.ctx, r)
	e.ok(err)
	r.Price[0] = 'X' // the caller's bytes stay the caller's
	e.equal("price", string(p.Price()), "price\x00row")
	e.equal("model", p.Model(), "model-1")
	holds, err := e.g.Holds(e.ctx, governance.HoldQuery{})
	e.ok(err)
	h := holds[0]
	if len(holds) != 1 || h.ID != p.ID() || h.KeyID != c.id || h.TeamID != "team-1" || h.User != "user-1" || h.Model != "model-1" || string(h.Price) != "price\x00row" || h.Bound != both(10, 10) || len(h.Accounts) != 3 {
		e.Fatalf("the hold is %+v", h)
	}
}

func admitClosed(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	p := e.admit(c, both(10, 10))
	e.ok(e.g.Close(e.ctx))
	_, err := e.g.Admit(e.ctx, request(c, both(10, 10)))
	e.is(err, governance.ErrClosed)
	_, err = e.g.Usage(e.ctx, governance.UsageQuery{Principal: c.p})
	e.is(err, governance.ErrClosed)
	e.equal("status", governance.StatusOf(err).Code, http.StatusServiceUnavailable)
	if rec := e.record(p.ID()); rec.State != governance.StateOpen {
		e.Fatalf("closing ended a permit: %s", rec.State)
	}
	e.ok(e.g.Close(e.ctx))
}

func admitCancelled(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	ids := e.constraintsOf(c)
	before := e.snapshot(ids...)
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	_, err := e.g.Admit(ctx, request(c, both(10, 10)))
	e.is(err, ctx.Err())
	e.unchanged(before, ids...)
}
