package governancepg

import (
	"context"
	"embed"
	"io/fs"

	"github.com/tallystick-go/tallystick/escrow/escrowpg"
	"github.com/tallystick-go/tallystick/governance/policy/policypg"
	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/migrate/migratepg"
	"github.com/tallystick-go/tallystick/keys/keyspg"
)

// What Migrate and Check say of a schema: match them with errors.Is.
var (
	// ErrOlder: tables are missing or old. Run Migrate, or the exported files.
	ErrOlder = migrate.ErrOlder
	// ErrForeign: the schema holds something that is not this library's.
	ErrForeign = migrate.ErrForeign
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations are the files for your own migration tool, in folders by package:
// keyspg, policypg and escrowpg first. They are complete: the schema is in place and each file
// records itself, so that Check finds it.
//
// Errors: none with a schema name that was accepted.
func (db *DB) Migrations() (fs.FS, error) {
	script, err := migratepg.Script(db.schema, keyspg.Source(), policypg.Source(), escrowpg.Source(), Source())
	if err != nil {
		return nil, err
	}
	return migrate.Export(script)
}

// Source names the migrations for this module's own adapters.
func Source() migrate.Source { return migrate.Source{Package: "governancepg", FS: files} }

// Migrate creates or updates the tables of keys, policies, nodes and counters, all or nothing.
// Safe to run from several processes at once.
//
// Errors: ErrForeign, and what the database says, without its texts.
func (db *DB) Migrate(ctx context.Context) error {
	_, err := migratepg.Migrate(ctx, db.pool, db.schema, keyspg.Source(), policypg.Source(), escrowpg.Source(), Source())
	return err
}

// Check refuses a schema that is older than this library or not ours. A newer one
// passes.
//
// Errors: ErrOlder, ErrForeign.
func (db *DB) Check(ctx context.Context) error {
	return migratepg.Check(ctx, db.pool, db.schema, keyspg.Source(), policypg.Source(), escrowpg.Source(), Source())
}
