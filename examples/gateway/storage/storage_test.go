package storage_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tallystick-go/tallystick/examples/gateway/storage"
	"github.com/tallystick-go/tallystick/governance/governancesqlite"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/journal/journalsqlite"
	"github.com/tallystick-go/tallystick/keys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServeAndLookAtTheSameTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a folder #1", "gateway.db")
	_, err := storage.Open(t.Context(), path, storage.Options{})
	require.ErrorIs(t, err, storage.ErrFile, "only a gateway makes files")
	served, err := storage.Open(t.Context(), path, storage.Options{Serve: true})
	require.NoError(t, err)
	if runtime.GOOS != "windows" {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		_, err = storage.Open(t.Context(), path, storage.Options{Serve: true})
		require.ErrorIs(t, err, storage.ErrServed)
	}
	t.Chdir(filepath.Dir(path))
	tool, err := storage.Open(t.Context(), filepath.Base(path), storage.Options{})
	require.NoError(t, err)
	_, err = tool.Keys.CreateTeam(t.Context(), keys.CreateTeam{ID: "acme"})
	require.NoError(t, err)
	_, err = served.Keys.Team(t.Context(), "acme")
	require.NoError(t, err)
	require.NoError(t, tool.Close())
	require.NoError(t, served.Close())
	again, err := storage.Open(t.Context(), path, storage.Options{Serve: true})
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	folder := t.TempDir()
	good := filepath.Join(folder, "good.db")
	f, err := storage.Open(t.Context(), good, storage.Options{Serve: true})
	require.NoError(t, err)
	require.NoError(t, f.Close())

	text := filepath.Join(folder, "text.db")
	require.NoError(t, os.WriteFile(text, []byte("this is no database, but it is long enough to be looked at as one"), 0o600))
	foreign := filepath.Join(folder, "foreign.db")
	db, err := sql.Open("sqlite", foreign)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "create table tallystick_teams (id text); create table tallystick_keys (id text)")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	empty := filepath.Join(folder, "empty.db")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	exposed := filepath.Join(folder, "exposed.db")
	ours, err := os.ReadFile(good)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(exposed, ours, 0o600))
	require.NoError(t, os.Chmod(exposed, 0o666))

	for name, c := range map[string]struct {
		path  string
		serve bool
		is    error
	}{
		"no database":            {text, true, governancesqlite.ErrNotSQLite},
		"no database, as a tool": {text, false, governancesqlite.ErrNotSQLite},
		"older":                  {empty, false, governancesqlite.ErrOlder},
		"open to everybody":      {exposed, true, governancesqlite.ErrExposed},
		"a folder":               {folder, true, storage.ErrFile},
		"somebody else's":        {foreign, true, governancesqlite.ErrForeign},
		"somebody else's, again": {foreign, false, governancesqlite.ErrForeign},
	} {
		t.Run(name, func(t *testing.T) {
			before, _ := os.ReadFile(c.path)
			_, err := storage.Open(t.Context(), c.path, storage.Options{Serve: c.serve})
			require.ErrorIs(t, err, c.is)
			after, _ := os.ReadFile(c.path)
			require.Equal(t, before, after, "nothing changed")
		})
	}
}

// A node's file has its journal in it. It is one gateway's at a time, served in no other profile,
// and a tool looks at it meanwhile.
func TestNodeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.db")
	served, err := storage.Open(t.Context(), path, storage.Options{Serve: true, Node: true})
	require.NoError(t, err)
	db := served.Database()
	require.NotNil(t, db.Journal)
	require.Equal(t, policy.Node, db.Backend().Profile)
	_, err = journal.Open(t.Context(), db.Journal, &journal.Options{Node: "node-1"})
	require.NoError(t, err)
	if runtime.GOOS != "windows" {
		_, err = storage.Open(t.Context(), path, storage.Options{Serve: true, Node: true})
		require.ErrorIs(t, err, journalsqlite.ErrLocked)
		_, err = storage.Open(t.Context(), path, storage.Options{Serve: true})
		require.ErrorIs(t, err, storage.ErrServed)
	}
	tool, err := storage.Open(t.Context(), path, storage.Options{})
	require.NoError(t, err)
	s, err := journal.Look(t.Context(), tool.Database().Journal)
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Number)
	require.NoError(t, tool.Close())
	require.NoError(t, served.Close())

	_, err = storage.Open(t.Context(), path, storage.Options{Serve: true})
	require.ErrorIs(t, err, governancesqlite.ErrNodes)
	local := filepath.Join(t.TempDir(), "local.db")
	f, err := storage.Open(t.Context(), local, storage.Options{Serve: true})
	require.NoError(t, err)
	require.Nil(t, f.Database().Journal)
	require.NoError(t, f.Close())
	f, err = storage.Open(t.Context(), local, storage.Options{Serve: true, Node: true})
	require.NoError(t, err, "a gateway that becomes a node keeps its keys and counters")
	require.NoError(t, f.Close())
}
