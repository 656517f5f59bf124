package governancepg_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
)

// twoHosts is a DSN of both servers that leads to the one which can be written to.
func twoHosts(t *testing.T, a, b string) string {
	t.Helper()
	first, err := url.Parse(a)
	require.NoError(t, err)
	second, err := url.Parse(b)
	require.NoError(t, err)
	first.Host += "," + second.Host
	q := first.Query()
	q.Set("target_session_attrs", "read-write")
	first.RawQuery = q.Encode()
	return first.String()
}

// TestFailover: the primary dies under load and its synchronous standby is promoted. The same gateways go
// on there, with everything that they had acknowledged.
func TestFailover(t *testing.T) {
	leaks(t)
	primary := pgtest.Own(t, "fsync=on")
	standby := pgtest.Standby(t, primary)
	ctx := t.Context()
	ask := func(dsn, sql string, into ...any) error {
		c, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close(context.Background()) }()
		if len(into) == 0 {
			_, err = c.Exec(ctx, sql)
			return err
		}
		return c.QueryRow(ctx, sql).Scan(into...)
	}
	require.NoError(t, ask(primary.DSN(), "alter system set synchronous_standby_names = 'standby'"))
	require.NoError(t, ask(primary.DSN(), "select pg_reload_conf()"))
	require.Eventually(t, func() bool {
		var n int
		return ask(primary.DSN(), "select count(*) from pg_stat_replication where sync_state = 'sync'", &n) == nil && n == 1
	}, patience, tick)

	both := twoHosts(t, primary.DSN(), standby.DSN())
	l := newLoad(t, both, newPlant(t, both, "tallystick"), newPlant(t, both, "tallystick"))
	require.NoError(t, primary.Kill(ctx))
	l.outage(t) // the standby is there, and is not written to
	require.NoError(t, ask(standby.DSN(), "select pg_promote()"))
	l.progress(t)
	l.end(t)
	var behind bool
	pool := pgtest.Connect(t, both, func(c *pgxpool.Config) { c.MaxConns = 1 })
	require.NoError(t, pool.QueryRow(ctx, "select pg_is_in_recovery()").Scan(&behind))
	require.False(t, behind)
}
