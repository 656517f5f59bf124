package eventlogsqlite_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogsqlite"
	"github.com/tallystick-go/tallystick/eventlog/eventlogtest"
)

const safe = "?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)"

// files remembers which file a store is on.
type files struct {
	mu sync.Mutex
	of map[eventlog.Store]string
}

func (f *files) open(t testing.TB, path string) eventlog.Store {
	t.Helper()
	s, _ := open(t, path)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of[s] = path
	return s
}

func open(t testing.TB, path string) (*eventlogsqlite.Store, *sql.DB) {
	t.Helper()
	db, err := sql.Open("sqlite", path+safe)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	s := eventlogsqlite.New(db)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(context.Background()))
	require.NoError(t, s.Check(context.Background()))
	return s, db
}

func TestStore(t *testing.T) {
	f := &files{of: map[eventlog.Store]string{}}
	eventlogtest.Run(t, eventlogtest.Harness{
		Features: eventlogtest.Features{Handles: true},
		New:      func(t testing.TB) eventlog.Store { return f.open(t, filepath.Join(t.TempDir(), "events.db")) },
		Reopen: func(t testing.TB, s eventlog.Store) eventlog.Store {
			f.mu.Lock()
			path := f.of[s]
			f.mu.Unlock()
			return f.open(t, path)
		},
	})
}
