package keyssqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogsqlite"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keyssqlite"
	"github.com/tallystick-go/tallystick/keys/keystest"
)

const safe = "?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)"

// files remembers which file a store is on, and by how much its clock was moved.
type files struct {
	mu    sync.Mutex
	paths map[keys.Store]string
	ahead map[string]*atomic.Int64
	logs  map[keys.Store]*eventlogsqlite.Store
}

func (f *files) open(t testing.TB, path string, format keys.Format) keys.Store {
	t.Helper()
	db, err := sql.Open("sqlite", path+safe)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ahead[path] == nil {
		f.ahead[path] = new(atomic.Int64)
	}
	ahead := f.ahead[path]
	writer := sqlitetx.New(db, &sqlitetx.Options{Now: func() int64 { return time.Now().UnixMicro() + ahead.Load() }})
	log := eventlogsqlite.On(writer)
	require.NoError(t, log.Migrate(t.Context()))
	l, err := eventlog.New(log, nil)
	require.NoError(t, err)
	told, err := eventlogsqlite.NewRecorder(log, l)
	require.NoError(t, err)
	s, err := keyssqlite.On(writer, &keyssqlite.Options{Tokens: format, Events: told})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Check(t.Context()))
	f.paths[s], f.logs[s] = path, log
	return s
}

func harness() keystest.Harness {
	f := &files{paths: map[keys.Store]string{}, ahead: map[string]*atomic.Int64{}, logs: map[keys.Store]*eventlogsqlite.Store{}}
	fresh := func(t testing.TB, format keys.Format) keys.Store {
		return f.open(t, filepath.Join(t.TempDir(), "keys.db"), format)
	}
	path := func(s keys.Store) string {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.paths[s]
	}
	return keystest.Harness{
		Features: keystest.Features{Handles: true, Clock: true, Formats: true, Rows: true, Events: true},
		New:      func(t testing.TB) keys.Store { return fresh(t, keys.Format{}) },
		NewWith:  fresh,
		Telling:  func(t testing.TB) keys.Store { return fresh(t, keys.Format{}) },
		Reopen:   func(t testing.TB, s keys.Store) keys.Store { return f.open(t, path(s), keys.Format{}) },
		Advance: func(_ testing.TB, s keys.Store, d time.Duration) {
			f.ahead[path(s)].Add(d.Microseconds())
		},
		Events: func(t testing.TB, s keys.Store) (out []keys.Event) {
			f.mu.Lock()
			log := f.logs[s]
			f.mu.Unlock()
			for c := (eventlog.Cursor{}); ; {
				page, err := log.Read(context.Background(), eventlog.Read{Cursor: c, Limit: eventlog.MaxPage})
				require.NoError(t, err)
				for _, e := range page.Events {
					out = append(out, keys.Event{ID: e.ID, Type: e.Type, Stream: e.Stream, Schema: e.Schema, Data: e.Data})
				}
				if c = page.Next; !page.More {
					return out
				}
			}
		},
	}
}

func TestStore(t *testing.T)      { keystest.Run(t, harness()) }
func BenchmarkStore(b *testing.B) { keystest.Bench(b, harness()) }

// BenchmarkSize compares a thousand keys with as many as TALLYSTICK_BENCH_KEYS says.
func BenchmarkSize(b *testing.B) {
	sizes := []int{1000}
	if n, err := strconv.Atoi(os.Getenv("TALLYSTICK_BENCH_KEYS")); err == nil && n > 0 {
		sizes = append(sizes, n)
	}
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) { keystest.BenchSize(b, harness().New(b), n) })
	}
}
