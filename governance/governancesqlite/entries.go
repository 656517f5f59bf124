package governancesqlite

import (
	"bytes"
	"database/sql"
	"errors"
	"slices"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
)

// loadEntries reads every permit of the batches that reserved in an account, up to
// the first entry that is missing or misses something.
func loadEntries(tx *sqlitetx.Tx, plan *governance.Plan, l *governance.Loaded) error {
	q := plan.Entries
	if q == nil {
		return nil
	}
	l.EntriesRead = q.After
	var numbers []int64
	var number, of int64
	err := each(tx, selectEntries, []any{&number, &of}, func() error {
		if number == q.After+int64(len(numbers))+1 {
			numbers = append(numbers, of)
		}
		return nil
	}, q.Account.Constraint[:], q.Account.WindowStart, q.After, q.Limit)
	if err != nil || len(numbers) == 0 {
		return err
	}
	a := assembly{tx: tx}
	if err := a.read(slices.Clone(numbers)); err != nil {
		return err
	}
	var ids []byte
	for _, n := range numbers {
		if b := a.batches[n]; b != nil {
			for i := range b.permits {
				ids = append(ids, b.permits[i].ID[:]...)
			}
		}
	}
	list, err := a.byID(ids)
	if err != nil {
		return err
	}
	if err := a.complete(list); err != nil {
		return err
	}
	at := make(map[governance.PermitID]*governance.Record, len(list))
	for i := range list {
		at[list[i].record.ID] = &list[i].record
	}
	for _, n := range numbers {
		entry, whole := entryOf(a.batches[n], at)
		if !whole {
			return nil
		}
		l.EntriesRead++
		for i := range entry {
			entry[i].Entry = l.EntriesRead
		}
		l.Entries = append(l.Entries, entry...)
	}
	return nil
}

// entryOf is a batch's permits as they are now; false when one of them is gone.
func entryOf(b *batch, at map[governance.PermitID]*governance.Record) ([]governance.Record, bool) {
	if b == nil {
		return nil, false
	}
	entry := make([]governance.Record, 0, len(b.permits))
	for i := range b.permits {
		rec := at[b.permits[i].ID]
		if rec == nil {
			return nil, false
		}
		entry = append(entry, *rec)
	}
	return entry, true
}

func loadCheckpoint(tx *sqlitetx.Tx, plan *governance.Plan, l *governance.Loaded) error {
	key := plan.Checkpoint
	if key == nil {
		return nil
	}
	var data sql.RawBytes
	return each(tx, selectCheckpoint, []any{&data}, func() error {
		l.Checkpoint = bytes.Clone(data)
		return nil
	}, key.Constraint[:], key.WindowStart)
}

func writeCheckpoint(tx *sqlitetx.Tx, c *governance.Checkpoint) error {
	if c == nil {
		return nil
	}
	data := c.Data
	if data == nil {
		data = []byte{}
	}
	_, err := tx.Exec(upsertCheckpoint, c.Account.Constraint[:], c.Account.WindowStart, data)
	if err == nil && c.Trim != (governance.Trim{}) {
		_, err = tx.Exec(trimEntries, c.Account.Constraint[:], c.Account.WindowStart, c.Trim.After, c.Trim.Through)
	}
	return err
}

func readMemory(tx *sqlitetx.Tx) (m governance.Memory, err error) {
	t := &m.Total
	err = tx.QueryRow(selectMemory).Scan(&m.Horizon, &t.Permits, &t.Tokens, &t.Cost)
	if errors.Is(err, sql.ErrNoRows) {
		err = corrupt("governance_meta")
	}
	return m, err
}
