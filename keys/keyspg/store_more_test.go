package keyspg_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keyspg"
	"github.com/tallystick-go/tallystick/keys/keystest"
)

func one(t *testing.T) (*keyspg.Store, *pgtest.DB, keys.CreatedKey) {
	t.Helper()
	s, db := waiting(t, 0)
	_, err := s.CreateTeam(t.Context(), keys.CreateTeam{ID: "red"})
	require.NoError(t, err)
	made, err := s.CreateKey(t.Context(), keys.CreateKey{ID: "k", TeamID: "red"})
	require.NoError(t, err)
	return s, db, made
}

func definitions(t *testing.T, db *pgtest.DB, ids ...string) []keys.Definition {
	t.Helper()
	out := make([]keys.Definition, len(ids))
	b := &pgx.Batch{}
	keyspg.QueueDefinitions(b, db.Schema, ids, func(i int, d keys.Definition) { out[i] = d })
	require.NoError(t, db.Pool.SendBatch(t.Context(), b).Close())
	return out
}

func TestQueueDefinitions(t *testing.T) {
	ctx := t.Context()
	s, db, made := one(t)
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	other, err := s.CreateKey(ctx, keys.CreateKey{ID: "a", TeamID: "red", ExpiresAt: &expires})
	require.NoError(t, err)
	gone, err := s.RevokeKey(ctx, keys.RevokeKey{ID: "k"})
	require.NoError(t, err)
	team, err := s.UpdateTeam(ctx, keys.UpdateTeam{ID: "red", IfRevision: 1, Name: keys.Set("Red")})
	require.NoError(t, err)

	got := definitions(t, db, "k", "never", "a", "K", "k")
	revoked, alive := keys.DefinitionOf(gone, team), keys.DefinitionOf(other.Key, team)
	require.Equal(t, []keys.Definition{revoked, {}, alive, {}, revoked}, got, "by place, exact, and absent for keys that never were")
	require.Equal(t, expires.UnixMicro(), alive.ExpiresAt)
	require.NotZero(t, revoked.RevokedAt)
	require.NotEqual(t, made.Key.Revision, revoked.KeyRevision)

	_, err = s.DeleteTeam(ctx, keys.DeleteTeam{ID: "red"})
	require.NoError(t, err)
	require.True(t, definitions(t, db, "a")[0].TeamDeleted)
	require.Empty(t, definitions(t, db))
}

// A row that no store writes must refuse, not widen.
func TestCorruptRowsFailClosed(t *testing.T) {
	ctx := t.Context()
	s, db, made := one(t)
	for _, table := range []string{"keys", "teams", "key_secrets"} {
		_, err := db.Pool.Exec(ctx, fmt.Sprintf(`do $$ declare c text; begin
			for c in select conname from pg_constraint where conrelid = '%[1]s.%[2]s'::regclass and contype = 'c'
			loop execute format('alter table %[1]s.%[2]s drop constraint %%I', c); end loop; end $$`, db.Schema, table))
		require.NoError(t, err)
	}
	set := func(sql string, args ...any) {
		_, err := db.Pool.Exec(ctx, strings.ReplaceAll(sql, "{}", db.Schema), args...)
		require.NoError(t, err)
	}
	for _, expiry := range []int64{0, -1, -1 << 63, 1, 1<<63 - 1, 253402300800000000} {
		set("update {}.keys set expires_us = $1", expiry)
		_, err := s.Resolve(ctx, made.Token.Reveal())
		require.ErrorIs(t, err, keys.ErrExpired, "an expiry of %d", expiry)
		p := keys.Principal{KeyID: "k", Key: keys.Key{Revision: 1}, Team: keys.Team{Revision: 1}}
		require.ErrorIs(t, definitions(t, db, "k")[0].Check(&p, time.Now().UnixMicro()), keys.ErrExpired, "an expiry of %d", expiry)
	}
	set("update {}.keys set expires_us = null")
	for _, list := range []string{`{}`, `"a,b"`, `[1]`, `null`, `[null]`} {
		set("update {}.keys set allowed_models = $1::text::jsonb", list)
		_, err := s.Resolve(ctx, made.Token.Reveal())
		require.ErrorIs(t, err, keys.ErrUnavailable, "a list of %s", list)
		_, err = s.Keys(ctx, keys.ListKeys{})
		require.ErrorIs(t, err, keys.ErrUnavailable, "a list of %s", list)
	}
	set("update {}.keys set allowed_models = null")
	_, err := s.Resolve(ctx, made.Token.Reveal())
	require.NoError(t, err)
	set("update {}.keys set revoked_us = 0")
	_, err = s.Resolve(ctx, made.Token.Reveal())
	require.ErrorIs(t, err, keys.ErrRevoked, "any revocation is one")
}

func TestTheDatabaseRefusesWhatTheCoreRefuses(t *testing.T) {
	ctx := t.Context()
	_, db, _ := one(t)
	for _, sql := range []string{
		"update {}.keys set tokens_per_day = -1", "update {}.teams set cost_per_month_microusd = -1", "update {}.keys set expires_us = 0",
		"update {}.keys set allowed_models = '\"a,b\"'", "update {}.keys set team_id = 'blue'", "update {}.key_secrets set hash = 'short'",
		"delete from {}.teams", "delete from {}.keys", "update {}.keys set id = ''", "update {}.keys set revision = 0",
	} {
		_, err := db.Pool.Exec(ctx, strings.ReplaceAll(sql, "{}", db.Schema))
		require.Error(t, err, sql)
	}
}

func TestOutageIsNoRefusalAndNamesNothing(t *testing.T) {
	ctx := t.Context()
	token, err := keys.Mint(nil)
	require.NoError(t, err)
	pool, err := pgxpool.New(ctx, "postgres://someuser:s3cret@127.0.0.1:1/somedb?connect_timeout=2")
	require.NoError(t, err)
	defer pool.Close()
	s, err := keyspg.New(pool, nil)
	require.NoError(t, err)
	fail := func(_ any, err error) error { return err }
	for _, err := range []error{
		fail(s.Resolve(ctx, token.Reveal())),
		fail(s.Reload(ctx, keys.Principal{KeyID: "k"})),
		fail(s.Keys(ctx, keys.ListKeys{})),
		fail(s.Key(ctx, "k")),
		fail(s.RevokeKey(ctx, keys.RevokeKey{ID: "k"})),
		fail(s.CreateTeam(ctx, keys.CreateTeam{ID: "red"})),
	} {
		require.ErrorIs(t, err, keys.ErrUnavailable)
		require.NotErrorIs(t, err, keys.ErrUnknown)
		for _, secret := range []string{"s3cret", "someuser", "somedb", "127.0.0.1", "select"} {
			require.NotContains(t, err.Error(), secret)
		}
	}
	_, err = s.Resolve(ctx, "junk")
	require.ErrorIs(t, err, keys.ErrUnknown, "junk is refused without asking the database")
}

// A database that stalls is an error within the bound, even for callers without a
// deadline.
func TestAStalledDatabaseIsAnError(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	_, db, made := one(t)
	s, err := keyspg.New(db.Pool, &keyspg.Options{Schema: db.Schema, Timeout: 50 * time.Millisecond})
	require.NoError(t, err)
	tx, err := db.Pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(ctx)) }()
	_, err = tx.Exec(ctx, "lock table "+db.Schema+".keys in access exclusive mode")
	require.NoError(t, err)
	_, err = s.Resolve(ctx, made.Token.Reveal())
	require.ErrorIs(t, err, keys.ErrUnavailable)
	_, err = s.UpdateKey(ctx, keys.UpdateKey{ID: "k", IfRevision: 1, Name: keys.Set("x")})
	require.ErrorIs(t, err, keys.ErrUnavailable)
	_, err = s.Keys(ctx, keys.ListKeys{})
	require.ErrorIs(t, err, keys.ErrUnavailable)
}

// What came in by the thousand is known to the planner when the import returns.
func TestAnImportIsAnalyzed(t *testing.T) {
	ctx := t.Context()
	s, db := waiting(t, 0)
	require.NoError(t, keystest.BenchFill(ctx, s, 1500))
	var known int64
	require.NoError(t, db.Pool.QueryRow(ctx, "select reltuples::bigint from pg_class where oid = $1::text::regclass", db.Schema+".keys").Scan(&known))
	require.EqualValues(t, 1500, known)
}

// An import takes turns with bootstraps and waits for no admission.
func TestBringingInWaitsForNoAdmission(t *testing.T) {
	ctx := t.Context()
	s, db := hurried(t)
	defer admission(t, s, db)()
	token, err := keys.Mint(nil)
	require.NoError(t, err)
	_, err = s.Bootstrap(ctx, keys.Bootstrap{Declarations: []keys.Declaration{
		{Team: &keys.CreateTeam{ID: "red"}}, {Key: &keys.CreateKey{ID: "k", TeamID: "red", Token: token}},
	}})
	require.NoError(t, err)
	_, err = s.Resolve(ctx, token.Reveal())
	require.NoError(t, err)
	require.NoError(t, keystest.BenchFill(ctx, s, 10))
}

func TestAttach(t *testing.T) {
	ctx := t.Context()
	db := pgtest.New(t)
	s, err := keyspg.New(db.Pool, &keyspg.Options{Schema: db.Schema})
	require.NoError(t, err)
	require.ErrorIs(t, s.Check(ctx), keyspg.ErrOlder, "not migrated yet")
	require.NoError(t, s.Migrate(ctx))
	require.NoError(t, s.Migrate(ctx), "migrating again changes nothing")
	require.NoError(t, s.Check(ctx))
	_, err = db.Pool.Exec(ctx, fmt.Sprintf(`insert into %s.tallystick_migrations (package, version, name, checksum) values ('keyspg', 3, 'later', 'x');
		alter table %[1]s.keys add column later text`, db.Schema))
	require.NoError(t, err)
	require.NoError(t, s.Check(ctx), "a newer schema passes")
	_, err = s.CreateTeam(ctx, keys.CreateTeam{ID: "red"})
	require.NoError(t, err)
	_, err = s.CreateKey(ctx, keys.CreateKey{TeamID: "red"})
	require.NoError(t, err, "and serves")
	_, err = db.Pool.Exec(ctx, fmt.Sprintf("drop table %s.key_secrets", db.Schema))
	require.NoError(t, err)
	require.ErrorIs(t, s.Check(ctx), keyspg.ErrForeign, "a table is gone")
	require.ErrorIs(t, s.Migrate(ctx), keyspg.ErrForeign, "a table is gone")

	for _, name := range []string{"Upper", "a-b", `a"b`, "pg_x", strings.Repeat("x", 64)} {
		_, err := keyspg.New(db.Pool, &keyspg.Options{Schema: name})
		require.ErrorIs(t, err, keys.ErrInvalid, name)
	}
	_, err = keyspg.New(db.Pool, &keyspg.Options{Tokens: keys.Format{Prefixes: []string{"no underscore"}}})
	require.ErrorIs(t, err, keys.ErrInvalid)
}
