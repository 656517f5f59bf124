package governancepg_test

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancetest"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgserver"
)

// bouncerModes are the ways to talk that a pooler in transaction mode can take.
func bouncerModes(b *pgserver.Bouncer) []pgx.QueryExecMode {
	modes := []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe}
	if b.Prepares() {
		modes = append(modes, pgx.QueryExecModeCacheStatement)
	}
	return modes
}

// TestBouncer runs the suite through PgBouncer in transaction mode, migration included.
func TestBouncer(t *testing.T) {
	b := pgtest.PgBouncer(t, pgtest.Shared(t).DSN())
	for i, mode := range bouncerModes(b) {
		if i > 0 && os.Getenv("TALLYSTICK_TEST_EVERY_MODE") == "" {
			break // TestExecModes tries the modes, the cut tests try each through the pooler; this is the whole suite
		}
		t.Run(mode.String(), func(t *testing.T) {
			h := harness()
			through := func(t testing.TB, schema string, c *clock) *opened {
				pool := pgtest.Connect(t, b.DSN(), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
				return open(t, pool, b.DSN(), schema, c)
			}
			used := &schemas{all: t}
			h.New = func(t testing.TB) governance.Backend {
				schema, old := used.take(t)
				o := through(t, schema, stillClock())
				if !old {
					require.NoError(t, o.Migrate(t.Context()))
				}
				return o
			}
			h.Reopen = func(t testing.TB, b governance.Backend) governance.Backend {
				return through(t, b.(*opened).schema, b.(*opened).clock)
			}
			governancetest.Run(t, h)
		})
	}
}

// schemas are used for one case after another: migrating for each of them is most of the suite's time.
type schemas struct {
	all  *testing.T
	mu   sync.Mutex
	idle []*pgtest.DB
}

// take gives an empty schema, and says whether it is migrated already.
func (s *schemas) take(t testing.TB) (name string, old bool) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var db *pgtest.DB
	if n := len(s.idle); n > 0 {
		db, s.idle, old = s.idle[n-1], s.idle[:n-1], true
	} else {
		db = pgtest.New(s.all)
	}
	if old {
		_, err := db.Pool.Exec(t.Context(), strings.ReplaceAll(emptied, "{}", db.Schema))
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.idle = append(s.idle, db)
	})
	return db.Schema, old
}

// emptied leaves of a schema what a migration makes. The triggers that refuse a deletion do not run.
const emptied = `do $$ declare t text; begin
	set local session_replication_role = replica;
	for t in select relname from pg_class where relnamespace = '{}'::regnamespace and relkind in ('r', 'p') and not relispartition
		and relname not in ('tallystick_migrations', 'governance_meta', 'policy_state')
	loop execute format('delete from {}.%I', t); end loop;
	update {}.governance_meta set horizon_us = 0, pruned_permits = 0, pruned_tokens = 0, pruned_cost_microusd = 0;
	update {}.policy_state set generation = '\x50b5da85b5e3949540f8f9e3896bdb5c35bbe74472c3485d6f629c04454e5274', revision = 1;
end $$`

// TestBouncerBarrier: an edit waits for the admissions of the whole fleet, though none of them has a
// session of its own.
func TestBouncerBarrier(t *testing.T) {
	b := pgtest.PgBouncer(t, pgtest.Shared(t).DSN())
	for _, mode := range bouncerModes(b) {
		t.Run(mode.String(), func(t *testing.T) {
			db := pgtest.New(t)
			o := open(t, pgtest.Connect(t, b.DSN(), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }), b.DSN(), db.Schema, &clock{})
			require.NoError(t, o.Migrate(t.Context()))
			barrier(t, o, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		})
	}
}

// TestBouncerCutAtEveryMessage: the connection to the pooler breaks, or the pooler's to the server.
func TestBouncerCutAtEveryMessage(t *testing.T) {
	pgtest.PgBouncer(t, pgtest.Shared(t).DSN())
	through := func(dsn string) string { return pgtest.PgBouncer(t, dsn).DSN() }
	for _, op := range operations()[:2] {
		t.Run(op.name+"/client", func(t *testing.T) {
			t.Parallel()
			op.everywhere(t, benchOptions{mode: pgx.QueryExecModeExec, behind: through})
		})
		t.Run(op.name+"/server", func(t *testing.T) {
			t.Parallel()
			op.everywhere(t, benchOptions{mode: pgx.QueryExecModeExec, ahead: through})
		})
	}
}
