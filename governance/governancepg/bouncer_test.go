package governancepg_test

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancetest"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgserver"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgwire"
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
			h, used := harness(t), &schemas{all: t}
			connect := func(t testing.TB) *pgxpool.Pool {
				return pgtest.Connect(t, b.DSN(), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			}
			h.New = func(t testing.TB) governance.Backend { return used.open(t, connect(t), b.DSN()) }
			h.Reopen = func(t testing.TB, b governance.Backend) governance.Backend {
				o := b.(*opened)
				return open(t, connect(t), o.dsn, o.schema, o.clock)
			}
			if os.Getenv(pgwire.EnvEach) == "" {
				governancetest.Run(t, h)
				return
			}
			for _, h.Only = range []string{"Step", "View", "Admit", "Settle", "Policies", "Resolve", "Authority"} {
				governancetest.Run(t, h)
			}
		})
	}
}

// TestBouncerBarrier: an edit waits for the admissions of the whole fleet, though none of them has a
// session of its own.
func TestBouncerBarrier(t *testing.T) {
	b := pgtest.PgBouncer(t, pgtest.Shared(t).DSN())
	for _, mode := range bouncerModes(b) {
		t.Run(mode.String(), func(t *testing.T) {
			db := pgtest.New(t)
			o := open(t, pgtest.Connect(t, b.DSN(), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }), b.DSN(), db.Schema, &clock{})
			o.migrate(t)
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
