package governancetest

import (
	"errors"
	"slices"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
)

func restartCases() []scenario {
	durable, shared := Features{Durable: true}, Features{Shared: true}
	return []scenario{
		{name: "EverythingIsStillThere", needs: durable, run: restartAll},
		{name: "OpenPermitsAreListedAndNothingRefunded", needs: durable, also: "ReplayL4KilledInTheMiddle", run: restartOpen},
		{name: "EdgeRestartDoesNotResetRates", needs: durable, also: "PrimitiveR23StateCarriesItsTime", run: restartRates},
		{name: "SameIDAfterRestart", needs: durable, run: restartID},
		{name: "TwoHandlesSeeTheSame", needs: shared, run: handlesSame},
		{name: "ReplayK2RevokedOnEveryReplica", run: handlesRevoked},
		{name: "ReplayW10EditSeenByStaleProcess", run: handlesEdit},
		{name: "TwoHandlesAdmitUpToTheLimit", needs: shared, run: handlesRace},
	}
}

// reopen continues on another handle.
func (e *env) reopen() {
	e.Helper()
	e.ok(e.g.Close(e.ctx))
	if closer, ok := e.b.(interface{ Close() error }); ok && !e.h.Features.Shared {
		e.ok(closer.Close())
	}
	e.b = e.h.Reopen(e, e.b)
	e.store, e.keys = e.b.Backend().Store, e.b.Backend().Keys
	e.g = e.governor(e.b, nil)
}

// another is a second process, as nearly as the store can have one.
func (e *env) another() *governance.Governor {
	e.Helper()
	if e.h.Features.Shared {
		return e.governor(e.h.Reopen(e, e.b), nil)
	}
	return e.governor(e.b, nil)
}

func restartAll(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	for _, o := range someOutcomes()[:6] {
		e.settle(e.admit(c, both(100, 70)), o)
	}
	e.admit(c, both(100, 70))
	ids := e.constraintsOf(c)
	before := e.snapshot(ids...)
	e.reopen()
	e.unchanged(before, ids...)
	e.wantDifferences(0)
	e.resolve(c)
	e.admit(c, both(1, 1))
}

func restartOpen(e *env) {
	e.team("team-1", keys.Limits{CostPerDay: keys.Cost(5000), Concurrency: keys.Limit(100)})
	c := e.caller("team-1", keys.Limits{})
	var want []governance.PermitID
	for range 10 {
		want = append(want, e.admit(c, dollars(500)).ID())
	}
	slices.SortFunc(want, comparePermitIDs)
	e.reopen()
	if have := e.holds(governance.HoldQuery{Open: true}); !slices.Equal(have, want) {
		e.Fatalf("open holds after a restart: %v, want %v", have, want)
	}
	e.held(c, governance.ScopeTeam, "cost_per_day", 0, 0, 5000)
	e.refused(c, dollars(1), governance.ReasonReserved)
	e.wantDifferences(0)
	e.resolved(want[0], governance.NotSent())
	e.resolved(want[1], governance.Used(0, 100))
	e.admit(c, dollars(900))
}

func restartRates(e *env) {
	c := e.rated(100)
	e.admit(c, tokens(100))
	e.reopen()
	e.resolve(c)
	e.refused(c, tokens(90), governance.ReasonRate)
}

func restartID(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	open, ended := e.id(), e.id()
	_, err := e.g.Admit(e.ctx, ask(c, both(1, 1), open))
	e.ok(err)
	p, err := e.g.Admit(e.ctx, ask(c, both(1, 1), ended))
	e.ok(err)
	e.settle(p, governance.Used(1, 1))
	e.reopen()
	e.resolve(c)
	_, err = e.g.Admit(e.ctx, ask(c, both(1, 1), open))
	e.is(err, governance.ErrInFlight)
	_, err = e.g.Admit(e.ctx, ask(c, both(1, 1), ended))
	e.is(err, governance.ErrTerminal)
}

func handlesSame(e *env) {
	other := e.h.Reopen(e, e.b)
	g := e.governor(other, nil)
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	for i := range 10 {
		p := e.admit(c, both(10, 10))
		rec, err := other.Backend().Store.View(e.ctx, &governance.Plan{Permits: []governance.PermitID{p.ID()}})
		e.ok(err)
		e.equal("state", rec.Permits[0].State, governance.StateOpen)
		if i%2 == 0 {
			_, err = g.Resolve(e.ctx, e.finding(p.ID(), governance.Used(1, 1)))
			e.ok(err)
			e.is(p.Settle(e.ctx, governance.Used(2, 2)), governance.ErrTerminal)
			continue
		}
		e.settle(p, governance.Used(1, 1))
	}
	v, err := g.Verify(e.ctx, governance.VerifyQuery{})
	e.ok(err)
	e.equal("differences", len(v.Differences), 0)
	e.held(c, governance.ScopeTeam, "tokens_per_day", 10, 0, 0)
}

func handlesRevoked(e *env) {
	e.team("team-1", everyLimit())
	var governors []*governance.Governor
	for range 4 {
		governors = append(governors, e.another())
	}
	for range 3 {
		c := e.caller("team-1", everyLimit())
		for _, g := range governors {
			_, err := g.Admit(e.ctx, request(c, both(1, 1)))
			e.ok(err)
		}
		_, err := e.keys.RevokeKey(e.ctx, keys.RevokeKey{ID: c.id})
		e.ok(err)
		for _, g := range governors { // the first admission after it, everywhere
			_, err := g.Admit(e.ctx, request(c, both(1, 1)))
			e.refusal(err, governance.ReasonUnauthenticated)
		}
	}
}

func handlesEdit(e *env) {
	g := e.another()
	e.team("team-1", keys.Limits{CostPerMonth: keys.Cost(500)})
	c := e.caller("team-1", keys.Limits{})
	_, err := g.Admit(e.ctx, request(c, dollars(90)))
	e.ok(err)
	e.limitTeam("team-1", keys.LimitsChange{CostPerMonth: keys.Set(keys.Cost(80)), CostPerDay: keys.Set(keys.Cost(100))})
	_, err = g.Admit(e.ctx, request(c, dollars(101))) // with what it read before the edit
	e.refusal(err, governance.ReasonNeverFits)
}

func handlesRace(e *env) {
	other := e.governor(e.h.Reopen(e, e.b), nil)
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(777)})
	c := e.caller("team-1", keys.Limits{})
	out := e.flood(1000, func(i int) (*governance.Permit, error) {
		g := []*governance.Governor{e.g, other}[i%2]
		p, err := g.Admit(e.ctx, request(c, tokens(1)))
		if errors.Is(err, governance.ErrUnavailable) {
			return nil, &governance.Refusal{Reason: governance.ReasonGated} // the file was busy for too long
		}
		return p, err
	})
	e.wantAdmitted(out, 777)
}
