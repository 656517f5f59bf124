package journalsqlite

import (
	"embed"
	"io/fs"

	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/migrate/migratesqlite"
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations are the files for your own migration tool. They are complete: each file
// records itself, so that Check finds it.
func Migrations() (fs.FS, error) {
	script, err := migratesqlite.Script(Source())
	if err != nil {
		return nil, err
	}
	return migrate.Export(script)
}

// Source names the migrations for this module's own adapters that share one file: its
// type is internal. For a migration tool of your own take Migrations.
func Source() migrate.Source { return migrate.Source{Package: "journalsqlite", FS: files} }
