// Package policypg keeps a policy set in Postgres, for any number of gateways.
//
// One row says which set is in force: edits lock it, compare, write and raise its revision in
// one transaction, and then pass a barrier before they return: they wait until each
// admission that may have read the older set has ended. Admissions read that row together with
// what else they read ([QueueMark], [MarkColumn]); they and edits do not wait for each
// other's locks. The caller opens and owns the pool; no session state is used, so a pooler in
// transaction mode may sit between.
package policypg

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/eventlog/eventlogpg"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

// Options adjust a Store. The zero value is the default.
type Options struct {
	// Schema holds the tables. Default "tallystick".
	Schema string
	// Timeout bounds every call apart from the barrier, whatever the caller's context
	// allows, so that a database that stalls is an error and not a queue. Default 5 s.
	Timeout time.Duration
	// BarrierWait bounds how long an edit waits for admissions that may have read
	// what it changed. Default 10 s.
	BarrierWait time.Duration
	// Events appends what edits change, in their transactions: to a log of the same database and schema. Nil: nobody is told.
	Events *eventlogpg.Recorder
}

// Store is a policy.Store on Postgres. It is safe for concurrent use.
type Store struct {
	pool    *pgxpool.Pool
	schema  pgtx.Schema
	sql     queries
	timeout time.Duration
	barrier time.Duration
	events  *eventlogpg.Recorder
	last    atomic.Pointer[policy.Set] // what was read last: most of it is not decoded again
}

var _ policy.Store = (*Store)(nil)

type queries struct {
	selectMark, lockMark, selectSet, selectDocuments string
	deleteDocuments, deleteAll, putDocuments, next   string
}

// New makes a store on the caller's pool; nil options are the defaults. It does no
// I/O: Migrate or Check comes next.
//
// Errors: *policy.Error, for a schema name that cannot be used.
func New(pool *pgxpool.Pool, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	schema, err := pgtx.ParseSchema(o.Schema)
	if err != nil {
		return nil, &policy.Error{Path: "schema", Why: err.Error()}
	}
	s := &Store{pool: pool, schema: schema, timeout: o.Timeout, barrier: o.BarrierWait, events: o.Events}
	if s.timeout <= 0 {
		s.timeout = 5 * time.Second
	}
	s.sql = queries{
		selectMark: schema.Splice(selectMark), lockMark: schema.Splice(lockMark), selectSet: schema.Splice(selectSet), selectDocuments: schema.Splice(selectDocuments),
		deleteDocuments: schema.Splice(deleteDocuments), deleteAll: schema.Splice(deleteAll),
		putDocuments: schema.Splice(putDocuments), next: schema.Splice(updateState),
	}
	return s, nil
}

// Load implements policy.Store.
func (s *Store) Load(ctx context.Context) (policy.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, s.sql.selectSet)
	if err != nil {
		return policy.Snapshot{}, coreError(err)
	}
	defer rows.Close()
	var value []byte
	var stored []policy.Row
	for rows.Next() {
		var name, text *string
		if err := rows.Scan(&value, &name, &text); err != nil {
			return policy.Snapshot{}, coreError(err)
		}
		if name != nil && text != nil {
			stored = append(stored, policy.Row{Name: *name, Text: *text})
		}
	}
	if err := rows.Err(); err != nil {
		return policy.Snapshot{}, coreError(err)
	}
	mark, err := ParseMark(value)
	if err != nil {
		return policy.Snapshot{}, err
	}
	return s.restore(mark, stored)
}

// Mark implements policy.Store.
func (s *Store) Mark(ctx context.Context) (policy.Mark, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var value []byte
	if err := s.pool.QueryRow(ctx, s.sql.selectMark).Scan(&value); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return policy.Mark{}, coreError(err)
	}
	return ParseMark(value)
}

func (s *Store) restore(mark policy.Mark, stored []policy.Row) (policy.Snapshot, error) {
	set, err := policy.Restore(s.last.Load(), mark, stored)
	if err != nil {
		return policy.Snapshot{}, err
	}
	s.last.Store(set)
	return policy.Snapshot{Mark: mark, Set: set}, nil
}

// Apply implements policy.Store.
func (s *Store) Apply(ctx context.Context, a policy.Apply) (policy.Snapshot, error) {
	return s.edit(ctx, a.Prepare)
}

// Delete implements policy.Store.
func (s *Store) Delete(ctx context.Context, d policy.Delete) (policy.Snapshot, error) {
	return s.edit(ctx, d.Prepare)
}

// Replace implements policy.Store.
func (s *Store) Replace(ctx context.Context, r policy.Replace) (policy.Snapshot, error) {
	return s.edit(ctx, r.Prepare)
}

func (s *Store) edit(ctx context.Context, prepare func() (*policy.Edit, error)) (policy.Snapshot, error) {
	e, err := prepare()
	if err != nil {
		return policy.Snapshot{}, err
	}
	var now policy.Snapshot
	if err := s.commit(ctx, func(ctx context.Context, tx *pgtx.Tx) (told []policy.Event, err error) {
		now, told, err = s.write(ctx, tx, e)
		return told, err
	}); err != nil {
		return policy.Snapshot{}, err
	}
	s.last.Store(now.Set)
	// The edit is committed whatever comes of the wait, so its result goes out with the error.
	return now, coreError(pgtx.Barrier(ctx, s.pool, s.schema, s.barrier))
}

// write makes one edit in a transaction, and tells it: lock, read, compare, write.
func (s *Store) write(ctx context.Context, tx *pgtx.Tx, e *policy.Edit) (policy.Snapshot, []policy.Event, error) {
	now, corrupt, err := s.lock(ctx, tx)
	if err != nil {
		return now, nil, err
	}
	var next *policy.Set
	if corrupt != nil {
		next, err = e.Over(corrupt)
	} else if next, err = e.On(now); err == nil && next == now.Set {
		return now, nil, nil // in force already
	}
	if err != nil {
		return now, nil, err
	}
	put, remove := policy.Difference(now.Set, next)
	b := &pgx.Batch{}
	switch {
	case corrupt != nil:
		b.Queue(s.sql.deleteAll)
	case len(remove) > 0:
		b.Queue(s.sql.deleteDocuments, remove)
	}
	if len(put) > 0 {
		names, texts := make([]string, len(put)), make([]string, len(put))
		for i, row := range put {
			names[i], texts[i] = row.Name, row.Text
		}
		b.Queue(s.sql.putDocuments, names, texts)
	}
	generation := next.Generation()
	b.Queue(s.sql.next, generation[:]).QueryRow(func(row pgx.Row) error {
		var value []byte
		if err := row.Scan(&value); err != nil {
			return err
		}
		now.Mark, err = ParseMark(value)
		return err
	})
	if err := tx.Send(ctx, b); err != nil {
		return now, nil, err
	}
	told := policy.Events(now.Mark, put, remove)
	// What counts is what is stored, not what was meant to be.
	now, err = s.reread(ctx, tx, now.Mark, next)
	return now, told, err
}

// lock locks the state's row, and only then reads the documents. A set that cannot be read
// comes as corrupt, its row locked all the same.
func (s *Store) lock(ctx context.Context, tx *pgtx.Tx) (now policy.Snapshot, corrupt *policy.CorruptError, err error) {
	var value []byte
	err = tx.QueryRow(ctx, s.sql.lockMark).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	if err != nil {
		return now, nil, err
	}
	if now.Mark, err = ParseMark(value); err != nil {
		return now, nil, err
	}
	now, err = s.reread(ctx, tx, now.Mark, s.last.Load())
	if errors.As(err, &corrupt) {
		return now, corrupt, nil
	}
	return now, nil, err
}

// reread makes the set of what the transaction sees.
func (s *Store) reread(ctx context.Context, tx *pgtx.Tx, mark policy.Mark, known *policy.Set) (policy.Snapshot, error) {
	rows, err := tx.Query(ctx, s.sql.selectDocuments)
	if err != nil {
		return policy.Snapshot{}, err
	}
	stored, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (policy.Row, error) {
		var r policy.Row
		err := row.Scan(&r.Name, &r.Text)
		return r, err
	})
	if err != nil {
		return policy.Snapshot{}, fmt.Errorf("reading the documents: %w", pgtx.Scrub(err))
	}
	set, err := policy.Restore(known, mark, stored)
	return policy.Snapshot{Mark: mark, Set: set}, err
}
