// Package storage opens the database of a gateway, with keys and counters together: a
// SQLite file of its own, or a Postgres that it shares with others.
package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/tallystick-go/tallystick/governance/governancesqlite"
	"github.com/tallystick-go/tallystick/journal/journalsqlite"
	"github.com/tallystick-go/tallystick/keys"
)

// The errors of Open, beside those of governancesqlite.
var (
	// ErrServed: another gateway serves the file.
	ErrServed = errors.New("storage: another gateway serves this file: it is for one process; stop it first, or give this one a file of its own")
	// ErrFile: the file cannot be opened.
	ErrFile = errors.New("storage: the database file cannot be used")
)

// Options say how to open a file.
type Options struct {
	// Serve creates and migrates the file, and refuses it while another gateway
	// serves it. Without it the file must be there and up to date, and may be in use.
	Serve bool
	// Alone refuses the file while a gateway serves it, and keeps gateways from
	// serving it until Close.
	Alone bool
	// Node serves the file of a node, and owns the journal in it. A file that is a node's is
	// served in no other way; who does not serve looks at the journal and releases it.
	Node bool
	// Format is how tokens look.
	Format keys.Format
	// Now is the clock of the file. Default time.Now. It is for tests of clocks.
	Now func() time.Time
}

// File is an opened file. Use DB; Close gives everything back.
type File struct {
	*governancesqlite.DB
	handle  *sql.DB
	lock    *os.File
	claimed *journalsqlite.File // the journal's, of who serves a node
}

// Open opens the file at path. Errors: ErrServed, ErrFile, and those of
// governancesqlite's Migrate and Check; of who serves a node, those of journalsqlite.Claim.
func Open(ctx context.Context, path string, o Options) (*File, error) {
	f := &File{}
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	if err := f.open(ctx, full, o); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *File) open(ctx context.Context, path string, o Options) error {
	if o.Serve {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return fmt.Errorf("%w: its folder cannot be made: %w", ErrFile, plain(err))
		}
	}
	if o.Serve && o.Node {
		// It makes the file, and looks at it before anybody writes.
		claimed, err := journalsqlite.Claim(path, nil)
		if err != nil {
			return err
		}
		f.claimed = claimed
	}
	// What SQLite creates by itself, everybody may read.
	flags := os.O_RDWR
	if o.Serve {
		flags |= os.O_CREATE
	}
	touched, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFile, plain(err))
	}
	if err := touched.Close(); err != nil {
		return fmt.Errorf("%w: %w", ErrFile, plain(err))
	}
	if o.Serve || o.Alone {
		if f.lock, err = lock(path + ".serve"); err != nil {
			return err
		}
	}
	node, err := probe(ctx, path, o.Serve)
	if err != nil {
		return err
	}
	if f.handle, err = sql.Open("sqlite", dsn(path)); err != nil {
		return ErrFile
	}
	settings := &governancesqlite.Options{Format: o.Format, Now: o.Now}
	if o.Node || node && !o.Serve { // a tool takes it as it is
		f.DB = governancesqlite.OpenNode(f.handle, f.claimed, settings)
	} else {
		f.DB = governancesqlite.Open(f.handle, settings)
	}
	if o.Serve {
		if err := f.Migrate(ctx); err != nil {
			return err
		}
	}
	return f.Check(ctx)
}

// marker is a table that every file of ours has, and journals one that a node's has.
const (
	marker   = "tallystick_migrations"
	journals = "journal_meta"
)

// probe looks at a file without the right to change it: to open it in earnest is to
// choose its journal, and that must not happen to somebody else's database. It reports
// whether the file is a node's.
func probe(ctx context.Context, path string, serve bool) (node bool, err error) {
	handle, err := sql.Open("sqlite", uri(path, "mode=ro"))
	if err != nil {
		return false, ErrFile
	}
	defer handle.Close()
	var tables, ours, nodes int64
	err = handle.QueryRowContext(ctx, "SELECT count(*), count(*) FILTER (WHERE name = ?), count(*) FILTER (WHERE name = ?) FROM sqlite_schema", marker, journals).Scan(&tables, &ours, &nodes)
	switch {
	case err != nil:
		return false, nil // whatever is wrong with it, Migrate and Check say it better
	case tables > 0 && ours == 0:
		return false, fmt.Errorf("%w: it holds another program's tables: give the gateway a file of its own", governancesqlite.ErrForeign)
	case tables == 0 && !serve:
		return false, fmt.Errorf("%w: it is empty: start a gateway on it once", governancesqlite.ErrOlder)
	}
	return nodes > 0, nil
}

// dsn has every setting that the adapter insists on.
func dsn(path string) string {
	settings := url.Values{"_pragma": {
		"journal_mode(wal)", "synchronous(full)", "busy_timeout(5000)", "foreign_keys(1)", "fullfsync(1)",
	}}
	return uri(path, settings.Encode())
}

// uri names a file in the way that takes settings. The path is absolute.
func uri(path, query string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // a drive
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: query}).String()
}

// plain drops the path from an error: the caller knows it.
func plain(err error) error {
	var failed *os.PathError
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// Close closes the file and lets another gateway serve it.
func (f *File) Close() error {
	var err error
	if f.DB != nil {
		err = f.DB.Close()
	}
	if f.handle != nil {
		err = errors.Join(err, f.handle.Close())
	}
	if f.claimed != nil {
		err = errors.Join(err, f.claimed.Release())
	}
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
	}
	return err
}
