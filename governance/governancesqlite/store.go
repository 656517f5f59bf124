// Package governancesqlite keeps keys and counters in one SQLite file.
//
// There is one writer at a time, for both: a transaction of admissions reads the
// keys' definitions inside itself, so an edit is seen by everything that begins
// after it. A commit is on the disk when it returns.
//
// The caller opens and owns the handle and chooses the driver; a handle that would
// lose what it commits, and a file that anybody may write, are refused. With
// modernc.org/sqlite:
//
//	file:gateway.db?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)
//
// Several processes on one machine may share a file. For several machines there
// is governancepg.
//
// Source: internal/docs/architecture.md "In SQLite".
package governancesqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/tallystick-go/tallystick/escrow/escrowsqlite"
	"github.com/tallystick-go/tallystick/eventlog/eventlogsqlite"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
	"github.com/tallystick-go/tallystick/journal/journalsqlite"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keyssqlite"
)

// Options tune the adapter. Nil and zero fields are the defaults.
type Options struct {
	// Now is the database's clock, for tests. It is read after the write lock is
	// held. Default time.Now.
	Now func() time.Time
	// Format is how tokens look. The zero value is the library's own.
	Format keys.Format
	// Events appends what steps (governance.Changes.Events) and edits of keys tell to the log, in their transactions. The log must be in
	// the same file, a node's too. Nil: nothing is told.
	Events *eventlogsqlite.Recorder
	// Readers is how many connections for reading stay open. Default 4.
	Readers int
}

// DB is one SQLite file: keys and counters in one place.
type DB struct {
	Keys     *keyssqlite.Store
	Policies *policy.Memory // of this process: a gateway reads them from files, a node from its authority's answers
	Nodes    *escrowsqlite.Store
	Store    *Store
	Journal  *journalsqlite.Store // nil unless OpenNode opened it

	db      *sqlitetx.DB
	invalid error // what is wrong with the options
}

var (
	_ governance.Backend = (*DB)(nil)
	_ governance.Store   = (*Store)(nil)
)

// Open makes a DB on the caller's handle; nil options are the defaults. It does no
// I/O: Migrate or Check comes next. An unusable Options.Format is reported there.
func Open(db *sql.DB, o *Options) *DB { return on(db, o) }

// OpenNode makes a DB of one node of a fleet: keys and counters, and in the same file and the same
// transactions the journal of the money that an authority has granted. file is what
// journalsqlite.Claim returned, and db a handle on its DSN; nil options are the defaults. It does
// no I/O: Migrate or Check comes next, then journal.Open over Journal, then governance.New with
// that in its options. Policies follow the authority and are not edited here.
//
// A tool that looks beside the owner gives no file, and must neither open the journal
// nor migrate.
//
// Source: ADR-045 "Local journal".
func OpenNode(db *sql.DB, file *journalsqlite.File, o *Options) *DB {
	d := on(db, o)
	d.Policies = policy.NewFollower()
	d.Journal = journalsqlite.On(d.db, file)
	d.Store.policies, d.Store.journal = d.Policies, d.Journal
	return d
}

func on(db *sql.DB, o *Options) *DB {
	var options Options
	if o != nil {
		options = *o
	}
	tx := &sqlitetx.Options{Readers: options.Readers}
	if now := options.Now; now != nil {
		tx.Now = func() int64 { return now().UnixMicro() }
	}
	d := &DB{db: sqlitetx.New(db, tx)}
	d.Keys, d.invalid = keyssqlite.On(d.db, &keyssqlite.Options{Tokens: options.Format, Events: options.Events})
	if d.invalid != nil { // until Migrate or Check says so, nothing but the default is accepted
		d.Keys, _ = keyssqlite.On(d.db, &keyssqlite.Options{Events: options.Events})
	}
	d.Policies = policy.NewMemory()
	d.Nodes = escrowsqlite.On(d.db)
	d.Store = &Store{db: d.db, policies: d.Policies, events: options.Events}
	return d
}

// Backend is what governance.New takes.
func (d *DB) Backend() governance.Stores {
	stores := governance.Stores{Keys: d.Keys, Policies: d.Policies, Store: d.Store, Nodes: d.Nodes, Profile: policy.Local}
	if d.Journal != nil {
		stores.Nodes, stores.Journal, stores.Profile = nil, d.Journal, policy.Node // a node is granted money and grants none
	}
	return stores
}

// Close gives the kept connections back to the handle, which stays open and the
// caller's, and a node's file to whoever claims it next. A transaction that is running ends first.
func (d *DB) Close() error {
	err := d.db.Close()
	if d.Journal != nil {
		err = errors.Join(err, d.Journal.Close())
	}
	return err
}

// Store keeps the counters and permits.
//
// Concurrency: safe; one transaction writes at a time.
type Store struct {
	db       *sqlitetx.DB
	policies *policy.Memory
	journal  *journalsqlite.Store // nil: no plan names rows of one
	events   *eventlogsqlite.Recorder
}

// Step implements governance.Store.
func (s *Store) Step(ctx context.Context, plan *governance.Plan, decide func(*governance.Loaded) *governance.Changes) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	var changes *governance.Changes
	release := func() {}
	defer func() { release() }()
	err := s.db.Write(ctx, func(tx *sqlitetx.Tx) error {
		loaded, from, err := load(tx, plan, true)
		if err != nil {
			return err
		}
		if plan.Policies { // held until the transaction has ended: that is the barrier of their edits
			var now policy.Snapshot
			now, release = s.policies.Hold()
			loaded.Policies = now.Mark
		}
		if changes = decide(loaded); changes.Empty() {
			return nil
		}
		if err := write(tx, from, changes); err != nil {
			return err
		}
		return s.record(tx, changes.Events)
	})
	class := sqlitetx.Classify(err)
	s.wake(changes, class)
	if class == sqlitetx.UnknownOutcome {
		return s.find(ctx, changes, err)
	}
	return coreError(err)
}

// View implements governance.Store.
func (s *Store) View(ctx context.Context, plan *governance.Plan) (*governance.Loaded, error) {
	var loaded *governance.Loaded
	err := s.db.Read(ctx, func(tx *sqlitetx.Tx) (err error) {
		loaded, _, err = load(tx, plan, false)
		return err
	})
	if err == nil && plan.Policies {
		now, release := s.policies.Hold()
		release()
		loaded.Policies = now.Mark
	}
	if err != nil {
		return nil, coreError(err)
	}
	return loaded, nil
}
