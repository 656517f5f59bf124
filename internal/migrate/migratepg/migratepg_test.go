package migratepg_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/migrate/migratepg"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgwire"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

func source(pkg string, kv ...string) migrate.Source {
	fs := fstest.MapFS{}
	for i := 0; i < len(kv); i += 2 {
		fs["migrations/"+kv[i]] = &fstest.MapFile{Data: []byte(kv[i+1])}
	}
	return migrate.Source{Package: pkg, FS: fs}
}

var (
	keys1 = source("keyspg", "001_start.up.sql", "CREATE TABLE {{schema}}.keys (id bigint PRIMARY KEY);\nCREATE INDEX keys_id ON {{schema}}.keys (id);\nINSERT INTO {{schema}}.keys VALUES (1);\n",
		"001_start.down.sql", "DROP TABLE {{schema}}.keys;")
	keys2 = source("keyspg", "001_start.up.sql", "CREATE TABLE {{schema}}.keys (id bigint PRIMARY KEY);\r\nCREATE INDEX keys_id ON {{schema}}.keys (id);\r\nINSERT INTO {{schema}}.keys VALUES (1);\r\n",
		"001_start.down.sql", "DROP TABLE {{schema}}.keys;",
		"002_owner.up.sql", "ALTER TABLE {{schema}}.keys ADD COLUMN owner text NOT NULL DEFAULT '';\nCREATE TABLE {{schema}}.owners (id text);",
		"002_owner.down.sql", "DROP TABLE {{schema}}.owners; ALTER TABLE {{schema}}.keys DROP COLUMN owner;")
	gov    = source("governancepg", "001_start.up.sql", "CREATE TABLE {{schema}}.accounts (id bigint);")
	broken = source("leasepg", "001_start.up.sql", "CREATE TABLE {{schema}}.leases (id bigint);\nCREATE TABLE {{schema}}.x (secret_word nosuchtype);")
)

func setUp(t *testing.T) (context.Context, *pgtest.DB, pgtx.Schema) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	db := pgtest.New(t)
	s, err := pgtx.ParseSchema(db.Schema)
	require.NoError(t, err)
	return ctx, db, s
}

func tables(t *testing.T, ctx context.Context, db *pgtest.DB) []string {
	t.Helper()
	rows, err := db.Pool.Query(ctx, "select tablename::text from pg_tables where schemaname = $1 order by 1", db.Schema)
	require.NoError(t, err)
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return out
}

func TestMigrateAndCheck(t *testing.T) {
	ctx, db, s := setUp(t)
	err := migratepg.Check(ctx, db.Pool, s, keys1)
	require.ErrorIs(t, err, migrate.ErrOlder)
	require.ErrorContains(t, err, "run Migrate")

	done, err := migratepg.Migrate(ctx, db.Pool, s, keys1, gov)
	require.NoError(t, err)
	require.Len(t, done, 2)
	require.NoError(t, migratepg.Check(ctx, db.Pool, s, keys1, gov))
	require.Equal(t, []string{"accounts", "keys", "tallystick_migrations"}, tables(t, ctx, db))

	err = migratepg.Check(ctx, db.Pool, s, keys2)
	require.ErrorIs(t, err, migrate.ErrOlder)
	done, err = migratepg.Migrate(ctx, db.Pool, s, keys2, gov)
	require.NoError(t, err)
	require.Len(t, done, 1, "the first file with other line endings is the same file")
	require.NoError(t, migratepg.Check(ctx, db.Pool, s, keys2))
	require.NoError(t, migratepg.Check(ctx, db.Pool, s, keys1), "a newer schema passes")
	done, err = migratepg.Migrate(ctx, db.Pool, s, keys1)
	require.NoError(t, err)
	require.Empty(t, done)

	require.ErrorContains(t, migratepg.Down(ctx, db.Pool, s, keys1, 0), "newer program")
	require.NoError(t, migratepg.Down(ctx, db.Pool, s, keys2, 1))
	require.NoError(t, migratepg.Check(ctx, db.Pool, s, keys1))
	require.ErrorIs(t, migratepg.Check(ctx, db.Pool, s, keys2), migrate.ErrOlder)
	require.NoError(t, migratepg.Down(ctx, db.Pool, s, keys2, 0))
	require.Equal(t, []string{"accounts", "tallystick_migrations"}, tables(t, ctx, db))
	require.ErrorContains(t, migratepg.Down(ctx, db.Pool, s, gov, 0), "no way back")
	require.Error(t, migratepg.Down(ctx, db.Pool, s, gov, 2))
	require.Error(t, migratepg.Down(ctx, db.Pool, s, gov, -1))
}

func TestSchemaIsMadeWhereItIsMissing(t *testing.T) {
	ctx, db, s := setUp(t)
	_, err := db.Pool.Exec(ctx, "drop schema "+s.Quoted())
	require.NoError(t, err)
	require.ErrorIs(t, migratepg.Check(ctx, db.Pool, s, keys1), migrate.ErrOlder)
	_, err = migratepg.Migrate(ctx, db.Pool, s, keys1)
	require.NoError(t, err)
	require.NoError(t, migratepg.Check(ctx, db.Pool, s, keys1))
}

func TestAllOrNothing(t *testing.T) {
	ctx, db, s := setUp(t)
	_, err := migratepg.Migrate(ctx, db.Pool, s, keys1, broken)
	require.Error(t, err)
	require.ErrorContains(t, err, "leasepg version 1 (start)")
	require.ErrorContains(t, err, "42704")
	require.NotContains(t, err.Error(), "secret_word")
	require.Empty(t, tables(t, ctx, db))
}

// TestCutBetweenMessages: all of a migration is there or nothing, and repeating it finishes it.
func TestCutBetweenMessages(t *testing.T) {
	ctx, db, s := setUp(t)
	proxy, err := pgwire.Start(db.DSN)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	pool := pgtest.Connect(t, proxy.DSN(), func(c *pgxpool.Config) {
		c.MaxConns, c.ConnConfig.DefaultQueryExecMode = 1, pgx.QueryExecModeExec
	})
	connected := func() bool { return pool.Ping(ctx) == nil }
	require.True(t, connected())
	proxy.Arm(pgwire.Fault{})
	all, err := migratepg.Migrate(ctx, pool, s, gov)
	require.NoError(t, err)
	whole := tables(t, ctx, db)
	seen := proxy.Messages()
	asked, faults := pgwire.Before(seen, "commit"), pgwire.Everywhere(seen, pgwire.Cut, false)
	require.Positive(t, asked[pgwire.Client])
	for i, f := range faults {
		if i%4 != 0 && f.At <= asked[f.From] {
			continue // before the commit one is as good as another
		}
		_, err := db.Pool.Exec(ctx, s.Splice("drop schema {{schema}} cascade"))
		require.NoError(t, err)
		require.Eventually(t, connected, 30*time.Second, time.Millisecond)
		happened := proxy.Arm(f)
		_, first := migratepg.Migrate(ctx, pool, s, gov)
		<-happened
		there := tables(t, ctx, db)
		require.Eventually(t, connected, 30*time.Second, time.Millisecond)
		rest, err := migratepg.Migrate(ctx, pool, s, gov)
		require.NoError(t, err, "at %+v", f)
		if len(there) > 0 {
			require.Equal(t, whole, there, "at %+v", f)
		}
		if first == nil || len(there) > 0 || len(rest) > 0 {
			require.Equal(t, first == nil || len(there) > 0, len(rest) == 0, "at %+v: %v", f, first)
		}
		if len(rest) > 0 {
			require.Equal(t, all, rest)
		}
		require.Equal(t, whole, tables(t, ctx, db))
		require.NoError(t, migratepg.Check(ctx, db.Pool, s, gov))
	}
	require.Zero(t, pool.Stat().AcquiredConns())
}

func TestForeignIsLeftAlone(t *testing.T) {
	for name, spoil := range map[string]string{
		"a table of ours without a marker": "drop table {{schema}}.tallystick_migrations",
		"another file":                     "update {{schema}}.tallystick_migrations set checksum = 'x'",
		"a table gone":                     "drop table {{schema}}.keys",
		"another program's marker":         "alter table {{schema}}.tallystick_migrations drop column checksum",
		"a marker with other contents":     "alter table {{schema}}.tallystick_migrations drop constraint tallystick_migrations_version_check; alter table {{schema}}.tallystick_migrations alter column version type text using 'one'",
		"the next table in place":          "create table {{schema}}.owners (x int)",
	} {
		t.Run(name, func(t *testing.T) {
			ctx, db, s := setUp(t)
			_, err := migratepg.Migrate(ctx, db.Pool, s, keys1)
			require.NoError(t, err)
			_, err = db.Pool.Exec(ctx, s.Splice(spoil))
			require.NoError(t, err)
			before := tables(t, ctx, db)
			require.ErrorIs(t, migratepg.Check(ctx, db.Pool, s, keys2), migrate.ErrForeign)
			_, err = migratepg.Migrate(ctx, db.Pool, s, gov, keys2)
			require.ErrorIs(t, err, migrate.ErrForeign)
			require.Equal(t, before, tables(t, ctx, db))
		})
	}
}

// Many processes start at once on an empty database.
func TestManyAtOnce(t *testing.T) {
	ctx, db, s := setUp(t)
	_, err := db.Pool.Exec(ctx, "drop schema "+s.Quoted())
	require.NoError(t, err)
	var wg sync.WaitGroup
	var mu sync.Mutex
	applied := 0
	for range 8 {
		wg.Go(func() {
			done, err := migratepg.Migrate(ctx, db.Pool, s, keys2, gov)
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

func TestWorksWhateverTheConnectionsDefaultsAre(t *testing.T) {
	ctx, db, s := setUp(t)
	pool := db.Connect(t, func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
		c.ConnConfig.RuntimeParams["search_path"] = "nowhere"
		c.ConnConfig.RuntimeParams["statement_timeout"] = "1s" // a migration is allowed its time
		c.ConnConfig.RuntimeParams["TimeZone"] = "Asia/Kathmandu"
	})
	slow := migrate.Source{Package: "slow", FS: fstest.MapFS{"001_slow.up.sql": {Data: []byte("create table {{schema}}.slow (a int); select pg_sleep(1.5);")}}}
	_, err := migratepg.Migrate(ctx, pool, s, keys2, slow)
	require.NoError(t, err)
	require.NoError(t, migratepg.Check(ctx, db.Pool, s, keys2, slow))
	var recent bool
	require.NoError(t, db.Pool.QueryRow(ctx, s.Splice("select bool_and(abs(extract(epoch from clock_timestamp() - applied_at)) < 3600) from {{schema}}.tallystick_migrations")).Scan(&recent))
	require.True(t, recent)
}

func TestScriptIsWhatMigrateDoes(t *testing.T) {
	ctx, db, s := setUp(t)
	out, err := migratepg.Script(s, keys2, gov)
	require.NoError(t, err)
	for _, f := range out {
		_, err := db.Pool.Exec(ctx, f.Up)
		require.NoError(t, err, f.Name)
	}
	require.NoError(t, migratepg.Check(ctx, db.Pool, s, keys2, gov))
	_, err = db.Pool.Exec(ctx, out[1].Down)
	require.NoError(t, err)
	require.ErrorIs(t, migratepg.Check(ctx, db.Pool, s, keys2), migrate.ErrOlder)
	require.NoError(t, migratepg.Check(ctx, db.Pool, s, keys1))
	require.True(t, strings.Contains(out[0].Up, s.Quoted()))
}

func TestNoDatabase(t *testing.T) {
	pool, err := pgxpool.New(context.Background(), "postgres://u:hunter2@127.0.0.1:1/x")
	require.NoError(t, err)
	defer pool.Close()
	s, err := pgtx.ParseSchema("x")
	require.NoError(t, err)
	_, err = migratepg.Migrate(context.Background(), pool, s, keys1)
	require.Equal(t, pgtx.Unavailable, pgtx.Classify(err))
	require.NotContains(t, err.Error(), "127.0.0.1")
	err = migratepg.Check(context.Background(), pool, s, keys1)
	require.Equal(t, pgtx.Unavailable, pgtx.Classify(err))
	require.NotContains(t, err.Error(), "127.0.0.1")
}
