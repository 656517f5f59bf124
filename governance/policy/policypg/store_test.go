package policypg_test

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogpg"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/governance/policy/policypg"
	"github.com/tallystick-go/tallystick/governance/policy/policytest"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// places remembers where stores keep their data, for the suite's hooks. adjust is how pools
// are opened.
type places struct {
	mu     sync.Mutex
	of     map[policy.Store]*pgtest.DB
	logs   map[*pgtest.DB]*eventlogpg.Store // of those whose stores tell
	adjust func(*pgxpool.Config)
}

func (p *places) open(t testing.TB, db *pgtest.DB) policy.Store {
	t.Helper()
	pool, o := db.Connect(t, p.adjust), &policypg.Options{Schema: db.Schema}
	p.mu.Lock()
	tells := p.logs[db] != nil
	p.mu.Unlock()
	if tells {
		_, o.Events = recording(t, pool, db.Schema)
	}
	s, err := policypg.New(pool, o)
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Check(t.Context()))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[s] = db
	return s
}

func (p *places) where(s policy.Store) *pgtest.DB {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[s]
}

// recording makes a log beside the policies, and what appends to it.
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

// toldBy reads all that a log has of policies.
func toldBy(t testing.TB, log eventlog.Store) (out []policy.Event) {
	t.Helper()
	page, err := log.Read(context.Background(), eventlog.Read{Limit: eventlog.MaxPage})
	require.NoError(t, err)
	require.False(t, page.More)
	for _, e := range page.Events {
		out = append(out, policy.Event{ID: e.ID, Type: e.Type, Stream: e.Stream, Schema: e.Schema, Data: e.Data})
	}
	return out
}

func harness(adjust func(*pgxpool.Config)) policytest.Harness {
	p := &places{of: map[policy.Store]*pgtest.DB{}, logs: map[*pgtest.DB]*eventlogpg.Store{}, adjust: adjust}
	return policytest.Harness{
		Features: policytest.Features{Handles: true, Barrier: true, Events: true},
		New:      func(t testing.TB) policy.Store { return p.open(t, pgtest.New(t)) },
		Reopen:   func(t testing.TB, s policy.Store) policy.Store { return p.open(t, p.where(s)) },
		Hold:     func(t testing.TB, s policy.Store) func() { return admission(t, p.where(s)) },
		Telling: func(t testing.TB) policy.Store {
			db := pgtest.New(t)
			log, _ := recording(t, db.Pool, db.Schema)
			p.mu.Lock()
			p.logs[db] = log
			p.mu.Unlock()
			return p.open(t, db)
		},
		Events: func(t testing.TB, s policy.Store) []policy.Event {
			p.mu.Lock()
			log := p.logs[p.of[s]]
			p.mu.Unlock()
			return toldBy(t, log)
		},
	}
}

// admission holds the barrier as an admission does, until the returned function is called.
func admission(t testing.TB, db *pgtest.DB) func() {
	t.Helper()
	schema, err := pgtx.ParseSchema(db.Schema)
	require.NoError(t, err)
	tx, err := db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), pgtx.SharedLock, schema.LockKey())
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(context.Background())) }
}

func TestStore(t *testing.T) { policytest.Run(t, harness(nil)) }

// TestStoreModes runs the suite as poolers and hostile sessions would have it: no
// named statements, no binary formats, another time zone, another search_path.
func TestStoreModes(t *testing.T) {
	for name, mode := range map[string]pgx.QueryExecMode{
		"CacheDescribe": pgx.QueryExecModeCacheDescribe, "DescribeExec": pgx.QueryExecModeDescribeExec,
		"Exec": pgx.QueryExecModeExec, "SimpleProtocol": pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "Exec" {
				t.Skip("one mode is enough for a short run")
			}
			policytest.Run(t, harness(hostile(mode)))
		})
	}
}

func hostile(mode pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = mode
		c.ConnConfig.RuntimeParams["timezone"] = "Asia/Kathmandu"
		c.ConnConfig.RuntimeParams["datestyle"] = "German, DMY"
		c.ConnConfig.RuntimeParams["search_path"] = "pg_catalog"
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	}
}
