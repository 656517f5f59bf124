package fleet_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/internal/pgtest"
)

// A rolling restart of ten nodes strands nothing: who stops in good order gives back what
// it did not use, and all of the money is there for the next ones.
func TestRollingRestartStrandsNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var names []string
	for i := range 10 {
		names = append(names, fmt.Sprintf("n%d", i))
	}
	f := newFleet(t, db.DSN, db.Schema, 2, time.Minute, names...)
	const limit = 1_000_000
	f.policy(limit/1000, 5, "1s")
	nodes := make([]*node, len(names))
	for i, name := range names {
		nodes[i] = f.node(name)
	}
	var wait sync.WaitGroup
	for i, n := range nodes {
		n.ready()
		wait.Go(func() {
			require.Eventually(t, func() bool { return n.spend(300, 100) }, patience, tick)
			if i == 0 {
				f.restart(0, syscall.SIGTERM) // the control planes roll too
			}
			n.leave()
			n.boot()
			n.ready()
			require.Eventually(t, func() bool { return n.spend(300, 100) }, patience, tick)
			n.leave()
		})
	}
	wait.Wait()
	sum, list := f.out()
	require.Zero(t, sum, "nothing is out, stranded, burned or on its way")
	require.Len(t, list, len(names))
	for _, n := range list {
		require.True(t, n.Left)
		require.EqualValues(t, 2, n.BootNumber)
	}
	_, b := f.budget()
	require.EqualValues(t, f.spent.Load(), b.Consumed)
	require.Zero(t, b.Granted)
	require.Zero(t, b.Uncertain)
	f.balanced(limit)
}

// With demand 95 to 5 and budget enough, the busy node is served: half of the budget for each
// node would not do. What the other one holds for nothing is told.
func TestGrantsFollowDemand(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema, 2, time.Minute, "hot", "cold")
	const limit, demand = 1_000_000, 2000
	f.policy(limit/1000, 50, "1s")
	hot, cold := f.node("hot").ready(), f.node("cold").ready()
	served, asked := map[*node]int{}, map[*node]int{}
	var refused []*node
	for i := range demand {
		n := hot
		if i%20 == 0 {
			n = cold
		}
		asked[n]++
		if n.spend(400, 400) {
			served[n]++
		} else {
			refused = append(refused, n)
		}
		time.Sleep(time.Millisecond)
	}
	for _, n := range refused { // who was told to come back comes back, once
		if n.spend(400, 400) {
			served[n]++
		}
		time.Sleep(time.Millisecond)
	}
	t.Logf("served %d of %d hot, %d of %d cold, %d of them at the second try", served[hot], asked[hot], served[cold], asked[cold], len(refused))
	require.GreaterOrEqual(t, served[hot]*100, asked[hot]*95, "the hot node serves its demand")
	_, list := f.out()
	for _, n := range list {
		require.NotEmpty(t, n.Boots, "what %s holds is told", n.Name)
		require.Positive(t, n.Outstanding)
	}
	hot.leave()
	cold.leave()
	f.balanced(limit)
}

// Whatever happens on the way, and to whom: all nodes together spend no more than the limit.
func TestLimitHoldsThroughEverything(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema, 2, time.Second, "a", "b", "c", "d")
	const limit = 60_000
	f.policy(limit/1000, 2, "1s")
	seed := rand.Uint64() | 1
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	f.relay.mistreat(seed)
	nodes := []*node{f.node("a"), f.node("b"), f.node("c")}

	end := time.Now().Add(3 * time.Second)
	var wait sync.WaitGroup
	for i, n := range nodes {
		own := rand.New(rand.NewPCG(seed, uint64(i)+1))
		wait.Go(func() {
			for time.Now().Before(end) {
				for range own.IntN(120) {
					n.spend(200, 40)
					time.Sleep(time.Millisecond)
				}
				switch own.IntN(4) {
				case 0:
					n.crash()
					n.boot()
				case 1: // no answer may ever come through: it stops without goodbye then
					n.crash()
					n.boot()
					n.spend(200, 40)
				}
			}
		})
	}
	for i := 0; time.Now().Before(end); i++ {
		by := syscall.SIGKILL
		if random.IntN(3) == 0 {
			by = syscall.SIGTERM
		}
		f.restart(i%2, by)
		f.policy(limit/1000, 1+int64(random.IntN(3)), "1s") // an edit of something else
		time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
	}
	wait.Wait()
	f.relay.mistreat(0)
	for _, n := range nodes {
		n.leave()
	}
	require.Positive(t, f.spent.Load())
	for fate := range f.relay.fates {
		require.Positive(t, f.relay.fates[fate].Load(), "fate %d", fate)
	}
	d, b := f.budget()
	sum, _ := f.out()
	require.EqualValues(t, b.Granted, sum.Outstanding+sum.Stranded+sum.Pending)
	require.GreaterOrEqual(t, int64(b.Uncertain), sum.Burned)
	t.Logf("spent %d of %d; on the books %+v; out %+v", f.spent.Load(), d.Limit, b, sum)
	f.balanced(limit)

	// A node that crashes again and again does not eat the budget for good: what it lost is
	// found, and comes back.
	require.Positive(t, sum.Burned)
	for _, h := range f.holds() {
		require.True(t, h.Grant.Burned)
		used := object{"used": report.Amount{CostMicroUSD: h.Grant.Consumed}, "actor": "ops", "reason": "the provider's log has no more"}
		f.planes[1].do(http.MethodPost, "holds/"+h.ID+"/resolve", used, nil)
	}
	require.Empty(t, f.holds())
	sum, _ = f.out()
	require.Zero(t, sum)
	_, b = f.budget()
	require.Zero(t, b.Uncertain)
	n := f.node("d").ready()
	require.Eventually(t, func() bool { return n.spend(200, 40) }, patience, tick)
	n.leave()
	f.balanced(limit)
}

// The database is away for longer than a grant lasts: what a node holds is good until its
// deadline, nothing is spent after it, and the node comes back by itself.
func TestOutageLongerThanAGrant(t *testing.T) {
	t.Parallel()
	server := pgtest.Own(t)
	f := newFleet(t, server.DSN(), "tallystick", 1, 2*time.Second, "a")
	const limit = 100_000
	f.policy(limit/1000, 20, "1s")
	n := f.node("a").ready()
	require.Eventually(t, func() bool { return n.spend(200, 40) }, patience, tick)
	require.NoError(t, n.syncer.Sync(t.Context()), "what it holds is fresh")
	ctx := context.WithoutCancel(t.Context())
	require.NoError(t, server.Kill(ctx))
	require.True(t, n.spend(200, 40), "valid authority goes on")
	before := f.spent.Load()
	require.Eventually(t, func() bool { return !n.spend(1, 1) }, patience, 50*time.Millisecond, "the deadline ends even the cheapest call")
	require.Greater(t, f.spent.Load(), before)
	after := f.spent.Load()
	require.False(t, n.spend(1, 1))
	require.True(t, n.syncer.Ready(), "it is the credit that is missing, not the node")
	require.NoError(t, server.Start(ctx))
	require.Eventually(t, func() bool { return n.spend(200, 40) }, patience, tick)
	require.Equal(t, after+40, f.spent.Load())
	n.leave()
	sum, _ := f.out()
	require.Zero(t, sum)
	f.balanced(limit)
}
