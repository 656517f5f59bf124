package fleet_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgserver"
)

// soak is how long the fleet is mistreated. TALLYSTICK_FLEET_SOAK=10m goes on for longer.
func soak(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("TALLYSTICK_FLEET_SOAK")
	if text == "" {
		return 5 * time.Second
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}

// watch fails the test as soon as the provider is to be paid more than the limit.
func (f *fleet) watch(limit *atomic.Int64) (stop func()) {
	ctx, cancel := context.WithCancel(f.Context())
	var wait sync.WaitGroup
	wait.Go(func() {
		for ctx.Err() == nil {
			if spent, most := f.spent.Load(), limit.Load(); spent > most {
				f.Errorf("the provider is to be paid %d, and the limit was never above %d", spent, most)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Millisecond):
			}
		}
	})
	return func() {
		cancel()
		wait.Wait()
	}
}

// Whatever happens to gateways, control planes, the database between them, their clocks and
// the way: the provider, which counts for itself, is never to be paid more than the limit, every
// microUSD of it is on the books, and the books balance.
func TestGatewaysNeverSpendMore(t *testing.T) {
	t.Parallel()
	server := pgtest.Own(t, "fsync=on")
	const ttl = 3 * time.Second
	f := newFleet(t, server.DSN(), "tallystick", 2, ttl, "a", "b")
	const least, most = 20, 60 // milliUSD
	var limit atomic.Int64
	limit.Store(least * 1000)
	f.policy(least, 2, "1s")
	seed := rand.Uint64() | 1
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	f.behind()
	list := []*gateway{f.gateway("a"), f.gateway("b")}
	f.setClock(list[0].clock, move{Ahead: 3 * time.Hour}) // one is ahead, and the other behind
	f.setClock(list[1].clock, move{Ahead: -40 * time.Minute})
	for _, g := range list {
		g.kill()
		g.boot().ready()
	}
	defer f.watch(&limit)()
	f.relay.mistreat(seed)
	var loads []*load
	for _, g := range list {
		loads = append(loads, f.load(g, 2, 5*time.Millisecond, says("load")))
	}
	did, held := map[string]int{}, fmt.Sprintf("held {{provider: hold=never tokens=%d}}", reply)
	outage := func() {
		did["outage"]++
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, server.Stop(ctx, pgserver.Immediate))
		time.Sleep(ttl + time.Duration(random.Int64N(int64(ttl/4)))) // longer than a grant lasts: the outage itself
		require.NoError(t, server.Start(ctx))
	}
	killed := func() { // perhaps with a call under way
		did["gateway killed"]++
		g := list[random.IntN(2)]
		before := f.calls.Load()
		go g.call(context.WithoutCancel(t.Context()), held)
		for end := time.Now().Add(time.Duration(random.Int64N(int64(100 * time.Millisecond)))); f.calls.Load() < before+5 && time.Now().Before(end); {
			time.Sleep(tick)
		}
		g.kill()
		g.boot()
	}
	steps := []func(){
		killed, killed,
		func() { did["plane killed"]++; f.restart(random.IntN(2), syscall.SIGKILL) },
		func() { did["plane stopped"]++; f.restart(random.IntN(2), syscall.SIGTERM) },
		func() { // in good order, as far as the relay lets its goodbye through
			did["gateway stopped"]++
			g := list[random.IntN(2)]
			require.NoError(t, g.cmd.Process.Signal(syscall.SIGTERM))
			_ = g.wait()
			g.boot()
		},
		func() {
			did["edited"]++
			to := least + random.Int64N(most-least)
			limit.Store(max(limit.Load(), to*1000))
			require.NoError(t, f.tryPolicy(to, 1+random.Int64N(3), "1s"))
		},
		outage,
	}
	order := random.Perm(len(steps))
	end := time.Now().Add(soak(t))
	for i := 0; i < len(steps) || time.Now().Before(end); i++ {
		steps[order[i%len(steps)]]()
		time.Sleep(time.Duration(random.Int64N(int64(400 * time.Millisecond))))
	}
	f.relay.mistreat(0)
	for _, l := range loads {
		l.stop()
		require.Empty(t, l.odd, "every 503 says when to come back")
		for of := range l.all() {
			require.Contains(t, []string{"0", served, missing, spent, "503 not_ready", "503 unavailable"}, of)
		}
	}
	for _, g := range list {
		g.ready()
		g.stop()
	}
	d, b := f.budget()
	sum, _ := f.out()
	t.Logf("%v; %d calls for %d of %d; on the books %+v; out %+v; answers %v %v", did, f.calls.Load(), f.spent.Load(), d.Limit, b, sum, loads[0], loads[1])
	require.Positive(t, f.calls.Load())
	for fate := range f.relay.fates {
		require.Positive(t, f.relay.fates[fate].Load(), "fate %d", fate)
	}
	require.Zero(t, sum.Outstanding, "who stopped in good order holds nothing")
	f.balanced(limit.Load())
}

// What policies say of a budget holds at every gateway from the next heartbeat on: raised,
// lowered below what was used, deleted, and put back as it was.
func TestEditsUnderLoad(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema, 2, time.Minute, "a", "b")
	f.policy(5, 1, "1s")
	list := f.gateways("a", "b")
	prompt := says("edits")
	loads := []*load{f.load(list[0], 2, 2*time.Millisecond, prompt), f.load(list[1], 2, 2*time.Millisecond, prompt)}
	all := func(of string, n int) {
		t.Helper()
		for _, l := range loads {
			l.more(of, n)
		}
	}
	all(spent, 3) // each hears that the budget is spent, not that it should come back
	before := f.calls.Load()
	require.LessOrEqual(t, f.spent.Load(), int64(5000))
	f.policy(15, 1, "1s")
	require.Eventually(t, func() bool { return f.calls.Load() > before+20 }, patience, tick)
	f.policy(5, 1, "1s")
	all(spent, 10)
	require.LessOrEqual(t, f.spent.Load(), int64(15_000))
	_, b := f.budget()
	require.LessOrEqual(t, f.spent.Load(), int64(b.Consumed+b.Granted))
	require.NoError(t, f.edit(nil)) // nothing is limited
	all(served, 50)
	free := f.spent.Load()
	require.Greater(t, free, int64(10_000))
	f.policy(5, 1, "1s") // the same account, as full as it was
	all(spent, 10)
	for _, l := range loads {
		l.stop()
	}
	for _, g := range list {
		g.stop()
	}
	_, b = f.budget()
	require.Zero(t, b.Granted)
	require.Zero(t, b.Uncertain)
	require.LessOrEqual(t, int64(b.Consumed), int64(15_000))
	require.Less(t, int64(b.Consumed), f.spent.Load(), "what nobody limited is in no account")
}

// The authority's day ends under load, at gateways whose own clocks are months away from its:
// each day has its limit, and no call is counted in both.
func TestMidnightUnderLoad(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema, 2, time.Minute, "a", "b")
	now := time.Now().UTC()
	midnight := time.Date(now.Year()+1, 1, 1, 0, 0, 0, 0, time.UTC)
	f.setClock(f.clock, move{Ahead: midnight.Add(-time.Hour).Sub(now)})
	const limit = 6000
	f.policy(limit/1000, 1, "1s")
	list := f.gateways("a", "b")
	prompt := says("midnight")
	loads := []*load{f.load(list[0], 2, 2*time.Millisecond, prompt), f.load(list[1], 2, 2*time.Millisecond, prompt)}
	for _, l := range loads {
		l.more(spent, 3)
	}
	before := f.spent.Load()
	require.LessOrEqual(t, before, int64(limit))
	require.Greater(t, 2*before, int64(limit), "the limit was worth something")
	from := time.Now().Add(300 * time.Millisecond)
	f.setClock(f.clock, move{Ahead: midnight.Add(-time.Hour).Sub(now)}, move{From: from, Ahead: midnight.Add(-200 * time.Millisecond).Sub(from)})
	require.Eventually(t, func() bool { return f.spent.Load() > before+limit/2 }, patience, tick)
	for _, l := range loads {
		l.more(spent, 3)
		l.stop()
	}
	for _, g := range list {
		g.stop()
	}
	d, b := f.budget()
	require.Equal(t, midnight.UnixMicro(), d.Account.Window.Start)
	require.Zero(t, b.Granted)
	require.Zero(t, b.Uncertain)
	require.LessOrEqual(t, int64(b.Consumed), int64(limit))
	require.Equal(t, f.spent.Load(), before+int64(b.Consumed), "each call is in one of the two days")
	f.verified()
}

// With demand 95 to 5 over two gateways and budget enough, the busy one serves its demand.
func TestTheBusyGatewayIsServed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema, 2, time.Minute, "hot", "cold")
	const limit, demand = 200_000, 600
	f.policy(limit/1000, 10, "1s")
	list := f.gateways("hot", "cold")
	hot, cold := list[0], list[1]
	asked, ok := map[*gateway]int{}, map[*gateway]int{}
	prompt := says("demand")
	var refused []*gateway
	for i := range demand {
		g := hot
		if i%20 == 0 {
			g = cold
		}
		asked[g]++
		if a := g.call(t.Context(), prompt); a.String() == served {
			ok[g]++
		} else {
			require.Equal(t, missing, a.String())
			refused = append(refused, g)
		}
		time.Sleep(time.Millisecond)
	}
	for _, g := range refused { // who was told to come back comes back, once
		if g.call(t.Context(), prompt).String() == served {
			ok[g]++
		}
	}
	t.Logf("served %d of %d hot, %d of %d cold, %d of them at the second try", ok[hot], asked[hot], ok[cold], asked[cold], len(refused))
	require.Equal(t, demand*95/100, asked[hot])
	require.GreaterOrEqual(t, ok[hot]*100, asked[hot]*95)
	hot.stop()
	cold.stop()
	sum, _ := f.out()
	require.Zero(t, sum)
	f.balanced(limit)
	_, b := f.budget()
	require.EqualValues(t, f.spent.Load(), b.Consumed)
}

// A stop in good order lets calls end, closes what is open and gives back what was not used; a
// rolling restart under load strands nothing and refunds nothing that was used.
func TestStopsInGoodOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema, 2, time.Minute, "a", "b")
	const limit = 200_000
	f.policy(limit/1000, 5, "1s")
	list := f.gateways("a", "b")
	for _, g := range list {
		g.served(says("warm"))
	}
	held := fmt.Sprintf("held {{provider: hold=late tokens=%d}}", reply)
	before := f.calls.Load()
	late := make(chan answer, 1)
	go func() { late <- list[0].call(context.WithoutCancel(t.Context()), held) }()
	require.Eventually(t, func() bool { return f.calls.Load() == before+1 }, patience, tick)
	l := f.load(list[1], 2, 0, says("load"))
	require.NoError(t, list[0].cmd.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool { // it has stopped to listen to clients
		resp, err := http.Get(list[0].url() + "/healthz")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err != nil
	}, patience, tick)
	f.provider.Release("late")
	require.Equal(t, served, (<-late).String(), "it was let end")
	require.NoError(t, list[0].wait(), list[0].said)
	_, nodes := f.out()
	for _, n := range nodes {
		if n.Name == "a" {
			require.True(t, n.Left)
			require.Empty(t, n.Boots, "nothing is out, nothing was burned")
		}
	}
	l.more(served, 20)
	f.restart(0, syscall.SIGTERM)
	l.more(served, 20)
	l.stop()
	list[1].stop()
	sum, _ := f.out()
	require.Zero(t, sum)
	_, b := f.budget()
	require.EqualValues(t, f.spent.Load(), b.Consumed, "to the last microUSD")
	require.Zero(t, b.Uncertain)
	f.balanced(limit)
}
