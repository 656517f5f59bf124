package coordination

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/lease"
)

// Tx is a transaction that changes what is shared, together with the event that tells of it.
type Tx struct {
	pgx.Tx
	// Now is the database's clock, in microseconds since 1970.
	Now int64
	b   *Base
}

// Table is the name of a table in the schema, quoted.
func (b *Base) Table(name string) string { return b.schema + "." + pgx.Identifier{name}.Sanitize() }

// Append appends one event in the transaction, and returns the version that its stream has then.
func (t *Tx) Append(ctx context.Context, stream, kind string, data []byte) (int64, error) {
	stamped, err := t.b.Log.Stamp(ctx, eventlog.Append{Stream: stream, Events: []eventlog.Event{{Type: kind, Data: data}}})
	if err != nil {
		return 0, err
	}
	done, err := t.b.Store.AppendTx(ctx, t.Tx, stamped...)
	if err != nil {
		return 0, err
	}
	return done[0].Version, nil
}

// Edit runs a transaction, which must bear to be run again after ErrUnknownOutcome. fn's own errors
// roll it back and pass as they are; the database's are stripped.
//
// Errors: fn's, ErrUnavailable, ErrUnknownOutcome.
func (b *Base) Edit(ctx context.Context, fn func(context.Context, *Tx) error) error {
	return b.edit(ctx, nil, fn)
}

// Fenced is Edit for what only the holder of a lease may do: it goes through while the lease is held, and
// nobody takes it over before the transaction has ended.
//
// Errors: those of Edit; lease.ErrLost: nothing changed.
func (b *Base) Fenced(ctx context.Context, held lease.Lease, fn func(context.Context, *Tx) error) error {
	return b.edit(ctx, &held, fn)
}

const bounds = `select set_config('idle_in_transaction_session_timeout', $1::text, true), set_config('lock_timeout', $1::text, true),
	set_config('statement_timeout', $1::text, true)`

func (b *Base) edit(ctx context.Context, held *lease.Lease, fn func(context.Context, *Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.options.Call)
	defer cancel()
	tx, err := b.pool.Begin(ctx)
	if err != nil {
		return ErrUnavailable
	}
	defer func() { // nothing, after a commit
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = tx.Rollback(end)
	}()
	// A gateway that vanishes in the middle must not keep its rows from the others for longer than it would have waited itself.
	if _, err := tx.Exec(ctx, bounds, strconv.FormatInt(b.options.Call.Milliseconds(), 10)); err != nil {
		return ErrUnavailable
	}
	if held != nil {
		if err := b.Leaser.Fence(ctx, tx, *held); err != nil {
			return err
		}
	}
	t := &Tx{Tx: tx, b: b}
	if err := tx.QueryRow(ctx, "select (extract(epoch from clock_timestamp()) * 1000000)::bigint").Scan(&t.Now); err != nil {
		return ErrUnavailable
	}
	if err := fn(ctx, t); err != nil {
		return Scrub(err)
	}
	if err := tx.Commit(ctx); err != nil {
		return ErrUnknownOutcome
	}
	b.Log.Wake()
	return nil
}

// Snapshot reads what is shared at one moment, and returns the log's cursor of the same.
//
// Errors: those of eventlog.Store.Head.
func (b *Base) Snapshot(ctx context.Context, read func(context.Context, pgx.Tx) error) (eventlog.Cursor, error) {
	ctx, cancel := context.WithTimeout(ctx, b.options.Call)
	defer cancel()
	var at eventlog.Cursor
	err := pgx.BeginTxFunc(ctx, b.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
		if at, err = b.Store.HeadTx(ctx, tx); err != nil {
			return err
		}
		return read(ctx, tx)
	})
	for _, ours := range []error{eventlog.ErrUnavailable, eventlog.ErrStandby, eventlog.ErrTooManyOpen, eventlog.ErrInvalid} {
		if errors.Is(err, ours) {
			return at, err
		}
	}
	if err != nil {
		return at, fmt.Errorf("%w: what is shared could not be read", eventlog.ErrUnavailable)
	}
	return at, nil
}

// Query reads rows outside of any transaction.
//
// Errors: ErrUnavailable.
func Query[T any](ctx context.Context, b *Base, sql string, scan func(pgx.CollectableRow) (T, error), args ...any) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, b.options.Call)
	defer cancel()
	rows, err := b.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, ErrUnavailable
	}
	out, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, ErrUnavailable
	}
	return out, nil
}

// FieldError refuses what somebody asked for, before anything changed.
type FieldError struct {
	Field, Why string
	Conflict   bool // with what is there, rather than wrong in itself
}

func (e *FieldError) Error() string { return "coordination: " + e.Field + " " + e.Why }

// ErrNotFound: there is no such thing.
var ErrNotFound = errors.New("coordination: there is nothing of this name")

// own are the errors that pass as they are. They carry nothing of the driver's.
var own = []error{ErrNotFound, ErrUnavailable, lease.ErrLost, lease.ErrInvalid, eventlog.ErrInvalid, eventlog.ErrConflict, eventlog.ErrDuplicate, eventlog.ErrMayNotAppend, eventlog.ErrDeclined}

// Scrub takes the driver's errors away, which may repeat what no error should. Of the server's the code is left.
func Scrub(err error) error {
	var server *pgconn.PgError
	var field *FieldError
	switch {
	case err == nil, errors.As(err, &field), slices.ContainsFunc(own, func(is error) bool { return errors.Is(err, is) }):
		return err
	case errors.As(err, &server):
		return fmt.Errorf("%w: SQLSTATE %s", ErrUnavailable, server.Code)
	}
	return ErrUnavailable
}
