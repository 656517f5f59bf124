package governancetest

import (
	"sync"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

func raceCases() []scenario {
	return []scenario{
		{name: "ReplayO2ExactlyTenOfFifty", also: "EdgeCheckAndDebitAreOne PrimitiveG2CheckAndIncrement", run: raceTen},
		{name: "ReplayO3NoBypassForTheRich", run: raceRich},
		{name: "ReplayO4ThePoorerConstraintDecides", run: racePoorer},
		{name: "ReplayO6SessionCap", run: raceSession},
		{name: "ReplayO7FourProcesses", run: raceProcesses},
		{name: "ReplayO7FourHandles", needs: Features{Shared: true}, run: raceHandles},
		{name: "ReplayO8HoldIsTheBound", run: raceHold},
		{name: "ReplayO12UserBudget", run: raceUser},
		{name: "ReplayR4ThreeStoresOneDatabase", run: raceStores},
		{name: "ReplayL13RefusedConsumesNothing", run: raceRefused},
		{name: "ReplayD1OverlappingSetsDoNotDeadlock", also: "PrimitiveG11LostCharge PrimitiveG12OrderOfLocks PrimitiveG24OrderOfWrites", run: raceDeadlock},
		{name: "ReplayX6CountingGoesOn", run: raceCounting},
		{name: "PrimitiveG1FirstUsesAtOnce", run: raceFirst},
		{name: "RefusedChangesNothingUnderLoad", run: raceUnchanged},
		{name: "SharedTransactionsChargeEachOnce", run: raceShared},
	}
}

func raceTen(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(1000)})
	c := e.caller("team-1", keys.Limits{})
	out := e.admits(50, c, tokens(100))
	e.wantAdmitted(out, 10)
	e.equal("refused", out.refused[governance.ReasonReserved], 40)
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 0, 1000)
	e.equal("open permits", len(e.everyPermit(governance.PermitQuery{States: []governance.State{governance.StateOpen}})), 10)
}

func raceRich(e *env) {
	e.team("team-1", keys.Limits{CostPerMonth: keys.Cost(101)})
	c := e.caller("team-1", keys.Limits{})
	e.wantAdmitted(e.admits(200, c, dollars(1)), 101)
	e.held(c, governance.ScopeTeam, "cost_per_month", 0, 0, 101)
}

func racePoorer(e *env) {
	e.team("team-1", keys.Limits{CostPerDay: keys.Cost(10_000)})
	c := e.caller("team-1", keys.Limits{CostPerDay: keys.Cost(10)})
	out := e.admits(100, c, dollars(1))
	e.wantAdmitted(out, 10)
	e.held(c, governance.ScopeKey, "cost_per_day", 0, 0, 10)
	e.held(c, governance.ScopeTeam, "cost_per_day", 0, 0, 10)
}

func raceSession(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{CostPerDay: keys.Cost(10)})
	e.wantAdmitted(e.admits(10, c, dollars(3)), 3)
}

// spend has n callers on several governors take one bound each.
func (e *env) spend(n int, c *caller, b governance.Bound, governors ...*governance.Governor) tally {
	e.Helper()
	return e.flood(n, func(i int) (*governance.Permit, error) {
		return governors[i%len(governors)].Admit(e.ctx, request(c, b))
	})
}

func raceProcesses(e *env) {
	e.team("team-1", keys.Limits{CostPerDay: keys.Cost(100)})
	c := e.caller("team-1", keys.Limits{})
	e.wantAdmitted(e.spend(4, c, dollars(30), e.g, e.governor(e.b, nil), e.governor(e.b, nil), e.governor(e.b, nil)), 3)
}

func raceHandles(e *env) {
	e.team("team-1", keys.Limits{CostPerDay: keys.Cost(100)})
	c := e.caller("team-1", keys.Limits{})
	governors := []*governance.Governor{e.g}
	for range 3 {
		governors = append(governors, e.governor(e.h.Reopen(e, e.b), nil))
	}
	e.wantAdmitted(e.spend(4, c, dollars(30), governors...), 3)
	e.team("team-2", keys.Limits{TokensPerDay: keys.Limit(1000), CostPerMonth: keys.Cost(1_000_000)})
	c = e.caller("team-2", keys.Limits{Concurrency: keys.Limit(77)})
	e.wantAdmitted(e.spend(200, c, both(10, 10), governors...), 77)
}

func raceHold(e *env) {
	e.team("team-1", keys.Limits{CostPerDay: keys.Cost(1_000_000)})
	c := e.caller("team-1", keys.Limits{})
	e.wantAdmitted(e.admits(1000, c, dollars(500_000)), 2)
}

func raceUser(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.create(keys.CreateKey{TeamID: "team-1", Owner: "user-1", Limits: keys.Limits{CostPerMonth: keys.Cost(100)}})
	e.wantAdmitted(e.admits(100, c, dollars(60)), 1)
}

func raceStores(e *env) {
	e.team("team-1", keys.Limits{CostPerMonth: keys.Cost(10)})
	c := e.caller("team-1", keys.Limits{})
	e.wantAdmitted(e.spend(30, c, dollars(1), e.g, e.governor(e.b, nil), e.governor(e.b, nil)), 10)
}

func raceRefused(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(100)})
	c := e.caller("team-1", keys.Limits{})
	e.wantAdmitted(e.admits(10, c, tokens(60)), 1)
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 0, 60)
	e.admit(c, tokens(40))
}

// raceDeadlock has two governors take the same rows in sets that overlap, admitting
// and settling in one another's way.
func raceDeadlock(e *env) {
	e.team("team-1", everyLimit())
	var callers []*caller
	for range 4 {
		callers = append(callers, e.caller("team-1", everyLimit()))
	}
	governors := []*governance.Governor{e.g, e.governor(e.b, nil), e.governor(e.b, &governance.Options{Lanes: 4})}
	out := e.flood(240, func(i int) (*governance.Permit, error) {
		p, err := governors[i%3].Admit(e.ctx, request(callers[i%4], both(10, 10)))
		if err == nil && i%2 == 0 {
			err = p.Settle(e.ctx, governance.Used(5, 5))
		}
		return p, err
	})
	e.wantAdmitted(out, 240)
	e.held(callers[0], governance.ScopeTeam, "tokens_per_day", 600, 0, 1200)
}

func raceCounting(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(100)})
	c := e.caller("team-1", keys.Limits{})
	out := e.admits(5, c, tokens(20))
	e.wantAdmitted(out, 5)
	for _, p := range out.permits {
		e.settle(p, governance.Used(60, 0)) // each used more than it said
	}
	e.held(c, governance.ScopeTeam, "tokens_per_day", 300, 0, 0)
	e.refused(c, tokens(0), governance.ReasonQuota)
}

func raceFirst(e *env) {
	for i := range 8 {
		team := "team-" + string(rune('a'+i))
		e.team(team, keys.Limits{CostPerDay: keys.Cost(1)})
		c := e.caller(team, keys.Limits{RequestsPerMinute: keys.Limit(1)})
		e.wantAdmitted(e.admits(8, c, dollars(1)), 1) // nothing existed before
	}
}

func raceUnchanged(e *env) {
	l := everyLimit()
	l.TokensPerDay = keys.Limit(100)
	e.team("team-1", l)
	c := e.caller("team-1", everyLimit())
	e.admit(c, both(90, 10))
	ids := e.constraintsOf(c)
	before := e.snapshot(ids...)
	out := e.admits(300, c, both(20, 10))
	e.equal("admitted", out.admitted, 0)
	e.equal("refused", out.refused[governance.ReasonReserved], 300)
	e.unchanged(before, ids...)
}

// raceShared lets requests of several teams and kinds share transactions: each must
// be charged its own, once.
func raceShared(e *env) {
	var callers []*caller
	for i := range 5 {
		team := "team-" + string(rune('a'+i))
		e.team(team, keys.Limits{TokensPerDay: keys.Limit(1_000_000), CostPerDay: keys.Cost(1_000_000)})
		callers = append(callers, e.caller(team, keys.Limits{}), e.caller(team, keys.Limits{CostPerMonth: keys.Cost(1_000_000)}))
	}
	var mu sync.Mutex
	want := map[string]int64{}
	out := e.flood(500, func(i int) (*governance.Permit, error) {
		c := callers[i*7%len(callers)]
		n := int64(i%13 + 1)
		mu.Lock()
		want[c.team] += n
		mu.Unlock()
		return e.g.Admit(e.ctx, request(c, both(amount.Tokens(n), 1)))
	})
	e.wantAdmitted(out, 500)
	for i := 0; i < len(callers); i += 2 {
		v := e.verdict(callers[i], governance.ScopeTeam, "tokens_per_day")
		e.equal("reserved", v.Reserved, want[callers[i].team])
	}
}
