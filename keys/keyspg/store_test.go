package keyspg_test

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
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

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// place is where a store keeps its data, and by how much its clock was moved.
type place struct {
	db    *pgtest.DB
	ahead *atomic.Int64
}

// places remembers them for the suite's hooks. adjust is how pools are opened.
type places struct {
	mu     sync.Mutex
	of     map[keys.Store]place
	adjust func(*pgxpool.Config)
}

func (p *places) open(t testing.TB, at place, format keys.Format) *keyspg.Store {
	t.Helper()
	s, err := keyspg.New(at.db.Connect(t, p.adjust), &keyspg.Options{
		Schema: at.db.Schema, Tokens: format, Clock: func(now time.Time) time.Time { return now.Add(time.Duration(at.ahead.Load())) },
	})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Check(t.Context()))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[s] = at
	return s
}

func (p *places) where(s keys.Store) place {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[s]
}

func harness(adjust func(*pgxpool.Config)) keystest.Harness { return harnessBehind("", adjust) }

// harnessBehind opens its stores through something that stands in front of the shared server.
func harnessBehind(dsn string, adjust func(*pgxpool.Config)) keystest.Harness {
	p := &places{of: map[keys.Store]place{}, adjust: adjust}
	fresh := func(t testing.TB, format keys.Format) keys.Store {
		db := pgtest.New(t)
		if dsn != "" {
			db.DSN = dsn
		}
		return p.open(t, place{db, new(atomic.Int64)}, format)
	}
	return keystest.Harness{
		Features: keystest.Features{Handles: true, Clock: true, Formats: true, Rows: true},
		New:      func(t testing.TB) keys.Store { return fresh(t, keys.Format{}) },
		NewWith:  fresh,
		Reopen:   func(t testing.TB, s keys.Store) keys.Store { return p.open(t, p.where(s), keys.Format{}) },
		Advance:  func(_ testing.TB, s keys.Store, d time.Duration) { p.where(s).ahead.Add(int64(d)) },
	}
}

func TestStore(t *testing.T) { keystest.Run(t, harness(nil)) }

// TestStoreModes runs the suite as poolers and hostile sessions would have it: no
// named statements, no binary formats, another time zone, another search_path.
func TestStoreModes(t *testing.T) {
	for name, mode := range map[string]pgx.QueryExecMode{
		"Exec": pgx.QueryExecModeExec, "SimpleProtocol": pgx.QueryExecModeSimpleProtocol, "DescribeExec": pgx.QueryExecModeDescribeExec,
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "Exec" {
				t.Skip("one mode is enough for a short run")
			}
			keystest.Run(t, harness(func(c *pgxpool.Config) {
				c.ConnConfig.DefaultQueryExecMode = mode
				c.ConnConfig.RuntimeParams["timezone"] = "Asia/Kathmandu"
				c.ConnConfig.RuntimeParams["datestyle"] = "German, DMY"
				c.ConnConfig.RuntimeParams["search_path"] = "pg_catalog"
				c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
			}))
		})
	}
}

func BenchmarkStore(b *testing.B) { keystest.Bench(b, harness(nil)) }

// BenchmarkSize compares a thousand keys with as many as TALLYSTICK_BENCH_KEYS says.
func BenchmarkSize(b *testing.B) {
	sizes := []int{1000}
	if n, err := strconv.Atoi(os.Getenv("TALLYSTICK_BENCH_KEYS")); err == nil && n > 0 {
		sizes = append(sizes, n)
	}
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) { keystest.BenchSize(b, harness(nil).New(b), n) })
	}
}
