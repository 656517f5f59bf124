package policypg_test

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

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
	adjust func(*pgxpool.Config)
}

func (p *places) open(t testing.TB, db *pgtest.DB) policy.Store {
	t.Helper()
	s, err := policypg.New(db.Connect(t, p.adjust), &policypg.Options{Schema: db.Schema})
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

func harness(adjust func(*pgxpool.Config)) policytest.Harness {
	p := &places{of: map[policy.Store]*pgtest.DB{}, adjust: adjust}
	return policytest.Harness{
		Features: policytest.Features{Handles: true, Barrier: true},
		New:      func(t testing.TB) policy.Store { return p.open(t, pgtest.New(t)) },
		Reopen:   func(t testing.TB, s policy.Store) policy.Store { return p.open(t, p.where(s)) },
		Hold:     func(t testing.TB, s policy.Store) func() { return admission(t, p.where(s)) },
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
