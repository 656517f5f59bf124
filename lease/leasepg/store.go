// Package leasepg keeps leases in Postgres, for any number of processes on any machines.
//
// Acquire, Renew and Release are one statement each, which commits by itself and is decided on the server's
// clock after the row was locked. Fence lets a transaction of yours through while the lease is
// yours, and holds up whoever wants to take it over until that transaction has ended. It does not hold up renewals:
// the row is kept FOR KEY SHARE, and they do not change its key.
//
// The caller opens and owns the pool. No session state is used, so a pooler in transaction mode may sit between.
// A Keeper asks every few seconds and must not wait behind other work for a connection: give it a pool of its own, of two.
//
// It promises as much as the server does. A failover to a replica that lacks acknowledged commits takes leases
// back in time, which is refused where this process can see it (lease.ErrHistoryRegressed); synchronous replication avoids it.
package leasepg

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/internal/pgtx"
	"github.com/tallystick-go/tallystick/lease"
)

// Options adjust a Leaser. The zero value is the default.
type Options struct {
	// Schema holds the tables. Default "tallystick".
	Schema string
	// Timeout bounds every call, whatever the caller's context allows, so that a database that stalls is an
	// error and not a queue. Default 5 s.
	Timeout time.Duration
	// History is what this process has seen, where several Leasers use one database. Default: one of its own.
	History *lease.History
}

// Leaser is a lease.Leaser on Postgres. It is safe for concurrent use.
type Leaser struct {
	pool    *pgxpool.Pool
	schema  pgtx.Schema
	sql     queries
	timeout time.Duration
	history *lease.History
}

var _ lease.Leaser = (*Leaser)(nil)

// New makes a leaser on the caller's pool; nil options are the defaults. It does no
// I/O: Migrate or Check comes next.
//
// Errors: *lease.FieldError, for a schema name that cannot be used.
func New(pool *pgxpool.Pool, o *Options) (*Leaser, error) {
	if o == nil {
		o = &Options{}
	}
	schema, err := pgtx.ParseSchema(o.Schema)
	if err != nil {
		return nil, &lease.FieldError{Field: "options.schema", Why: err.Error()}
	}
	l := &Leaser{pool: pool, schema: schema, sql: splice(schema), timeout: o.Timeout, history: o.History}
	if l.timeout <= 0 {
		l.timeout = 5 * time.Second
	}
	if l.history == nil {
		l.history = &lease.History{}
	}
	return l, nil
}

// Shared implements lease.Leaser: processes on other machines can use the same server.
func (l *Leaser) Shared() bool { return true }

// Acquire implements lease.Leaser. A free lease whose last fenced transaction is still open is waited for, as
// long as ctx and Options.Timeout allow; then it is a *lease.HeldError that says so.
func (l *Leaser) Acquire(ctx context.Context, c lease.Claim) (lease.Lease, error) {
	if err := c.Validate(); err != nil {
		return lease.Lease{}, err
	}
	m := l.history.Mark(c.Name)
	args := func(wait string) []any {
		return []any{c.Name, c.Holder, c.TTL.Microseconds(), int64(m.Generation), m.Origin, wait}
	}
	a, err := l.ask(ctx, c.Name, true, l.sql.acquire, args)
	if err == nil && !a.Done && a.Row.Generation == 0 { // another made the row meanwhile: now it can be seen
		a, err = l.ask(ctx, c.Name, true, l.sql.acquire, args)
	}
	if pgtx.Classify(err) == pgtx.LockTimeout {
		return lease.Lease{}, &lease.HeldError{Name: c.Name, Fenced: true}
	}
	if err != nil {
		return lease.Lease{}, coreError(err)
	}
	return l.history.Acquired(c, m, a)
}

// Renew implements lease.Leaser.
func (l *Leaser) Renew(ctx context.Context, held lease.Lease) (lease.Lease, error) {
	if err := held.Validate(false); err != nil {
		return lease.Lease{}, err
	}
	m := l.history.Mark(held.Name)
	a, err := l.ask(ctx, held.Name, true, l.sql.renew, func(wait string) []any {
		return []any{held.Name, held.Holder, int64(held.Generation), wait}
	})
	if err != nil {
		return lease.Lease{}, coreError(err)
	}
	return l.history.Renewed(held, m, a)
}

// Release implements lease.Leaser. It does not wait for fenced transactions: whoever acquires next does.
func (l *Leaser) Release(ctx context.Context, held lease.Lease) error {
	if err := held.Validate(true); err != nil {
		return err
	}
	m := l.history.Mark(held.Name)
	a, err := l.ask(ctx, held.Name, true, l.sql.release, func(wait string) []any {
		return []any{held.Name, held.Holder, int64(held.Generation), wait}
	})
	if err != nil {
		return coreError(err)
	}
	return l.history.Released(held, m, a)
}

// Look implements lease.Leaser.
func (l *Leaser) Look(ctx context.Context, name string) (lease.Row, error) {
	if err := lease.ValidateName(name); err != nil {
		return lease.Row{}, err
	}
	m := l.history.Mark(name)
	a, err := l.ask(ctx, name, false, l.sql.look, func(string) []any { return []any{name} })
	if err != nil {
		return lease.Row{}, coreError(err)
	}
	return l.history.Looked(m, a.Row)
}

// attempts bounds how often a statement is sent that the server asks to repeat, as it may where the pool's
// default isolation is serializable.
const attempts = 5

// ask sends one statement and reads its one row. The wait for a lock ends on the server before the caller's ends
// here: a statement that nobody waits for any more could still be carried out.
func (l *Leaser) ask(ctx context.Context, name string, changes bool, sql string, args func(wait string) []any) (lease.Answer, error) {
	within, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	for i := 1; ; i++ {
		a, err := l.once(within, name, changes, sql, args)
		switch pgtx.Classify(err) {
		case pgtx.Retryable:
			if i < attempts && within.Err() == nil {
				continue
			}
		case pgtx.ReadOnly: // a standby keeps answering, and every connection of the pool leads to it
			l.pool.Reset()
		}
		return a, err
	}
}

func (l *Leaser) once(ctx context.Context, name string, changes bool, sql string, args func(wait string) []any) (lease.Answer, error) {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return lease.Answer{}, pgtx.ScrubConnect(err)
	}
	defer conn.Release()
	a := lease.Answer{Row: lease.Row{Name: name}}
	var standby bool
	var now, ttl, acquired, renewed, expires int64
	err = conn.QueryRow(ctx, sql, args(lockWait(ctx))...).
		Scan(&a.Row.Origin, &now, &standby, &a.Done, &a.Row.Holder, &a.Row.Generation, &ttl, &acquired, &renewed, &expires)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return lease.Answer{}, errNoOrigin
	case err != nil && changes:
		return lease.Answer{}, pgtx.ScrubStatement(err)
	case err != nil:
		return lease.Answer{}, pgtx.Scrub(err)
	case standby: // only a look gets here, and what it saw may be long gone
		return lease.Answer{}, &pgtx.Error{Class: pgtx.ReadOnly}
	}
	a.Row.Now, a.Row.TTL = time.UnixMicro(now).UTC(), time.Duration(ttl)*time.Microsecond
	if a.Row.Generation > 0 {
		a.Row.AcquiredAt, a.Row.RenewedAt, a.Row.ExpiresAt = time.UnixMicro(acquired).UTC(), time.UnixMicro(renewed).UTC(), time.UnixMicro(expires).UTC()
	}
	return a, nil
}

// lockWait is three quarters of the time that is left, in milliseconds.
func lockWait(ctx context.Context) string {
	left := time.Second
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	return strconv.FormatInt(max(1, (left*3/4).Milliseconds()), 10)
}
