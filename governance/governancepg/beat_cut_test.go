package governancepg_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgwire"
	"github.com/tallystick-go/tallystick/quota"
)

// TestBeatIsCutAtEveryMessage: the authority loses its database at the k-th message of a heartbeat that closes one
// grant and asks for the next, for every k. Whatever the node was told, it repeats the heartbeat to another
// replica, and then has one grant, one refund and one receipt.
func TestBeatIsCutAtEveryMessage(t *testing.T) {
	c := &clock{still: true}
	c.us.Store(time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC).UnixMicro())
	direct := freshAt(t, c)
	none, err := direct.Policies.Load(t.Context())
	require.NoError(t, err)
	_, err = direct.Policies.Apply(t.Context(), policy.Apply{Expect: none.Generation, Documents: []policy.Document{{
		Name: "p", Subject: policy.Subject{Team: "team"}, Rules: []policy.Rule{{
			Name: "month", FailurePolicy: policy.FailClosed,
			Budget: &policy.Budget{LimitMilliUSD: 1_000_000, HardCap: true, Calendar: quota.Calendar{Period: quota.Month}},
		}},
	}}})
	require.NoError(t, err)
	proxy, err := pgwire.Start(direct.dsn)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	pool := pgtest.Connect(t, proxy.DSN(), func(c *pgxpool.Config) {
		c.MaxConns, c.ConnConfig.DefaultQueryExecMode = 1, pgx.QueryExecModeExec
	})
	options := &governance.AuthorityOptions{StepTimeout: 20 * time.Second}
	truth, err := governance.NewAuthority(direct, options)
	require.NoError(t, err)
	through, err := governance.NewAuthority(open(t, pool, proxy.DSN(), direct.schema, c), options)
	require.NoError(t, err)

	h := &escrow.Heartbeat{Node: "node-1", Boot: escrow.NewBootID(), BootNumber: 1, Sequence: 1}
	last, err := truth.Beat(t.Context(), h)
	require.NoError(t, err)
	account := last.Definitions[0].Account
	var consumed amount.MicroUSD
	round := func(f pgwire.Fault) (met bool) {
		h = &escrow.Heartbeat{Node: h.Node, Boot: h.Boot, BootNumber: 1, Sequence: h.Sequence + 1, Answered: h.Sequence, Mark: last.Mark}
		for _, g := range last.Grants {
			consumed += 3
			h.Reports = append(h.Reports, escrow.Report{Grant: g.ID, Consumed: 3, Uncertain: 0, Ending: escrow.Closed})
		}
		h.Requests = []escrow.Request{{ID: escrow.NewGrantID(time.UnixMicro(c.us.Load())), Account: account, Amount: 10, Least: 10}}
		require.Eventually(t, func() bool { return pool.Ping(t.Context()) == nil }, patience, tick)
		happened := proxy.Arm(f)
		told, err := through.Beat(t.Context(), h)
		if err != nil {
			require.NotEqual(t, pgwire.Fault{}, f, "%v", err)
			require.ErrorIs(t, err, escrow.ErrUnavailable, "at %+v", f)
			<-happened
		}
		select {
		case <-happened:
			met = true
		default:
		}
		answer, again := truth.Beat(t.Context(), h)
		require.NoError(t, again, "at %+v", f)
		require.NoError(t, answer.Verify(h), "at %+v", f)
		if err == nil {
			require.Equal(t, told.Grants, answer.Grants, "at %+v", f)
			require.Equal(t, told.Receipts, answer.Receipts, "at %+v", f)
		}
		require.Len(t, answer.Grants, 1, "at %+v: %+v", f, answer.Denials)
		require.Equal(t, h.Requests[0].ID, answer.Grants[0].ID)
		require.Equal(t, escrow.Budget{Consumed: consumed, Granted: 10}, answer.Budgets[0], "at %+v", f)
		last = answer
		return met
	}
	round(pgwire.Fault{})
	proxy.Arm(pgwire.Fault{})
	round(pgwire.Fault{})
	faults := pgwire.Everywhere(proxy.Messages(), pgwire.Cut, false)
	require.Greater(t, len(faults), 20)
	if testing.Short() {
		faults = every(faults, 7)
	}
	var met int
	for _, f := range pgwire.Sample(faults) {
		if round(f) {
			met++
		}
	}
	require.Greater(t, met, len(pgwire.Sample(faults))/2)
	v, err := governor(t, direct, nil).Verify(t.Context(), governance.VerifyQuery{Full: true})
	require.NoError(t, err)
	require.Empty(t, v.Differences)
}
