package keyspg_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys/keystest"
)

// TestBouncer runs the suite through PgBouncer in transaction mode, in every way to talk that it can take.
func TestBouncer(t *testing.T) {
	b := pgtest.PgBouncer(t, pgtest.Shared(t).DSN())
	modes := []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe}
	if b.Prepares() {
		modes = append(modes, pgx.QueryExecModeCacheStatement)
	}
	for i, mode := range modes {
		if testing.Short() && i > 0 {
			break // one mode is enough for a short run
		}
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			keystest.Run(t, harnessBehind(b.DSN(), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }))
		})
	}
}
