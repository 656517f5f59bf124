// Package eventlogsqlite keeps an event log in an SQLite file, for one machine.
//
// There is one writer at a time, so positions are in the order of commits and a cursor is a position. The file
// cannot be shared between machines: replicas that each have one have as many logs, never disagree and never hear of
// one another. A deployment that means to be one takes eventlogpg.
//
// The caller opens and owns the handle and chooses the driver; a handle that would lose what it commits
// is refused.
package eventlogsqlite

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
)

// Store is an eventlog.Store on SQLite. It is safe for concurrent use.
type Store struct {
	db      *sqlitetx.DB
	witness eventlog.Witness
	written written
}

var _ eventlog.Store = (*Store)(nil)

// New makes a store on the caller's handle. It does no I/O: Migrate or Check comes next. Close gives its
// connections back, the handle stays the caller's.
//
// The handle must be opened on a local file; with modernc.org/sqlite:
//
//	file.db?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)
func New(db *sql.DB) *Store { return On(sqlitetx.New(db, nil)) }

// On makes a store on a writer that other adapters of the same file use too.
func On(db *sqlitetx.DB) *Store { return &Store{db: db} }

// Close gives the store's connections back to the handle, which stays open.
func (s *Store) Close() error { return s.db.Close() }

// Regressed implements eventlog.Store.
func (s *Store) Regressed() *eventlog.ResyncError { return s.witness.Regressed() }

// AcceptHistory implements eventlog.Store.
func (s *Store) AcceptHistory() { s.witness.Accept() }

// tx is a transaction of the store's own or of the caller's.
type tx interface {
	exec(query string, args ...any) (changed int64, err error)
	each(query string, visit func(scan func(...any) error) error, args ...any) error
	now() int64
}

type ownTx struct{ *sqlitetx.Tx }

func (t ownTx) exec(query string, args ...any) (int64, error) { return t.Exec(query, args...) }
func (t ownTx) now() int64                                    { return t.Now }

func (t ownTx) each(query string, visit func(func(...any) error) error, args ...any) error {
	rows, err := t.Query(query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := visit(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

type callersTx struct {
	ctx context.Context
	tx  *sql.Tx
}

func (t callersTx) exec(query string, args ...any) (int64, error) {
	res, err := t.tx.ExecContext(t.ctx, query, args...)
	if err != nil {
		return 0, sqlitetx.Scrub(err)
	}
	n, err := res.RowsAffected()
	return n, sqlitetx.Scrub(err)
}

func (t callersTx) now() int64 { return time.Now().UnixMicro() }

func (t callersTx) each(query string, visit func(func(...any) error) error, args ...any) error {
	rows, err := t.tx.QueryContext(t.ctx, query, args...)
	if err != nil {
		return sqlitetx.Scrub(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := visit(func(to ...any) error { return sqlitetx.Scrub(rows.Scan(to...)) }); err != nil {
			return err
		}
	}
	return sqlitetx.Scrub(rows.Err())
}

func (s *Store) read(ctx context.Context, fn func(tx) error) error {
	return coreError(s.db.Read(ctx, func(t *sqlitetx.Tx) error { return fn(ownTx{t}) }))
}

func (s *Store) write(ctx context.Context, fn func(tx) error) error {
	return coreError(s.db.Write(ctx, func(t *sqlitetx.Tx) error { return fn(ownTx{t}) }))
}

// errNone says that a query for one row found none.
var errNone = errors.New("eventlogsqlite: no row")

func one(t tx, query string, args []any, into ...any) error {
	err := errNone
	if failed := t.each(query, func(scan func(...any) error) error { err = scan(into...); return err }, args...); failed != nil {
		return failed
	}
	return err
}

func scanEvent(scan func(...any) error) (eventlog.Recorded, error) {
	var r eventlog.Recorded
	var producer string
	var at int64
	err := scan(&r.Position, &r.Stream, &r.Version, &r.ID, &r.Type, &r.Schema, &producer, &at, &r.Data)
	r.Producer, r.At = eventlog.Producer(producer), instant(at)
	if r.Data == nil {
		r.Data = []byte{}
	}
	return r, err
}

func events(t tx, query string, args ...any) (out []eventlog.Recorded, err error) {
	err = t.each(query, func(scan func(...any) error) error {
		r, err := scanEvent(scan)
		out = append(out, r)
		return err
	}, args...)
	return out, err
}

func instant(us int64) time.Time { return time.UnixMicro(us).UTC() }

func view(t tx) (v eventlog.View, err error) {
	var log string
	if err := one(t, selectView, nil, &log, &v.Pruned, &v.Head); err != nil {
		return v, err
	}
	if v.Origin.Log, err = strconv.ParseUint(log, 16, 64); err != nil {
		return v, err
	}
	v.Head, v.Now = max(v.Head, v.Pruned), t.now()
	return v, nil
}

// Read implements eventlog.Store.
func (s *Store) Read(ctx context.Context, r eventlog.Read) (eventlog.Page, error) {
	r, err := r.Prepare()
	if err != nil {
		return eventlog.Page{}, err
	}
	mark := s.witness.Mark()
	var v eventlog.View
	var fresh []eventlog.Recorded
	err = s.read(ctx, func(t tx) (err error) {
		if v, err = view(t); err != nil {
			return err
		}
		fresh, err = events(t, selectFresh, r.Cursor.Lookup().After, r.Limit)
		return err
	})
	if err != nil {
		return eventlog.Page{}, err
	}
	if err := s.witness.See(mark, v); err != nil {
		return eventlog.Page{}, err
	}
	return r.Cursor.Page(v, r.Limit, nil, fresh, r.Registered)
}

func (s *Store) view(ctx context.Context) (v eventlog.View, err error) {
	mark := s.witness.Mark()
	if err := s.read(ctx, func(t tx) (err error) { v, err = view(t); return err }); err != nil {
		return v, err
	}
	return v, s.witness.See(mark, v)
}

// Head implements eventlog.Store.
func (s *Store) Head(ctx context.Context) (eventlog.Cursor, error) {
	v, err := s.view(ctx)
	if err != nil {
		return eventlog.Cursor{}, err
	}
	return v.At(v.Head)
}

// At implements eventlog.Store.
func (s *Store) At(ctx context.Context, position int64) (eventlog.Cursor, error) {
	v, err := s.view(ctx)
	if err != nil {
		return eventlog.Cursor{}, err
	}
	return v.At(position)
}

// HeadTx is the cursor of the snapshot of a caller's transaction that only reads: a state that is read there, and this
// cursor, are together what a late joiner needs. In one that has appended, the cursor would have delivered what may yet be rolled
// back, and whatever takes its position then would be lost. What the transaction wrote otherwise than by AppendTx and SaveTx of this
// store is not noticed: the caller must not.
//
// Errors: eventlog.ErrInTransaction, eventlog.ErrUnavailable.
func (s *Store) HeadTx(ctx context.Context, tx *sql.Tx) (eventlog.Cursor, error) {
	if s.written.has(tx) {
		return eventlog.Cursor{}, eventlog.ErrInTransaction
	}
	v, err := view(callersTx{ctx, tx})
	if err != nil {
		return eventlog.Cursor{}, coreError(err)
	}
	return v.At(v.Head)
}

// Stream implements eventlog.Store.
func (s *Store) Stream(ctx context.Context, q eventlog.ReadStream) (out []eventlog.Recorded, err error) {
	if q, err = q.Prepare(); err != nil {
		return nil, err
	}
	err = s.read(ctx, func(t tx) (err error) {
		out, err = events(t, selectStream, q.Stream, q.After, q.Limit)
		return err
	})
	return out, err
}
