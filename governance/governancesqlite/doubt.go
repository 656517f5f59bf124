package governancesqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
)

// full is SQLite's code for a disk without room.
const full = 13

// find learns what became of a transaction whose COMMIT failed half-way. The
// connection that ran it is closed by now, so the transaction has ended; but its
// pages may be in the log without anybody seeing them, and come back when the log
// is next recovered. A write of our own settles that: it goes over them, or, when
// they are seen, makes them last.
//
// Source: internal/docs/guarantees.md "Ambiguity".
func (s *Store) find(ctx context.Context, ch *governance.Changes, cause error) error {
	var seen evidence
	err := s.db.Write(ctx, func(tx *sqlitetx.Tx) (err error) {
		if seen, err = look(tx, ch); err != nil {
			return err
		}
		_, err = tx.Exec(countDoubt)
		return err
	})
	if err != nil {
		if !ranFull(cause) {
			return coreError(cause)
		}
		// Without room the last page of the log, which alone makes a commit, was not
		// written: what is not seen is not there.
		err = s.db.Read(ctx, func(tx *sqlitetx.Tx) (err error) {
			seen, err = look(tx, ch)
			return err
		})
		if err != nil {
			return coreError(cause)
		}
	}
	switch seen {
	case committed:
		return nil
	case absent:
		return fmt.Errorf("%w: the disk refused the commit, nothing was changed", governance.ErrUnavailable)
	}
	return coreError(cause)
}

func ranFull(err error) bool {
	var failed *sqlitetx.Error
	return errors.As(err, &failed) && failed.Code&0xff == full
}

type evidence int

const (
	unclear evidence = iota
	committed
	absent
)

// look searches the file for what the changes would have left: the batch, or the
// new state of a permit.
func look(tx *sqlitetx.Tx, ch *governance.Changes) (evidence, error) {
	if ch.Empty() {
		return committed, nil // there was nothing to commit
	}
	if ch.Batch != nil {
		var n int64
		if err := tx.QueryRow(selectBatch, ch.Batch.ID[:]).Scan(&n); err != nil {
			return unclear, err
		}
		if n == 0 {
			return absent, nil
		}
		return committed, nil
	}
	if len(ch.Permits) == 0 {
		return unclear, nil
	}
	rec := &ch.Permits[0]
	var version, state, ended, tokens, cost int64
	var stored []byte
	err := tx.QueryRow(selectVersion, rec.ID[:]).Scan(&version, &state, &ended, &tokens, &cost, &stored)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return unclear, nil
	case err != nil:
		return unclear, err
	case version < int64(rec.Version):
		return absent, nil
	case version > int64(rec.Version):
		return unclear, nil // somebody went on from it, or from the state before
	}
	outcome, _ := outcomes(rec)
	if state == int64(rec.State) && ended == rec.EndedAt && tokens == rec.Tokens && cost == rec.Cost && bytes.Equal(stored, outcome) {
		return committed, nil
	}
	return absent, nil // another change took its version
}
