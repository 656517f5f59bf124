// Package migratepg applies migrations to a schema of a Postgres database and checks what stands there.
package migratepg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

// DB is what Migrate needs: *pgxpool.Pool and *pgx.Conn are both one.
type DB interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// Querier is what Check needs: a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

const (
	// lockWait bounds the wait for a table lock: DDL that queues behind a long transaction stops everyone who comes after it.
	lockWait = 10 * time.Second

	markerDDL = `CREATE TABLE IF NOT EXISTS {{schema}}.tallystick_migrations (
	package    text        NOT NULL,
	version    bigint      NOT NULL CHECK (version > 0),
	name       text        NOT NULL,
	checksum   text        NOT NULL,
	applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	PRIMARY KEY (package, version)
);
`
	schemaThere = `select count(*) from pg_catalog.pg_namespace where nspname = $1::text`
	tablesThere = `select c.relname::text from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = $1::text and c.relkind in ('r', 'p', 'v', 'm', 'f')`
	appliedRows = `select package, version::bigint, name, checksum from {{schema}}.tallystick_migrations`
	record      = `insert into {{schema}}.tallystick_migrations (package, version, name, checksum) values ($1::text, $2::bigint, $3::text, $4::text)`
	forget      = `delete from {{schema}}.tallystick_migrations where package = $1::text and version = $2::bigint`
)

// Migrate brings every source up to its latest version, all in one transaction: all or
// nothing. It creates the schema where it is missing, is safe to run from many processes at once, and
// changes nothing where a source finds something foreign. It returns the steps applied.
//
// Errors: *migrate.SchemaError wrapping migrate.ErrForeign; *pgtx.Error.
func Migrate(ctx context.Context, db DB, s pgtx.Schema, sources ...migrate.Source) ([]migrate.Step, error) {
	sets, err := migrate.ParseAll(sources...)
	if err != nil {
		return nil, err
	}
	var done []migrate.Step
	err = locked(ctx, db, s, func(tx pgx.Tx) error {
		st, err := state(ctx, tx, s)
		if err != nil {
			return err
		}
		plan := make([][]migrate.Step, len(sets))
		total := 0
		for i, set := range sets { // every source is looked at before anything is changed
			if plan[i], err = set.Missing(st); err != nil {
				return err
			}
			total += len(plan[i])
		}
		if total == 0 {
			return nil
		}
		if err := prepare(ctx, tx, s, st); err != nil {
			return err
		}
		for i, set := range sets {
			for _, step := range plan[i] {
				if err := apply(ctx, tx, s, set.Package, step); err != nil {
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
func Down(ctx context.Context, db DB, s pgtx.Schema, src migrate.Source, to int) error {
	set, err := migrate.Parse(src)
	if err != nil {
		return err
	}
	if to < 0 || to > set.Latest() {
		return fmt.Errorf("migrate: %s has no version %d", set.Package, to)
	}
	return locked(ctx, db, s, func(tx pgx.Tx) error {
		st, err := state(ctx, tx, s)
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
			if err := run(ctx, tx, s.Splice(step.Down)); err != nil {
				return named(set.Package, step, err)
			}
			if _, err := tx.Exec(ctx, s.Splice(forget), set.Package, int64(v)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Check reports whether the schema serves the given sources. A newer one does.
//
// Errors: *migrate.SchemaError wrapping migrate.ErrOlder or migrate.ErrForeign; *pgtx.Error.
func Check(ctx context.Context, db Querier, s pgtx.Schema, sources ...migrate.Source) error {
	sets, err := migrate.ParseAll(sources...)
	if err != nil {
		return err
	}
	st, err := state(ctx, db, s)
	if err != nil {
		return pgtx.Scrub(err)
	}
	for _, set := range sets {
		if err := set.Check(st); err != nil {
			return err
		}
	}
	return nil
}

// Script renders the sources as plain SQL for another migration tool.
func Script(s pgtx.Schema, sources ...migrate.Source) ([]migrate.File, error) {
	sets, err := migrate.ParseAll(sources...)
	if err != nil {
		return nil, err
	}
	ddl := "CREATE SCHEMA IF NOT EXISTS {{schema}};\n" + markerDDL
	return migrate.Script(ddl, s.Splice, sets...), nil
}

// locked runs fn in a transaction under the schema's advisory lock, READ COMMITTED whatever the
// pool's default: the statements after the lock must see what its last holder committed.
func locked(ctx context.Context, db DB, s pgtx.Schema, fn func(pgx.Tx) error) error {
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		return pgtx.ScrubConnect(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	// The wait for another process's migration is bounded by ctx, the wait for a table by lockWait.
	for _, sql := range []string{
		"select set_config('lock_timeout', '0', true), set_config('statement_timeout', '0', true), set_config('idle_in_transaction_session_timeout', '60000', true)",
		fmt.Sprintf("select pg_advisory_xact_lock(%d)", s.MigrateKey()),
		fmt.Sprintf("select set_config('lock_timeout', '%d', true)", lockWait.Milliseconds()),
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return pgtx.Scrub(err)
		}
	}
	if err := fn(tx); err != nil {
		return pgtx.Scrub(err)
	}
	return pgtx.ScrubCommit(tx.Commit(ctx))
}

func prepare(ctx context.Context, tx pgx.Tx, s pgtx.Schema, st migrate.State) error {
	var n int64
	if err := tx.QueryRow(ctx, schemaThere, s.Name()).Scan(&n); err != nil {
		return err
	}
	if n == 0 { // asked first: IF NOT EXISTS needs the CREATE privilege even where there is nothing to do
		if _, err := tx.Exec(ctx, "create schema "+s.Quoted()); err != nil {
			return err
		}
	}
	if st.Marker {
		return nil
	}
	_, err := tx.Exec(ctx, s.Splice(markerDDL))
	return err
}

func apply(ctx context.Context, tx pgx.Tx, s pgtx.Schema, pkg string, step migrate.Step) error {
	if err := run(ctx, tx, s.Splice(step.Up)); err != nil {
		return named(pkg, step, err)
	}
	_, err := tx.Exec(ctx, s.Splice(record), pkg, int64(step.Version), step.Name, step.Checksum)
	return err
}

// run sends a whole file: only the simple protocol takes several statements at once.
func run(ctx context.Context, tx pgx.Tx, sql string) error {
	_, err := tx.Conn().PgConn().Exec(ctx, sql).ReadAll()
	return err
}

func named(pkg string, step migrate.Step, err error) error {
	return fmt.Errorf("migrate: %s version %d (%s): %w", pkg, step.Version, step.Name, pgtx.Scrub(err))
}

func state(ctx context.Context, q Querier, s pgtx.Schema) (migrate.State, error) {
	var st migrate.State
	rows, _ := q.Query(ctx, tablesThere, s.Name()) // its error comes out of CollectRows
	var err error
	st.Tables, err = pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return st, err
	}
	for _, t := range st.Tables {
		st.Marker = st.Marker || t == migrate.Table
	}
	if !st.Marker {
		return st, nil
	}
	rows, _ = q.Query(ctx, s.Splice(appliedRows)) // its error comes out of CollectRows
	st.Applied, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (migrate.Applied, error) {
		var a migrate.Applied
		var v int64
		err := row.Scan(&a.Package, &v, &a.Name, &a.Checksum)
		a.Version = int(v)
		return a, err
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == undefinedColumn || pg.Code == cannotCoerce || pg.Code == invalidText) {
		st.Alien, err = true, nil
	}
	return st, err
}

// What Postgres says of columns that are missing, of another type, or hold no numbers.
const (
	undefinedColumn = "42703"
	cannotCoerce    = "42846"
	invalidText     = "22P02"
)
