package sqlitetx

import (
	"context"
	"database/sql"
	"database/sql/driver"
)

// mostStatements bounds the prepared statements that a connection keeps.
const mostStatements = 256

// conn is a verified connection with its prepared statements.
type conn struct {
	sql   *sql.Conn
	stmts map[string]*sql.Stmt
}

// Nothing inside a transaction takes the caller's context: an interrupt aborts the transaction
// and leaves the connection in a state that the next user would inherit.
func (c *conn) exec(query string, args ...any) (sql.Result, error) {
	st, err := c.prepare(query)
	if err != nil {
		return nil, err
	}
	return st.ExecContext(context.Background(), args...)
}

func (c *conn) prepare(query string) (*sql.Stmt, error) {
	if st := c.stmts[query]; st != nil {
		return st, nil
	}
	st, err := c.sql.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, err
	}
	if len(c.stmts) >= mostStatements {
		c.forget()
	}
	c.stmts[query] = st
	return st, nil
}

func (c *conn) forget() {
	for _, st := range c.stmts {
		_ = st.Close()
	}
	clear(c.stmts)
}

// release gives a healthy connection back to the handle.
func (c *conn) release() {
	c.forget()
	_ = c.sql.Close()
}

// discard closes the connection itself: after an error nobody can say what state it is in.
func (c *conn) discard() {
	c.forget()
	_ = c.sql.Raw(func(any) error { return driver.ErrBadConn })
	_ = c.sql.Close()
}

// Tx is one transaction. It is for one goroutine and only inside the callback.
type Tx struct {
	Now  int64 // the database's clock in microseconds, read after the lock was held
	conn *conn
	open []*sql.Rows
}

// Exec runs a prepared statement and returns the number of rows it changed.
func (t *Tx) Exec(query string, args ...any) (int64, error) {
	res, err := t.conn.exec(query, args...)
	if err != nil {
		return 0, Scrub(err)
	}
	n, err := res.RowsAffected()
	return n, Scrub(err)
}

// Query runs a prepared query. Rows left open are closed when the transaction ends.
func (t *Tx) Query(query string, args ...any) (*Rows, error) {
	st, err := t.conn.prepare(query)
	if err != nil {
		return nil, Scrub(err)
	}
	rows, err := st.QueryContext(context.Background(), args...)
	if err != nil {
		return nil, Scrub(err)
	}
	t.open = append(t.open, rows)
	return &Rows{rows: rows}, nil
}

// QueryRow runs a prepared query for one row; Scan's error is sql.ErrNoRows where there is none.
func (t *Tx) QueryRow(query string, args ...any) *Row {
	rows, err := t.Query(query, args...)
	return &Row{rows: rows, err: err}
}

// closeRows: a statement that is still being read would keep the transaction open past COMMIT.
func (t *Tx) closeRows() {
	for _, r := range t.open {
		_ = r.Close()
	}
	t.open = nil
}

// Rows is sql.Rows with scrubbed errors: database/sql puts the scanned value into its own.
type Rows struct{ rows *sql.Rows }

// Next is sql.Rows.Next.
func (r *Rows) Next() bool { return r.rows.Next() }

// Scan is sql.Rows.Scan.
func (r *Rows) Scan(dest ...any) error { return Scrub(r.rows.Scan(dest...)) }

// Err is sql.Rows.Err.
func (r *Rows) Err() error { return Scrub(r.rows.Err()) }

// Close is sql.Rows.Close.
func (r *Rows) Close() error { return Scrub(r.rows.Close()) }

// Row is the answer of QueryRow.
type Row struct {
	rows *Rows
	err  error
}

// Scan reads the row.
func (r *Row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return sql.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	return r.rows.Close()
}
