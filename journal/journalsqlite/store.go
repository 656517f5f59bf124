// Package journalsqlite keeps a node's journal in a private SQLite file.
//
// Claim checks and locks the file, the caller opens a handle on it and chooses the
// driver, New makes the store; the handle's settings are read back, and one that would
// lose what it commits is refused, as is an SQLite release with the WAL-reset bug:
// from 3.7.0 to 3.51.2, a writer that met a checkpoint at the wrong instant could lose
// pages that were committed. It is fixed in 3.51.3, and in 3.50.7 and 3.44.6; 3.52.0
// was withdrawn. With modernc.org/sqlite, File.DSN is what to open.
//
// One file belongs to one SQLite library of one process: two of them in a process do
// not see each other's locks.
//
// Source: ADR-045 "Local journal".
package journalsqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"

	"github.com/tallystick-go/tallystick/internal/migrate/migratesqlite"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
	"github.com/tallystick-go/tallystick/journal"
)

// Options adjust a Store. The zero value is the default.
type Options struct {
	// Readers is how many connections for reading stay open. Default 4.
	Readers int
}

// Store is a journal.Store on SQLite.
//
// Concurrency: safe; one transaction writes at a time.
type Store struct {
	db     *sqlitetx.DB
	file   *File
	shared bool // db is closed by whoever made it
}

var _ journal.Store = (*Store)(nil)

// New makes a store on the caller's handle; nil options are the defaults. It does no
// I/O: Migrate or Check comes next. file is what Claim returned; a tool that looks at a
// journal beside its owner gives nil, and must not open it.
func New(db *sql.DB, file *File, o *Options) *Store {
	options := &sqlitetx.Options{}
	if o != nil {
		options.Readers = o.Readers
	}
	return &Store{db: sqlitetx.New(db, options), file: file}
}

// On makes a store of this module's own adapters that share one file and its one writer:
// its type is internal. They call Load and Write in transactions of theirs, and
// Close leaves the connections to them.
func On(db *sqlitetx.DB, file *File) *Store { return &Store{db: db, file: file, shared: true} }

// Close gives the store's connections back to the handle, which stays open, and gives up
// the file for another process to claim.
func (s *Store) Close() error {
	var err error
	if !s.shared {
		err = s.db.Close()
	}
	if s.file != nil {
		err = errors.Join(err, s.file.Release())
	}
	return err
}

// Step implements journal.Store.
func (s *Store) Step(ctx context.Context, plan *journal.Plan, decide func(*journal.Loaded) (*journal.Changes, error)) error {
	if s.file != nil {
		s.file.lockLate()
	}
	return coreError(s.db.Write(ctx, func(tx *sqlitetx.Tx) error {
		loaded, err := Load(tx, plan)
		if err != nil {
			return err
		}
		ch, err := decide(loaded)
		if err != nil || ch.Empty() {
			return err
		}
		return Write(tx, ch)
	}))
}

// View implements journal.Store.
func (s *Store) View(ctx context.Context, plan *journal.Plan) (*journal.Loaded, error) {
	var loaded *journal.Loaded
	err := s.db.Read(ctx, func(tx *sqlitetx.Tx) (err error) {
		loaded, err = Load(tx, plan)
		return err
	})
	if err != nil {
		return nil, coreError(err)
	}
	return loaded, nil
}

// Migrate creates or updates the tables, all or nothing. A file that turns out to be
// damaged, or no database, is set aside and refused.
//
// Errors: ErrForeign, ErrUnsafe, ErrPath, *QuarantinedError, journal.ErrUnavailable.
func (s *Store) Migrate(ctx context.Context) error {
	return s.Attach(ctx, func() error {
		_, err := migratesqlite.Migrate(ctx, s.db.Handle(), nil, Source())
		return err
	})
}

// Check refuses a handle that would lose what it commits, a damaged file, and a schema
// that is older or not ours. A newer one passes.
//
// Errors: those of Migrate, ErrOlder.
func (s *Store) Check(ctx context.Context) error {
	return s.Attach(ctx, func() error { return migratesqlite.Check(ctx, s.db.Handle(), Source()) })
}

// Attach is what Migrate and Check have in common, for adapters that share the file: it refuses a
// handle on another file than the one that was claimed, calls schema, which migrates or
// checks, and sets a file aside that schema finds damaged.
//
// Errors: *PathError, *QuarantinedError, journal.ErrUnavailable, schema's own.
func (s *Store) Attach(ctx context.Context, schema func() error) error {
	if err := s.same(ctx); err != nil {
		return s.judge(err)
	}
	err := schema()
	if err == nil && s.file != nil {
		return s.file.remember()
	}
	return s.judge(err)
}

// same refuses a handle on another file than the one that was claimed.
func (s *Store) same(ctx context.Context) error {
	if s.file == nil {
		return nil
	}
	var path string
	if err := s.db.Handle().QueryRowContext(ctx, selectPath).Scan(&path); err != nil {
		return sqlitetx.Scrub(err)
	}
	ours, err := os.Stat(s.file.path)
	theirs, err2 := os.Stat(path)
	if err != nil || err2 != nil || !os.SameFile(ours, theirs) {
		return &PathError{"the handle", "is open on another file than the one that was claimed", "open File.DSN"}
	}
	return nil
}

// judge sets a damaged file aside. Only the owner of the file does.
func (s *Store) judge(err error) error {
	if s.file != nil && (errors.Is(err, sqlitetx.ErrCorrupt) || errors.Is(err, sqlitetx.ErrNotSQLite)) {
		return s.file.quarantine()
	}
	return coreError(err)
}
