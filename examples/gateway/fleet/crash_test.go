package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgserver"
	"github.com/tallystick-go/tallystick/keys"
)

// load is callers who go on until they are stopped.
type load struct {
	f    *fleet
	mu   sync.Mutex
	seen map[int]int // answers by status; 0: none
	odd  []string    // refusals of 503 that do not say when to come back
	stop func()
}

// load starts so many callers at each gateway. Their prompts are one.
func (f *fleet) load(callers int, token, prompt string) *load {
	l := &load{f: f, seen: map[int]int{}}
	ctx, cancel := context.WithCancel(f.Context())
	var wait sync.WaitGroup
	for _, g := range f.gateways {
		for range callers {
			wait.Go(func() {
				for ctx.Err() == nil {
					a := g.call(f.Context(), token, prompt)
					l.mu.Lock()
					l.seen[a.status]++
					if a.status == http.StatusServiceUnavailable && a.retry != "1" {
						l.odd = append(l.odd, fmt.Sprint(a.err, " Retry-After ", a.retry))
					}
					l.mu.Unlock()
					if a.status == 0 { // that gateway is gone
						pause(ctx, 10*time.Millisecond)
					}
				}
			})
		}
	}
	l.stop = sync.OnceFunc(func() {
		cancel()
		wait.Wait()
	})
	f.Cleanup(l.stop)
	return l
}

// pause keeps a caller from spinning.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (l *load) count(status int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[status]
}

// more waits for so many further answers of one status.
func (l *load) more(status, n int) {
	l.f.Helper()
	before := l.count(status)
	require.Eventually(l.f, func() bool { return l.count(status) >= before+n }, patience, tick, "statuses so far: %v", l.seen)
}

// holds lists what is held, page by page.
func (g *gateway) holds(query string) []report.Hold {
	g.f.Helper()
	var all []report.Hold
	for after := ""; ; {
		var page report.HoldPage
		path := "holds?limit=100" + query
		if after != "" {
			path += "&after=" + after
		}
		g.do(http.MethodGet, path, nil, &page)
		all = append(all, page.Holds...)
		if after = page.Next; after == "" {
			return all
		}
	}
}

// TestKilledUnderLoad kills one gateway of three. Its open calls stay held and listed,
// to the last microUSD; the others do not notice.
func TestKilledUnderLoad(t *testing.T) {
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	f.start(3)
	const limit = 5_000_000
	token := f.gateways[0].key("app", keys.Limits{CostPerDay: keys.Cost(limit), TokensPerDay: keys.Limit(10_000_000), RequestsPerMinute: keys.Limit(1_000_000), Concurrency: keys.Limit(50)})
	victim, survivors := f.gateways[2], f.gateways[:2]

	const held = 4
	hold := "{{provider: hold=never}}"
	for range held {
		go victim.call(context.WithoutCancel(t.Context()), token, hold)
	}
	require.Eventually(t, func() bool { return f.reached(hold) == held }, patience, tick)
	l := f.load(3, token, says("load"))
	l.more(http.StatusOK, 60)
	require.NoError(t, victim.Process.Signal(syscall.SIGKILL))
	require.Error(t, victim.wait())
	l.more(http.StatusOK, 60)
	l.stop()
	require.Zero(t, l.count(http.StatusServiceUnavailable), "the others have not noticed")

	g := survivors[0]
	before := l.count(http.StatusOK)
	require.Positive(t, before)
	var open []report.Hold
	require.Eventually(t, func() bool { // what the survivors had under way has ended
		open = g.holds("&open=true")
		return len(open) >= held && len(open) <= held+3
	}, patience, tick)
	var tokens, cost int64
	for _, h := range open {
		require.Equal(t, "open", h.State)
		tokens, cost = tokens+h.Bound.Tokens, cost+h.Bound.CostMicroUSD
	}
	for _, s := range survivors {
		u := s.usage(token)
		money := constraint(t, u, "cost_per_day")
		require.Equal(t, cost, money.Reserved, "exactly what is listed")
		require.Zero(t, money.Uncertain)
		require.Equal(t, tokens, constraint(t, u, "tokens_per_day").Reserved)
		require.GreaterOrEqual(t, constraint(t, u, "tokens_per_day").Consumed, int64(before), "what the dead one had settled is there")
	}
	f.gateways = survivors
	f.balanced()

	for _, h := range open {
		g.do(http.MethodPost, "holds/"+h.ID+"/resolve", object{"used": report.Amount{Tokens: 10, CostMicroUSD: 20}, "actor": "ops", "reason": "read the provider's log"}, nil)
	}
	require.Empty(t, survivors[1].holds(""))
	var notes report.NotePage
	survivors[1].do(http.MethodGet, "notes", nil, &notes)
	notes.Notes = slices.DeleteFunc(notes.Notes, func(n report.Note) bool { return n.Action == "verify" })
	require.Len(t, notes.Notes, len(open), "each is recorded")
	for _, n := range notes.Notes {
		require.Equal(t, [3]string{"ops", "resolve", "read the provider's log"}, [3]string{n.Actor, n.Action, n.Reason})
	}
	require.Zero(t, constraint(t, g.usage(token), "cost_per_day").Reserved)
	f.balanced()
}

// TestPostgresDiesUnderLoad takes the database away from two gateways and gives it back:
// in the manner of a crash, every process at once, and frozen with all connections open.
func TestPostgresDiesUnderLoad(t *testing.T) {
	server := pgtest.Own(t, "fsync=on")
	f := newFleet(t, server.DSN(), "tallystick")
	f.start(2)
	f.gateways[0].apply(policyOf("week", "user: zelda", "name: week, failurePolicy: FailClosed, budget: {limitMilliUSD: 1000000, hardCap: true, period: week}"))
	const limit = 40_000
	token := f.gateways[0].key("app", keys.Limits{CostPerDay: keys.Cost(1_000_000), TokensPerDay: keys.Limit(10_000_000)})
	scarce := f.gateways[0].key("scarce", keys.Limits{CostPerDay: keys.Cost(limit)})
	revoked := f.gateways[0].key("revoked", keys.Limits{})
	f.gateways[1].do(http.MethodPost, "keys/revoked/revoke", nil, nil)
	for round, outage := range []struct {
		die, back func(context.Context) error
		refused   int // answers that are waited for: a frozen database takes a deadline for each
	}{
		{func(ctx context.Context) error { return server.Stop(ctx, pgserver.Immediate) }, server.Start, 20},
		{server.Kill, server.Start, 20},
		{server.Pause, server.Resume, 4},
	} {
		ctx := context.WithoutCancel(t.Context())
		late := fmt.Sprintf("late-%d", round)
		prompt := "{{provider: hold=" + late + "}}"
		answered := make(chan answer, 2)
		for _, g := range f.gateways {
			go func() { answered <- g.call(ctx, token, prompt) }()
		}
		require.Eventually(t, func() bool { return f.reached(prompt) == len(f.gateways) }, patience, tick)
		l, s := f.load(2, token, says("load")), f.load(2, scarce, says("scarce"))
		l.more(http.StatusOK, 20)
		require.NoError(t, outage.die(ctx))
		l.more(http.StatusServiceUnavailable, outage.refused)
		for _, g := range f.gateways {
			var found struct{ Parts map[string]string }
			code, body := g.get("/readyz", "")
			require.Equal(t, http.StatusServiceUnavailable, code)
			require.NoError(t, json.Unmarshal(body, &found), string(body))
			for _, part := range []string{"keys", "counters", "policies"} {
				require.Equal(t, "does not answer", found.Parts[part], string(body))
			}
			code, _ = g.get("/healthz", "")
			require.Equal(t, http.StatusOK, code, "restarting would not help")
			code, body = g.get("/v1/usage", token)
			require.Equal(t, http.StatusOK, code, string(body))
			require.Contains(t, string(body), `"available":false`)
			require.Contains(t, string(body), `"rule":"week"`, "what this gateway knows by itself is told")
		}
		// A call that was under way is answered; what it used is recorded when that is possible.
		f.provider.Release(late)
		for range f.gateways {
			require.Equal(t, http.StatusOK, (<-answered).status)
		}
		require.NoError(t, outage.back(ctx))
		l.more(http.StatusOK, 20)
		l.stop()
		s.stop()
		for _, load := range []*load{l, s} {
			require.Empty(t, load.odd, "every 503 says when to come back")
			for status := range load.seen {
				require.Contains(t, []int{http.StatusOK, http.StatusPaymentRequired, http.StatusTooManyRequests, http.StatusServiceUnavailable}, status)
			}
		}
		for _, g := range f.gateways {
			require.Eventually(t, func() bool {
				code, _ := g.get("/readyz", "")
				return code == http.StatusOK
			}, patience, tick)
			require.Equal(t, http.StatusUnauthorized, g.call(ctx, revoked, says("revoked")).status, "revoked stays revoked")
		}
		f.settled()
		f.inForce(f.gateways[0], scarce)
		f.inForce(f.gateways[1], token)
		f.balanced()
	}
	require.Zero(t, f.reached(says("revoked")))
	f.spend(says("scarce"), scarce)
	f.settled()
	u := constraint(t, f.gateways[0].usage(scarce), "cost_per_day")
	require.LessOrEqual(t, u.Consumed+u.Uncertain+u.Reserved, u.Limit)
	require.LessOrEqual(t, int64(f.reached(says("scarce")))*costOf(says("scarce")), int64(limit), "nor did more get to the provider")
	f.balanced()
	for _, g := range f.gateways {
		g.stop()
	}
}

// costOf is what the provider's answer to a prompt costs, in microUSD: a token for four
// bytes, three for the message, at the bundled prices of demo-small.
func costOf(prompt string) int64 { return int64(len(prompt)+3)/4 + 3 + 2*reply }

// tokensOf is what it uses.
func tokensOf(prompt string) int64 { return int64(len(prompt)+3)/4 + 3 + reply }
