package leasesqlite

import (
	"context"
	"embed"
	"io/fs"

	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/migrate/migratesqlite"
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations are the files for your own migration tool. They are complete: each
// file records itself, so that Check finds it.
func Migrations() (fs.FS, error) {
	script, err := migratesqlite.Script(Source())
	if err != nil {
		return nil, err
	}
	return migrate.Export(script)
}

// Source names the migrations for this module's own adapters that share one file:
// its type is internal. For a migration tool of your own take Migrations.
func Source() migrate.Source { return migrate.Source{Package: "leasesqlite", FS: files} }

// Migrate creates or updates the tables, all or nothing. Safe to run from several
// processes at once.
//
// Errors: ErrForeign, with what to do about it. A damaged file and an unsafe handle
// are refused as well, and nothing was changed.
func (l *Leaser) Migrate(ctx context.Context) error {
	_, err := migratesqlite.Migrate(ctx, l.db.Handle(), &migratesqlite.Options{Shared: l.shareFile}, Source())
	return err
}

// Check refuses a handle that would lose what it commits, a damaged file, and a
// schema that is older or not ours. A newer one passes.
//
// Errors: those of Migrate, ErrOlder.
func (l *Leaser) Check(ctx context.Context) error {
	return migratesqlite.Check(ctx, l.db.Handle(), Source())
}
