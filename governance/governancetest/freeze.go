package governancetest

import (
	"errors"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
)

func unfreezeCases() []scenario {
	return []scenario{
		{name: "AdmitsAgain", run: unfreezeAdmits},
		{name: "InAPastWindow", run: unfreezePast},
		{name: "TwiceIsANoOp", run: unfreezeTwice},
		{name: "UnknownAccount", run: unfreezeUnknown},
		{name: "NotWhileTheBooksDiffer", run: unfreezeDiffers},
		{name: "BadReleaseIsRefused", run: unfreezeBad},
	}
}

func (e *env) unfreeze(key governance.AccountKey) error {
	return e.g.Unfreeze(e.ctx, governance.Release{Account: key, Actor: "ops", Reason: "the report was corrected"})
}

func (e *env) frozen() []governance.Cell {
	e.Helper()
	list, err := e.g.FrozenAccounts(e.ctx, governance.AccountQuery{Limit: 100})
	e.ok(err)
	return list
}

func unfreezeAdmits(e *env) {
	c := e.spender()
	e.settle(e.admit(c, both(100, 70)), impossible())
	list := e.frozen()
	e.equal("frozen", len(list), 2)
	e.ok(e.unfreeze(list[0].Key))
	r := e.refused(c, both(1, 1), governance.ReasonFrozen) // the other one still is
	e.equal("number of constraints that bind", len(r.All), 1)
	e.ok(e.unfreeze(list[1].Key))
	e.equal("frozen", len(e.frozen()), 0)
	e.admit(c, both(1, 1))
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 100, 1) // what was uncertain stays so
	e.equal("holds", len(e.holds(governance.HoldQuery{})), 2)
}

func unfreezePast(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(100)})
	c := e.caller("team-1", keys.Limits{})
	p := e.admit(c, tokens(1))
	e.advance(24 * time.Hour)
	e.admit(c, tokens(1)) // today's account
	e.settle(p, impossible())
	e.admit(c, tokens(1)) // yesterday's freezing does not stop today
	list := e.frozen()
	e.equal("frozen", len(list), 1)
	e.ok(e.unfreeze(list[0].Key))
	e.equal("frozen", len(e.frozen()), 0)
}

func unfreezeTwice(e *env) {
	c := e.spender()
	e.settle(e.admit(c, both(1, 1)), impossible())
	for _, cell := range e.frozen() {
		e.ok(e.unfreeze(cell.Key))
	}
	before := e.snapshot()
	e.ok(e.unfreeze(e.account(c, governance.ScopeTeam, "tokens_per_day")))
	e.unchanged(before)
}

func unfreezeUnknown(e *env) {
	c := e.rated(100)
	e.admit(c, tokens(1))
	for _, key := range []governance.AccountKey{
		{Constraint: cid(1)}, {Constraint: cid(1), WindowStart: 7}, {Constraint: e.constraintsOf(c)[0]}, // a rate has no account
	} {
		e.is(e.unfreeze(key), governance.ErrNotFound)
	}
	e.equal("accounts", len(e.everyAccount()), 0)
}

// unfreezeDiffers: an account that does not count what its permits say is put right when
// that is asked for, and both numbers are kept.
func unfreezeDiffers(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(100)})
	c := e.caller("team-1", keys.Limits{})
	e.settle(e.admit(c, tokens(10)), governance.Used(4, 0))
	e.settle(e.admit(c, tokens(7)), impossible())
	cell := e.cell(e.account(c, governance.ScopeTeam, "tokens_per_day"))
	cell.Account.Consumed += 50
	e.write(&governance.Changes{Cells: []governance.Cell{cell}})
	err := e.unfreeze(cell.Key)
	e.is(err, governance.ErrUnbalanced)
	var differs *governance.UnbalancedError
	if !errors.As(err, &differs) || differs.Difference.Stored.Consumed != 54 || differs.Difference.Computed.Consumed != 4 {
		e.Fatalf("the error is %v", err)
	}
	e.refused(c, tokens(1), governance.ReasonFrozen)
	release := governance.Release{Account: cell.Key, Actor: "ops", Reason: "a restored row", Reconcile: true}
	for range 2 { // the second time there is nothing to do
		e.ok(e.g.Unfreeze(e.ctx, release))
		e.held(c, governance.ScopeTeam, "tokens_per_day", 4, 7, 0)
	}
	e.admit(c, tokens(1))
	notes, err := e.g.Notes(e.ctx, governance.NoteQuery{Limit: 10})
	e.ok(err)
	if len(notes) != 2 || notes[0].Action != "reconcile" || notes[1].Action != "unfreeze" {
		e.Fatalf("the notes are %+v", notes)
	}
	for _, part := range []struct{ text, want string }{
		{notes[0].Before, `"consumed":54`}, {notes[0].After, `"consumed":4,"uncertain":7`}, {notes[1].Before, `"frozen":true,"consumed":4`}, {notes[1].After, `"frozen":false`},
	} {
		if !strings.Contains(part.text, part.want) {
			e.Fatalf("a note says %s, want %s", part.text, part.want)
		}
	}
}

func unfreezeBad(e *env) {
	for _, r := range []governance.Release{{}, {Actor: "ops"}, {Reason: "why"}, {Actor: "o\x00", Reason: "why"}, {Actor: "ops", Reason: strings.Repeat("x", 5000)}} {
		e.is(e.g.Unfreeze(e.ctx, r), governance.ErrInvalid)
	}
}

func verifyCases() []scenario {
	return []scenario{
		{name: "FindsATamperedAccount", run: verifyTampered},
		{name: "FindsAMissingPermit", run: verifyMissing},
		{name: "FindsAnAccountThatIsGone", run: verifyGone},
		{name: "CountsWhatItAdded", run: verifyCounts},
		{name: "WhileAdmissionsGoOn", run: verifyBusy},
		{name: "ManyBatches", run: verifyMany},
		{name: "ReplayL3LedgerEqualsCounters", run: verifyEveryStep},
	}
}

// verifyTampered changes each counter by one, in a step, and must be told which
// account is wrong.
func verifyTampered(e *env) {
	c := e.spender()
	e.settle(e.admit(c, both(10, 10)), governance.Used(5, 5))
	e.settle(e.admit(c, both(10, 10)), governance.Observed(1, 1))
	e.admit(c, both(10, 10))
	genuine := e.cell(e.account(c, governance.ScopeTeam, "cost_per_day"))
	for name, change := range map[string]func(cell *governance.Cell){
		"consumed":  func(cell *governance.Cell) { cell.Account.Consumed++ },
		"consumed ": func(cell *governance.Cell) { cell.Account.Consumed-- },
		"uncertain": func(cell *governance.Cell) { cell.Account.Uncertain++ },
		"reserved":  func(cell *governance.Cell) { cell.Account.Reserved-- },
		"observed":  func(cell *governance.Cell) { cell.Account.Observed = 0 },
		"entries":   func(cell *governance.Cell) { cell.Entries++ },
		"all":       func(cell *governance.Cell) { cell.Account.Consumed++; cell.Account.Reserved-- },
	} {
		spoiled := genuine
		change(&spoiled)
		e.write(&governance.Changes{Cells: []governance.Cell{spoiled}})
		d := e.wantDifferences(1).Differences[0]
		if d.Account != genuine.Key || d.Kind != governance.KindMoney || d.Stored != spoiled.Account || d.Why == "" {
			e.Fatalf("with a wrong %s: %+v", name, d)
		}
		if name != "entries" && d.Computed != genuine.Account {
			e.Fatalf("computed %+v, want %+v", d.Computed, genuine.Account)
		}
	}
	e.write(&governance.Changes{Cells: []governance.Cell{genuine}})
}

// verifyMissing has a permit say less than it reserved.
func verifyMissing(e *env) {
	e.tampered = true
	c := e.spender()
	p := e.admit(c, both(10, 10))
	rec := e.record(p.ID())
	rec.State, rec.Version = governance.StateCancelled, 2
	e.write(&governance.Changes{Permits: []governance.Record{rec}})
	e.wantDifferences(2)
}

func verifyGone(e *env) {
	e.tampered = true
	c := e.spender()
	e.admit(c, both(10, 10))
	cell := e.cell(e.account(c, governance.ScopeTeam, "cost_per_day"))
	cell.Account.Reserved, cell.Entries = 0, 0
	e.write(&governance.Changes{Cells: []governance.Cell{cell}})
	e.wantDifferences(1)
}

func verifyCounts(e *env) {
	c := e.spender()
	for range 7 {
		e.settle(e.admit(c, both(10, 10)), governance.Used(5, 5))
	}
	e.admit(c, both(10, 10))
	v := e.wantDifferences(0)
	e.equal("accounts", v.Accounts, int64(2))
	e.equal("reservations", v.Permits, int64(16))
}

func verifyBusy(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			p, err := e.g.Admit(e.ctx, request(c, both(2, 2)))
			if err != nil {
				e.Errorf("admit: %v", err)
				return
			}
			e.background(p.Settle(e.ctx, someOutcomes()[i%6]))
			if i == 100 { // not into the limits
				return
			}
		}
	}()
	for range 10 {
		e.wantDifferences(0)
	}
	close(stop)
	<-done
}

// verifyMany needs several pages of batches.
func verifyMany(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(1_000_000)})
	c := e.caller("team-1", keys.Limits{})
	for i := range 1100 {
		p := e.admit(c, tokens(3))
		if i%100 != 0 {
			e.settle(p, governance.Used(1, 0))
		}
	}
	v := e.wantDifferences(0)
	e.equal("reservations", v.Permits, int64(1100))
	cell := e.cell(e.account(c, governance.ScopeTeam, "tokens_per_day"))
	cell.Account.Consumed++
	e.write(&governance.Changes{Cells: []governance.Cell{cell}})
	e.wantDifferences(1)
	cell.Account.Consumed--
	e.write(&governance.Changes{Cells: []governance.Cell{cell}})
}

func verifyEveryStep(e *env) {
	c := e.spender()
	for i, o := range someOutcomes() {
		if i == 6 {
			continue // freezes
		}
		p := e.admit(c, both(50, 50))
		e.wantDifferences(0)
		if i%2 == 0 {
			e.ok(p.Raise(e.ctx, both(60, 55)))
			e.wantDifferences(0)
		}
		e.settle(p, o)
		e.wantDifferences(0)
	}
}
