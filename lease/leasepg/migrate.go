package leasepg

import (
	"context"
	"embed"
	"io/fs"

	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/migrate/migratepg"
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations are the files for your own migration tool, in a folder by package. They
// are complete: the schema is in place and each file records itself, so that Check
// finds it.
//
// Errors: none with a schema name that was accepted.
func (l *Leaser) Migrations() (fs.FS, error) {
	script, err := migratepg.Script(l.schema, Source())
	if err != nil {
		return nil, err
	}
	return migrate.Export(script)
}

// Source names the migrations for this module's own adapters that share the schema:
// its type is internal. For a migration tool of your own take Migrations.
func Source() migrate.Source { return migrate.Source{Package: "leasepg", FS: files} }

// Migrate creates the schema and creates or updates the tables, all or nothing.
// Safe to run from several processes at once.
//
// Errors: ErrForeign, with what to do about it; nothing was changed.
func (l *Leaser) Migrate(ctx context.Context) error {
	_, err := migratepg.Migrate(ctx, l.pool, l.schema, Source())
	return err
}

// Check refuses a schema that is older or not ours. A newer one passes.
//
// Errors: ErrOlder, ErrForeign.
func (l *Leaser) Check(ctx context.Context) error {
	return migratepg.Check(ctx, l.pool, l.schema, Source())
}
