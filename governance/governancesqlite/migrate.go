package governancesqlite

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/tallystick-go/tallystick/escrow/escrowsqlite"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/migrate/migratesqlite"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
	"github.com/tallystick-go/tallystick/journal/journalsqlite"
	"github.com/tallystick-go/tallystick/keys/keyssqlite"
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations are the files for your own migration tool, in folders by package:
// keyssqlite and escrowsqlite first. They are complete: each file records itself, so that Check
// finds it.
func Migrations() (fs.FS, error) {
	script, err := migratesqlite.Script(sources()...)
	if err != nil {
		return nil, err
	}
	return migrate.Export(script)
}

// Source names the migrations for this module's own adapters: its type is internal.
// For a migration tool of your own take Migrations.
func Source() migrate.Source { return migrate.Source{Package: "governancesqlite", FS: files} }

// NodeMigrations are the files of a node: those of Migrations, and journalsqlite's.
func NodeMigrations() (fs.FS, error) {
	script, err := migratesqlite.Script(nodeSources()...)
	if err != nil {
		return nil, err
	}
	return migrate.Export(script)
}

func sources() []migrate.Source {
	return []migrate.Source{keyssqlite.Source(), escrowsqlite.Source(), Source()}
}

func nodeSources() []migrate.Source { return append(sources(), journalsqlite.Source()) }

// Migrate creates or updates the tables of keys, nodes and counters, all or nothing. Safe
// to run from several processes at once.
//
// Errors: ErrForeign, ErrNotSQLite, ErrUnsafe, ErrExposed, ErrNodes, governance.ErrCorrupt,
// governance.ErrUnavailable, *keys.FieldError for unusable options. Of a node also
// journalsqlite.ErrPath and *journalsqlite.QuarantinedError: a damaged file was set aside, with all
// that is in it.
func (d *DB) Migrate(ctx context.Context) error {
	return d.attach(ctx, func(list []migrate.Source) error {
		_, err := migratesqlite.Migrate(ctx, d.db.Handle(), nil, list...)
		return err
	})
}

// Check refuses a handle that would lose what it commits, a damaged file, and a
// schema that is older or not ours. A newer one passes.
//
// Errors: those of Migrate, ErrOlder.
func (d *DB) Check(ctx context.Context) error {
	return d.attach(ctx, func(list []migrate.Source) error { return migratesqlite.Check(ctx, d.db.Handle(), list...) })
}

func (d *DB) attach(ctx context.Context, schema func([]migrate.Source) error) error {
	if err := d.private(ctx); err != nil {
		return err
	}
	if d.Journal != nil {
		return attachError(d.Journal.Attach(ctx, func() error { return schema(nodeSources()) }))
	}
	var n int64
	if err := d.db.Handle().QueryRowContext(ctx, countJournals).Scan(&n); err != nil {
		return attachError(sqlitetx.Scrub(err))
	}
	if n > 0 {
		return ErrNodes
	}
	return attachError(schema(sources()))
}

// attachError adds the core's error where a driver's is underneath.
func attachError(err error) error {
	var failed *sqlitetx.Error
	if !errors.As(err, &failed) || failed.Class == sqlitetx.NotSQLite {
		return err
	}
	return coreError(err)
}

// private refuses a file that other users of the machine could change or replace.
func (d *DB) private(ctx context.Context) error {
	if d.invalid != nil {
		return d.invalid
	}
	var path string
	if err := d.db.Handle().QueryRowContext(ctx, selectPath).Scan(&path); err != nil {
		return attachError(sqlitetx.Scrub(err))
	}
	if path == "" || runtime.GOOS == "windows" { // in memory: Verify refuses it; modes say nothing there
		return nil
	}
	file, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%w: the database file is gone", governance.ErrUnavailable)
	}
	if file.Mode().Perm()&0o002 != 0 {
		return &ExposedError{What: "the database file", Advice: "run chmod o-w on it, and look at who changed it"}
	}
	folder, err := os.Stat(filepath.Dir(path))
	if err == nil && folder.Mode().Perm()&0o002 != 0 && folder.Mode()&os.ModeSticky == 0 {
		return &ExposedError{What: "its folder", Advice: "run chmod o-w on the folder, or keep the file elsewhere"}
	}
	return nil
}
