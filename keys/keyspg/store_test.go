package keyspg_test

import (
	"context"
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

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogpg"
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
	tells bool
}

// places remembers them for the suite's hooks. adjust is how pools are opened.
type places struct {
	mu     sync.Mutex
	of     map[keys.Store]place
	adjust func(*pgxpool.Config)
	logs   map[keys.Store]*eventlogpg.Store // of those that tell their edits
}

func (p *places) open(t testing.TB, at place, format keys.Format) *keyspg.Store {
	t.Helper()
	o := &keyspg.Options{
		Schema: at.db.Schema, Tokens: format, Clock: func(now time.Time) time.Time { return now.Add(time.Duration(at.ahead.Load())) },
	}
	pool := at.db.Connect(t, p.adjust)
	var log *eventlogpg.Store
	if at.tells {
		log, o.Events = recording(t, pool, at.db.Schema)
	}
	s, err := keyspg.New(pool, o)
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Check(t.Context()))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[s] = at
	if log != nil {
		p.logs[s] = log
	}
	return s
}

// recording makes a log beside the keys, and what appends to it.
func recording(t testing.TB, pool *pgxpool.Pool, schema string) (*eventlogpg.Store, *eventlogpg.Recorder) {
	t.Helper()
	log, err := eventlogpg.New(pool, &eventlogpg.Options{Schema: schema})
	require.NoError(t, err)
	require.NoError(t, log.Migrate(context.Background()))
	l, err := eventlog.New(log, nil)
	require.NoError(t, err)
	r, err := eventlogpg.NewRecorder(log, l)
	require.NoError(t, err)
	return log, r
}

// toldBy reads all that a log has.
func toldBy(t testing.TB, log eventlog.Store) (out []keys.Event) {
	t.Helper()
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
}

func (p *places) where(s keys.Store) place {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[s]
}

func harness(adjust func(*pgxpool.Config)) keystest.Harness { return harnessBehind("", adjust) }

// harnessBehind opens its stores through something that stands in front of the shared server.
func harnessBehind(dsn string, adjust func(*pgxpool.Config)) keystest.Harness {
	p := &places{of: map[keys.Store]place{}, adjust: adjust, logs: map[keys.Store]*eventlogpg.Store{}}
	fresh := func(t testing.TB, format keys.Format, tells bool) keys.Store {
		db := pgtest.New(t)
		if dsn != "" {
			db.DSN = dsn
		}
		return p.open(t, place{db, new(atomic.Int64), tells}, format)
	}
	return keystest.Harness{
		Features: keystest.Features{Handles: true, Clock: true, Formats: true, Rows: true, Events: true},
		New:      func(t testing.TB) keys.Store { return fresh(t, keys.Format{}, false) },
		NewWith:  func(t testing.TB, f keys.Format) keys.Store { return fresh(t, f, false) },
		Telling:  func(t testing.TB) keys.Store { return fresh(t, keys.Format{}, true) },
		Events: func(t testing.TB, s keys.Store) []keys.Event {
			p.mu.Lock()
			log := p.logs[s]
			p.mu.Unlock()
			return toldBy(t, log)
		},
		Reopen:  func(t testing.TB, s keys.Store) keys.Store { return p.open(t, p.where(s), keys.Format{}) },
		Advance: func(_ testing.TB, s keys.Store, d time.Duration) { p.where(s).ahead.Add(int64(d)) },
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
