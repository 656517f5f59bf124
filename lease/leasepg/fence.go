package leasepg

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick-go/tallystick/internal/pgtx"
	"github.com/tallystick-go/tallystick/lease"
)

// Fence lets the caller's transaction through while the lease is held in this generation, and keeps it
// held until the transaction ends: whoever would take it over waits for that, renewals do not. Call it first
// in the transaction, before anything that must not happen without the lease; roll back on an error. Any number of
// transactions may be fenced at once.
//
// It lowers the transaction's idle_in_transaction_session_timeout to what is left of the tenure, so that a
// process which is stopped between fence and commit does not hold up its successor beyond that: the server ends its
// session. A statement that runs is not ended; it is waited for.
//
// Do not fence inside a savepoint: rolling back to it lets go of the lease. In REPEATABLE READ and SERIALIZABLE the
// tenure is judged as the transaction's snapshot has it, which errs towards refusing.
//
// Time: the server's clock, read after the row was locked.
// Retry: in a new transaction.
// Errors: *lease.LostError (ErrLost): nothing may be written; *lease.FieldError; ErrUnavailable: roll back.
//
// Source: ADR-020 "Management is leased; serving is not".
func (l *Leaser) Fence(ctx context.Context, tx pgx.Tx, held lease.Lease) error {
	if err := held.Validate(false); err != nil {
		return err
	}
	return judge(held, tx.QueryRow(ctx, l.sql.fence, held.Name, held.Holder, int64(held.Generation)))
}

// FenceSQL is Fence for a transaction of database/sql, with any driver that speaks to Postgres and
// numbers its parameters ($1).
func (l *Leaser) FenceSQL(ctx context.Context, tx *sql.Tx, held lease.Lease) error {
	if err := held.Validate(false); err != nil {
		return err
	}
	err := judge(held, tx.QueryRowContext(ctx, l.sql.fence, held.Name, held.Holder, int64(held.Generation)))
	if err == nil || errors.Is(err, lease.ErrLost) || errors.Is(err, lease.ErrUnavailable) {
		return err
	}
	return lease.ErrUnavailable // another driver's error, whose text may hold anything
}

func judge(held lease.Lease, row interface{ Scan(dest ...any) error }) error {
	var left int64
	var idle string
	err := row.Scan(&left, &idle)
	switch {
	case errors.Is(err, pgx.ErrNoRows), errors.Is(err, sql.ErrNoRows):
		return &lease.LostError{Held: held}
	case err != nil && pgtx.IsDriver(err):
		return fmt.Errorf("%w: %w", lease.ErrUnavailable, pgtx.Scrub(err))
	}
	return err
}
