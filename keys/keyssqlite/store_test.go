package keyssqlite_test

import (
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
	s, err := keyssqlite.On(writer, &keyssqlite.Options{Tokens: format})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Check(t.Context()))
	f.paths[s] = path
	return s
}

func harness() keystest.Harness {
	f := &files{paths: map[keys.Store]string{}, ahead: map[string]*atomic.Int64{}}
	fresh := func(t testing.TB, format keys.Format) keys.Store {
		return f.open(t, filepath.Join(t.TempDir(), "keys.db"), format)
	}
	path := func(s keys.Store) string {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.paths[s]
	}
	return keystest.Harness{
		Features: keystest.Features{Handles: true, Clock: true, Formats: true, Rows: true},
		New:      func(t testing.TB) keys.Store { return fresh(t, keys.Format{}) },
		NewWith:  fresh,
		Reopen:   func(t testing.TB, s keys.Store) keys.Store { return f.open(t, path(s), keys.Format{}) },
		Advance: func(_ testing.TB, s keys.Store, d time.Duration) {
			f.ahead[path(s)].Add(d.Microseconds())
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
