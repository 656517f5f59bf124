package governancepg_test

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancepg"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

func TestSmoke(t *testing.T) {
	ctx := context.Background()
	tdb := pgtest.New(t)
	db, err := governancepg.Open(tdb.Pool, &governancepg.Options{Schema: tdb.Schema})
	require.NoError(t, err)
	require.NoError(t, db.Migrate(ctx))
	require.NoError(t, db.Check(ctx))
	gov, err := governance.New(db, nil)
	require.NoError(t, err)
	_, err = db.Keys.CreateTeam(ctx, keys.CreateTeam{ID: "t1", Name: "t", Limits: keys.Limits{RequestsPerMinute: keys.Limit(10000), TokensPerMinute: keys.Limit(100000), TokensPerDay: keys.Limit(1000), Concurrency: keys.Limit(1000)}})
	require.NoError(t, err)
	created, err := db.Keys.CreateKey(ctx, keys.CreateKey{TeamID: "t1", Owner: "u", Name: "k", Limits: keys.Limits{RequestsPerMinute: keys.Limit(10000)}})
	require.NoError(t, err)
	p, err := db.Keys.Resolve(ctx, created.Token.Reveal())
	require.NoError(t, err)
	var ok atomic.Int64
	var permits sync.Map
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			permit, err := gov.Admit(ctx, governance.Request{Principal: &p, Model: "m", Bound: governance.Bound{Tokens: 100, Cost: 5}})
			if err == nil {
				ok.Add(1)
				permits.Store(permit.ID(), permit)
			} else if governance.StatusOf(err).Code != 429 {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 10, ok.Load())
	i := 0
	permits.Range(func(_, v any) bool {
		permit := v.(*governance.Permit)
		switch i++; i % 4 {
		case 0:
			require.NoError(t, permit.Settle(ctx, governance.Used(50, 1)))
		case 1:
			require.NoError(t, permit.Cancel(ctx))
		case 2:
			require.NoError(t, permit.Settle(ctx, governance.Unknown()))
		}
		return true
	})
	holds, err := gov.Holds(ctx, governance.HoldQuery{})
	require.NoError(t, err)
	require.Len(t, holds, 5)
	v, err := gov.Verify(ctx)
	require.NoError(t, err)
	require.Empty(t, v.Differences)
	require.EqualValues(t, 1, v.Accounts)
	for _, h := range holds {
		_, err := gov.Resolve(ctx, governance.Evidence{ID: h.ID, Outcome: governance.Used(7, 1), Actor: "op", Reason: "looked"})
		require.NoError(t, err)
	}
	v, err = gov.Verify(ctx)
	require.NoError(t, err)
	require.Empty(t, v.Differences)
	require.NoError(t, gov.Close(ctx))
}
