package fleet_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
)

// spent is what came through all gateways together.
type spent struct {
	mu      sync.Mutex
	calls   int64
	tokens  int64
	last    map[string]int // codes of what ended the callers
	elapsed time.Duration
}

// spend calls through every gateway at once, with one token after the other, until each
// caller has heard that nothing is left. Room that is merely reserved for others is
// waited for.
func (f *fleet) spend(prompt string, tokens ...string) *spent {
	f.Helper()
	s := &spent{last: map[string]int{}}
	began := time.Now()
	var wait sync.WaitGroup
	for _, g := range f.gateways {
		for i := range callers {
			token := tokens[i%len(tokens)]
			wait.Go(func() {
				for {
					a := g.call(f.Context(), token, prompt)
					s.mu.Lock()
					switch {
					case a.status == http.StatusOK:
						s.calls++
						s.tokens += a.tokens
					case a.code != "reserved":
						s.last[fmt.Sprint(a.status, " ", a.code)]++
						s.mu.Unlock()
						return
					}
					s.mu.Unlock()
				}
			})
		}
	}
	wait.Wait()
	s.elapsed = time.Since(began)
	return s
}

const callers = 3 // at each gateway

// TestNTimesTheLimitNeverHappens spends every kind of limit through two and through
// four gateways at once, and asks what came through. The second two join while the
// first two serve.
func TestNTimesTheLimitNeverHappens(t *testing.T) {
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	for _, n := range []int{2, 4} {
		f.start(n - len(f.gateways))
		t.Run(fmt.Sprintf("%d gateways", n), func(t *testing.T) {
			f := f.at(t)
			f.limits(fmt.Sprint(n))
			f.settled()
			f.balanced()
		})
	}
}

// at is the fleet in a subtest.
func (f *fleet) at(t *testing.T) *fleet {
	out := &fleet{T: t, dsn: f.dsn, schema: f.schema, folder: f.folder, clock: f.clock, provider: f.provider, books: f.books, arrived: f.arrived}
	for _, g := range f.gateways {
		out.gateways = append(out.gateways, &gateway{Cmd: g.Cmd, f: out, clients: g.clients, admin: g.admin, said: g.said, wait: g.wait})
	}
	return out
}

// limits tries each kind.
func (f *fleet) limits(suffix string) {
	for _, c := range []struct {
		rule   string
		limit  int64
		limits keys.Limits
		end    string
		perMin bool
		counts func(s *spent, prompt string) int64
	}{
		{"requests_per_minute", 24, keys.Limits{RequestsPerMinute: keys.Limit(24)}, "429 rate", true, calls},
		{"tokens_per_minute", 1500, keys.Limits{TokensPerMinute: keys.Limit(1500)}, "429 rate", true, tokens},
		{"tokens_per_day", 1500, keys.Limits{TokensPerDay: keys.Limit(1500)}, "429 quota", false, tokens},
		{"cost_per_day", 2500, keys.Limits{CostPerDay: keys.Cost(2500), CostPerMonth: keys.Cost(1_000_000)}, "402 money", false, money},
		{"cost_per_month", 2500, keys.Limits{CostPerDay: keys.Cost(1_000_000), CostPerMonth: keys.Cost(2500)}, "402 money", false, money},
	} {
		f.Run(c.rule, func(t *testing.T) {
			f := f.at(t)
			token := f.gateways[0].key(c.rule+"-"+suffix, c.limits)
			prompt := says(c.rule + suffix)
			s := f.spend(prompt, token)
			f.settled()
			require.Equal(t, map[string]int{c.end: len(f.gateways) * callers}, s.last)
			require.EqualValues(t, s.calls, f.reached(prompt), "what was refused never left")
			for _, g := range f.gateways {
				u := constraint(t, g.usage(token), c.rule)
				require.Equal(t, c.limit, u.Limit)
				if c.perMin {
					continue
				}
				require.Equal(t, c.counts(s, prompt), u.Consumed, "what clients were told is what is counted")
				require.Zero(t, u.Reserved+u.Uncertain)
			}
			most := c.limit
			if c.perMin { // what was drained meanwhile may be used again
				most += c.limit*s.elapsed.Milliseconds()/60_000 + 1
			}
			require.LessOrEqual(t, c.counts(s, prompt), most)
			require.Greater(t, 2*c.counts(s, prompt), c.limit, "the limit was worth something")
		})
	}
	f.Run("concurrency", func(t *testing.T) { f.at(t).slots(suffix, keys.Limits{Concurrency: keys.Limit(3)}, "concurrency") })
}

// slots holds calls at the provider: exactly as many as the limit get there.
func (f *fleet) slots(suffix string, limits keys.Limits, rule string) {
	const limit = 3
	token := f.gateways[0].key("slots-"+suffix, limits)
	prompt := "{{provider: hold=slots-" + suffix + "}}"
	answers := make(chan answer, len(f.gateways)*callers)
	ctx := context.WithoutCancel(f.Context())
	for _, g := range f.gateways {
		for range callers {
			go func() { answers <- g.call(ctx, token, prompt) }()
		}
	}
	for range len(f.gateways)*callers - limit {
		a := <-answers
		require.Equal(f, "429 concurrency", fmt.Sprint(a.status, " ", a.code))
	}
	require.Eventually(f, func() bool { return f.reached(prompt) == limit }, patience, tick)
	for _, g := range f.gateways {
		u := constraint(f, g.usage(token), rule)
		require.EqualValues(f, limit, u.Reserved)
		require.Zero(f, u.Remaining)
	}
	f.provider.Release("slots-" + suffix)
	for range limit {
		require.Equal(f, http.StatusOK, (<-answers).status)
	}
	require.Equal(f, limit, f.reached(prompt))
}

// TestUsage: a caller is told of every limit that counts for it, the same by every
// gateway, and of nobody else's.
func TestUsage(t *testing.T) {
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	f.start(2)
	all := keys.Limits{
		RequestsPerMinute: keys.Limit(100), TokensPerMinute: keys.Limit(100_000), TokensPerDay: keys.Limit(100_000),
		CostPerDay: keys.Cost(1_000_000), CostPerMonth: keys.Cost(2_000_000), Concurrency: keys.Limit(5),
	}
	token := f.gateways[0].key("mine", all, object{"limits": keys.Limits{RequestsPerMinute: keys.Limit(50), CostPerDay: keys.Cost(500_000)}})
	f.gateways[1].key("other", all)
	require.Equal(t, http.StatusOK, f.gateways[1].call(t.Context(), token, says("hello")).status)
	ctx := context.WithoutCancel(t.Context())
	ended := make(chan answer, 1)
	go func() { ended <- f.gateways[0].call(ctx, token, "{{provider: hold=usage}}") }()
	require.Eventually(t, func() bool { return f.reached("{{provider: hold=usage}}") == 1 }, patience, tick)
	without := func(u report.Usage) report.Usage { // what the clock alone changes
		for i := range u.Constraints {
			if c := &u.Constraints[i]; c.Unit != "microusd" && c.ResetsAt == nil {
				c.Reserved, c.Remaining = 0, 0
			}
		}
		return u
	}
	u := f.gateways[0].usage(token)
	require.Equal(t, without(f.gateways[1].usage(token)), without(u))
	u = f.gateways[0].usage(token)
	require.Len(t, u.Constraints, 8)
	for _, c := range u.Constraints {
		require.Contains(t, []string{"mine", "team-mine"}, c.Subject)
		require.True(t, c.Hard)
		if c.Unit == "microusd" || c.Rule == "tokens_per_day" {
			require.Positive(t, c.Consumed, c.Rule)
			require.Positive(t, c.Reserved, c.Rule)
			require.Equal(t, c.Limit-c.Consumed-c.Reserved, c.Remaining)
			require.NotNil(t, c.ResetsAt)
		}
	}
	f.provider.Release("usage")
	require.Equal(t, http.StatusOK, (<-ended).status)
	f.settled()
	f.balanced()
}
