package governancetest

import (
	"bytes"
	"slices"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/quota"
)

// mustNotCommit runs changes that cannot be, beside some that could, and checks
// that nothing at all came of it.
func (e *env) mustNotCommit(ch *governance.Changes, permits ...governance.PermitID) {
	e.Helper()
	before := e.snapshot(cid(1), cid(9))
	w := e.today()
	ch.Cells = append(ch.Cells, account(cid(9), w, quota.Account{Consumed: 9}))
	ch.Windows = append(ch.Windows, governance.WindowChange{Constraint: cid(9), Window: w})
	plan := e.plan(cid(1), cid(9))
	plan.Permits = permits
	if ch.Batch != nil {
		plan.Batch = ch.Batch.ID
	}
	err := e.store.Step(e.ctx, plan, func(*governance.Loaded) *governance.Changes { return ch })
	e.is(err, governance.ErrRetry)
	e.unchanged(before, cid(1), cid(9))
}

func stepPermitUnique(e *env) {
	rec := e.newRecord(governance.BatchID{})
	e.admitted([]governance.Record{rec})
	again := e.newRecord(e.batchID())
	fresh := again
	again.ID = rec.ID
	odd := again // a permit that is not as a Governor makes them is none the less unique
	odd.At--
	refuse := func() {
		e.Helper()
		for _, twin := range []governance.Record{again, odd} {
			e.mustNotCommit(&governance.Changes{Batch: &governance.Batch{
				ID: again.Batch, At: again.At, Terms: [][]byte{{1}}, Permits: []governance.Record{fresh, twin},
			}})
		}
	}
	refuse()
	ended := e.record(rec.ID) // an id stays taken, whatever becomes of its permit
	for _, state := range []governance.State{governance.StateSettled, governance.StateResolved} {
		ended.State, ended.Version = state, ended.Version+1
		e.write(&governance.Changes{Permits: []governance.Record{ended}})
		refuse()
	}
	twice := e.newRecord(e.batchID())
	e.mustNotCommit(&governance.Changes{Batch: &governance.Batch{
		ID: twice.Batch, At: twice.At, Terms: [][]byte{{1}}, Permits: []governance.Record{twice, twice},
	}})
	// Nor did the batch: its id is free.
	e.ok(e.store.Step(e.ctx, &governance.Plan{Batch: fresh.Batch}, func(*governance.Loaded) *governance.Changes {
		return &governance.Changes{Batch: &governance.Batch{ID: fresh.Batch, At: fresh.At, Terms: [][]byte{{1}}, Permits: []governance.Record{fresh}}}
	}))
}

func stepBatchUnique(e *env) {
	id := e.admitted([]governance.Record{e.newRecord(governance.BatchID{})})
	rec := e.newRecord(id)
	e.mustNotCommit(&governance.Changes{Batch: &governance.Batch{ID: id, At: rec.At, Terms: [][]byte{{1}}, Permits: []governance.Record{rec}}})
}

func stepVersionConflict(e *env) {
	rec := e.newRecord(governance.BatchID{})
	e.admitted([]governance.Record{rec})
	loaded := e.record(rec.ID)
	next := loaded
	for _, version := range []int32{1, 3} { // of one that nobody changed yet
		next.State, next.Version = governance.StateSettled, version
		e.mustNotCommit(&governance.Changes{Permits: []governance.Record{next}}, rec.ID)
	}
	next.State, next.Version, next.EndedAt = governance.StateCancelled, 2, loaded.At
	e.write(&governance.Changes{Permits: []governance.Record{next}})
	e.equal("permit", describeRecord(pointer(e.record(rec.ID))), describeRecord(&next))
	for _, version := range []int32{1, 2, 4} {
		late := next
		late.State, late.Version = governance.StateSettled, version
		e.mustNotCommit(&governance.Changes{Permits: []governance.Record{late}}, rec.ID)
	}
	next.State, next.Version = governance.StateResolved, 3
	e.write(&governance.Changes{Permits: []governance.Record{next}})
}

func stepMissingPermit(e *env) {
	rec := e.newRecord(e.batchID())
	rec.Version = 2
	e.mustNotCommit(&governance.Changes{Permits: []governance.Record{rec}}, rec.ID)
}

// entries asks for a page of an account's permits.
func (e *env) entries(key governance.AccountKey, after int64, limit int) *governance.Loaded {
	e.Helper()
	l, err := e.store.View(e.ctx, &governance.Plan{Entries: &governance.EntryQuery{Account: key, After: after, Limit: limit}})
	e.ok(err)
	return l
}

func stepEntries(e *env) {
	e.tampered = true
	w := e.today()
	older := quota.Window{Start: w.Start - 86_400_000_000, End: w.Start}
	mine, other, past := account(cid(1), w, quota.Account{}), account(cid(2), w, quota.Account{}), account(cid(1), older, quota.Account{})
	var want [][]governance.PermitID
	for n := range 7 {
		var recs []governance.Record
		var ids []governance.PermitID
		for range n%3 + 1 {
			rec := e.newRecord(governance.BatchID{})
			recs, ids = append(recs, rec), append(ids, rec.ID)
		}
		e.admitted(recs, mine)
		mine.Entries++
		want = append(want, ids)
		e.admitted([]governance.Record{e.newRecord(governance.BatchID{})}, other, past)
		other.Entries++
		past.Entries++
		e.admitted([]governance.Record{e.newRecord(governance.BatchID{})}) // in no account
	}
	for after := int64(0); after <= 7; after++ {
		for limit := 1; limit <= 8; limit++ {
			l := e.entries(mine.Key, after, limit)
			end := min(after+int64(limit), 7)
			e.equal("last entry read", l.EntriesRead, end)
			var ids []governance.PermitID
			for _, rec := range l.Entries {
				ids = append(ids, rec.ID)
				if string(rec.Terms) != "terms of the batch" {
					e.Fatalf("permit %s of an entry came without its terms", rec.ID)
				}
			}
			expect := slices.Concat(want[after:end]...)
			byID := func(a, b governance.PermitID) int { return bytes.Compare(a[:], b[:]) }
			slices.SortFunc(ids, byID)
			slices.SortFunc(expect, byID)
			if !slices.Equal(ids, expect) {
				e.Fatalf("entries behind %d, at most %d: %v, want %v", after, limit, ids, expect)
			}
		}
	}
	l := e.entries(governance.AccountKey{Constraint: cid(77)}, 0, 10)
	e.equal("entries of an account that is not there", len(l.Entries), 0)
	e.equal("last entry of it", l.EntriesRead, int64(0))
}

func stepEntriesCurrent(e *env) {
	e.tampered = true
	rec := e.newRecord(governance.BatchID{})
	cell := account(cid(1), e.today(), quota.Account{})
	e.admitted([]governance.Record{rec}, cell)
	next := e.record(rec.ID)
	next.State, next.Version, next.Outcome = governance.StateSettled, 2, governance.Used(1, 2)
	e.write(&governance.Changes{Permits: []governance.Record{next}})
	plan := e.plan(cid(1))
	plan.Entries = &governance.EntryQuery{Account: cell.Key, Limit: 1 << 30}
	e.ok(e.store.Step(e.ctx, plan, func(l *governance.Loaded) *governance.Changes {
		if len(l.Entries) != 1 || describeRecord(&l.Entries[0]) != describeRecord(&next) {
			e.Errorf("entries are %+v, want %+v", l.Entries, next)
		}
		return nil
	}))
}

// stepManyRows is a step as large as a Governor may make it.
func stepManyRows(e *env) {
	e.tampered = true
	const n = 1500
	w := e.today()
	ch := &governance.Changes{}
	plan := &governance.Plan{Batch: e.batchID()}
	b := &governance.Batch{ID: plan.Batch, At: e.now()}
	now := time.UnixMicro(b.At)
	for i := range n {
		var id governance.ConstraintID
		id[0], id[1] = byte(i>>8), byte(i)
		plan.Constraints = append(plan.Constraints, id)
		c := account(id, w, quota.Account{Reserved: int64(i)})
		c.Entries = 1
		ch.Cells = append(ch.Cells, c)
		ch.Windows = append(ch.Windows, governance.WindowChange{Constraint: id, Window: w})
		b.Entries = append(b.Entries, governance.Entry{Account: c.Key, Number: 1})
		if i < 1100 {
			rec := governance.Record{ID: governance.NewPermitID(now), Batch: b.ID, TermsIndex: i % 300, At: b.At, State: governance.StateOpen, Version: 1, Tokens: int64(i)}
			b.Permits = append(b.Permits, rec)
		}
	}
	for i := range 300 {
		b.Terms = append(b.Terms, bytes.Repeat([]byte{byte(i), byte(i >> 8)}, i))
	}
	ch.Batch = b
	e.ok(e.store.Step(e.ctx, plan, func(*governance.Loaded) *governance.Changes { return ch }))
	// Read it all back, then end all of them in one step.
	look := &governance.Plan{Batch: e.batchID(), Constraints: plan.Constraints}
	for i := range ch.Cells {
		look.Accounts = append(look.Accounts, ch.Cells[i].Key)
	}
	for i := range b.Permits {
		look.Permits = append(look.Permits, b.Permits[i].ID)
	}
	byID := func(a, b governance.PermitID) int { return bytes.Compare(a[:], b[:]) }
	slices.SortFunc(look.Permits, byID)
	e.ok(e.store.Step(e.ctx, look, func(l *governance.Loaded) *governance.Changes {
		for i := range l.Current {
			if l.Current[i].Cell.Account.Reserved != int64(i) || l.Accounts[i].Account.Reserved != int64(i) {
				e.Fatalf("constraint %d of %d was read as %+v", i, n, l.Current[i].Cell)
			}
		}
		out := &governance.Changes{}
		for i := range l.Permits {
			rec := l.Permits[i]
			if rec.State != governance.StateOpen || !bytes.Equal(rec.Terms, b.Terms[rec.Tokens%300]) {
				e.Fatalf("permit %d of %d was read as %s", i, len(l.Permits), describeRecord(&rec))
			}
			rec.State, rec.Version = governance.StateCancelled, 2
			out.Permits = append(out.Permits, rec)
		}
		return out
	}))
	if left := e.everyPermit(governance.PermitQuery{States: []governance.State{governance.StateOpen}}); len(left) != 0 {
		e.Fatalf("%d permits were left open", len(left))
	}
}
