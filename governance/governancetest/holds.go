package governancetest

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

func holdsCases() []scenario {
	return []scenario{
		{name: "ListsOpenUncertainAndInvalid", run: holdsList},
		{name: "PagesInOrder", run: holdsPages},
		{name: "FiltersByTeamAndKey", run: holdsFilter},
		{name: "BadLimitIsRefused", run: holdsBad},
		{name: "ReplayK8TombstonesKeepTheirNames", run: holdsTombstones},
		{name: "ReplayL8OrphansAreListed", also: "ReplayL12ResolvedWithoutRestart", run: holdsOrphans},
	}
}

// findings are what operators may find.
func (e *env) finding(id governance.PermitID, o governance.Outcome) governance.Evidence {
	return governance.Evidence{ID: id, Outcome: o, Actor: "ops@example.org", Reason: "the provider's bill of March"}
}

func (e *env) resolved(id governance.PermitID, o governance.Outcome) *governance.Hold {
	e.Helper()
	h, err := e.g.Resolve(e.ctx, e.finding(id, o))
	e.ok(err)
	return h
}

func (e *env) holds(q governance.HoldQuery) []governance.PermitID {
	e.Helper()
	list, err := e.g.Holds(e.ctx, q)
	e.ok(err)
	var ids []governance.PermitID
	for _, h := range list {
		ids = append(ids, h.ID)
	}
	return ids
}

func holdsList(e *env) {
	c := e.spender()
	bound := both(10, 10)
	open, cancelled, used, unsure := e.admit(c, bound), e.admit(c, bound), e.admit(c, bound), e.admit(c, bound)
	over, partly, bad := e.admit(c, bound), e.admit(c, bound), e.admit(c, bound)
	e.ok(cancelled.Cancel(e.ctx))
	e.settle(used, governance.Used(1, 1))
	e.settle(unsure, governance.Observed(1, 1))
	e.settle(over, governance.Used(20, 20))
	e.settle(partly, governance.Outcome{Tokens: governance.Measure{Certainty: governance.Known, Value: 3}})
	e.settle(bad, impossible())
	want := []governance.PermitID{open.ID(), unsure.ID(), partly.ID(), bad.ID()}
	have := e.holds(governance.HoldQuery{})
	slices.SortFunc(want, comparePermitIDs)
	if !slices.Equal(have, want) {
		e.Fatalf("holds are %v, want %v", have, want)
	}
	if have := e.holds(governance.HoldQuery{Open: true}); !slices.Equal(have, []governance.PermitID{open.ID()}) {
		e.Fatalf("open holds are %v", have)
	}
	for _, id := range want {
		e.resolved(id, governance.Used(5, 5))
	}
	e.equal("holds after all were resolved", len(e.holds(governance.HoldQuery{})), 0)
}

func comparePermitIDs(a, b governance.PermitID) int {
	return strings.Compare(string(a[:]), string(b[:]))
}

func holdsPages(e *env) {
	c := e.spender()
	var want []governance.PermitID
	for i := range 25 {
		p := e.admit(c, both(1, 1))
		switch i % 3 {
		case 0:
			e.settle(p, governance.Used(1, 1))
			continue
		case 1:
			e.settle(p, governance.Unknown())
			want = append(want, p.ID())
		case 2:
			e.ok(p.Cancel(e.ctx))
		}
	}
	for range 5 {
		want = append(want, e.admit(c, both(1, 1)).ID())
	}
	slices.SortFunc(want, comparePermitIDs)
	for _, limit := range []int{1, 2, 7, len(want), 100} {
		var have []governance.PermitID
		q := governance.HoldQuery{Limit: limit}
		for {
			page := e.holds(q)
			have = append(have, page...)
			if len(page) < limit || len(have) > len(want) {
				break
			}
			q.After = page[len(page)-1]
		}
		if !slices.Equal(have, want) {
			e.Fatalf("pages of %d: %v, want %v", limit, have, want)
		}
	}
}

func holdsFilter(e *env) {
	e.team("team-1", keys.Limits{})
	e.team("team-2", keys.Limits{})
	a, b, c := e.caller("team-1", keys.Limits{}), e.caller("team-1", keys.Limits{}), e.caller("team-2", keys.Limits{})
	pa, pb, pc := e.admit(a, tokens(1)), e.admit(b, tokens(1)), e.admit(c, tokens(1))
	for want, q := range map[string]governance.HoldQuery{
		"a b": {Team: "team-1"}, "b": {Key: b.id}, "c": {Team: "team-2", Limit: 1}, "": {Team: "team-2", Key: a.id}, "b ": {Team: "team-1", After: pa.ID(), Limit: 1},
	} {
		var names []string
		for _, id := range e.holds(q) {
			names = append(names, map[governance.PermitID]string{pa.ID(): "a", pb.ID(): "b", pc.ID(): "c"}[id])
		}
		slices.Sort(names)
		if strings.Join(names, " ") != strings.TrimSpace(want) && comparePermitIDs(pa.ID(), pb.ID()) < 0 {
			e.Fatalf("%+v selects %v, want %s", q, names, want)
		}
	}
}

func holdsBad(e *env) {
	for _, limit := range []int{-1, 1001} {
		_, err := e.g.Holds(e.ctx, governance.HoldQuery{Limit: limit})
		e.is(err, governance.ErrInvalid)
		_, err = e.g.FrozenAccounts(e.ctx, governance.AccountQuery{Limit: limit})
		e.is(err, governance.ErrInvalid)
	}
}

func holdsTombstones(e *env) {
	e.team("team-1", everyLimit())
	c := e.create(keys.CreateKey{TeamID: "team-1", Owner: "user-1"})
	p := e.admit(c, both(1, 1))
	_, err := e.keys.RevokeKey(e.ctx, keys.RevokeKey{ID: c.id})
	e.ok(err)
	_, err = e.keys.DeleteTeam(e.ctx, keys.DeleteTeam{ID: "team-1"})
	e.ok(err)
	list, err := e.g.Holds(e.ctx, governance.HoldQuery{})
	e.ok(err)
	if len(list) != 1 || list[0].KeyID != c.id || list[0].TeamID != "team-1" || list[0].User != "user-1" {
		e.Fatalf("the hold of a revoked key is %+v", list)
	}
	h := e.resolved(p.ID(), governance.Used(1, 1))
	e.equal("team", h.TeamID, "team-1")
}

// holdsOrphans: eight reservations, two settlements, six lost with their process.
func holdsOrphans(e *env) {
	e.team("team-1", keys.Limits{CostPerDay: keys.Cost(4_000_000)})
	c := e.caller("team-1", keys.Limits{})
	lost := e.governor(e.b, nil)
	for i := range 8 {
		p, err := lost.Admit(e.ctx, request(c, dollars(127_511)))
		e.ok(err)
		if i < 2 {
			e.settle(p, governance.Used(0, 1000))
		}
	}
	e.ok(lost.Close(e.ctx))
	ids := e.holds(governance.HoldQuery{Team: "team-1", Open: true})
	e.equal("orphans", len(ids), 6)
	e.held(c, governance.ScopeTeam, "cost_per_day", 2000, 0, 6*127_511)
	for _, id := range ids {
		e.resolved(id, governance.NotSent())
	}
	e.held(c, governance.ScopeTeam, "cost_per_day", 2000, 0, 0)
}

func resolveCases() []scenario {
	return []scenario{
		{name: "Open", run: resolveOpen},
		{name: "Uncertain", run: resolveUncertain},
		{name: "Invalid", run: resolveInvalid},
		{name: "PartlyUncertain", run: resolvePartly},
		{name: "ReplayIsANoOp", run: resolveReplay},
		{name: "OtherFindingConflicts", run: resolveConflict},
		{name: "NothingHeldIsTerminal", run: resolveTerminal},
		{name: "UnknownPermit", run: resolveUnknown},
		{name: "BadFindingIsRefused", run: resolveBad},
		{name: "OwnerComesLate", run: resolveLate},
		{name: "InAPastWindow", also: "ReplayW15BackdatedCorrection", run: resolvePast},
		{name: "TwoOperatorsAtOnce", also: "ReplayI3TwoInstancesRefundOnce", run: resolveRace},
		{name: "ReplayW4SaysWhatStillRefuses", run: resolveStillRefused},
	}
}

func resolveOpen(e *env) {
	c := e.spender()
	p, q, r := e.admit(c, both(100, 70)), e.admit(c, both(100, 70)), e.admit(c, both(100, 70))
	h := e.resolved(p.ID(), governance.Used(40, 30))
	if h.State != governance.StateResolved || h.ID != p.ID() || h.EndedAt == 0 {
		e.Fatalf("resolved: %+v", h)
	}
	e.held(c, governance.ScopeTeam, "tokens_per_day", 40, 0, 200)
	e.resolved(q.ID(), governance.NotSent())
	e.held(c, governance.ScopeTeam, "tokens_per_day", 40, 0, 100)
	e.resolved(r.ID(), governance.Used(150, 150))
	e.held(c, governance.ScopeTeam, "tokens_per_day", 190, 0, 0)
	e.held(c, governance.ScopeTeam, "cost_per_day", 180, 0, 0)
	e.held(c, governance.ScopeTeam, "concurrency", 0, 0, 0)
}

func resolveUncertain(e *env) {
	c := e.spender()
	for i, o := range []governance.Outcome{governance.Used(40, 30), governance.NotSent(), governance.Used(500, 500)} {
		p := e.admit(c, both(100, 70))
		e.settle(p, governance.Observed(7, 7))
		e.resolved(p.ID(), o)
		rec := e.record(p.ID())
		if rec.State != governance.StateResolved || rec.Outcome != governance.Observed(7, 7) || rec.Resolution != o {
			e.Fatalf("the permit is %s", describeRecord(&rec))
		}
		want := []int64{40, 40, 540}[i]
		e.held(c, governance.ScopeTeam, "tokens_per_day", want, 0, 0)
	}
}

func resolveInvalid(e *env) {
	c := e.spender()
	p := e.admit(c, both(100, 70))
	e.settle(p, impossible())
	e.resolved(p.ID(), governance.Used(40, 30))
	e.held(c, governance.ScopeTeam, "tokens_per_day", 40, 0, 0)
	e.refused(c, tokens(1), governance.ReasonFrozen) // that it may admit again is another decision
}

func resolvePartly(e *env) {
	c := e.spender()
	p := e.admit(c, both(100, 70))
	e.settle(p, governance.Outcome{Tokens: governance.Measure{Certainty: governance.Known, Value: 40}})
	e.resolved(p.ID(), governance.Used(99, 30)) // only the cost was open
	e.held(c, governance.ScopeTeam, "tokens_per_day", 40, 0, 0)
	e.held(c, governance.ScopeTeam, "cost_per_day", 30, 0, 0)
}

func resolveReplay(e *env) {
	c := e.spender()
	p := e.admit(c, both(100, 70))
	e.resolved(p.ID(), governance.Used(40, 30))
	before := e.snapshot()
	h := e.resolved(p.ID(), governance.Used(40, 30))
	e.equal("state", h.State, governance.StateResolved)
	e.unchanged(before)
}

func resolveConflict(e *env) {
	c := e.spender()
	p := e.admit(c, both(100, 70))
	e.resolved(p.ID(), governance.Used(40, 30))
	before := e.snapshot()
	for _, o := range []governance.Outcome{governance.Used(41, 30), governance.NotSent()} {
		_, err := e.g.Resolve(e.ctx, e.finding(p.ID(), o))
		e.is(err, governance.ErrConflict)
	}
	e.unchanged(before)
}

func resolveTerminal(e *env) {
	c := e.spender()
	for _, o := range []governance.Outcome{governance.Used(40, 30), governance.NotSent()} {
		p := e.admit(c, both(100, 70))
		e.settle(p, o)
		_, err := e.g.Resolve(e.ctx, e.finding(p.ID(), governance.Used(1, 1)))
		e.is(err, governance.ErrTerminal)
	}
}

func resolveUnknown(e *env) {
	_, err := e.g.Resolve(e.ctx, e.finding(e.id(), governance.NotSent()))
	e.is(err, governance.ErrNotFound)
	e.equal("status", governance.StatusOf(err).Code, http.StatusNotFound)
}

func resolveBad(e *env) {
	c := e.spender()
	p := e.admit(c, both(100, 70))
	before := e.snapshot()
	for _, spoil := range []func(f *governance.Evidence){
		func(f *governance.Evidence) { f.Actor = "" }, func(f *governance.Evidence) { f.Reason = "" },
		func(f *governance.Evidence) { f.Actor = "a\nb" }, func(f *governance.Evidence) { f.Reason = strings.Repeat("x", 10_000) },
		func(f *governance.Evidence) { f.Outcome = governance.Unknown() }, func(f *governance.Evidence) { f.Outcome = impossible() },
		func(f *governance.Evidence) { f.Outcome = governance.Used(-1, 0) }, func(f *governance.Evidence) { f.ID = governance.PermitID{1} },
		func(f *governance.Evidence) {
			f.Outcome = governance.Outcome{Tokens: governance.Measure{Certainty: governance.Known}}
		},
	} {
		f := e.finding(p.ID(), governance.Used(1, 1))
		spoil(&f)
		_, err := e.g.Resolve(e.ctx, f)
		e.is(err, governance.ErrInvalid)
	}
	e.unchanged(before)
}

// resolveLate: the owner was alive after all. Its outcome is not recorded twice.
func resolveLate(e *env) {
	c := e.spender()
	p := e.admit(c, both(100, 70))
	e.resolved(p.ID(), governance.Used(40, 30))
	before := e.snapshot()
	err := p.Settle(e.ctx, governance.Used(50, 50))
	e.is(err, governance.ErrTerminal)
	var terminal *governance.TerminalError
	if !errors.As(err, &terminal) || terminal.State != governance.StateResolved {
		e.Fatalf("error is %v", err)
	}
	e.unchanged(before)
}

func resolvePast(e *env) {
	c := e.spender()
	open, unsure := e.admit(c, both(100, 70)), e.admit(c, both(100, 70))
	e.settle(unsure, governance.Unknown())
	yesterday := e.account(c, governance.ScopeTeam, "tokens_per_day")
	e.advance(40 * 24 * time.Hour)
	e.admit(c, both(1, 1))
	e.resolved(open.ID(), governance.Used(40, 30))
	e.resolved(unsure.ID(), governance.Used(50, 30))
	e.equal("the old window", e.cell(yesterday).Account, quota.Account{Consumed: 90})
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 0, 1)
}

func resolveRace(e *env) {
	c := e.spender()
	other := e.governor(e.b, nil)
	for i := range 6 {
		p := e.admit(c, both(50, 50))
		if i%2 == 0 {
			e.settle(p, governance.Unknown())
		}
		var wg sync.WaitGroup
		for j, g := range []*governance.Governor{e.g, other, e.g, other} {
			wg.Go(func() {
				_, err := g.Resolve(e.ctx, e.finding(p.ID(), governance.NotSent()))
				if err != nil && !errors.Is(err, governance.ErrConflict) {
					e.Errorf("operator %d: %v", j, err)
				}
			})
		}
		wg.Wait()
		e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 0, 0)
	}
}

func resolveStillRefused(e *env) {
	e.team("team-1", keys.Limits{CostPerDay: keys.Cost(50), CostPerMonth: keys.Cost(100)})
	c := e.caller("team-1", keys.Limits{})
	p := e.admit(c, dollars(50))
	e.settle(p, governance.Unknown())
	e.advance(24 * time.Hour)
	e.settle(e.admit(c, dollars(50)), governance.Used(0, 50))
	e.resolved(p.ID(), governance.NotSent()) // gives back to yesterday and to the month
	x, err := e.g.Explain(e.ctx, request(c, dollars(10)))
	e.ok(err)
	if x.Admitted || len(x.Refusal.All) != 1 || x.Refusal.Verdict.Constraint.Rule != "cost_per_day" {
		e.Fatalf("explained: %+v", x)
	}
}
