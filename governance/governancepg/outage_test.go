package governancepg_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgserver"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgwire"
)

// scene is a server of our own and a proxy in front of it.
type scene struct {
	server *pgserver.Server
	proxy  *pgwire.Proxy
}

func (s *scene) ask(ctx context.Context, t *testing.T, statements ...string) {
	t.Helper()
	c, err := pgx.Connect(ctx, s.server.DSN())
	require.NoError(t, err)
	defer func() { _ = c.Close(ctx) }()
	for _, sql := range statements {
		_, err := c.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err, sql)
	}
}

// TestOutages: whatever happens to the database under load, callers are told within their bounds that it is
// not there; when it is back the same gateways go on, nothing that was said is lost, and the books balance.
func TestOutages(t *testing.T) {
	s := &scene{server: pgtest.Own(t, "fsync=on")}
	var err error
	s.proxy, err = pgwire.Start(s.server.DSN())
	require.NoError(t, err)
	t.Cleanup(s.proxy.Close)
	for i, o := range []struct {
		name      string
		readable  bool // keys can be read meanwhile
		off, back func(ctx context.Context, t *testing.T)
	}{
		{"Killed", false, func(ctx context.Context, t *testing.T) { require.NoError(t, s.server.Kill(ctx)) },
			func(ctx context.Context, t *testing.T) { require.NoError(t, s.server.Start(ctx)) }},
		{"StoppedImmediately", false, func(ctx context.Context, t *testing.T) { require.NoError(t, s.server.Stop(ctx, pgserver.Immediate)) },
			func(ctx context.Context, t *testing.T) { require.NoError(t, s.server.Start(ctx)) }},
		{"Frozen", false, func(ctx context.Context, t *testing.T) { require.NoError(t, s.server.Pause(ctx)) },
			func(ctx context.Context, t *testing.T) { require.NoError(t, s.server.Resume(ctx)) }},
		{"BlackHole", false, func(context.Context, *testing.T) { s.proxy.Sever(pgwire.Hole) },
			func(context.Context, *testing.T) { s.proxy.Heal() }},
		// A standby answers what is read, with what was true some time ago.
		{"Standby", true, func(ctx context.Context, t *testing.T) { require.NoError(t, s.server.Demote(ctx)) },
			func(ctx context.Context, t *testing.T) { s.ask(ctx, t, "select pg_promote()") }},
		{"CommitHangs", true, func(ctx context.Context, t *testing.T) {
			s.ask(ctx, t, "alter system set synchronous_standby_names = 'nowhere'", "select pg_reload_conf()")
		}, func(ctx context.Context, t *testing.T) {
			s.ask(ctx, t, "alter system reset synchronous_standby_names", "select pg_reload_conf()")
		}},
		// Who would have the hanging COMMIT cancelled is not heard.
		{"CommitHangsDeaf", true, func(ctx context.Context, t *testing.T) {
			s.proxy.Deafen()
			s.ask(ctx, t, "alter system set synchronous_standby_names = 'nowhere'", "select pg_reload_conf()")
		}, func(ctx context.Context, t *testing.T) {
			s.ask(ctx, t, "alter system reset synchronous_standby_names", "select pg_reload_conf()")
			s.proxy.Heal()
		}},
	} {
		t.Run(o.name, func(t *testing.T) {
			leaks(t)
			ctx := t.Context()
			schema := fmt.Sprintf("outage_%d", i)
			// One gateway goes through the proxy, where the proxy is what breaks both do.
			dsns := []string{s.proxy.DSN(), s.server.DSN()}
			if o.name == "BlackHole" {
				dsns[1] = dsns[0]
			}
			l := newLoad(t, dsns[0], newPlant(t, dsns[0], schema), newPlant(t, dsns[1], schema))
			o.off(ctx, t)
			l.outage(t)
			if !o.readable {
				l.unreadable(t)
			}
			o.back(ctx, t)
			l.progress(t)
			l.end(t)
		})
	}
}
