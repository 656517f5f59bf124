package policypg_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/governance/policy/policypg"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgwire"
)

// TestCutAtEveryMessage: the connection ends at the k-th message of an edit, for every k. What the error says of
// it is true, and the edit, repeated as it was until it returns nil, is made once.
func TestCutAtEveryMessage(t *testing.T) {
	// All kinds of edit go one way. This one writes documents, takes one away and leaves one.
	edit := func(ctx context.Context, s *policypg.Store, expect policy.Generation) (policy.Snapshot, error) {
		return s.Replace(ctx, policy.Replace{Documents: []policy.Document{document("a", 1), document("b", 1), document("c", 1)}, Expect: expect})
	}
	ctx := t.Context()
	direct, db := fresh(t)
	proxy, err := pgwire.Start(db.DSN)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	pool := pgtest.Connect(t, proxy.DSN(), func(c *pgxpool.Config) {
		c.MaxConns, c.ConnConfig.DefaultQueryExecMode = 1, pgx.QueryExecModeExec
	})
	log, events := recording(t, db.Pool, db.Schema) // whose hints go around the proxy
	through, err := policypg.New(pool, &policypg.Options{Schema: db.Schema, Events: events})
	require.NoError(t, err)

	// broken makes the edit with a fault in it, and returns what was before.
	broken := func(f pgwire.Fault) (was policy.Snapshot, err error) {
		now, err := direct.Load(ctx)
		require.NoError(t, err)
		was, err = direct.Replace(ctx, policy.Replace{Documents: []policy.Document{document("a", 1), document("b", 2), document("z", 1)}, Expect: now.Generation})
		require.NoError(t, err)
		require.Eventually(t, func() bool { return pool.Ping(ctx) == nil }, 30*time.Second, time.Millisecond)
		proxy.Arm(f)
		_, err = edit(ctx, through, was.Generation)
		return was, err
	}
	_, err = broken(pgwire.Fault{})
	require.NoError(t, err)
	faults := pgwire.Everywhere(proxy.Messages(), pgwire.Cut, false)
	require.Greater(t, len(faults), 20)
	for i, f := range pgwire.Sample(faults) {
		if testing.Short() && i%5 > 0 {
			continue
		}
		told := len(toldBy(t, log))
		was, err := broken(f)
		now, lerr := direct.Mark(ctx)
		require.NoError(t, lerr)
		require.EqualValues(t, 3*(now.Revision-was.Revision), len(toldBy(t, log))-told, "what is in force was told, and what is not was not: %+v", f)
		switch made := now.Revision - was.Revision; {
		case err == nil:
			require.EqualValues(t, 1, made, "%+v", f)
		case errors.Is(err, policy.ErrUnavailable):
			require.Zero(t, made, "at %+v: %v", f, err)
		default:
			require.ErrorIs(t, err, policy.ErrUnconfirmed, "%+v", f)
		}
		require.Eventually(t, func() bool { _, err = edit(ctx, through, was.Generation); return err == nil }, 30*time.Second, time.Millisecond)
		now, err = direct.Mark(ctx)
		require.NoError(t, err)
		require.Equal(t, was.Revision+1, now.Revision, "%+v", f)
		require.Equal(t, told+3, len(toldBy(t, log)), "once, whatever was repeated: %+v", f)
	}
}
