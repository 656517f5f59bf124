// Package sqlitetx is what the SQLite adapters share: it refuses unsafe handles, gives one
// serial writer per store with BEGIN IMMEDIATE, keeps statements prepared, and classifies
// failures without linking a driver.
package sqlitetx

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"
)

// Options adjust a DB; nil and zero fields are defaults.
type Options struct {
	// Now is the database's clock in microseconds since 1970 UTC; default: this machine's. It is read once
	// per transaction, after the write lock is held.
	Now func() int64
	// Readers is how many verified read connections stay open; default 4.
	Readers int
}

// roomToPin: with fewer connections than this allowed, none is kept between calls, so that several stores
// and the caller's own queries on one handle cannot wait for one another for ever.
const roomToPin = 16

// DB runs transactions on a caller's handle. It is safe for concurrent use. It does no I/O until
// first used and verifies every connection that it uses.
type DB struct {
	db      *sql.DB
	now     func() int64
	turn    chan struct{} // holds one token: the writer's turn
	writer  *conn         // kept between writes; only with the turn
	mu      sync.Mutex
	closed  bool
	readers []*conn
	max     int
}

// New makes a DB. The caller keeps ownership of db and closes it after Close.
func New(db *sql.DB, o *Options) *DB {
	d := &DB{db: db, now: func() int64 { return time.Now().UnixMicro() }, turn: make(chan struct{}, 1), max: 4}
	if o != nil && o.Now != nil {
		d.now = o.Now
	}
	if o != nil && o.Readers > 0 {
		d.max = o.Readers
	}
	d.turn <- struct{}{}
	return d
}

// Handle is the caller's handle.
func (d *DB) Handle() *sql.DB { return d.db }

// Verify is the package's Verify on this handle.
func (d *DB) Verify(ctx context.Context) error { return Verify(ctx, d.db) }

// Write runs fn in a write transaction: BEGIN IMMEDIATE, fn, COMMIT, one at a time. ctx bounds the
// wait for the turn; once the transaction has begun it runs to its end, because an interrupt
// would end it half-way and the next statement would commit by itself. fn must not wait for anything else.
// An error or a panic of fn rolls back; fn's error is returned as it is.
//
// Errors: *Error, *UnsafeError, fn's own.
func (d *DB) Write(ctx context.Context, fn func(*Tx) error) error {
	select {
	case <-ctx.Done():
		return Scrub(ctx.Err())
	case <-d.turn:
	}
	defer func() { d.turn <- struct{}{} }()
	if err := ctx.Err(); err != nil {
		return Scrub(err)
	}
	if d.isClosed() {
		return Scrub(sql.ErrConnDone)
	}
	c := d.writer
	d.writer = nil
	var err error
	if c == nil {
		if c, err = d.open(ctx); err != nil {
			return err
		}
	}
	keep := false
	defer func() { // also when fn panics
		switch {
		case !keep:
			c.discard()
		case d.pin():
			d.writer = c
		default:
			c.release()
		}
	}()
	keep, err = d.run(ctx, c, "begin immediate", fn)
	return err
}

// Read runs fn in a read transaction: one snapshot, beside the writer. ctx bounds the wait for a
// connection. fn must not write.
func (d *DB) Read(ctx context.Context, fn func(*Tx) error) error {
	c, err := d.reader(ctx)
	if err != nil {
		return err
	}
	keep := false
	defer func() {
		if keep {
			d.putReader(c)
		} else {
			c.discard()
		}
	}()
	keep, err = d.run(ctx, c, "begin deferred", fn)
	return err
}

func (d *DB) putReader(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || !d.pin() || len(d.readers) >= d.max {
		c.release()
		return
	}
	d.readers = append(d.readers, c)
}

// Close gives the kept connections back to the handle, which stays open. A transaction that is
// running ends first.
func (d *DB) Close() error {
	<-d.turn
	defer func() { d.turn <- struct{}{} }()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.writer != nil {
		d.writer.release()
		d.writer = nil
	}
	for _, c := range d.readers {
		c.release()
	}
	d.readers = nil
	return nil
}

func (d *DB) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

func (d *DB) reader(ctx context.Context) (*conn, error) {
	if d.isClosed() {
		return nil, Scrub(sql.ErrConnDone)
	}
	d.mu.Lock()
	if n := len(d.readers); n > 0 {
		c := d.readers[n-1]
		d.readers = d.readers[:n-1]
		d.mu.Unlock()
		return c, nil
	}
	d.mu.Unlock()
	return d.open(ctx)
}

func (d *DB) pin() bool {
	limit := d.db.Stats().MaxOpenConnections
	return limit == 0 || limit >= roomToPin
}

func (d *DB) open(ctx context.Context) (*conn, error) {
	sc, err := d.db.Conn(ctx)
	if err != nil {
		return nil, Scrub(err)
	}
	c := &conn{sql: sc, stmts: map[string]*sql.Stmt{}}
	if err := verifyConn(ctx, sc); err != nil {
		c.release()
		return nil, err
	}
	return c, nil
}

// run reports whether the connection may be used again.
func (d *DB) run(ctx context.Context, c *conn, begin string, fn func(*Tx) error) (keep bool, err error) {
	if _, err := c.exec(begin); err != nil {
		return false, Scrub(err)
	}
	tx := &Tx{conn: c}
	committed := false
	defer func() { // a panic passes through here as well
		tx.closeRows()
		if committed {
			return
		}
		_, rerr := c.exec("rollback")
		var failed *Error
		// A caller's own error leaves the connection sound; the driver's does not.
		keep = rerr == nil && err != nil && !errors.As(err, &failed)
	}()
	// The caller may have left during the wait for the lock.
	if err := ctx.Err(); err != nil {
		return false, Scrub(err)
	}
	tx.Now = d.now()
	if err := fn(tx); err != nil {
		return false, err
	}
	tx.closeRows()
	if _, err := c.exec("commit"); err != nil {
		return false, scrubCommit(err)
	}
	committed = true
	return true, nil
}
