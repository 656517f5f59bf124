package keyspg_test

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgwire"
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
		if i > 0 && (testing.Short() || os.Getenv(pgwire.EnvEach) != "") {
			break // TestStoreModes tries the others without a pooler
		}
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			keystest.Run(t, harnessBehind(b.DSN(), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }))
		})
	}
}
