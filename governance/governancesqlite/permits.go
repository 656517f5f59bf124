package governancesqlite

import (
	"bytes"
	"context"
	"database/sql"
	"slices"
	"strconv"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
)

// found is a permit on its way out of the file.
type found struct {
	index    int64 // where it was wanted
	batch    int64
	position int64 // in the batch, of a fresh one; -1 of one that changed
	record   governance.Record
}

// assembly puts permits together from the three tables that they are kept in.
type assembly struct {
	tx      *sqlitetx.Tx
	batches map[int64]*batch
}

// byID finds permits by a list of ids, in any order.
func (a *assembly) byID(ids []byte) ([]found, error) {
	n := len(ids) / 16
	list, err := a.fresh(selectFresh, ids, n)
	if err != nil || len(list) == n {
		return list, err
	}
	changed, err := a.changed(selectPermits, ids, n)
	return append(list, changed...), err
}

func (a *assembly) fresh(query string, args ...any) (list []found, err error) {
	var f found
	err = each(a.tx, query, []any{&f.index, &f.batch, &f.position}, func() error {
		list = append(list, f)
		return nil
	}, args...)
	return list, err
}

func (a *assembly) changed(query string, args ...any) (list []found, err error) {
	var row permitRow
	err = each(a.tx, query, row.targets(), func() error {
		rec, err := row.record()
		list = append(list, found{row.index, row.batch, -1, rec})
		return err
	}, args...)
	return list, err
}

// complete reads the batches that the permits need, and fills in what they know.
func (a *assembly) complete(list []found) error {
	var missing []int64
	for i := range list {
		if a.batches[list[i].batch] == nil {
			missing = append(missing, list[i].batch)
		}
	}
	if err := a.read(missing); err != nil {
		return err
	}
	for i := range list {
		f := &list[i]
		b := a.batches[f.batch]
		if b == nil || f.position >= int64(len(b.permits)) {
			return corrupt("governance_batches")
		}
		if f.position >= 0 {
			f.record = b.permits[f.position]
		}
		if err := b.complete(&f.record); err != nil {
			return err
		}
	}
	return nil
}

// read loads batches by their numbers.
func (a *assembly) read(numbers []int64) error {
	if len(numbers) == 0 {
		return nil
	}
	slices.Sort(numbers)
	wanted := []byte{'['}
	for i, n := range slices.Compact(numbers) {
		if i > 0 {
			wanted = append(wanted, ',')
		}
		wanted = strconv.AppendInt(wanted, n, 10)
	}
	wanted = append(wanted, ']')
	if a.batches == nil {
		a.batches = map[int64]*batch{}
	}
	var number, at int64
	var id, terms, permits sql.RawBytes
	return each(a.tx, selectBatches, []any{&number, &id, &at, &terms, &permits}, func() error {
		b := &batch{at: at}
		a.batches[number] = b
		return b.decode(id, terms, permits)
	}, string(wanted))
}

// origins says which of a plan's permits are fresh, by the numbers of their batches.
type origins struct {
	permits []governance.PermitID
	batches []int64 // zero: not fresh
}

func (o *origins) batch(id governance.PermitID) int64 {
	i, ok := slices.BinarySearchFunc(o.permits, id, func(a, b governance.PermitID) int { return bytes.Compare(a[:], b[:]) })
	if !ok || i >= len(o.batches) {
		return 0
	}
	return o.batches[i]
}

func loadPermits(tx *sqlitetx.Tx, plan *governance.Plan, l *governance.Loaded, from *origins) error {
	if len(plan.Permits) == 0 {
		return nil
	}
	*from = origins{plan.Permits, make([]int64, len(plan.Permits))}
	ids := make([]byte, 0, 16*len(plan.Permits))
	for i := range plan.Permits {
		ids = append(ids, plan.Permits[i][:]...)
	}
	a := assembly{tx: tx}
	list, err := a.byID(ids)
	if err != nil {
		return err
	}
	if err := a.complete(list); err != nil {
		return err
	}
	l.Permits = make([]governance.Record, len(plan.Permits))
	for i := range list {
		f := &list[i]
		l.Permits[f.index] = f.record
		if f.position >= 0 {
			from.batches[f.index] = f.batch
		}
	}
	return nil
}

// Permits implements governance.Store.
func (s *Store) Permits(ctx context.Context, q governance.PermitQuery) ([]governance.Record, error) {
	var list []governance.Record
	err := s.db.Read(ctx, func(tx *sqlitetx.Tx) (err error) {
		list, err = pages{assembly{tx: tx}, &q}.page()
		return err
	})
	if err != nil {
		return nil, coreError(err)
	}
	return list, nil
}

// pages merges fresh permits and those that changed, both in the order of their ids.
type pages struct {
	assembly
	q *governance.PermitQuery
}

func (l pages) page() ([]governance.Record, error) {
	var list []governance.Record
	after := l.q.After
	for len(list) < l.q.Limit {
		both, last, err := l.next(after, l.q.Limit-len(list))
		if err != nil {
			return nil, err
		}
		for i := range both {
			if rec := &both[i].record; l.q.Matches(rec) && len(list) < l.q.Limit {
				list = append(list, *rec)
			}
		}
		if last == nil {
			break
		}
		after = *last
	}
	return list, nil
}

// next reads on behind an id. last is where both kinds were read to; nil: to the end.
func (l pages) next(after governance.PermitID, limit int) (both []found, last *governance.PermitID, err error) {
	var fresh []found
	if l.q.Flags != 0 || len(l.q.States) == 0 || slices.Contains(l.q.States, governance.StateOpen) {
		if fresh, err = l.fresh(listFresh, after[:], limit); err != nil {
			return nil, nil, err
		}
	}
	query, states := l.selection()
	changed, err := l.changed(query, after[:], states, int64(l.q.Flags), limit)
	if err != nil {
		return nil, nil, err
	}
	both = append(slices.Clone(fresh), changed...)
	if err := l.complete(both); err != nil {
		return nil, nil, err
	}
	for _, part := range [...][]found{both[:len(fresh)], both[len(fresh):]} {
		if n := len(part); n == limit {
			if end := part[n-1].record.ID; last == nil || bytes.Compare(end[:], last[:]) < 0 {
				last = &end
			}
		}
	}
	slices.SortFunc(both, func(a, b found) int { return bytes.Compare(a.record.ID[:], b.record.ID[:]) })
	if last != nil {
		both = slices.DeleteFunc(both, func(f found) bool { return bytes.Compare(f.record.ID[:], last[:]) > 0 })
	}
	return both, last, nil
}

// selection chooses the query of permits that changed, and writes the states as bits.
func (l pages) selection() (query string, states int64) {
	for _, state := range l.q.States {
		states |= 1 << state
	}
	const open, held = 1 << governance.StateOpen, governance.FlagTokensUncertain | governance.FlagCostUncertain | governance.FlagInvalid
	if states&^open == 0 && l.q.Flags&^held == 0 && (states != 0 || l.q.Flags != 0) {
		return listHeld, states
	}
	return listPermits, states
}
