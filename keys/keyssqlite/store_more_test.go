package keyssqlite_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/sqlitetx"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keyssqlite"
)

func open(t *testing.T, dsn string) (*keyssqlite.Store, *sql.DB) {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	s, err := keyssqlite.New(db, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, db
}

func one(t *testing.T) (*keyssqlite.Store, *sql.DB, keys.CreatedKey) {
	t.Helper()
	s, db := open(t, filepath.Join(t.TempDir(), "keys.db")+safe)
	require.NoError(t, s.Migrate(t.Context()))
	_, err := s.CreateTeam(t.Context(), keys.CreateTeam{ID: "red"})
	require.NoError(t, err)
	made, err := s.CreateKey(t.Context(), keys.CreateKey{ID: "k", TeamID: "red"})
	require.NoError(t, err)
	return s, db, made
}

func TestDefinitions(t *testing.T) {
	ctx := t.Context()
	s, db, _ := one(t)
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	other, err := s.CreateKey(ctx, keys.CreateKey{ID: "a", TeamID: "red", ExpiresAt: &expires})
	require.NoError(t, err)
	gone, err := s.RevokeKey(ctx, keys.RevokeKey{ID: "k"})
	require.NoError(t, err)
	team, err := s.UpdateTeam(ctx, keys.UpdateTeam{ID: "red", IfRevision: 1, Name: keys.Set("Red")})
	require.NoError(t, err)

	writer := sqlitetx.New(db, nil)
	defer writer.Close()
	read := func(ids ...string) (out map[string]keys.Definition) {
		require.NoError(t, writer.Write(ctx, func(tx *sqlitetx.Tx) (err error) {
			out, err = keyssqlite.Definitions(tx, ids)
			return err
		}))
		return out
	}
	require.Equal(t, map[string]keys.Definition{
		"k": keys.DefinitionOf(gone, team), "a": keys.DefinitionOf(other.Key, team),
	}, read("k", "never", "a", "K", `x"]`))
	require.Empty(t, read())
	_, err = s.DeleteTeam(ctx, keys.DeleteTeam{ID: "red"})
	require.NoError(t, err)
	require.True(t, read("a")["a"].TeamDeleted)
}

// A row that no store writes must refuse, not widen.
func TestCorruptRowsFailClosed(t *testing.T) {
	ctx := t.Context()
	s, db, made := one(t)
	c, err := db.Conn(ctx)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.ExecContext(ctx, "pragma ignore_check_constraints = on")
	require.NoError(t, err)
	set := func(sql string, args ...any) {
		_, err := c.ExecContext(ctx, sql, args...)
		require.NoError(t, err)
	}
	for _, expiry := range []int64{0, -1, -1 << 63, 1, 1<<63 - 1, 253402300800000000} {
		set("update tallystick_keys set expires_us = ?", expiry)
		_, err := s.Resolve(ctx, made.Token.Reveal())
		require.ErrorIs(t, err, keys.ErrExpired, "an expiry of %d", expiry)
	}
	set("update tallystick_keys set expires_us = null")
	for _, list := range []string{`{}`, `"a,b"`, `[1]`, `null`, `[null]`, `a,b`, ``} {
		set("update tallystick_keys set allowed_models = ?", list)
		_, err := s.Resolve(ctx, made.Token.Reveal())
		require.ErrorIs(t, err, keys.ErrUnavailable, "a list of %s", list)
		_, err = s.Keys(ctx, keys.ListKeys{})
		require.ErrorIs(t, err, keys.ErrUnavailable, "a list of %s", list)
	}
	set("update tallystick_keys set allowed_models = null, revoked_us = 0")
	_, err = s.Resolve(ctx, made.Token.Reveal())
	require.ErrorIs(t, err, keys.ErrRevoked, "any revocation is one")
}

func TestTheDatabaseRefusesWhatTheCoreRefuses(t *testing.T) {
	_, db, _ := one(t)
	for _, sql := range []string{
		"update tallystick_keys set tokens_per_day = -1", "update tallystick_teams set cost_per_month_microusd = -1", "update tallystick_keys set expires_us = 0",
		"update tallystick_keys set expires_us = 'never'", "update tallystick_keys set allowed_models = '\"a,b\"'", "update tallystick_keys set team_id = 'blue'",
		"update tallystick_key_secrets set hash = x'00'", "delete from tallystick_teams", "delete from tallystick_keys", "update tallystick_keys set id = ''", "update tallystick_keys set revision = 0",
	} {
		_, err := db.ExecContext(t.Context(), sql)
		require.Error(t, err, sql)
	}
}

// Every statement is a walk down an index: none scans or sorts a table.
func TestPlans(t *testing.T) {
	_, db, _ := one(t)
	for name, sql := range keyssqlite.Statements() {
		args := make([]any, 24)
		rows, err := db.QueryContext(t.Context(), "explain query plan "+sql, args[:keyssqlite.Parameters(sql)]...)
		require.NoError(t, err, name)
		for rows.Next() {
			var id, parent, unused int
			var detail string
			require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
			if strings.Contains(detail, "VIRTUAL TABLE") {
				continue // the ids that were asked for
			}
			require.NotContains(t, detail, "SCAN", name)
			require.NotContains(t, detail, "TEMP B-TREE", name)
		}
		require.NoError(t, rows.Err())
	}
}

func TestAttach(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "keys.db")
	s, db := open(t, path+safe)
	require.ErrorIs(t, s.Check(ctx), keyssqlite.ErrOlder, "not migrated yet")
	require.NoError(t, s.Migrate(ctx))
	require.NoError(t, s.Migrate(ctx), "migrating again changes nothing")
	require.NoError(t, s.Check(ctx))
	for _, sql := range []string{
		"insert into tallystick_migrations (package, version, name, checksum) values ('keyssqlite', 3, 'later', 'x')",
		"alter table tallystick_keys add column later text",
	} {
		_, err := db.ExecContext(ctx, sql)
		require.NoError(t, err)
	}
	require.NoError(t, s.Check(ctx), "a newer schema passes")
	_, err := s.CreateTeam(ctx, keys.CreateTeam{ID: "red"})
	require.NoError(t, err)
	_, err = s.CreateKey(ctx, keys.CreateKey{TeamID: "red"})
	require.NoError(t, err, "and serves")
	_, err = db.ExecContext(ctx, "drop table tallystick_key_secrets")
	require.NoError(t, err)
	require.ErrorIs(t, s.Check(ctx), keyssqlite.ErrForeign, "a table is gone")
	require.ErrorIs(t, s.Migrate(ctx), keyssqlite.ErrForeign, "a table is gone")

	for _, weak := range []string{
		"", "?_pragma=journal_mode(wal)", strings.Replace(safe, "synchronous(full)", "synchronous(normal)", 1),
		strings.Replace(safe, "&_pragma=foreign_keys(1)", "", 1), "?_busy_timeout=5000&_journal_mode=WAL",
	} {
		weakly, _ := open(t, filepath.Join(t.TempDir(), "keys.db")+weak)
		require.ErrorIs(t, weakly.Migrate(ctx), sqlitetx.ErrUnsafe, "opened with %q", weak)
		_, err := weakly.CreateTeam(ctx, keys.CreateTeam{ID: "red"})
		require.ErrorIs(t, err, sqlitetx.ErrUnsafe, "opened with %q", weak)
	}

	junk := filepath.Join(t.TempDir(), "notes.txt")
	require.NoError(t, os.WriteFile(junk, []byte(strings.Repeat("not a database\n", 100)), 0o600))
	other, _ := open(t, junk+safe)
	require.ErrorIs(t, other.Migrate(ctx), sqlitetx.ErrNotSQLite)

	_, err = keyssqlite.New(db, &keyssqlite.Options{Tokens: keys.Format{Foreign: []string{"x"}}})
	require.ErrorIs(t, err, keys.ErrInvalid)
}

func TestOutageIsNoRefusalAndNamesNothing(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	s, db, made := one(t)
	_, err := db.ExecContext(ctx, "drop table tallystick_key_secrets")
	require.NoError(t, err)
	_, err = s.Resolve(ctx, made.Token.Reveal())
	require.ErrorIs(t, err, keys.ErrUnavailable)
	require.NotContains(t, err.Error(), "key_secrets")
	require.NoError(t, s.Close())
	_, err = s.Resolve(ctx, made.Token.Reveal())
	require.ErrorIs(t, err, keys.ErrUnavailable)
	_, err = s.RevokeKey(ctx, keys.RevokeKey{ID: "k"})
	require.ErrorIs(t, err, keys.ErrUnavailable)
	_, err = s.Resolve(ctx, "junk")
	require.ErrorIs(t, err, keys.ErrUnknown, "junk is refused without asking the database")
}
