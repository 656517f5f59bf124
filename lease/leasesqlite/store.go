// Package leasesqlite keeps leases in an SQLite file, for the processes of one machine.
//
// Processes on other machines cannot use the file, and Shared says so: each machine would grant itself every lease.
// A lease.Keeper takes a Leaser of this package with KeeperOptions.OneMachine only.
//
// The caller opens and owns the handle and chooses the driver; a handle that would lose what it commits is refused.
// The clock is the machine's.
package leasesqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/tallystick-go/tallystick/internal/sqlitetx"
	"github.com/tallystick-go/tallystick/lease"
)

// Options adjust a Leaser. The zero value is the default.
type Options struct {
	// History is what this process has seen, where several Leasers use one file. Default: one of its own.
	History *lease.History
	// SharedFile lets Migrate add its tables to a file that holds your own: fenced writes are in the file of the leases.
	SharedFile bool
	// Clock is the machine's clock. It is for tests; every process on the file must use the same.
	Clock func() time.Time
}

// Leaser is a lease.Leaser on SQLite. It is safe for concurrent use.
type Leaser struct {
	db        *sqlitetx.DB
	history   *lease.History
	shareFile bool
	clock     func() time.Time
}

var _ lease.Leaser = (*Leaser)(nil)

// New makes a leaser on the caller's handle; nil options are the defaults. It does
// no I/O: Migrate or Check comes next. Close gives its connections back, the
// handle stays the caller's.
//
// The handle must be opened on a local file with the settings that the errors
// ask for; with modernc.org/sqlite:
//
//	file.db?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)
func New(db *sql.DB, o *Options) *Leaser {
	if o == nil {
		o = &Options{}
	}
	l := &Leaser{history: o.History, shareFile: o.SharedFile, clock: o.Clock}
	if l.history == nil {
		l.history = &lease.History{}
	}
	if l.clock == nil {
		l.clock = time.Now
	}
	l.db = sqlitetx.New(db, &sqlitetx.Options{Now: func() int64 { return l.clock().UnixMicro() }})
	return l
}

// Close gives the leaser's connections back to the handle, which stays open.
func (l *Leaser) Close() error { return l.db.Close() }

// Shared implements lease.Leaser: processes on other machines cannot use the file.
func (l *Leaser) Shared() bool { return false }

// Acquire implements lease.Leaser. A fenced transaction that is open holds the file's one writer, and is waited for as
// long as the handle's busy_timeout says.
func (l *Leaser) Acquire(ctx context.Context, c lease.Claim) (lease.Lease, error) {
	if err := c.Validate(); err != nil {
		return lease.Lease{}, err
	}
	m := l.history.Mark(c.Name)
	a, err := l.change(ctx, c.Name, func(tx *sqlitetx.Tx) (int64, error) {
		return tx.Exec(acquire, c.Name, c.Holder, c.TTL.Microseconds(), tx.Now, int64(m.Generation), m.Origin)
	})
	if err != nil {
		return lease.Lease{}, err
	}
	return l.history.Acquired(c, m, a)
}

// Renew implements lease.Leaser. It waits for the file's one writer, as everything does.
func (l *Leaser) Renew(ctx context.Context, held lease.Lease) (lease.Lease, error) {
	if err := held.Validate(false); err != nil {
		return lease.Lease{}, err
	}
	m := l.history.Mark(held.Name)
	a, err := l.change(ctx, held.Name, func(tx *sqlitetx.Tx) (int64, error) {
		return tx.Exec(renew, held.Name, held.Holder, int64(held.Generation), tx.Now)
	})
	if err != nil {
		return lease.Lease{}, err
	}
	return l.history.Renewed(held, m, a)
}

// Release implements lease.Leaser.
func (l *Leaser) Release(ctx context.Context, held lease.Lease) error {
	if err := held.Validate(true); err != nil {
		return err
	}
	m := l.history.Mark(held.Name)
	a, err := l.change(ctx, held.Name, func(tx *sqlitetx.Tx) (int64, error) {
		return tx.Exec(release, held.Name, held.Holder, int64(held.Generation), tx.Now)
	})
	if err != nil {
		return err
	}
	return l.history.Released(held, m, a)
}

// Look implements lease.Leaser.
func (l *Leaser) Look(ctx context.Context, name string) (lease.Row, error) {
	if err := lease.ValidateName(name); err != nil {
		return lease.Row{}, err
	}
	m := l.history.Mark(name)
	var r lease.Row
	if err := coreError(l.db.Read(ctx, func(tx *sqlitetx.Tx) (err error) {
		r, err = read(tx, name)
		return err
	})); err != nil {
		return lease.Row{}, err
	}
	return l.history.Looked(m, r)
}

// change runs one conditional statement, and reads the row as it is after it.
func (l *Leaser) change(ctx context.Context, name string, do func(*sqlitetx.Tx) (int64, error)) (lease.Answer, error) {
	var a lease.Answer
	err := l.db.Write(ctx, func(tx *sqlitetx.Tx) error {
		n, err := do(tx)
		if err != nil {
			return err
		}
		a.Done = n == 1
		a.Row, err = read(tx, name)
		return err
	})
	return a, coreError(err)
}

func read(tx *sqlitetx.Tx, name string) (lease.Row, error) {
	r := lease.Row{Name: name, Now: time.UnixMicro(tx.Now).UTC()}
	var generation, ttl, acquired, renewed, expires int64
	if err := tx.QueryRow(look, name).Scan(&r.Origin, &r.Holder, &generation, &ttl, &acquired, &renewed, &expires); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			return r, &sqlitetx.Error{Class: sqlitetx.Rejected} // the migration made it, and nobody deletes it
		}
		return r, err
	}
	if r.Generation, r.TTL = lease.Generation(generation), time.Duration(ttl)*time.Microsecond; generation > 0 {
		r.AcquiredAt, r.RenewedAt, r.ExpiresAt = time.UnixMicro(acquired).UTC(), time.UnixMicro(renewed).UTC(), time.UnixMicro(expires).UTC()
	}
	return r, nil
}
