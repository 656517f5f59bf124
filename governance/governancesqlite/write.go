package governancesqlite

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/tallystick-go/tallystick/escrow/escrowsqlite"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
	"github.com/tallystick-go/tallystick/journal/journalsqlite"
)

// write puts the changes into the transaction.
func write(tx *sqlitetx.Tx, from *origins, ch *governance.Changes) error {
	if err := writeWindows(tx, ch.Windows); err != nil {
		return err
	}
	if err := writeCells(tx, ch.Cells); err != nil {
		return err
	}
	if ch.Batch != nil {
		if err := writeBatch(tx, ch.Batch); err != nil {
			return err
		}
	}
	if err := updatePermits(tx, from, ch.Permits); err != nil {
		return err
	}
	if err := writeCheckpoint(tx, ch.Checkpoint); err != nil {
		return err
	}
	if ch.Node != nil {
		if err := escrowsqlite.Write(tx, ch.Node); err != nil {
			return err
		}
	}
	if ch.Journal != nil {
		if err := journalsqlite.Write(tx, ch.Journal); err != nil {
			return journalError(err)
		}
	}
	return writeNotes(tx, ch.Notes)
}

func writeWindows(tx *sqlitetx.Tx, list []governance.WindowChange) error {
	for i := range list {
		w := &list[i]
		text, err := w.Label.AppendText(nil)
		if err != nil {
			return err
		}
		var label any
		if len(text) > 0 {
			label = string(text)
		}
		if _, err := tx.Exec(upsertWindow, w.Constraint[:], w.Window.Start, w.Window.End, label); err != nil {
			return err
		}
	}
	return nil
}

func writeCells(tx *sqlitetx.Tx, cells []governance.Cell) error {
	var space [1024]byte
	for i := range cells {
		c := &cells[i]
		state, err := c.AppendState(space[:0])
		if err != nil {
			return err
		}
		a := &c.Account
		_, err = tx.Exec(upsertCell, c.Key.Constraint[:], c.Key.WindowStart, c.End, int64(c.Kind),
			a.Consumed, a.Uncertain, a.Reserved, a.Granted, a.Observed, a.Frozen, c.Entries, state)
		if err != nil {
			return err
		}
	}
	return nil
}

// writeBatch writes the permits side by side, in the order of their ids.
func writeBatch(tx *sqlitetx.Tx, b *governance.Batch) error {
	order := make([]*governance.Record, len(b.Permits))
	for i := range order {
		order[i] = &b.Permits[i]
	}
	slices.SortFunc(order, func(a, b *governance.Record) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	permits := make([]byte, 0, 128*len(order))
	for _, rec := range order {
		permits = appendPermit(permits, rec)
	}
	if _, err := tx.Exec(insertBatch, b.ID[:], b.At, appendTerms([]byte{}, b.Terms), permits); err != nil {
		return lost(err)
	}
	for i := range b.Entries {
		e := &b.Entries[i]
		if _, err := tx.Exec(insertEntry, e.Account.Constraint[:], e.Account.WindowStart, e.Number); err != nil {
			return torn(err)
		}
	}
	if slices.ContainsFunc(order, func(rec *governance.Record) bool { return !fresh(rec, b) }) {
		return lost(insertEach(tx, order))
	}
	return lost(insertFreshOnes(tx, order))
}

// fresh reports whether a new permit is as all are that a Governor admits.
func fresh(rec *governance.Record, b *governance.Batch) bool {
	return rec.State == governance.StateOpen && rec.Version == 1 && rec.At == b.At && rec.EndedAt == 0 &&
		rec.Tokens >= 0 && rec.Cost >= 0 && rec.Outcome == (governance.Outcome{}) && rec.Resolution == (governance.Outcome{})
}

func insertFreshOnes(tx *sqlitetx.Tx, list []*governance.Record) error {
	ids := make([]byte, 0, 16*len(list))
	query := insertManyFresh // ids that were made here are random: no older one can be the same
	for _, rec := range list {
		ids = append(ids, rec.ID[:]...)
		if rec.Fingerprint != (governance.Fingerprint{}) {
			query = insertFreshOnce
		}
	}
	var n int64
	var err error
	switch {
	case len(list) == 0:
	case len(list) == 1 && query == insertManyFresh:
		n, err = tx.Exec(insertFresh, ids)
	default:
		n, err = tx.Exec(query, ids, len(list))
	}
	if err == nil && n != int64(len(list)) {
		return governance.ErrRetry
	}
	return err
}

// insertEach writes permits of any kind.
func insertEach(tx *sqlitetx.Tx, list []*governance.Record) error {
	var batch int64
	if err := tx.QueryRow(lastBatch).Scan(&batch); err != nil {
		return err
	}
	ids := make([]byte, 0, 16*len(list))
	for _, rec := range list {
		ids = append(ids, rec.ID[:]...)
		if _, err := tx.Exec(insertPermit, columns(rec, batch)...); err != nil {
			return err
		}
	}
	a := assembly{tx: tx}
	if taken, err := a.fresh(selectFresh, ids, len(list)); err != nil || len(taken) > 0 {
		return cmp.Or(err, governance.ErrRetry)
	}
	return nil
}

// columns are the values of permitColumns.
func columns(rec *governance.Record, batch int64) []any {
	outcome, resolution := outcomes(rec)
	return []any{
		rec.ID[:], batch, int64(rec.TermsIndex), rec.Owner[:], fingerprint(rec), rec.At, rec.EndedAt,
		int64(rec.State), int64(rec.Flags), int64(rec.Version), rec.Tokens, rec.Cost, rec.Segments, outcome, resolution,
	}
}

// updatePermits writes new states over the ones that were loaded, and over no others.
// Fresh permits move on to the table of those that changed.
func updatePermits(tx *sqlitetx.Tx, from *origins, list []governance.Record) error {
	for i := range list {
		rec := &list[i]
		batch := from.batch(rec.ID)
		if batch != 0 && rec.Version != 2 {
			return governance.ErrRetry
		}
		if err := updatePermit(tx, rec, batch); err != nil {
			return err
		}
	}
	return nil
}

// updatePermit writes one; batch is zero unless it was fresh.
func updatePermit(tx *sqlitetx.Tx, rec *governance.Record, batch int64) error {
	if batch != 0 {
		if n, err := tx.Exec(deleteFresh, rec.ID[:]); err != nil || n != 1 {
			return cmp.Or(err, governance.ErrRetry)
		}
		_, err := tx.Exec(insertPermit, columns(rec, batch)...)
		return torn(err)
	}
	outcome, resolution := outcomes(rec)
	n, err := tx.Exec(changePermit, rec.EndedAt, int64(rec.State), int64(rec.Flags), int64(rec.Version), rec.Tokens, rec.Cost,
		rec.Segments, outcome, resolution, rec.ID[:], int64(rec.Version)-1)
	if err == nil && n != 1 {
		return governance.ErrRetry
	}
	return err
}

func writeNotes(tx *sqlitetx.Tx, notes []governance.Note) error {
	for i := range notes {
		n := &notes[i]
		_, err := tx.Exec(insertNote, n.At, n.Actor, n.Action, n.Permit[:], n.Account.Constraint[:], n.Account.WindowStart, n.Reason, n.Before, n.After)
		if err != nil {
			return err
		}
	}
	return nil
}

// outcomes are the stored forms; none while there is none.
func outcomes(rec *governance.Record) (outcome, resolution []byte) {
	if rec.Outcome != (governance.Outcome{}) {
		outcome = rec.Outcome.AppendBinary(nil)
	}
	if rec.Resolution != (governance.Outcome{}) {
		resolution = rec.Resolution.AppendBinary(nil)
	}
	return outcome, resolution
}

func fingerprint(rec *governance.Record) []byte {
	if rec.Fingerprint == (governance.Fingerprint{}) {
		return nil
	}
	return rec.Fingerprint[:]
}
