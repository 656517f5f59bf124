package migratesqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/migrate/migratesqlite"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
)

const safe = "?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=foreign_keys(1)"

func open(t *testing.T, path, params string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+params)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func source(pkg string, kv ...string) migrate.Source {
	fs := fstest.MapFS{}
	for i := 0; i < len(kv); i += 2 {
		fs[kv[i]] = &fstest.MapFile{Data: []byte(kv[i+1])}
	}
	return migrate.Source{Package: pkg, FS: fs}
}

var (
	keys1 = source("keyssqlite", "001_start.up.sql", "CREATE TABLE keys (id INTEGER PRIMARY KEY, team TEXT) STRICT;\nCREATE INDEX keys_team ON keys (team);\nINSERT INTO keys VALUES (1, 'a');\n",
		"001_start.down.sql", "DROP TABLE keys;")
	keys2 = source("keyssqlite", "001_start.up.sql", "CREATE TABLE keys (id INTEGER PRIMARY KEY, team TEXT) STRICT;\r\nCREATE INDEX keys_team ON keys (team);\r\nINSERT INTO keys VALUES (1, 'a');\r\n",
		"001_start.down.sql", "DROP TABLE keys;",
		"002_owner.up.sql", "ALTER TABLE keys ADD COLUMN owner TEXT NOT NULL DEFAULT '';\nCREATE TABLE owners (id TEXT) STRICT;",
		"002_owner.down.sql", "DROP TABLE owners; ALTER TABLE keys DROP COLUMN owner;")
	gov    = source("governancesqlite", "001_start.up.sql", "CREATE TABLE accounts (id INTEGER PRIMARY KEY) STRICT;")
	broken = source("leasesqlite", "001_start.up.sql", "CREATE TABLE leases (id INTEGER); INSERT INTO secret_word VALUES (1);")
)

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func tables(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").Scan(&n))
	return n
}

func TestMigrateAndCheck(t *testing.T) {
	ctx, db := bounded(t), open(t, filepath.Join(t.TempDir(), "a.db"), safe)
	require.ErrorIs(t, migratesqlite.Check(ctx, db, keys1), migrate.ErrOlder)
	done, err := migratesqlite.Migrate(ctx, db, nil, keys1)
	require.NoError(t, err)
	require.Len(t, done, 1)
	done, err = migratesqlite.Migrate(ctx, db, nil, keys2, gov)
	require.NoError(t, err)
	require.Len(t, done, 2)
	require.NoError(t, migratesqlite.Check(ctx, db, keys2, gov))
	require.NoError(t, migratesqlite.Check(ctx, db, keys1), "a newer schema passes")
	done, err = migratesqlite.Migrate(ctx, db, nil, keys1)
	require.NoError(t, err)
	require.Empty(t, done)
	require.ErrorContains(t, migratesqlite.Down(ctx, db, keys1, 0), "newer program")
	require.NoError(t, migratesqlite.Down(ctx, db, keys2, 1))
	require.ErrorIs(t, migratesqlite.Check(ctx, db, keys2), migrate.ErrOlder)
	require.NoError(t, migratesqlite.Down(ctx, db, keys2, 0))
	require.Equal(t, 2, tables(t, db))
	require.ErrorContains(t, migratesqlite.Down(ctx, db, gov, 0), "no way back")
}

func TestAllOrNothing(t *testing.T) {
	ctx, db := bounded(t), open(t, filepath.Join(t.TempDir(), "a.db"), safe)
	_, err := migratesqlite.Migrate(ctx, db, nil, keys1, broken)
	require.ErrorContains(t, err, "leasesqlite version 1 (start)")
	require.NotContains(t, err.Error(), "secret_word")
	require.Zero(t, tables(t, db))
	_, err = migratesqlite.Migrate(ctx, db, nil, source("x", "001_a.up.sql", "CREATE TABLE {{schema}}.a (i)"))
	require.ErrorContains(t, err, "SQLite has none")
}

func TestForeignIsLeftAlone(t *testing.T) {
	for name, spoil := range map[string]string{
		"a table of ours without a marker": "DROP TABLE tallystick_migrations",
		"another file":                     "UPDATE tallystick_migrations SET checksum = 'x'",
		"a table gone":                     "DROP TABLE keys",
		"another program's marker":         "ALTER TABLE tallystick_migrations DROP COLUMN checksum",
		"the next table in place":          "CREATE TABLE owners (x)",
	} {
		t.Run(name, func(t *testing.T) {
			ctx, db := bounded(t), open(t, filepath.Join(t.TempDir(), "a.db"), safe)
			_, err := migratesqlite.Migrate(ctx, db, nil, keys1)
			require.NoError(t, err)
			_, err = db.Exec(spoil)
			require.NoError(t, err)
			before := tables(t, db)
			require.ErrorIs(t, migratesqlite.Check(ctx, db, keys2), migrate.ErrForeign)
			_, err = migratesqlite.Migrate(ctx, db, &migratesqlite.Options{Shared: true}, gov, keys2)
			require.ErrorIs(t, err, migrate.ErrForeign)
			require.Equal(t, before, tables(t, db))
		})
	}
}

func TestAnotherProgramsFile(t *testing.T) {
	ctx, db := bounded(t), open(t, filepath.Join(t.TempDir(), "a.db"), safe)
	_, err := db.Exec("CREATE TABLE bookmarks (url TEXT)")
	require.NoError(t, err)
	_, err = migratesqlite.Migrate(ctx, db, nil, keys1)
	require.ErrorIs(t, err, migrate.ErrForeign)
	require.ErrorContains(t, err, "Shared")
	require.Equal(t, 1, tables(t, db))
	_, err = migratesqlite.Migrate(ctx, db, &migratesqlite.Options{Shared: true}, keys1)
	require.NoError(t, err)
	require.NoError(t, migratesqlite.Check(ctx, db, keys1))
}

func TestUnsafeOrUnreadableIsRefusedUnchanged(t *testing.T) {
	ctx, dir := bounded(t), t.TempDir()
	plain := filepath.Join(dir, "plain.db")
	_, err := migratesqlite.Migrate(ctx, open(t, plain, ""), nil, keys1)
	require.ErrorIs(t, err, sqlitetx.ErrUnsafe)

	text := filepath.Join(dir, "notes.txt")
	body := []byte(fmt.Sprintf("%4096s", "dear diary"))
	require.NoError(t, os.WriteFile(text, body, 0o600))
	_, err = migratesqlite.Migrate(ctx, open(t, text, safe), nil, keys1)
	require.ErrorIs(t, err, sqlitetx.ErrNotSQLite)
	after, err := os.ReadFile(text)
	require.NoError(t, err)
	require.Equal(t, body, after)
}

// Several handles stand for several processes: SQLite's locks are per connection.
func TestManyAtOnce(t *testing.T) {
	ctx, path := bounded(t), filepath.Join(t.TempDir(), "a.db")
	var wg sync.WaitGroup
	var mu sync.Mutex
	applied := 0
	for range 6 {
		db := open(t, path, "?_pragma=busy_timeout(1000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=foreign_keys(1)")
		wg.Go(func() {
			done, err := migratesqlite.Migrate(ctx, db, nil, keys2, gov)
			mu.Lock()
			defer mu.Unlock()
			applied += len(done)
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, 3, applied)
}

func TestScriptIsWhatMigrateDoes(t *testing.T) {
	ctx, db := bounded(t), open(t, filepath.Join(t.TempDir(), "a.db"), safe)
	out, err := migratesqlite.Script(keys2, gov)
	require.NoError(t, err)
	for _, f := range out {
		_, err := db.Exec(f.Up)
		require.NoError(t, err)
	}
	require.NoError(t, migratesqlite.Check(ctx, db, keys2, gov))
}
