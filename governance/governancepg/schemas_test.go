package governancepg_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
)

// schemas are used for one case after another: migrating for each of them is most of the suite's time.
type schemas struct {
	all  testing.TB
	mu   sync.Mutex
	idle []*pgtest.DB
}

// open gives a handle on an empty, migrated schema; its clock stands still.
func (s *schemas) open(t testing.TB, pool *pgxpool.Pool, dsn string) *opened {
	t.Helper()
	schema, old := s.take(t)
	o := open(t, pool, dsn, schema, stillClock())
	if !old {
		o.migrate(t)
	}
	return o
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
		and relname not in ('tallystick_migrations', 'governance_meta', 'policy_state', 'event_log')
	loop execute format('delete from {}.%I', t); end loop;
	update {}.governance_meta set horizon_us = 0, pruned_permits = 0, pruned_tokens = 0, pruned_cost_microusd = 0;
	update {}.policy_state set generation = '\x50b5da85b5e3949540f8f9e3896bdb5c35bbe74472c3485d6f629c04454e5274', revision = 1;
end $$`
