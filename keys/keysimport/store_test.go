package keysimport_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keysimport"
	"github.com/tallystick-go/tallystick/keys/keyspg"
	"github.com/tallystick-go/tallystick/keys/keyssqlite"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// openFile opens a file with a busy timeout short enough to wait for.
func openFile(t testing.TB, path string) (*keyssqlite.Store, *sql.DB) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(1000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=foreign_keys(1)&_pragma=fullfsync(1)")
	require.NoError(t, err)
	s, err := keyssqlite.New(db, &keyssqlite.Options{Tokens: foreign})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	t.Cleanup(func() { require.NoError(t, errors.Join(s.Close(), db.Close())) })
	return s, db
}

func openPostgres(t testing.TB) (*keyspg.Store, *pgtest.DB) {
	t.Helper()
	db := pgtest.New(t)
	s, err := keyspg.New(db.Pool, &keyspg.Options{Schema: db.Schema, Tokens: foreign})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	return s, db
}

// lived fills a store as years of use would, with n keys.
func lived(t testing.TB, s keys.Store, n int) (current, grace, revoked keys.Token, b keys.Bootstrap) {
	t.Helper()
	ctx := t.Context()
	token, err := keys.Mint(nil)
	require.NoError(t, err)
	b = keys.Bootstrap{Declarations: []keys.Declaration{
		{Team: &keys.CreateTeam{ID: "red", Limits: keys.Limits{TokensPerDay: keys.Limit(1 << 62)}}},
		{Key: &keys.CreateKey{ID: "ci", TeamID: "red", Owner: "Ann", AllowedModels: []string{}, Token: token}},
	}}
	_, err = s.Bootstrap(ctx, b)
	require.NoError(t, err)
	rotated, err := s.RotateKey(ctx, keys.RotateKey{ID: "ci", RotationID: "r", IfRevision: 1, Grace: time.Hour})
	require.NoError(t, err)
	gone, err := s.CreateKey(ctx, keys.CreateKey{ID: "gone", TeamID: "red"})
	require.NoError(t, err)
	_, err = s.RevokeKey(ctx, keys.RevokeKey{ID: "gone"})
	require.NoError(t, err)
	_, err = s.CreateTeam(ctx, keys.CreateTeam{ID: "blue"})
	require.NoError(t, err)
	_, err = s.DeleteTeam(ctx, keys.DeleteTeam{ID: "blue"})
	require.NoError(t, err)
	var rows keys.Rows
	for i := range n {
		id := fmt.Sprintf("n%06d", i)
		rows.Keys = append(rows.Keys, keys.Key{ID: id, TeamID: "red", Revision: 1})
		rows.Secrets = append(rows.Secrets, keys.Secret{KeyID: id, Hash: keys.Hash{1, byte(i), byte(i >> 8)}})
	}
	_, err = s.(keys.Importer).Import(ctx, func(yield func(keys.Rows, error) bool) { yield(rows, nil) })
	require.NoError(t, err)
	return rotated.Token, token, gone.Token, b
}

func TestCopyFromSQLiteToPostgres(t *testing.T) {
	ctx := t.Context()
	src, _ := openFile(t, filepath.Join(t.TempDir(), "a.db"))
	dst, _ := openPostgres(t)
	current, grace, revoked, b := lived(t, src, 1201) // several batches
	all := keys.Count{Teams: 2, Keys: 1203, Secrets: 1204, Declarations: 2}
	done, err := keysimport.Copy(ctx, dst, src)
	require.NoError(t, err)
	require.Equal(t, keys.Imported{Added: all}, done)
	done, err = keysimport.Copy(ctx, dst, src)
	require.NoError(t, err)
	require.Equal(t, keys.Imported{Same: all}, done, "again")

	for id := range map[string]bool{"ci": true, "gone": true, "n000777": true} {
		want, err := src.Key(ctx, id)
		require.NoError(t, err)
		got, err := dst.Key(ctx, id)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, token := range []keys.Token{current, grace} {
		p, err := dst.Resolve(ctx, token.Reveal())
		require.NoError(t, err)
		require.Equal(t, "ci", p.KeyID)
	}
	_, err = dst.Resolve(ctx, revoked.Reveal())
	require.ErrorIs(t, err, keys.ErrRevoked)
	again, err := dst.Bootstrap(ctx, b)
	require.NoError(t, err)
	require.Equal(t, 2, again.Unchanged, "the configuration that was used locally starts there too")

	_, err = dst.UpdateTeam(ctx, keys.UpdateTeam{ID: "red", IfRevision: 1, Name: keys.Set("Red")})
	require.NoError(t, err)
	_, err = src.CreateTeam(ctx, keys.CreateTeam{ID: "a-new-one"})
	require.NoError(t, err)
	var conflict *keys.ConflictError
	_, err = keysimport.Copy(ctx, dst, src)
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, []string{"name", "revision", "updated_us"}, conflict.Fields)
	_, err = dst.Team(ctx, "a-new-one")
	require.ErrorIs(t, err, keys.ErrNotFound, "a conflict rolls everything back")
}

// Nobody writes to the source between the first row that is read and the commit.
func TestTheSourceIsFrozen(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "a.db")
	src, _ := openFile(t, path)
	other, handle := openFile(t, path) // another process would do the same
	dst, _ := openPostgres(t)
	lived(t, src, 10)

	tx, err := handle.Conn(ctx)
	require.NoError(t, err)
	_, err = tx.ExecContext(ctx, "begin immediate")
	require.NoError(t, err)
	_, err = keysimport.Copy(ctx, dst, src)
	require.ErrorIs(t, err, keys.ErrUnavailable, "somebody is writing")
	page, err := dst.Teams(ctx, keys.ListTeams{})
	require.NoError(t, err)
	require.Empty(t, page.Teams)
	_, err = tx.ExecContext(ctx, "rollback")
	require.NoError(t, err)
	require.NoError(t, tx.Close())

	_, err = keysimport.Copy(ctx, importing(func(rows iter.Seq2[keys.Rows, error]) (keys.Imported, error) {
		done, err := dst.Import(ctx, rows)
		if err == nil { // committed, and still nobody can have written
			_, err := other.RevokeKey(ctx, keys.RevokeKey{ID: "ci"})
			require.ErrorIs(t, err, keys.ErrUnavailable)
		}
		return done, err
	}), src)
	require.NoError(t, err)
	_, err = other.RevokeKey(ctx, keys.RevokeKey{ID: "ci"})
	require.NoError(t, err)
}

type importing func(iter.Seq2[keys.Rows, error]) (keys.Imported, error)

func (f importing) Import(_ context.Context, rows iter.Seq2[keys.Rows, error]) (keys.Imported, error) {
	return f(rows)
}

func TestACallerWhoLeavesImportsNothing(t *testing.T) {
	src, _ := openFile(t, filepath.Join(t.TempDir(), "a.db"))
	dst, _ := openPostgres(t)
	lived(t, src, 1201)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := 0
	_, err := keysimport.Copy(ctx, importing(func(rows iter.Seq2[keys.Rows, error]) (keys.Imported, error) {
		return dst.Import(ctx, func(yield func(keys.Rows, error) bool) {
			for batch, err := range rows {
				if seen++; seen == 3 {
					cancel()
				}
				if !yield(batch, err) {
					return
				}
			}
		})
	}), src)
	require.ErrorIs(t, err, keys.ErrUnavailable)
	page, err := dst.Teams(t.Context(), keys.ListTeams{})
	require.NoError(t, err)
	require.Empty(t, page.Teams)
}

func TestExportsIntoEveryStore(t *testing.T) {
	ctx := t.Context()
	for release := range exports {
		file, _ := openFile(t, filepath.Join(t.TempDir(), "a.db"))
		server, _ := openPostgres(t)
		for name, s := range map[string]interface {
			keys.Store
			keys.Importer
		}{"sqlite": file, "postgres": server} {
			p := plan(t, release)
			require.NoError(t, p.Import(ctx, s, allow), "%s into %s", release, name)
			require.NoError(t, p.Import(ctx, s, allow), "%s into %s again", release, name)
			require.Equal(t, keys.Imported{Same: p.Rows.Count()}, *p.Report.Imported)
			who, err := s.Resolve(ctx, presented(release, "active"))
			require.NoError(t, err)
			require.NotEmpty(t, who.User)
			_, err = s.Resolve(ctx, presented(release, "expired"))
			require.ErrorIs(t, err, keys.ErrExpired)
		}
	}
}
