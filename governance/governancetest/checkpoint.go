package governancetest

import (
	"bytes"
	"context"
	"sync/atomic"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

func checkpointCases() []scenario {
	return []scenario{
		{name: "IsKeptAsWritten", run: checkpointWritten},
		{name: "EntriesAreNumbered", run: checkpointNumbered},
		{name: "TrimmedEntriesAreGone", run: checkpointTrimmed},
		{name: "LostTogetherWithItsStep", run: checkpointLost},
	}
}

// checkpoint reads what is kept of an account.
func (e *env) checkpoint(key governance.AccountKey) []byte {
	e.Helper()
	l, err := e.store.View(e.ctx, &governance.Plan{Checkpoint: &key})
	e.ok(err)
	return l.Checkpoint
}

// putCheckpoint writes one.
func (e *env) putCheckpoint(key governance.AccountKey, data []byte, t governance.Trim) {
	e.Helper()
	plan := e.plan(key.Constraint)
	e.ok(e.store.Step(e.ctx, plan, func(*governance.Loaded) *governance.Changes {
		return &governance.Changes{Checkpoint: &governance.Checkpoint{Account: key, Data: data, Trim: t}}
	}))
}

func checkpointWritten(e *env) {
	w := e.today()
	key := governance.AccountKey{Constraint: cid(1), WindowStart: w.Start}
	others := []governance.AccountKey{{Constraint: cid(1), WindowStart: w.End}, {Constraint: cid(2), WindowStart: w.Start}, {Constraint: cid(1), WindowStart: -w.Start}}
	e.equal("checkpoint of nothing", len(e.checkpoint(key)), 0)
	for _, data := range [][]byte{{0}, []byte("'; DROP\x00"), bytes.Repeat([]byte{0, 255}, 100_000), {1, 2}} {
		e.putCheckpoint(key, data, governance.Trim{})
		if have := e.checkpoint(key); !bytes.Equal(have, data) {
			e.Fatalf("a checkpoint of %d bytes came back with %d", len(data), len(have))
		}
		plan := e.plan(cid(1))
		plan.Checkpoint = &key
		e.ok(e.store.Step(e.ctx, plan, func(l *governance.Loaded) *governance.Changes {
			if !bytes.Equal(l.Checkpoint, data) {
				e.Errorf("a step reads another checkpoint")
			}
			clear(l.Checkpoint) // what was loaded belongs to decide
			return nil
		}))
		for _, other := range others {
			e.equal("checkpoint of another account", len(e.checkpoint(other)), 0)
		}
	}
	if !bytes.Equal(e.checkpoint(key), []byte{1, 2}) {
		e.Fatalf("what a step did to the checkpoint was kept: %v", e.checkpoint(key))
	}
}

// filled admits n batches of two permits each into an account.
func (e *env) filled(key byte, n int) governance.Cell {
	e.Helper()
	cell := account(cid(key), e.today(), quota.Account{})
	for range n {
		e.admitted([]governance.Record{e.newRecord(governance.BatchID{}), e.newRecord(governance.BatchID{})}, cell)
		cell.Entries++
	}
	return cell
}

func (e *env) readEntries(key governance.AccountKey, after int64, limit int) (numbers []int64, read int64) {
	e.Helper()
	l := e.entries(key, after, limit)
	for i := range l.Entries {
		numbers = append(numbers, l.Entries[i].Entry)
	}
	return numbers, l.EntriesRead
}

func checkpointNumbered(e *env) {
	e.tampered = true
	cell := e.filled(1, 9)
	for after := range int64(9) {
		numbers, read := e.readEntries(cell.Key, after, 4)
		e.equal("entries read", read, min(after+4, 9))
		e.equal("permits", int64(len(numbers)), 2*(read-after))
		for i, n := range numbers {
			e.equal("entry of a permit", n, after+1+int64(i)/2)
		}
	}
}

func checkpointTrimmed(e *env) {
	e.tampered = true
	cell, other := e.filled(1, 9), e.filled(2, 9)
	for _, t := range []governance.Trim{{After: 0, Through: 3}, {After: 3, Through: 7}} {
		e.putCheckpoint(cell.Key, []byte{9}, t)
		for after := range int64(9) {
			numbers, read := e.readEntries(cell.Key, after, 100)
			if after < t.Through { // behind a gap nothing is read
				e.equal("entries read across a gap", read, after)
				e.equal("permits read across a gap", len(numbers), 0)
				continue
			}
			e.equal("entries read", read, int64(9))
			e.equal("permits", int64(len(numbers)), 2*(9-after))
		}
	}
	_, read := e.readEntries(other.Key, 0, 100)
	e.equal("entries of another account", read, int64(9))
	e.equal("permits", len(e.everyPermit(governance.PermitQuery{})), 36) // they stay
	e.admitted([]governance.Record{e.newRecord(governance.BatchID{})}, cell)
	_, read = e.readEntries(cell.Key, 7, 100)
	e.equal("entries read", read, int64(10))
}

func checkpointLost(e *env) {
	e.tampered = true
	cell := e.filled(1, 3)
	plan := e.plan(cid(1))
	rec := e.newRecord(governance.BatchID{})
	rec.Version = 7
	err := e.store.Step(e.ctx, plan, func(*governance.Loaded) *governance.Changes {
		return &governance.Changes{
			Permits:    []governance.Record{rec}, // there is no such permit
			Checkpoint: &governance.Checkpoint{Account: cell.Key, Data: []byte{1}, Trim: governance.Trim{Through: 3}},
		}
	})
	e.is(err, governance.ErrRetry)
	e.equal("checkpoint", len(e.checkpoint(cell.Key)), 0)
	_, read := e.readEntries(cell.Key, 0, 100)
	e.equal("entries read", read, int64(3))
}

func booksCases() []scenario {
	return []scenario{
		{name: "BeginsAtTheCheckpoint", run: booksBegin},
		{name: "FindsAPlantedCheckpoint", run: booksPlanted},
		{name: "FindsACheckpointThatCannotBeRead", run: booksUnreadable},
		{name: "AGapIsADifferenceOfItsAccount", run: booksGap},
		{name: "LateSettlementsBehindACheckpoint", run: booksLate},
	}
}

// reading counts the entries that are asked for.
type reading struct {
	governance.Store
	entries atomic.Int64
}

func (r *reading) View(ctx context.Context, plan *governance.Plan) (*governance.Loaded, error) {
	l, err := r.Store.View(ctx, plan)
	if err == nil && plan.Entries != nil {
		r.entries.Add(l.EntriesRead - plan.Entries.After)
	}
	return l, err
}

func (e *env) verify(q governance.VerifyQuery) governance.VerifyReport {
	e.Helper()
	v, err := e.g.Verify(e.ctx, q)
	e.ok(err)
	return v
}

// booksBegin: the second time only what came since is read; in full, all of it is.
func booksBegin(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(1_000_000)})
	c := e.caller("team-1", keys.Limits{})
	for i := range 300 {
		if p := e.admit(c, tokens(3)); i%50 != 0 {
			e.settle(p, governance.Used(1, 0))
		}
	}
	store := &reading{Store: e.store}
	e.g = e.governor(governance.Stores{Keys: e.keys, Store: store}, nil)
	for _, want := range []struct {
		full bool
		read int64
	}{{false, 300}, {false, 0}, {true, 300}, {false, 0}} {
		store.entries.Store(0)
		v := e.verify(governance.VerifyQuery{Full: want.full})
		if len(v.Differences) > 0 || v.Permits != 300 || store.entries.Load() != want.read {
			e.Fatalf("full %v: %d entries were read, want %d; %+v", want.full, store.entries.Load(), want.read, v)
		}
	}
	e.settle(e.admit(c, tokens(3)), governance.Used(2, 0))
	store.entries.Store(0)
	v := e.verify(governance.VerifyQuery{})
	e.equal("reservations", v.Permits, int64(301))
	e.equal("entries read", store.entries.Load(), int64(1))
}

// twoAccounts have had checkpoints, of different sums.
func (e *env) twoAccounts() (a, b governance.AccountKey) {
	e.Helper()
	c := e.spender()
	for range 40 {
		e.settle(e.admit(c, both(20, 10)), governance.Used(2, 3))
	}
	e.wantDifferences(0)
	a, b = e.account(c, governance.ScopeTeam, "tokens_per_day"), e.account(c, governance.ScopeTeam, "cost_per_day")
	if len(e.checkpoint(a)) == 0 || bytes.Equal(e.checkpoint(a), e.checkpoint(b)) {
		e.Fatalf("checkpoints %v and %v", e.checkpoint(a), e.checkpoint(b))
	}
	return a, b
}

func booksPlanted(e *env) {
	a, b := e.twoAccounts()
	genuine := e.checkpoint(a)
	e.putCheckpoint(a, e.checkpoint(b), governance.Trim{})
	for _, full := range []bool{false, true} {
		v := e.verify(governance.VerifyQuery{Full: full})
		if len(v.Differences) != 1 || v.Differences[0].Account != a || v.Differences[0].Why == "" {
			e.Fatalf("with a wrong checkpoint, full %v: %+v", full, v)
		}
	}
	if !bytes.Equal(e.checkpoint(a), e.checkpoint(b)) {
		e.Fatalf("an account that differs was folded")
	}
	// The balance spoiled to suit the checkpoint: only the entries know better.
	cell := e.cell(a)
	spoiled := cell
	spoiled.Account.Consumed = e.cell(b).Account.Consumed
	e.write(&governance.Changes{Cells: []governance.Cell{spoiled}})
	e.equal("differences from the checkpoint", len(e.verify(governance.VerifyQuery{}).Differences), 0)
	e.equal("differences in full", len(e.verify(governance.VerifyQuery{Full: true}).Differences), 1)
	e.write(&governance.Changes{Cells: []governance.Cell{cell}})
	e.putCheckpoint(a, genuine, governance.Trim{})
	e.equal("differences in full", len(e.verify(governance.VerifyQuery{Full: true}).Differences), 0)
}

func booksUnreadable(e *env) {
	a, _ := e.twoAccounts()
	genuine := e.checkpoint(a)
	for _, data := range [][]byte{{77}, genuine[:len(genuine)-1], append(bytes.Clone(genuine), 0)} {
		e.putCheckpoint(a, data, governance.Trim{})
		for _, full := range []bool{false, true} {
			v := e.verify(governance.VerifyQuery{Full: full})
			if len(v.Differences) != 1 || v.Differences[0].Account != a || v.Accounts != 2 {
				e.Fatalf("with an unreadable checkpoint: %+v", v)
			}
		}
	}
	e.putCheckpoint(a, genuine, governance.Trim{})
}

// booksGap takes entries away that are in no checkpoint.
func booksGap(e *env) {
	e.tampered = true
	c := e.spender()
	for range 9 {
		e.settle(e.admit(c, both(20, 10)), governance.Used(2, 3))
	}
	a := e.account(c, governance.ScopeTeam, "tokens_per_day")
	e.putCheckpoint(a, nil, governance.Trim{Through: 4})
	v := e.wantDifferences(1)
	e.equal("account", v.Differences[0].Account, a)
	e.equal("accounts", v.Accounts, int64(2))
}

// booksLate: what was pending when a checkpoint was made ends afterwards, in every way.
func booksLate(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(1_000_000), CostPerDay: keys.Cost(1_000_000)})
	c := e.caller("team-1", keys.Limits{})
	var open []*governance.Permit
	for range 40 {
		open = append(open, e.admit(c, both(50, 50)))
	}
	e.settle(open[0], governance.Unknown())
	e.wantDifferences(0) // all is pending
	key := e.account(c, governance.ScopeTeam, "tokens_per_day")
	first := e.checkpoint(key)
	if len(first) == 0 {
		e.Fatal("there is no checkpoint")
	}
	e.advance(24 * time.Hour)
	for i, o := range someOutcomes() {
		if i == 6 {
			continue // freezes
		}
		e.ok(open[i+1].Raise(e.ctx, both(60, 55)))
		e.settle(open[i+1], o)
		e.wantDifferences(0)
		e.equal("differences in full", len(e.verify(governance.VerifyQuery{Full: true}).Differences), 0)
	}
	e.resolved(open[0].ID(), governance.Used(7, 7))
	for _, p := range open[20:] {
		e.resolved(p.ID(), governance.NotSent())
	}
	e.wantDifferences(0)
	for range 20 {
		e.settle(e.admit(c, both(1, 1)), governance.Used(1, 1))
	}
	for _, p := range open[9:20] {
		e.settle(p, governance.Used(2, 2))
	}
	e.wantDifferences(0)
	if bytes.Equal(e.checkpoint(key), first) {
		e.Fatal("what has ended is still pending")
	}
	e.equal("differences in full", len(e.verify(governance.VerifyQuery{Full: true}).Differences), 0)
}
