package leasesqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/tallystick-go/tallystick/internal/sqlitetx"
	"github.com/tallystick-go/tallystick/lease"
)

// Conn runs a statement in the caller's transaction: an *sql.Tx, or an *sql.Conn after BEGIN IMMEDIATE.
type Conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Fence lets the caller's transaction through while the lease is held in this generation, and keeps it
// held until the transaction ends. Call it first in the transaction, before anything that must not happen without the
// lease; roll back on an error. The transaction must be on the file of the leases.
//
// It takes the file's one writer: everybody else's changes wait until the transaction ends, renewals too, and
// nothing ends a process that is stopped in between. Keep fenced transactions short.
//
// Time: this machine's clock, read once the writer is taken.
// Retry: in a new transaction.
// Errors: *lease.LostError (ErrLost): nothing may be written; *lease.FieldError; ErrUnavailable: roll back.
//
// Source: ADR-020 "Management is leased; serving is not".
func (l *Leaser) Fence(ctx context.Context, tx Conn, held lease.Lease) error {
	if err := held.Validate(false); err != nil {
		return err
	}
	if _, is := tx.(*sql.DB); is {
		return &lease.FieldError{Field: "tx", Why: "is a handle and no transaction: the fence would end with its own statement"}
	}
	// Twice: the first takes the writer, and the clock is read again once it is taken.
	for range 2 {
		res, err := tx.ExecContext(ctx, fence, held.Name, held.Holder, int64(held.Generation), l.clock().UnixMicro())
		if err != nil {
			return fmt.Errorf("%w: %w", lease.ErrUnavailable, sqlitetx.Scrub(err))
		}
		n, err := res.RowsAffected()
		if err != nil {
			return fmt.Errorf("%w: %w", lease.ErrUnavailable, sqlitetx.Scrub(err))
		}
		if n != 1 {
			return &lease.LostError{Held: held}
		}
	}
	return nil
}
