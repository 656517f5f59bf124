// Package eventlogpg keeps an event log in Postgres, for any number of processes.
//
// An append is one statement. Its row carries the transaction that wrote it, and a cursor is a snapshot: what
// commits late, at an early position, is delivered when it commits, and nothing waits for it. No event is lost and
// none comes twice, whatever else runs in the cluster: long transactions, other databases, prepared transactions.
//
// AppendTx appends in a transaction of the caller's, and is left without a trace where that rolls back. HeadTx is
// the cursor of a caller's snapshot: state and cursor of one moment, for who joins late. SaveTx moves
// a checkpoint together with what the caller writes, which makes that exactly once.
//
// The caller opens and owns the pool; no session state is used, so a pooler in transaction mode may sit between. Only
// Listen needs a connection of its own, directly to the server. The log is read on the primary: a standby's
// snapshots do not say what is running.
//
// What an append with synchronous_commit=off tells can be lost in a crash after it was delivered; leave it on.
package eventlogpg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

// Options adjust a Store. The zero value is the default.
type Options struct {
	// Schema holds the tables. Default "tallystick".
	Schema string
	// Following is a pool that is used for what follows the log, reads, checkpoints and what is set aside, in the place of
	// the pool that appends and callers' transactions use: whoever exhausts that one does not stop it. Of the same database; the caller's as well.
	// nil: the one pool serves both.
	Following *pgxpool.Pool
	// Timeout bounds every call, whatever the caller's context allows, so that a database that
	// stalls is an error and not a queue. Default 10 s. Prune and Repair are bounded by the caller's context.
	Timeout time.Duration
}

// Store is an eventlog.Store on Postgres. It is safe for concurrent use.
type Store struct {
	pool    *pgxpool.Pool // appends, retention
	follow  *pgxpool.Pool // everything else
	schema  pgtx.Schema
	sql     queries
	timeout time.Duration
	witness eventlog.Witness
}

var (
	_ eventlog.Store  = (*Store)(nil)
	_ eventlog.Hinter = (*Store)(nil)
)

// New makes a store on the caller's pool; nil options are the defaults. It does no I/O: Migrate or
// Check comes next.
//
// Errors: *eventlog.FieldError for a schema name that cannot be used.
func New(pool *pgxpool.Pool, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	schema, err := pgtx.ParseSchema(o.Schema)
	if err != nil {
		return nil, &eventlog.FieldError{Field: "schema", Why: err.Error()}
	}
	s := &Store{pool: pool, follow: pool, schema: schema, sql: splice(schema), timeout: o.Timeout}
	if s.timeout <= 0 {
		s.timeout = 10 * time.Second
	}
	if o.Following != nil {
		s.follow = o.Following
	}
	return s, nil
}

// Regressed implements eventlog.Store.
func (s *Store) Regressed() *eventlog.ResyncError { return s.witness.Regressed() }

// AcceptHistory implements eventlog.Store.
func (s *Store) AcceptHistory() { s.witness.Accept() }

func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.timeout)
}

// read runs a batch in one snapshot, on the primary, with plans that do not depend on how full a table was.
func (s *Store) read(ctx context.Context, b *pgx.Batch) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	b.Queue("commit").Exec(func(pgconn.CommandTag) error { return nil }) // there is nothing to wait for: one round trip
	tx, err := pgtx.Begin(ctx, s.follow, pgtx.Options{ReadOnly: true, Snapshot: true, PinPlans: true}, b)
	if err != nil {
		return coreError(err)
	}
	tx.Rollback() // it has ended: this gives the connection back
	return nil
}

// write runs fn in a transaction of the store's own, for what follows the log.
func (s *Store) write(ctx context.Context, fn func(context.Context, *pgtx.Tx) error) error {
	return coreError(pgtx.Retry(ctx, s.follow, pgtx.Options{}, fn))
}

// all reads a query's rows.
func all[T any](q *pgx.QueuedQuery, into *[]T, scan func(pgx.Row) (T, error)) {
	q.Query(func(rows pgx.Rows) (err error) {
		*into, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (T, error) { return scan(row) })
		return err
	})
}

func scanEvent(row pgx.Row) (eventlog.Recorded, error) {
	var r eventlog.Recorded
	var producer string
	var at int64
	err := row.Scan(&r.Position, &r.Stream, &r.Version, &r.ID, &r.Type, &r.Schema, &producer, &at, &r.Data)
	r.Producer, r.At = eventlog.Producer(producer), instant(at)
	return r, err
}

func instant(us int64) time.Time { return time.UnixMicro(us).UTC() }
