package governancepg_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgwire"
	"github.com/tallystick-go/tallystick/keys"
)

// TestAuditsAreCut: whoever verifies loses its connection at the k-th message, for every k, and whoever prunes
// for every seventh: in the middle of a statement, or with the answer to a commit on its way. Nothing is removed
// twice or counted twice, the books balance, and a repetition does the rest.
func TestAuditsAreCut(t *testing.T) {
	for name, do := range map[string]func(context.Context, *governance.Governor) error{
		"Verify": func(ctx context.Context, g *governance.Governor) error {
			report, err := g.Verify(ctx, governance.VerifyQuery{})
			return errors.Join(err, differs(report.Differences))
		},
		"Prune": func(ctx context.Context, g *governance.Governor) error {
			report, err := g.Prune(ctx, query())
			return errors.Join(err, differs(report.Differences))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &clock{still: true}
			c.us.Store(time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC).UnixMicro())
			w := newWorld(t, freshAt(t, c), keys.Limits{CostPerMonth: keys.Cost(1_000_000)}) // few accounts, however many days pass
			proxy, err := pgwire.Start(w.backend.dsn)
			require.NoError(t, err)
			t.Cleanup(proxy.Close)
			pool := pgtest.Connect(t, proxy.DSN(), func(c *pgxpool.Config) {
				c.MaxConns, c.ConnConfig.DefaultQueryExecMode = 1, pgx.QueryExecModeExec
			})
			g := governor(t, open(t, pool, proxy.DSN(), w.backend.schema, w.backend.clock), &governance.Options{StepTimeout: 20 * time.Second})

			var want governance.Pruned // of all rounds so far
			round := func(f pgwire.Fault) (met bool) {
				held := w.lived(t, 1)
				c.advance(9 * day)
				require.Eventually(t, func() bool { return pool.Ping(t.Context()) == nil }, patience, tick)
				happened := proxy.Arm(f)
				err := do(t.Context(), g)
				if err != nil {
					require.NotEqual(t, pgwire.Fault{}, f, "%v", err)
					select {
					case <-happened:
					case <-time.After(patience):
						t.Fatalf("%+v did not happen: %v", f, err)
					}
					met = true
					if !errors.Is(err, governance.ErrUnknownOutcome) {
						require.ErrorIs(t, err, governance.ErrUnavailable, "at %+v", f)
					}
				}
				select {
				case <-happened:
					met = true
				default:
				}
				w.balanced(t)
				report, err := w.gov.Prune(t.Context(), query())
				require.NoError(t, err, "after %+v", f)
				want = governance.Pruned{Permits: want.Permits + 2, Tokens: want.Tokens + 30, Cost: want.Cost + 3}
				require.Equal(t, want, report.Total, "after %+v", f)
				w.balanced(t)
				for _, p := range held {
					require.NoError(t, p.Cancel(t.Context())) // the next round removes it
				}
				want.Permits++
				return met
			}
			proxy.Arm(pgwire.Fault{})
			round(pgwire.Fault{})
			faults := pgwire.Everywhere(proxy.Messages(), pgwire.Cut, false)
			require.Greater(t, len(faults), 20)
			if name == "Prune" || testing.Short() { // pruning sends some five hundred messages
				faults = every(faults, 7)
			}
			var met int
			for _, f := range pgwire.Sample(faults) {
				if round(f) {
					met++
				}
			}
			require.NotZero(t, met)
			t.Logf("%d of %d faults were met", met, len(faults))
		})
	}
}

func differs(list []governance.Difference) error {
	if len(list) > 0 {
		return errors.New("the books differ")
	}
	return nil
}
