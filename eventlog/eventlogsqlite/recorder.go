package eventlogsqlite

import (
	"context"
	"sync/atomic"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
)

// Recorder appends what other adapters change, in the transactions that change it: the event is there when the
// change is, and never was when the change is not. Give it to keyssqlite or governancesqlite, on the same file as the
// log; elsewhere their transactions fail, or speak in a log that is not theirs.
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
// transaction begins: the first call may write to the file, later ones cost no I/O.
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

// Append appends in the caller's write transaction, whose one writer decides the order. Expect must be Any.
//
// Time: the transaction's.
// Retry: with the same ids. An id that the log has already is left as it is and fails nothing, for as long as retention keeps it, so
// that a repeated step cannot ruin the transaction it shares. Ids are therefore the caller's business: one id is one event.
// Errors: *eventlog.FieldError, eventlog.ErrDuplicate for one id twice, before anything is written; *sqlitetx.Error, after which the
// transaction must be rolled back.
func (r *Recorder) Append(t *sqlitetx.Tx, appends []eventlog.Append) error {
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
	for _, row := range rows {
		if _, err := t.Exec(recordEvent, t.Now, row.Schema, row.Stream, row.ID, row.Type, string(row.Producer), append([]byte{}, row.Data...)); err != nil {
			return err
		}
	}
	return nil
}

// Wake makes subscriptions look. Call it once the transaction has committed, or may have.
func (r *Recorder) Wake() { r.log.Wake() }
