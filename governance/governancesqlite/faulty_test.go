package governancesqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync/atomic"
)

// The driver "sqlite-faulty" is the real one, but that COMMIT fails when a test
// says so: before it reached SQLite, or after.

type fault struct {
	code   int
	after  bool // SQLite committed, and the answer is lost
	active atomic.Bool
	skip   atomic.Int32 // so many commits go well before
	left   atomic.Int32
}

var injected fault

// inject makes the next commits fail.
func inject(code int, after bool, times int32) {
	injected.code, injected.after = code, after
	injected.skip.Store(0)
	injected.left.Store(times)
	injected.active.Store(true)
}

type codeError int

func (e codeError) Error() string { return fmt.Sprintf("injected: disk /secret/path, code %d", int(e)) }
func (e codeError) Code() int     { return int(e) }

func init() {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	sql.Register("sqlite-faulty", faultyDriver{db.Driver()})
}

type faultyDriver struct{ driver.Driver }

func (d faultyDriver) Open(name string) (driver.Conn, error) {
	c, err := d.Driver.Open(name)
	if err != nil {
		return nil, err
	}
	return &faultyConn{c}, nil
}

type faultyConn struct{ driver.Conn }

func (c *faultyConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	st, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil || query != "commit" {
		return st, err
	}
	return &faultyCommit{st}, nil
}

func (c *faultyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *faultyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

type faultyCommit struct{ driver.Stmt }

func (s *faultyCommit) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	fails := injected.active.Load() && injected.skip.Add(-1) < 0 && injected.left.Add(-1) >= 0
	if fails && !injected.after {
		return nil, codeError(injected.code)
	}
	res, err := s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	if fails && err == nil {
		return nil, codeError(injected.code)
	}
	return res, err
}
