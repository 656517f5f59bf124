package governancetest

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

func pruneCases() []scenario {
	return []scenario{
		{name: "ForgetsWhatHasEnded", run: pruneEnded},
		{name: "KeepsWhatIsHeld", run: pruneHeld},
		{name: "WhatIsKeptEndsAsEver", run: pruneKeptEnds},
		{name: "APrunedIDDoesNotComeBack", run: pruneReplay},
		{name: "AKeptIDIsStillTaken", run: pruneKeptID},
		{name: "FrozenAccountsKeepTheirPermits", run: pruneFrozen},
		{name: "AccountsThatDifferKeepTheirPermits", run: pruneDiffers},
		{name: "OldIDsOfYoungPermitsStay", run: pruneOldIDs},
		{name: "IsNotedWithItsSums", run: pruneNoted},
		{name: "NeverBackwards", run: pruneNeverBackwards},
		{name: "BadQueryIsRefused", run: pruneBad},
		{name: "ManyBatches", run: pruneMany},
		{name: "AfterARestart", needs: Features{Durable: true}, run: pruneRestart},
		{name: "WhileAdmissionsGoOn", run: pruneBusy},
		{name: "TwoAtOnce", run: pruneTwice},
		{name: "TwoAtOnceOnTwoHandles", needs: Features{Shared: true}, run: pruneTwiceShared},
	}
}

func (e *env) pruning(ago time.Duration) governance.PruneQuery {
	return governance.PruneQuery{OlderThan: ago, Actor: "ops", Reason: "kept for long enough"}
}

// prune forgets what is older, and finds the books as they were.
func (e *env) prune(ago time.Duration) governance.PruneReport {
	e.Helper()
	before := e.everyAccount()
	report, err := e.g.Prune(e.ctx, e.pruning(ago))
	e.ok(err)
	after := e.everyAccount()
	for i := range before {
		e.equal("account after pruning", e.describeCell(&after[i]), e.describeCell(&before[i]))
	}
	e.balanced()
	return report
}

// balanced verifies from the checkpoints and in full.
func (e *env) balanced() {
	e.Helper()
	for _, full := range []bool{false, true} {
		if v := e.verify(governance.VerifyQuery{Full: full}); len(v.Differences) > 0 {
			e.Fatalf("full %v: %+v", full, v.Differences)
		}
	}
}

// generous makes a caller whom no limit stops.
func (e *env) generous() *caller {
	e.Helper()
	e.team("team-1", everyLimit())
	return e.caller("team-1", keys.Limits{TokensPerDay: keys.Limit(500_000), CostPerMonth: keys.Cost(900_000)})
}

func pruneEnded(e *env) {
	c := e.generous()
	used, none, found := e.admit(c, both(10, 20)), e.admit(c, both(10, 20)), e.admit(c, both(10, 20))
	free, err := e.g.Admit(e.ctx, request(c, governance.Bound{Tokens: 10, Free: true}))
	e.ok(err)
	e.settle(used, governance.Used(3, 4))
	e.settle(free, governance.Used(3, 0))
	e.ok(none.Cancel(e.ctx))
	e.settle(found, governance.Observed(1, 1))
	e.resolved(found.ID(), governance.Used(5, 6))
	e.advance(9 * day)
	today := e.admit(c, both(1, 2))
	e.settle(today, governance.Used(1, 2))
	report := e.prune(4 * day)
	e.equal("removed", report.Removed, governance.Pruned{Permits: 4, Tokens: 11, Cost: 10})
	e.equal("total", report.Total, report.Removed)
	e.equal("kept", report.Kept, int64(0))
	e.equal("differences", len(report.Differences), 0)
	if report.Horizon != e.horizon() || report.Horizon > e.now()-(4*day).Microseconds() {
		e.Fatalf("the horizon is %d, reported %d", e.horizon(), report.Horizon)
	}
	list := e.everyPermit(governance.PermitQuery{})
	if len(list) != 1 || list[0].ID != today.ID() {
		e.Fatalf("%d permits are left", len(list))
	}
	v := e.verify(governance.VerifyQuery{Full: true})
	if v.Pruned == 0 || v.Pruned >= v.Accounts {
		e.Fatalf("verified: %+v, want some accounts to be pruned", v)
	}
	e.held(c, governance.ScopeTeam, "cost_per_month", 12, 0, 0)
	// It goes on as before, and again is a no-op.
	e.settle(e.admit(c, both(10, 20)), governance.Used(3, 4))
	e.equal("removed by a repetition", e.prune(4*day).Removed, governance.Pruned{})
}

// mixed admits permits of every kind: first those that may be forgotten.
func (e *env) mixed(c *caller) (ended, held []*governance.Permit) {
	e.Helper()
	for range 5 {
		p := e.admit(c, both(10, 20))
		e.settle(p, governance.Used(3, 4))
		ended = append(ended, p)
	}
	open, unsure, partly, over := e.admit(c, both(10, 20)), e.admit(c, both(10, 20)), e.admit(c, both(10, 20)), e.admit(c, both(10, 20))
	e.settle(unsure, governance.Unknown())
	e.settle(partly, governance.Outcome{Tokens: governance.Measure{Certainty: governance.Known, Value: 3}})
	e.settle(over, governance.Used(30, 40))
	return ended, []*governance.Permit{open, unsure, partly, over}
}

func ids(list []*governance.Permit) (out []governance.PermitID) {
	for _, p := range list {
		out = append(out, p.ID())
	}
	slices.SortFunc(out, comparePermitIDs)
	return out
}

func (e *env) permitIDs() (out []governance.PermitID) {
	e.Helper()
	for _, rec := range e.everyPermit(governance.PermitQuery{}) {
		out = append(out, rec.ID)
	}
	return out
}

func pruneHeld(e *env) {
	c := e.generous()
	_, held := e.mixed(c)
	holds := e.holds(governance.HoldQuery{})
	e.equal("holds", len(holds), 3)
	e.advance(9 * day)
	for range 2 {
		report := e.prune(4 * day)
		e.equal("kept", report.Kept, int64(4))
		e.equal("removed in all", report.Total, governance.Pruned{Permits: 5, Tokens: 15, Cost: 20})
		if have := e.permitIDs(); !slices.Equal(have, ids(held)) {
			e.Fatalf("left are %v, want %v", have, ids(held))
		}
		if have := e.holds(governance.HoldQuery{}); !slices.Equal(have, holds) {
			e.Fatalf("holds are %v, want %v", have, holds)
		}
	}
	e.equal("open holds", len(e.holds(governance.HoldQuery{Open: true})), 1)
}

// pruneKeptEnds: what is kept settles into the old window's account, is replayed,
// conflicts, resolves; and once it has ended the next time removes it.
func pruneKeptEnds(e *env) {
	c := e.generous()
	_, held := e.mixed(c)
	open, unsure, partly := held[0], held[1], held[2]
	old := e.account(c, governance.ScopeTeam, "tokens_per_day")
	e.advance(9 * day)
	e.settle(e.admit(c, both(1, 1)), governance.Used(1, 1))
	e.prune(4 * day)
	e.ok(open.Raise(e.ctx, both(12, 22)))
	e.balanced()
	e.settle(open, governance.Used(11, 21))
	e.settle(open, governance.Used(11, 21)) // an exact replay
	e.is(open.Settle(e.ctx, governance.Used(12, 22)), governance.ErrConflict)
	e.is(unsure.Settle(e.ctx, governance.Used(1, 1)), governance.ErrConflict)
	e.resolved(unsure.ID(), governance.Used(2, 2))
	_, err := e.g.Resolve(e.ctx, e.finding(unsure.ID(), governance.Used(3, 3)))
	e.is(err, governance.ErrConflict)
	e.balanced()
	e.equal("the old window", e.cell(old).Account, quota.Account{Consumed: 15 + 11 + 2 + 3 + 30})
	report := e.prune(4 * day)
	e.equal("removed", report.Removed, governance.Pruned{Permits: 2, Tokens: 13, Cost: 23})
	e.equal("removed in all", report.Total, governance.Pruned{Permits: 7, Tokens: 28, Cost: 43})
	e.equal("kept", report.Kept, int64(2))
	e.is(open.Settle(e.ctx, governance.Used(11, 21)), governance.ErrPruned)
	e.resolved(partly.ID(), governance.NotSent())
	e.equal("removed", e.prune(4*day).Removed, governance.Pruned{Permits: 1, Tokens: 3})
}

func pruneReplay(e *env) {
	c := e.generous()
	id := e.id()
	r := ask(c, both(10, 20), id)
	p, err := e.g.Admit(e.ctx, r)
	e.ok(err)
	e.settle(p, governance.Used(3, 4))
	e.advance(9 * day)
	e.prune(4 * day)
	before := e.snapshot()
	_, err = e.g.Admit(e.ctx, r)
	e.is(err, governance.ErrPruned)
	e.equal("status", governance.StatusOf(err).Code, http.StatusConflict)
	_, err = e.g.Admit(e.ctx, ask(c, both(99, 99), id)) // with other terms too
	e.is(err, governance.ErrPruned)
	_, err = e.g.Admit(e.ctx, ask(c, both(1, 1), governance.NewPermitID(time.UnixMicro(e.now()).Add(-9*day))))
	e.is(err, governance.ErrPruned) // one that never was
	e.is(p.Settle(e.ctx, governance.Used(3, 4)), governance.ErrPruned)
	e.is(p.Raise(e.ctx, both(99, 99)), governance.ErrPruned)
	_, err = e.g.Resolve(e.ctx, e.finding(id, governance.NotSent()))
	e.is(err, governance.ErrPruned)
	e.unchanged(before)
	young := e.id()
	_, err = e.g.Admit(e.ctx, ask(c, both(1, 1), young))
	e.ok(err)
}

func pruneKeptID(e *env) {
	c := e.generous()
	r := ask(c, both(10, 20), e.id())
	p, err := e.g.Admit(e.ctx, r)
	e.ok(err)
	e.advance(9 * day)
	e.prune(4 * day)
	_, err = e.g.Admit(e.ctx, r)
	e.is(err, governance.ErrInFlight)
	other := r
	other.Bound.Tokens++
	_, err = e.g.Admit(e.ctx, other)
	e.is(err, governance.ErrConflict)
	e.settle(p, governance.Used(30, 40)) // an overrun: it stays
	e.prune(4 * day)
	_, err = e.g.Admit(e.ctx, r)
	e.is(err, governance.ErrTerminal)
}

func pruneFrozen(e *env) {
	c := e.generous()
	e.team("team-2", everyLimit())
	other := e.caller("team-2", keys.Limits{})
	e.settle(e.admit(c, both(10, 20)), governance.Used(3, 4))
	bad := e.admit(c, both(10, 20))
	e.settle(bad, impossible())
	e.settle(e.admit(other, both(10, 20)), governance.Used(3, 4))
	e.resolved(bad.ID(), governance.Used(5, 5))
	e.advance(9 * day)
	report := e.prune(4 * day)
	e.equal("removed", report.Removed.Permits, int64(1)) // the other team's
	e.equal("kept", report.Kept, int64(2))
	for _, cell := range e.frozen() {
		e.ok(e.unfreeze(cell.Key))
	}
	e.equal("removed", e.prune(4*day).Removed, governance.Pruned{Permits: 2, Tokens: 8, Cost: 9})
}

func pruneDiffers(e *env) {
	c := e.generous()
	e.team("team-2", everyLimit())
	other := e.caller("team-2", keys.Limits{})
	for range 3 {
		e.settle(e.admit(c, both(10, 20)), governance.Used(3, 4))
		e.settle(e.admit(other, both(10, 20)), governance.Used(3, 4))
	}
	genuine := e.cell(e.account(c, governance.ScopeTeam, "cost_per_day"))
	spoiled := genuine
	spoiled.Account.Consumed--
	e.write(&governance.Changes{Cells: []governance.Cell{spoiled}})
	e.advance(9 * day)
	report, err := e.g.Prune(e.ctx, e.pruning(4*day))
	e.ok(err)
	if len(report.Differences) != 1 || report.Differences[0].Account != genuine.Key || report.Removed.Permits != 3 || report.Kept != 3 {
		e.Fatalf("reported: %+v", report)
	}
	e.write(&governance.Changes{Cells: []governance.Cell{genuine}})
	e.equal("removed", e.prune(4*day).Removed.Permits, int64(3))
}

// pruneOldIDs: a caller's id may be weeks old when its permit is admitted.
func pruneOldIDs(e *env) {
	c := e.generous()
	e.settle(e.admit(c, both(1, 1)), governance.Used(1, 1))
	e.advance(20 * day)
	id := governance.NewPermitID(time.UnixMicro(e.now()).Add(-15 * day))
	p, err := e.g.Admit(e.ctx, ask(c, both(10, 20), id))
	e.ok(err)
	e.settle(p, governance.Used(3, 4))
	report := e.prune(10 * day)
	e.equal("removed", report.Removed.Permits, int64(1))
	e.equal("kept", report.Kept, int64(1))
	_, err = e.g.Admit(e.ctx, ask(c, both(10, 20), id))
	e.is(err, governance.ErrTerminal)
	e.advance(20 * day)
	e.equal("removed", e.prune(10*day).Removed, governance.Pruned{Permits: 1, Tokens: 3, Cost: 4})
}

func pruneNoted(e *env) {
	c := e.generous()
	e.mixed(c)
	e.advance(9 * day)
	e.prune(4 * day)
	notes, err := e.g.Notes(e.ctx, governance.NoteQuery{Limit: 10})
	e.ok(err)
	if len(notes) != 2 || notes[0].Action != "prune" || notes[1].Action != "pruned" {
		e.Fatalf("notes: %+v", notes)
	}
	for _, n := range notes {
		if n.Actor != "ops" || n.Reason != "kept for long enough" || n.At != e.now() || !strings.Contains(n.After, `"horizon_us":`) {
			e.Fatalf("note: %+v", n)
		}
	}
	if !strings.Contains(notes[1].Before, `"permits":0`) || !strings.Contains(notes[1].After, `"permits":5,"tokens":15,"cost_microusd":20`) {
		e.Fatalf("note: %+v", notes[1])
	}
}

func pruneNeverBackwards(e *env) {
	c := e.generous()
	e.settle(e.admit(c, both(10, 20)), governance.Used(3, 4))
	e.advance(30 * day)
	first := e.prune(4 * day)
	e.equal("horizon", e.prune(20*day).Horizon, first.Horizon)
	_, err := e.g.Admit(e.ctx, ask(c, both(1, 1), governance.NewPermitID(time.UnixMicro(first.Horizon).Add(-day))))
	e.is(err, governance.ErrPruned)
	// A clock that went back makes no ids that are forgotten already.
	e.advance(-10 * day)
	p := e.admit(c, both(1, 1))
	if p.ID().UnixMilli()*1000 < first.Horizon {
		e.Fatalf("permit %s is older than the horizon", p.ID())
	}
	e.settle(p, governance.Used(1, 1))
	e.advance(10 * day)
}

func pruneBad(e *env) {
	now := time.UnixMicro(e.now())
	for _, q := range []governance.PruneQuery{
		{Actor: "ops", Reason: "why"}, {OlderThan: day, Reason: "why"}, {OlderThan: day, Actor: "ops"},
		{OlderThan: day, Before: now.Add(-day), Actor: "ops", Reason: "why"}, {OlderThan: -day, Actor: "ops", Reason: "why"},
		{OlderThan: time.Minute, Actor: "ops", Reason: "why"}, {Before: now, Actor: "ops", Reason: "why"},
		{Before: time.Unix(-5, 0), Actor: "ops", Reason: "why"}, {OlderThan: day, Actor: "o\x00", Reason: "why"},
	} {
		_, err := e.g.Prune(e.ctx, q)
		e.is(err, governance.ErrInvalid)
	}
	e.equal("horizon", e.horizon(), int64(0))
	notes, err := e.g.Notes(e.ctx, governance.NoteQuery{Limit: 10})
	e.ok(err)
	e.equal("notes", len(notes), 0)
	_, err = e.g.Prune(e.ctx, governance.PruneQuery{Before: now.Add(-2 * day), Actor: "ops", Reason: "why"})
	e.ok(err)
}

// pruneMany needs several pages of permits, entries and trims.
func pruneMany(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(1_000_000), CostPerMonth: keys.Cost(1_000_000)})
	c := e.caller("team-1", keys.Limits{})
	kept := 0
	for i := range 1300 {
		p := e.admit(c, both(3, 3))
		switch {
		case i%100 == 0:
			kept++
		default:
			e.settle(p, governance.Used(1, 1))
		}
		if i == 1200 {
			e.advance(9 * day)
		}
	}
	report := e.prune(4 * day)
	e.equal("removed", report.Removed.Permits, int64(1201-13))
	e.equal("kept", report.Kept, int64(13))
	e.equal("permits", len(e.everyPermit(governance.PermitQuery{})), 1300-(1201-13))
	e.equal("holds", len(e.holds(governance.HoldQuery{})), kept)
}

func pruneRestart(e *env) {
	c := e.generous()
	_, held := e.mixed(c)
	e.advance(9 * day)
	e.prune(4 * day)
	horizon := e.horizon()
	e.reopen()
	e.equal("horizon", e.horizon(), horizon)
	if have := e.permitIDs(); !slices.Equal(have, ids(held)) {
		e.Fatalf("left are %v, want %v", have, ids(held))
	}
	e.balanced()
	e.resolved(held[0].ID(), governance.Used(1, 1))
	e.balanced()
}

// pruneBusy prunes and verifies while permits are admitted and settled, old ones too.
func pruneBusy(e *env) {
	c := e.generous()
	var old []*governance.Permit
	for i := range 120 {
		p := e.admit(c, both(3, 3))
		if i%3 != 0 {
			e.settle(p, governance.Used(1, 1))
			continue
		}
		old = append(old, p)
	}
	e.advance(9 * day)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := i; j < len(old); j += 4 {
				e.background(old[j].Settle(e.ctx, []governance.Outcome{governance.Used(2, 2), governance.NotSent(), governance.Unknown()}[j%3]))
				p, err := e.g.Admit(e.ctx, request(c, both(2, 2)))
				if err != nil {
					e.Errorf("admit: %v", err)
					continue
				}
				e.background(p.Settle(e.ctx, governance.Used(1, 1)))
			}
		})
	}
	wg.Go(func() {
		for range 3 {
			v, err := e.g.Verify(e.ctx, governance.VerifyQuery{})
			e.background(err)
			if len(v.Differences) > 0 {
				e.Errorf("Verify found %+v", v.Differences)
			}
		}
	})
	for range 3 {
		e.pruned(e.g)
	}
	wg.Wait()
	if e.Failed() {
		e.FailNow()
	}
	report := e.prune(4 * day)
	e.equal("removed in all", report.Total.Permits, int64(80+27))
	e.equal("kept", report.Kept, int64(13))
	e.equal("holds", len(e.holds(governance.HoldQuery{})), 13)
}

// pruned prunes, again when others were in the way.
func (e *env) pruned(g *governance.Governor) {
	e.Helper()
	for try := 1; ; try++ {
		report, err := g.Prune(e.ctx, e.pruning(4*day))
		if errors.Is(err, governance.ErrUnavailable) && try < 100 {
			continue
		}
		e.background(err)
		if len(report.Differences) > 0 {
			e.Errorf("Prune found %+v", report.Differences)
		}
		return
	}
}

func pruneTwice(e *env)       { e.pruneBoth(e.g, e.governor(e.b, nil)) }
func pruneTwiceShared(e *env) { e.pruneBoth(e.g, e.governor(e.h.Reopen(e, e.b), nil)) }

func (e *env) pruneBoth(governors ...*governance.Governor) {
	e.Helper()
	c := e.generous()
	for i := range 200 {
		p := e.admit(c, both(3, 3))
		if i%10 != 0 {
			e.settle(p, governance.Used(1, amount.MicroUSD(2)))
		}
	}
	e.advance(9 * day)
	var wg sync.WaitGroup
	for _, g := range governors {
		wg.Go(func() { e.pruned(g) })
	}
	wg.Wait()
	if e.Failed() {
		e.FailNow()
	}
	report := e.prune(4 * day)
	e.equal("removed in all", report.Total, governance.Pruned{Permits: 180, Tokens: 180, Cost: 360})
	e.equal("kept", report.Kept, int64(20))
}
