package eventlogsqlite

import (
	"context"
	"database/sql"

	"github.com/tallystick-go/tallystick/eventlog"
)

// Append implements eventlog.Store.
func (s *Store) Append(ctx context.Context, appends []eventlog.Append) (out []eventlog.Appended, err error) {
	rows, err := eventlog.Plan(appends)
	if err != nil {
		return nil, err
	}
	err = s.write(ctx, func(t tx) (err error) {
		out, err = appendRows(t, appends, rows)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// AppendTx appends in the caller's transaction: the events are there when it commits, and never were when it
// does not. Take the appends from Log.Stamp. A refusal leaves the transaction usable. Open the handle with _txlock=immediate, or
// begin by writing: a transaction that has read before it writes is refused by SQLite when another has written meanwhile.
//
// Retry: with the same ids, also in another transaction.
// Errors: those of Append, and eventlog.ErrMayNotAppend within a projection. After ErrUnavailable the transaction is lost.
//
// Source: ADR-020 "Appending".
func (s *Store) AppendTx(ctx context.Context, caller *sql.Tx, appends ...eventlog.Append) ([]eventlog.Appended, error) {
	if err := eventlog.MayAppend(ctx); err != nil {
		return nil, err
	}
	rows, err := eventlog.Plan(appends)
	if err != nil {
		return nil, err
	}
	t := callersTx{ctx, caller}
	s.written.note(caller)
	// Nothing is inserted before everything was looked at, so that a refusal leaves nothing behind. The statement
	// takes the writer's turn first, so that what is looked at stays true.
	if _, err := t.exec(markOld, 0); err != nil {
		return nil, coreError(err)
	}
	out, err := appendRows(t, appends, rows)
	return out, coreError(err)
}

func appendRows(t tx, appends []eventlog.Append, rows []eventlog.Row) ([]eventlog.Appended, error) {
	var found []eventlog.Recorded
	at := map[string]int64{}
	for _, r := range rows {
		same, err := events(t, selectByID, r.ID)
		if err != nil {
			return nil, err
		}
		found = append(found, same...)
		if _, known := at[r.Stream]; known {
			continue
		}
		var v int64
		if err := one(t, version, []any{r.Stream}, &v); err != nil {
			return nil, err
		}
		at[r.Stream] = v
	}
	if out, err := eventlog.Replay(rows, len(appends), found); out != nil || err != nil {
		return out, err
	}
	if c := eventlog.Conflict(appends, at); c != nil {
		return nil, c
	}
	out := make([]eventlog.Appended, len(appends))
	for _, r := range rows {
		a := &out[r.Append]
		a.Version = at[r.Stream] + r.Offset
		data := r.Data
		if data == nil {
			data = []byte{}
		}
		if err := one(t, insertEvent, []any{t.now(), a.Version, r.Schema, r.Stream, r.ID, r.Type, string(r.Producer), data}, &a.Position); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// SaveTx is Save in the caller's transaction: what the caller writes there and how far the consumer came are one.
//
// Errors: eventlog.ErrTaken, after which the transaction must be rolled back; ErrUnavailable.
//
// Source: ADR-020 "Checkpoints".
func (s *Store) SaveTx(ctx context.Context, caller *sql.Tx, c eventlog.Checkpoint) error {
	s.written.note(caller)
	return coreError(save(callersTx{ctx, caller}, c))
}
