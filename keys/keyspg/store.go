// Package keyspg keeps teams and keys in Postgres, for any number of gateways.
//
// Resolve is one statement that reads token, key and team in one snapshot at the
// database's time. Every edit passes a barrier before it returns: it waits until
// each admission that may have read the old row has ended, so that "revoked" is
// true for the whole fleet when RevokeKey says so. The caller opens and owns the
// pool; no session state is used, so a pooler in transaction mode may sit between.
//
// After a bulk load run ANALYZE, or let autovacuum do it: a connection keeps the plan
// that it made while the tables were a page or two.
package keyspg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/eventlog/eventlogpg"
	"github.com/tallystick-go/tallystick/internal/pgtx"
	"github.com/tallystick-go/tallystick/keys"
)

// Options adjust a Store. The zero value is the default.
type Options struct {
	// Schema holds the tables. Default "tallystick".
	Schema string
	// Tokens says which tokens are accepted and minted.
	Tokens keys.Format
	// Timeout bounds every call apart from the barrier, whatever the caller's context
	// allows, so that a database that stalls is an error and not a queue. Default 5 s.
	Timeout time.Duration
	// BarrierWait bounds how long an edit waits for admissions that may have read
	// what it changed. Default 10 s.
	BarrierWait time.Duration
	// Events appends what edits change, in their transactions: to a log of the same database and schema. Nil: nobody is told.
	Events *eventlogpg.Recorder
	// Clock makes the store's time of the database's. It is for tests of calendars and
	// expiry; every process on the schema must use the same.
	Clock func(database time.Time) time.Time
}

// Store is a keys.Store on Postgres. It is safe for concurrent use.
type Store struct {
	pool    *pgxpool.Pool
	schema  pgtx.Schema
	sql     queries
	format  keys.Format
	timeout time.Duration
	barrier time.Duration
	// How pages are asked for. A cached generic plan does not know how few rows a page
	// is and may sort the table instead of walking its index, so pages are planned anew.
	listing pgx.QueryExecMode
	clock   func(database time.Time) time.Time
	events  *eventlogpg.Recorder
}

var _ keys.Store = (*Store)(nil)

// New makes a store on the caller's pool; nil options are the defaults. It does no
// I/O: Migrate or Check comes next.
//
// Errors: *keys.FieldError; a schema name that cannot be used.
func New(pool *pgxpool.Pool, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	schema, err := pgtx.ParseSchema(o.Schema)
	if err != nil {
		return nil, &keys.FieldError{Field: "schema", Why: err.Error()}
	}
	if err := o.Tokens.Validate(); err != nil {
		return nil, err
	}
	s := &Store{
		pool: pool, schema: schema, sql: splice(schema), format: o.Tokens, timeout: o.Timeout, barrier: o.BarrierWait,
		listing: pool.Config().ConnConfig.DefaultQueryExecMode, clock: o.Clock, events: o.Events,
	}
	if s.timeout <= 0 {
		s.timeout = 5 * time.Second
	}
	if s.listing == pgx.QueryExecModeCacheStatement {
		s.listing = pgx.QueryExecModeCacheDescribe
	}
	if s.clock == nil {
		s.clock = func(database time.Time) time.Time { return database }
	}
	return s, nil
}

// edit runs fn in a transaction, and appends the events it tells.
func (s *Store) edit(ctx context.Context, fn telling) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return coreError(s.telling(ctx, pgtx.Options{}, fn))
}

// confirm waits, after an edit, for the admissions that may not have seen it. The
// edit is committed whatever comes of the wait, so its result goes out with the
// error: a token shown once must not be lost to a slow admission.
func confirm[T any](ctx context.Context, s *Store, result T, err error) (T, error) {
	if err != nil {
		var zero T
		return zero, err
	}
	return result, coreError(pgtx.Barrier(ctx, s.pool, s.schema, s.barrier))
}

// now is the database's time, asked for once the row to edit is locked.
func (s *Store) now(ctx context.Context, tx *pgtx.Tx) (time.Time, error) {
	var us int64
	if err := tx.QueryRow(ctx, selectNow).Scan(&us); err != nil {
		return time.Time{}, err
	}
	return s.instant(us), nil
}

func (s *Store) instant(us int64) time.Time { return s.clock(time.UnixMicro(us)).UTC() }

// row reads one row into targets.
func (s *Store) row(ctx context.Context, targets []any, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.pool.QueryRow(ctx, sql, args...).Scan(targets...)
}

// list reads all rows of a page.
func list[T any](ctx context.Context, s *Store, scan func(pgx.Row) (T, error), sql string, args ...any) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, sql, append([]any{s.listing}, args...)...)
	if err != nil {
		return nil, coreError(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (T, error) { return scan(row) })
	return all, coreError(err)
}

// one checks that a conditional write met its row. Under the row's lock it always
// does; if it ever does not, the edit must not be reported as done.
func one(ctx context.Context, tx *pgtx.Tx, sql string, args []any) error {
	tag, err := tx.Exec(ctx, sql, args...)
	if err == nil && tag.RowsAffected() != 1 {
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
