package governancepg_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
)

const day = 24 * time.Hour

// stillWorld is a world on a clock that a test moves.
func stillWorld(t *testing.T) (*world, *clock) {
	t.Helper()
	c := &clock{still: true}
	c.us.Store(time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC).UnixMicro())
	return newWorld(t, freshAt(t, c), keys.Limits{TokensPerDay: keys.Limit(1_000_000), CostPerMonth: keys.Cost(1_000_000)}), c
}

func (c *clock) advance(d time.Duration) { c.us.Add(d.Microseconds()) }

// lived admits permits of every kind: n of each.
func (w *world) lived(t *testing.T, n int) (held []*governance.Permit) {
	t.Helper()
	for range n {
		for _, o := range []governance.Outcome{governance.Used(30, 3), governance.NotSent(), governance.Unknown(), governance.Used(300, 30)} {
			p := w.admit(t, 100)
			require.NoError(t, p.Settle(t.Context(), o))
		}
		held = append(held, w.admit(t, 100))
	}
	return held
}

func query() governance.PruneQuery {
	return governance.PruneQuery{OlderThan: 4 * day, Actor: "ops", Reason: "test"}
}

func (w *world) balanced(t *testing.T) {
	t.Helper()
	for _, full := range []bool{false, true} {
		v, err := w.gov.Verify(t.Context(), governance.VerifyQuery{Full: full})
		require.NoError(t, err)
		require.Empty(t, v.Differences, "full: %v", full)
	}
}

func count(t *testing.T, o *opened, from string) (n int64) {
	t.Helper()
	require.NoError(t, conn(t, o).QueryRow(t.Context(), fmt.Sprintf(`select count(*) from %q.%s`, o.schema, from)).Scan(&n))
	return n
}

// TestPartitionsAreEmptied: what is forgotten leaves no rows behind, and what is kept
// lies beside the ring, with its terms.
func TestPartitionsAreEmptied(t *testing.T) {
	w, c := stillWorld(t)
	held := w.lived(t, 3)
	c.advance(9 * day)
	young := w.lived(t, 1)
	report, err := w.gov.Prune(t.Context(), query())
	require.NoError(t, err)
	require.Equal(t, governance.Pruned{Permits: 6, Tokens: 90, Cost: 9}, report.Removed)
	require.Equal(t, int64(9), report.Kept)
	require.Equal(t, int64(9), count(t, w.backend, "governance_kept"))
	require.Equal(t, int64(9), count(t, w.backend, "governance_kept_batches"))
	require.Equal(t, int64(5), count(t, w.backend, "governance_permits"))
	require.Equal(t, int64(5), count(t, w.backend, "governance_batches"))
	w.balanced(t)
	for _, p := range append(held, young...) {
		require.NoError(t, p.Settle(t.Context(), governance.Used(1, 1)))
	}
	w.balanced(t)
	report, err = w.gov.Prune(t.Context(), query())
	require.NoError(t, err)
	require.Equal(t, governance.Pruned{Permits: 3, Tokens: 3, Cost: 3}, report.Removed)
	require.Equal(t, int64(6), count(t, w.backend, "governance_kept_batches")) // uncertain ones, and overruns
}

// TestRingWithYoungerPermits: where more is remembered than the ring is long, the
// partitions always hold younger permits too. They are cleared row by row.
func TestRingWithYoungerPermits(t *testing.T) {
	w, c := stillWorld(t)
	held := w.lived(t, 3)
	c.advance(32 * day) // the same partition
	w.lived(t, 2)
	c.advance(time.Hour)
	q := query()
	q.OlderThan = 10 * day
	report, err := w.gov.Prune(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, governance.Pruned{Permits: 6, Tokens: 90, Cost: 9}, report.Removed)
	require.Equal(t, int64(9), report.Kept)
	require.Zero(t, count(t, w.backend, "governance_kept")) // they stay where they are
	require.Equal(t, int64(19), count(t, w.backend, "governance_permits"))
	require.Equal(t, int64(19), count(t, w.backend, "governance_batches"))
	w.balanced(t)
	for _, p := range held {
		require.NoError(t, p.Settle(t.Context(), governance.Used(1, 1)))
	}
	w.balanced(t)
}

// TestUsedPartition: a reader who keeps a partition makes emptying it give up, with an
// answer that says so; nothing is half done, the others are emptied, and a repetition
// does the rest.
func TestUsedPartition(t *testing.T) {
	w, c := stillWorld(t)
	w.lived(t, 2)
	first := c.us.Load()
	c.advance(2 * day)
	w.lived(t, 2)
	c.advance(9 * day)
	reader, err := conn(t, w.backend).Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = reader.Rollback(context.Background()) }()
	slot := first / 1000 / (2 * day).Milliseconds() % 16
	_, err = reader.Exec(t.Context(), fmt.Sprintf(`select 1 from %q.governance_permits_%02d`, w.backend.schema, slot))
	require.NoError(t, err)
	report, err := w.gov.Prune(t.Context(), query())
	require.ErrorIs(t, err, governance.ErrUnavailable)
	require.ErrorIs(t, err, governance.ErrLockTimeout)
	require.Equal(t, 503, governance.StatusOf(err).Code)
	require.Equal(t, int64(4), report.Removed.Permits)
	w.balanced(t)
	w.admit(t, 1)
	require.NoError(t, reader.Rollback(t.Context()))
	report, err = w.gov.Prune(t.Context(), query())
	require.NoError(t, err)
	require.Equal(t, int64(4), report.Removed.Permits)
	require.Equal(t, int64(8), report.Total.Permits)
	w.balanced(t)
}

// assassin ends a pool's connections for good before the n-th thing that is sent.
type assassin struct{ left atomic.Int64 }

func (a *assassin) strike(conn *pgx.Conn) {
	if a.left.Add(-1) < 0 {
		_ = conn.PgConn().Conn().Close()
	}
}

func (a *assassin) TraceQueryStart(ctx context.Context, c *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	a.strike(c)
	return ctx
}
func (a *assassin) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (a *assassin) TraceBatchStart(ctx context.Context, c *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	a.strike(c)
	return ctx
}
func (a *assassin) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (a *assassin) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// TestKilledWhilePruning: whoever prunes is killed between any two statements. Another
// one's repetition finishes; the books balance in between and afterwards; nothing is
// counted twice.
func TestKilledWhilePruning(t *testing.T) {
	w, c := stillWorld(t)
	held := w.lived(t, 2)
	c.advance(9 * day)
	killed := 0
	for n := int64(0); ; n++ {
		a := &assassin{}
		a.left.Store(1 << 40)
		o := another(t, w.backend, func(c *pgxpool.Config) { c.ConnConfig.Tracer, c.MaxConns = a, 2 })
		g := governor(t, o, &governance.Options{StepTimeout: 2 * time.Second})
		a.left.Store(n)
		_, err := g.Prune(t.Context(), query())
		a.left.Store(1 << 40)
		if err == nil {
			break
		}
		killed++
		w.balanced(t)
		holds, err := w.gov.Holds(t.Context(), governance.HoldQuery{})
		require.NoError(t, err)
		require.Len(t, holds, 4, "after statement %d", n)
	}
	require.Greater(t, killed, 20)
	report, err := w.gov.Prune(t.Context(), query())
	require.NoError(t, err)
	require.Equal(t, governance.Pruned{Permits: 4, Tokens: 60, Cost: 6}, report.Total)
	require.Equal(t, int64(6), report.Kept)
	for _, p := range held {
		require.NoError(t, p.Settle(t.Context(), governance.Used(1, 1)))
	}
	w.balanced(t)
}

// TestPruneUnderLoad: two gateways with many connections admit and settle, old permits
// among them, while one prunes, one verifies and one lists. Nobody sees anything that
// is not so.
func TestPruneUnderLoad(t *testing.T) {
	w, c := stillWorld(t)
	var old []*governance.Permit
	for range 6 {
		old = append(old, w.lived(t, 5)...)
		c.advance(2 * day)
	}
	c.advance(6 * day)
	other := governor(t, another(t, w.backend, func(c *pgxpool.Config) { c.MaxConns = 16 }), &governance.Options{Lanes: 4})
	var wg, side sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for i := range 12 {
		g := []*governance.Governor{w.gov, other}[i%2]
		wg.Go(func() {
			for n := i; n < len(old); n += 12 {
				if err := old[n].Settle(t.Context(), []governance.Outcome{governance.Used(5, 1), governance.NotSent(), governance.Unknown()}[n%3]); err != nil {
					t.Errorf("settle: %v", err)
				}
			}
			for range 15 {
				p, err := g.Admit(t.Context(), w.request(10))
				if err != nil {
					t.Errorf("admit: %v", err)
					continue
				}
				if err := p.Settle(t.Context(), governance.Used(5, 1)); err != nil {
					t.Errorf("settle: %v", err)
				}
			}
		})
	}
	side.Go(func() {
		for ctx.Err() == nil {
			v, err := other.Verify(t.Context(), governance.VerifyQuery{Full: true})
			if err != nil || len(v.Differences) > 0 {
				t.Errorf("verified: %+v, %v", v, err)
			}
		}
	})
	side.Go(func() {
		for ctx.Err() == nil {
			holds, err := other.Holds(t.Context(), governance.HoldQuery{Limit: 1000})
			if err != nil || len(holds) < 30+10 { // the uncertain ones from the start, and those that become so or stay open
				t.Errorf("%d holds, %v", len(holds), err)
			}
		}
	})
	for range 5 {
		prune(t, w.gov)
	}
	wg.Wait()
	stop()
	side.Wait()
	prune(t, w.gov)
	w.balanced(t)
	report, err := w.gov.Prune(t.Context(), query())
	require.NoError(t, err)
	require.Equal(t, int64(60+20), report.Total.Permits)
	require.Equal(t, int64(60+10), report.Kept)
}

// prune repeats while others are in the way.
func prune(t *testing.T, g *governance.Governor) {
	t.Helper()
	for {
		report, err := g.Prune(t.Context(), query())
		require.Empty(t, report.Differences)
		if errors.Is(err, governance.ErrUnavailable) && t.Context().Err() == nil {
			continue
		}
		require.NoError(t, err)
		return
	}
}

// TestOlderSchemaIsBroughtForward: what the schema before had written is read, verified
// and forgotten like anything else.
func TestOlderSchemaIsBroughtForward(t *testing.T) {
	db := pgtest.New(t)
	c := &clock{still: true}
	c.us.Store(time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC).UnixMicro())
	o := open(t, db.Pool, db.DSN, db.Schema, c)
	o.migrate(t)
	w := newWorld(t, o, keys.Limits{TokensPerDay: keys.Limit(1_000_000)})
	w.lived(t, 2)
	// As the schema was: nothing of the second migration is there, nor was it used.
	files, err := o.Migrations()
	require.NoError(t, err)
	down, err := fs.ReadFile(files, "governancepg/002_checkpoints.down.sql")
	require.NoError(t, err)
	_, err = db.Pool.Exec(t.Context(), string(down))
	require.NoError(t, err)
	require.Error(t, o.Check(t.Context()))
	o.migrate(t)
	require.NoError(t, o.Check(t.Context()))
	w.balanced(t)
	c.advance(9 * day)
	report, err := w.gov.Prune(t.Context(), query())
	require.NoError(t, err)
	require.Equal(t, int64(4), report.Removed.Permits)
	w.balanced(t)
}
