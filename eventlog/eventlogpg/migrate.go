package eventlogpg

import (
	"context"
	"embed"
	"io/fs"

	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/migrate/migratepg"
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations are the files for your own migration tool. They are complete: the schema is in place
// and each file records itself, so that Check finds it.
//
// Errors: none with a schema name that was accepted.
func (s *Store) Migrations() (fs.FS, error) {
	script, err := migratepg.Script(s.schema, Source())
	if err != nil {
		return nil, err
	}
	return migrate.Export(script)
}

// Source names the migrations for this module's own adapters that share the schema: its type is
// internal. For a migration tool of your own take Migrations.
func Source() migrate.Source { return migrate.Source{Package: "eventlogpg", FS: files} }

// Migrate creates the schema and creates or updates the tables, all or nothing. Safe to run
// from several processes at once.
//
// Errors: ErrForeign, with what to do about it; nothing was changed.
func (s *Store) Migrate(ctx context.Context) error {
	_, err := migratepg.Migrate(ctx, s.pool, s.schema, Source())
	return err
}

// Check is what every start does: it refuses a schema that is older or not ours, a standby, and rows of
// transactions that this cluster has not had yet.
//
// Errors: ErrOlder, ErrForeign, eventlog.ErrFuture, eventlog.ErrStandby, eventlog.ErrUnavailable.
func (s *Store) Check(ctx context.Context) error {
	if err := migratepg.Check(ctx, s.pool, s.schema, Source()); err != nil {
		return err
	}
	return s.checkNumbers(ctx)
}
