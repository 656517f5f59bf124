package governancesqlite

import (
	"bytes"
	"slices"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
)

// write puts the changes into the transaction.
func write(tx *sqlitetx.Tx, ch *governance.Changes) error {
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
	if err := updatePermits(tx, ch.Permits); err != nil {
		return err
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

func writeBatch(tx *sqlitetx.Tx, b *governance.Batch) error {
	ids := make([]byte, 0, 16*len(b.Permits))
	for i := range b.Permits {
		ids = append(ids, b.Permits[i].ID[:]...)
	}
	if _, err := tx.Exec(insertBatch, b.ID[:], b.At, appendTerms([]byte{}, b.Terms), ids); err != nil {
		return lost(err)
	}
	for i := range b.Entries {
		e := &b.Entries[i]
		if _, err := tx.Exec(insertEntry, e.Account.Constraint[:], e.Account.WindowStart, e.Number); err != nil {
			return torn(err)
		}
	}
	// In the order of their ids, so that they go side by side into the table.
	order := make([]int, len(b.Permits))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return bytes.Compare(b.Permits[i].ID[:], b.Permits[j].ID[:]) })
	for _, i := range order {
		rec := &b.Permits[i]
		if err := insert(tx, b, rec); err != nil {
			return lost(err)
		}
	}
	return nil
}

func insert(tx *sqlitetx.Tx, b *governance.Batch, rec *governance.Record) error {
	outcome, resolution := outcomes(rec)
	if rec.State == governance.StateOpen && rec.Version == 1 && rec.At == b.At && rec.EndedAt == 0 && outcome == nil && resolution == nil {
		_, err := tx.Exec(insertOpen, rec.ID[:], rec.TermsIndex, rec.Owner[:], fingerprint(rec), int64(rec.Flags), rec.Tokens, rec.Cost, rec.Segments)
		return err
	}
	_, err := tx.Exec(insertPermit, rec.ID[:], rec.TermsIndex, rec.Owner[:], fingerprint(rec), rec.At, rec.EndedAt,
		int64(rec.State), int64(rec.Flags), int64(rec.Version), rec.Tokens, rec.Cost, rec.Segments, outcome, resolution)
	return err
}

// updatePermits writes new states over the ones that were loaded, and over no others.
func updatePermits(tx *sqlitetx.Tx, list []governance.Record) error {
	for i := range list {
		rec := &list[i]
		outcome, resolution := outcomes(rec)
		n, err := tx.Exec(updatePermit, rec.EndedAt, int64(rec.State), int64(rec.Flags), int64(rec.Version), rec.Tokens, rec.Cost,
			rec.Segments, outcome, resolution, rec.ID[:], int64(rec.Version)-1)
		if err != nil {
			return err
		}
		if n != 1 {
			return governance.ErrRetry
		}
	}
	return nil
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
