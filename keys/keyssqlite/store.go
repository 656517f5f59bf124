// Package keyssqlite keeps teams and keys in an SQLite file.
//
// There is one writer at a time, so an edit is seen by everything that begins
// after it: the writer's turn is the barrier that [keys.Store] asks for. The
// caller opens and owns the handle and chooses the driver; a handle that would
// lose what it commits is refused.
package keyssqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/tallystick-go/tallystick/eventlog/eventlogsqlite"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
	"github.com/tallystick-go/tallystick/keys"
)

// Options adjust a Store. The zero value is the default.
type Options struct {
	// Tokens says which tokens are accepted and minted.
	Tokens keys.Format
	// Events appends what edits change, in their transactions: to a log in the same file. Nil: nobody is told.
	Events *eventlogsqlite.Recorder
}

// Store is a keys.Store on SQLite. It is safe for concurrent use.
type Store struct {
	db     *sqlitetx.DB
	format keys.Format
	events *eventlogsqlite.Recorder
}

var _ keys.Store = (*Store)(nil)

// New makes a store on the caller's handle; nil options are the defaults. It does
// no I/O: Migrate or Check comes next. Close gives its connections back, the
// handle stays the caller's.
//
// The handle must be opened on a local file with the settings that New's error
// texts ask for; with modernc.org/sqlite:
//
//	file.db?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)
//
// Errors: *keys.FieldError.
func New(db *sql.DB, o *Options) (*Store, error) { return On(sqlitetx.New(db, nil), o) }

// On makes a store on a writer that other adapters of the same file use too.
//
// Errors: *keys.FieldError.
func On(db *sqlitetx.DB, o *Options) (*Store, error) {
	s := &Store{db: db}
	if o != nil {
		s.format, s.events = o.Tokens, o.Events
	}
	return s, s.format.Validate()
}

// Close gives the store's connections back to the handle, which stays open.
func (s *Store) Close() error { return s.db.Close() }

// read and write run fn in one transaction; fn's errors are package keys' own.
func (s *Store) read(ctx context.Context, fn func(*sqlitetx.Tx) error) error {
	return coreError(s.db.Read(ctx, fn))
}

func (s *Store) write(ctx context.Context, fn func(*sqlitetx.Tx) error) error {
	return coreError(s.db.Write(ctx, fn))
}

// edit applies one of the core's pure edits to a row, writes what it changed, and tells it.
func edit[T any](ctx context.Context, s *Store, read func(*sqlitetx.Tx) (T, error), apply func(T, time.Time) (T, bool, error), told func(next, current T) keys.Event, write func(tx *sqlitetx.Tx, next, current T) error) (T, error) {
	var next T
	err := s.telling(ctx, func(tx *sqlitetx.Tx) ([]keys.Event, error) {
		current, err := read(tx)
		if err != nil {
			return nil, err
		}
		var changed bool
		next, changed, err = apply(current, now(tx))
		if err != nil || !changed {
			return nil, err
		}
		return []keys.Event{told(next, current)}, write(tx, next, current)
	})
	return orZero(next, err)
}

// now is the transaction's time, read after the lock was held.
func now(tx *sqlitetx.Tx) time.Time { return time.UnixMicro(tx.Now).UTC() }

func each(tx *sqlitetx.Tx, query string, args []any, visit func(*sqlitetx.Rows) error) error {
	rows, err := tx.Query(query, args...)
	if err != nil {
		return err
	}
	for rows.Next() {
		if err := visit(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// one checks that a conditional write met its row. Under the writer's lock it
// always does; if it ever does not, the edit must not be reported as done.
func one(changed int64, err error) error {
	if err == nil && changed != 1 {
		return keys.ErrStale
	}
	return err
}

// orZero keeps half a result from going out with an error.
func orZero[T any](v T, err error) (T, error) {
	if err != nil {
		var zero T
		return zero, err
	}
	return v, nil
}
