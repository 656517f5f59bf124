// Package migratesqlite applies migrations to an SQLite file and checks what stands there. It links no driver.
package migratesqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
)

const (
	markerDDL = `CREATE TABLE IF NOT EXISTS tallystick_migrations (
	package    TEXT    NOT NULL,
	version    INTEGER NOT NULL CHECK (version > 0),
	name       TEXT    NOT NULL,
	checksum   TEXT    NOT NULL,
	applied_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
	PRIMARY KEY (package, version)
) WITHOUT ROWID;
`
	tablesThere = `SELECT lower(name) FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\_%' ESCAPE '\'`
	appliedRows = `SELECT package, version, name, checksum FROM tallystick_migrations`
	record      = `INSERT INTO tallystick_migrations (package, version, name, checksum) VALUES (?, ?, ?, ?)`
	forget      = `DELETE FROM tallystick_migrations WHERE package = ? AND version = ?`

	busyPause = 25 * time.Millisecond
	busyWait  = 30 * time.Second
)

// Options adjust Migrate; nil is the default.
type Options struct {
	// Shared allows tables to be added to a file that already holds another program's. Without it such a
	// file is refused as foreign: a mistyped path must not change somebody else's database.
	Shared bool
}

// Migrate brings every source up to its latest version in one exclusive transaction: all or
// nothing. It is safe to run from many processes at once and changes nothing where a source finds something
// foreign. It returns the steps applied.
//
// Errors: *migrate.SchemaError wrapping migrate.ErrForeign; *sqlitetx.UnsafeError; *sqlitetx.Error.
func Migrate(ctx context.Context, db *sql.DB, o *Options, sources ...migrate.Source) ([]migrate.Step, error) {
	sets, err := parse(sources)
	if err != nil {
		return nil, err
	}
	var done []migrate.Step
	err = locked(ctx, db, func(c *sql.Conn) error {
		st, err := state(c)
		if err != nil {
			return err
		}
		if !st.Marker && len(st.Tables) > 0 && (o == nil || !o.Shared) {
			return &migrate.SchemaError{Kind: migrate.ErrForeign, Package: sets[0].Package, Want: sets[0].Latest(),
				Detail: "the file already holds another program's tables; migrate with Shared if that is meant"}
		}
		plan := make([][]migrate.Step, len(sets))
		for i, set := range sets { // every source is looked at before anything is changed
			if plan[i], err = set.Missing(st); err != nil {
				return err
			}
		}
		if err := exec(c, markerDDL); err != nil {
			return err
		}
		for i, set := range sets {
			for _, step := range plan[i] {
				if err := exec(c, step.Up); err != nil {
					return named(set.Package, step, err)
				}
				if err := exec(c, record, set.Package, step.Version, step.Name, step.Checksum); err != nil {
					return err
				}
				done = append(done, step)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return done, nil
}

// Down takes a source back to the given version, newest step first, in one transaction.
func Down(ctx context.Context, db *sql.DB, src migrate.Source, to int) error {
	sets, err := parse([]migrate.Source{src})
	if err != nil {
		return err
	}
	set := sets[0]
	if to < 0 || to > set.Latest() {
		return fmt.Errorf("migrate: %s has no version %d", set.Package, to)
	}
	return locked(ctx, db, func(c *sql.Conn) error {
		st, err := state(c)
		if err != nil {
			return err
		}
		missing, err := set.Missing(st)
		if err != nil {
			return err
		}
		if newer := st.Newest(set.Package); newer > set.Latest() {
			return fmt.Errorf("migrate: %s is at version %d, which only a newer program can take back", set.Package, newer)
		}
		for v := set.Latest() - len(missing); v > to; v-- {
			step := set.Steps[v-1]
			if step.Down == "" {
				return fmt.Errorf("migrate: %s version %d has no way back", set.Package, v)
			}
			if err := exec(c, step.Down); err != nil {
				return named(set.Package, step, err)
			}
			if err := exec(c, forget, set.Package, v); err != nil {
				return err
			}
		}
		return nil
	})
}

// Check refuses an unsafe handle, a damaged file, and a schema that does not serve the given sources. A newer
// one does.
//
// Errors: *migrate.SchemaError wrapping migrate.ErrOlder or migrate.ErrForeign; *sqlitetx.UnsafeError; *sqlitetx.Error.
func Check(ctx context.Context, db *sql.DB, sources ...migrate.Source) error {
	sets, err := parse(sources)
	if err != nil {
		return err
	}
	if err := sqlitetx.Verify(ctx, db); err != nil {
		return err
	}
	c, err := db.Conn(ctx)
	if err != nil {
		return sqlitetx.Scrub(err)
	}
	defer c.Close()
	st, err := state(c)
	if err != nil {
		return err
	}
	for _, set := range sets {
		if err := set.Check(st); err != nil {
			return err
		}
	}
	return nil
}

// Script renders the sources as plain SQL for another migration tool.
func Script(sources ...migrate.Source) ([]migrate.File, error) {
	sets, err := parse(sources)
	if err != nil {
		return nil, err
	}
	return migrate.Script(markerDDL, func(s string) string { return s }, sets...), nil
}

func parse(sources []migrate.Source) ([]migrate.Set, error) {
	sets, err := migrate.ParseAll(sources...)
	if err != nil {
		return nil, err
	}
	if len(sets) == 0 {
		return nil, errors.New("migrate: no sources")
	}
	for _, set := range sets {
		for _, step := range set.Steps {
			if strings.Contains(step.Up+step.Down, migrate.Placeholder) {
				return nil, fmt.Errorf("migrate: %s version %d names a schema: SQLite has none", set.Package, step.Version)
			}
		}
	}
	return sets, nil
}

// locked runs fn under BEGIN EXCLUSIVE on one connection. Nothing inside takes ctx: an
// interrupted statement would end the transaction half-way.
func locked(ctx context.Context, db *sql.DB, fn func(*sql.Conn) error) (err error) {
	if err := sqlitetx.Verify(ctx, db); err != nil {
		return err
	}
	c, err := db.Conn(ctx)
	if err != nil {
		return sqlitetx.Scrub(err)
	}
	defer c.Close()
	if err := begin(ctx, c); err != nil {
		return err
	}
	committed := false
	defer func() {
		if committed {
			return
		}
		if exec(c, "ROLLBACK") != nil {
			_ = c.Raw(func(any) error { return driver.ErrBadConn })
		}
	}()
	if err := fn(c); err != nil {
		return err
	}
	if err := exec(c, "COMMIT"); err != nil {
		return err
	}
	committed = true
	return nil
}

// begin waits for another process's migration longer than busy_timeout alone would.
func begin(ctx context.Context, c *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, busyWait)
	defer cancel()
	for {
		err := exec(c, "BEGIN EXCLUSIVE")
		if sqlitetx.Classify(err) != sqlitetx.Busy {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(busyPause):
		}
	}
}

func exec(c *sql.Conn, query string, args ...any) error {
	_, err := c.ExecContext(context.Background(), query, args...)
	return sqlitetx.Scrub(err)
}

func named(pkg string, step migrate.Step, err error) error {
	return fmt.Errorf("migrate: %s version %d (%s): %w", pkg, step.Version, step.Name, err)
}

func state(c *sql.Conn) (migrate.State, error) {
	var st migrate.State
	err := each(c, tablesThere, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		st.Tables = append(st.Tables, name)
		st.Marker = st.Marker || name == migrate.Table
		return err
	})
	if err != nil || !st.Marker {
		return st, err
	}
	err = each(c, appliedRows, func(rows *sql.Rows) error {
		var a migrate.Applied
		err := rows.Scan(&a.Package, &a.Version, &a.Name, &a.Checksum)
		st.Applied = append(st.Applied, a)
		return err
	})
	if sqlitetx.Classify(err) == sqlitetx.Rejected { // no such column, or no number in it
		st.Alien, err = true, nil
	}
	return st, err
}

func each(c *sql.Conn, query string, fn func(*sql.Rows) error) error {
	rows, err := c.QueryContext(context.Background(), query)
	if err != nil {
		return sqlitetx.Scrub(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return sqlitetx.Scrub(err)
		}
	}
	return sqlitetx.Scrub(rows.Err())
}
