package eventlogpg

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tallystick-go/tallystick/eventlog"
)

// Recorder appends what other adapters change, in the transactions that change it: the event is there when the
// change is, and never was when the change is not. Give it to keyspg, policypg or governancepg, on the same database and
// schema as the log; elsewhere their transactions fail, or speak in a log that is not theirs. Their Migrate does not make the
// log's tables: run Store.Migrate too, or every edit and admission that would tell something fails.
//
// It records whether or not [eventlog.Log.Run] runs. What its log's effects owe those events is done once it does, or by whoever
// adopts what this process left.
//
// A stream that is recorded belongs to what records it: its order is decided by the row that the caller has locked, and
// who appends to it without that lock makes the other's transaction fail.
//
// It is safe for concurrent use.
//
// Source: ADR-020 "Appending".
type Recorder struct {
	store *Store
	log   *eventlog.Log
	ready atomic.Bool
}

// NewRecorder makes a recorder that appends in log's name. It does no I/O.
//
// Errors: *eventlog.FieldError where log is not one of store.
func NewRecorder(store *Store, log *eventlog.Log) (*Recorder, error) {
	if store == nil || log == nil || !log.Of(store) {
		return nil, &eventlog.FieldError{Field: "log", Why: "must be a log of this store"}
	}
	return &Recorder{store: store, log: log}, nil
}

// Ready makes sure that this process's effects will not miss what is recorded from now on. Call it before the
// transaction begins: the first call may need a connection of its own, later ones cost no I/O.
//
// Retry: safe.
// Errors: eventlog.ErrMayNotAppend within a projection; those of Store.Head and Store.Claim. The change must not be made then.
func (r *Recorder) Ready(ctx context.Context) error {
	if _, err := r.log.Stamp(ctx); err != nil {
		return err
	}
	r.ready.Store(true)
	return nil
}

// Queue adds one statement to the batch with the caller's last writes, in a read-committed transaction in which the rows that
// decide the streams' order are locked: it needs no round trip of its own. Expect must be Any.
//
// Time: the store's.
// Retry: with the same ids. An id that the log has already is left as it is and fails nothing, for as long as retention keeps it, so
// that a repeated step cannot ruin the transaction it shares. Ids are therefore the caller's business: one id is one event.
// Errors: *eventlog.FieldError, eventlog.ErrDuplicate for one id twice; nothing was queued.
func (r *Recorder) Queue(b *pgx.Batch, appends []eventlog.Append) error {
	if len(appends) == 0 {
		return nil
	}
	if !r.ready.Load() {
		return &eventlog.FieldError{Field: "recorder", Why: "must be Ready before the transaction begins"}
	}
	rows, err := r.log.Rows(appends...)
	if err != nil {
		return err
	}
	b.Queue(r.store.sql.record, columns(rows)...).Exec(func(pgconn.CommandTag) error { return nil })
	return nil
}

// Wake makes subscriptions look, here and elsewhere. Call it once the transaction has committed, or may have.
func (r *Recorder) Wake() { r.log.Wake() }

func columns(rows []eventlog.Row) []any {
	streams, ids, types, producers := make([]string, len(rows)), make([]string, len(rows)), make([]string, len(rows)), make([]string, len(rows))
	schemas, order, data := make([]int32, len(rows)), make([]int32, len(rows)), make([][]byte, len(rows))
	for i, r := range rows {
		streams[i], ids[i], types[i], producers[i] = r.Stream, r.ID, r.Type, string(r.Producer)
		schemas[i], order[i], data[i] = int32(r.Schema), int32(i), notNil(r.Data)
	}
	return []any{streams, ids, types, schemas, producers, data, order}
}
