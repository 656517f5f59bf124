package governancetest

import (
	"bytes"
	"slices"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/quota"
)

// Plans and changes made by hand, for the cases that call a store directly.

// cid is a constraint id that consists of one byte.
func cid(b byte) governance.ConstraintID {
	return governance.ConstraintID(bytes.Repeat([]byte{b}, 16))
}

func sorted(ids []governance.ConstraintID) []governance.ConstraintID {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b governance.ConstraintID) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(ids)
}

// plan names constraints, for one step.
func (e *env) plan(ids ...governance.ConstraintID) *governance.Plan {
	e.Helper()
	return &governance.Plan{Batch: e.batchID(), Constraints: sorted(ids)}
}

func (e *env) batchID() governance.BatchID {
	return governance.BatchID(governance.NewPermitID(time.Now()))
}

// today is the UTC day of the store's present.
func (e *env) today() quota.Window {
	e.Helper()
	w, err := quota.Calendar{Period: quota.Day}.Window(e.now())
	e.ok(err)
	return w
}

// cell is an account's state in a window.
func account(id governance.ConstraintID, w quota.Window, a quota.Account) governance.Cell {
	return governance.Cell{Key: governance.AccountKey{Constraint: id, WindowStart: w.Start}, End: w.End, Kind: governance.KindTokenQuota, Account: a}
}

// permit is an open permit as a step would write it.
func (e *env) newRecord(batch governance.BatchID) governance.Record {
	e.Helper()
	now := e.now()
	rec := governance.Record{
		ID: governance.NewPermitID(time.UnixMicro(now)), Batch: batch, At: now, State: governance.StateOpen, Version: 1,
		Tokens: 10, Cost: 20, Segments: []byte{1, 0, 1, 10},
	}
	copy(rec.Owner[:], "owner of a permit")
	copy(rec.Fingerprint[:], "what was asked for")
	return rec
}

// write commits changes that decide on nothing. Windows of the cells become the
// current ones.
func (e *env) write(ch *governance.Changes) {
	e.Helper()
	plan := &governance.Plan{Batch: e.batchID()}
	newest := map[governance.ConstraintID]quota.Window{}
	for i := range ch.Cells {
		key, end := ch.Cells[i].Key, ch.Cells[i].End
		plan.Constraints = append(plan.Constraints, key.Constraint)
		plan.Accounts = append(plan.Accounts, key)
		if last, seen := newest[key.Constraint]; !seen || key.WindowStart >= last.Start {
			newest[key.Constraint] = quota.Window{Start: key.WindowStart, End: end}
		}
	}
	for id, w := range newest {
		ch.Windows = append(ch.Windows, governance.WindowChange{Constraint: id, Window: w})
	}
	plan.Constraints = sorted(plan.Constraints)
	slices.SortFunc(plan.Accounts, governance.AccountKey.Compare)
	if ch.Batch != nil {
		plan.Batch = ch.Batch.ID
	}
	for i := range ch.Permits {
		plan.Permits = append(plan.Permits, ch.Permits[i].ID)
	}
	slices.SortFunc(plan.Permits, func(a, b governance.PermitID) int { return bytes.Compare(a[:], b[:]) })
	e.ok(e.store.Step(e.ctx, plan, func(*governance.Loaded) *governance.Changes { return ch }))
}

// admitted commits one batch with the permits, which reserve in the accounts. The
// accounts' cells are written too.
func (e *env) admitted(records []governance.Record, cells ...governance.Cell) governance.BatchID {
	e.Helper()
	b := &governance.Batch{ID: e.batchID(), At: e.now(), Terms: [][]byte{[]byte("terms of the batch")}}
	for _, rec := range records {
		rec.Batch = b.ID
		b.Permits = append(b.Permits, rec)
	}
	ch := &governance.Changes{Batch: b}
	for _, c := range cells {
		c.Entries++
		b.Entries = append(b.Entries, governance.Entry{Account: c.Key, Number: c.Entries})
		ch.Cells = append(ch.Cells, c)
	}
	e.write(ch)
	return b.ID
}

// decideNothing is for steps that only look.
func decideNothing(*governance.Loaded) *governance.Changes { return nil }
