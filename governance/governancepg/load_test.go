package governancepg_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancepg"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keyspg"
)

// plant is one gateway as a process has it: a pool, a handle, a Governor.
type plant struct {
	pool *pgxpool.Pool
	db   *governancepg.DB
	gov  *governance.Governor
}

// brisk timeouts: an outage is told in half a second.
func brisk(schema string) *governancepg.Options {
	const soon = 500 * time.Millisecond
	return &governancepg.Options{
		Schema: schema, LockTimeout: soon / 2, IdleTimeout: soon, StatementTimeout: soon, CommitTimeout: soon,
		Keys: &keyspg.Options{Timeout: soon},
	}
}

func newPlant(t *testing.T, dsn, schema string) *plant {
	t.Helper()
	p := &plant{pool: pgtest.Connect(t, dsn, func(c *pgxpool.Config) {
		c.MaxConns, c.ConnConfig.ConnectTimeout = 8, time.Second
	})}
	var err error
	p.db, err = governancepg.Open(p.pool, brisk(schema))
	require.NoError(t, err)
	p.gov, err = governance.New(p.db, &governance.Options{StepTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, p.gov.Close(ctx))
	})
	return p
}

// load is callers that admit and settle, whatever happens, and what they were told.
type load struct {
	plants    []*plant
	principal keys.Principal
	token     string
	limit     int64

	stop            chan struct{}
	callers         sync.WaitGroup
	admitted        atomic.Int64 // permits that callers have received
	unavailable     atomic.Int64
	unknown         atomic.Int64
	refused         atomic.Int64
	settledLater    atomic.Int64
	boundTo, useOne int64
}

// newLoad migrates the schema, makes a key and starts the callers. The limit is far above what they use.
func newLoad(t *testing.T, dsn string, plants ...*plant) *load {
	t.Helper()
	ctx := t.Context()
	l := &load{plants: plants, stop: make(chan struct{}), limit: 1_000_000, boundTo: 10, useOne: 7}
	db := plants[0].db
	require.NoError(t, db.Migrate(ctx))
	_, err := db.Keys.CreateTeam(ctx, keys.CreateTeam{ID: "team", Limits: keys.Limits{TokensPerDay: keys.Limit(l.limit), Concurrency: keys.Limit(1000)}})
	require.NoError(t, err)
	created, err := db.Keys.CreateKey(ctx, keys.CreateKey{ID: "key", TeamID: "team", Limits: keys.Limits{CostPerDay: keys.Cost(1_000_000)}})
	require.NoError(t, err)
	l.token = created.Token.Reveal()
	l.principal, err = db.Keys.Resolve(ctx, l.token)
	require.NoError(t, err)
	for i := range 8 {
		l.callers.Go(func() { l.call(t, plants[i%len(plants)].gov) })
	}
	l.progress(t)
	return l
}

func (l *load) request() governance.Request {
	return governance.Request{Principal: &l.principal, Model: "model", Bound: governance.Bound{Tokens: governanceTokens(l.boundTo), Cost: 1}}
}

// call is one caller. No call may last longer than any timeout that was set, by far.
func (l *load) call(t *testing.T, gov *governance.Governor) {
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		permit, err := gov.Admit(ctx, l.request())
		var refusal *governance.Refusal
		var unsettled *governance.SettleError
		switch {
		case err == nil:
			l.admitted.Add(1)
			if err = permit.Settle(ctx, governance.Used(governanceTokens(l.useOne), 1)); errors.As(err, &unsettled) {
				l.settledLater.Add(1)
				err = unsettled.Err
			}
		case errors.Is(err, governance.ErrUnknownOutcome):
			l.unknown.Add(1)
		case errors.As(err, &refusal):
			l.refused.Add(1)
			err = nil
		default:
			l.unavailable.Add(1)
		}
		if err != nil && governance.StatusOf(err) != (governance.Status{Code: 503, RetryAfter: time.Second, Retryable: true}) {
			t.Errorf("a caller was told: %v", err)
		}
		if ctx.Err() != nil {
			t.Error("a call did not end by its timeouts")
		}
		cancel()
		if err != nil {
			select { // the patience of a caller: Retry-After says a second
			case <-l.stop:
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// progress waits until permits are given again, by every gateway.
func (l *load) progress(t *testing.T) {
	t.Helper()
	before := l.admitted.Load()
	require.Eventually(t, func() bool { return l.admitted.Load() >= before+40 }, patience, tick, "nothing is admitted")
	for _, p := range l.plants {
		require.Eventually(t, func() bool {
			permit, err := p.gov.Admit(t.Context(), l.request())
			if err != nil {
				return false
			}
			l.admitted.Add(1)
			err = permit.Settle(t.Context(), governance.Used(governanceTokens(l.useOne), 1))
			return err == nil
		}, patience, tick, "a gateway admits nothing")
	}
}

// outage waits until every gateway says that the store is not there, and asks in every way.
func (l *load) outage(t *testing.T) {
	t.Helper()
	for _, p := range l.plants {
		require.Eventually(t, func() bool {
			permit, err := p.gov.Admit(t.Context(), l.request())
			if err == nil { // it was on its way
				l.admitted.Add(1)
				_ = permit.Settle(t.Context(), governance.Used(governanceTokens(l.useOne), 1))
				return false
			}
			require.Equal(t, governance.Status{Code: 503, RetryAfter: time.Second, Retryable: true}, governance.StatusOf(err), "%v", err)
			return true
		}, patience, tick)
	}
}

// unreadable checks that a key which cannot be looked up is never taken for one that is not there.
func (l *load) unreadable(t *testing.T) {
	t.Helper()
	p := l.plants[0]
	require.Eventually(t, func() bool {
		_, err := p.db.Keys.Resolve(t.Context(), l.token)
		require.True(t, err == nil || errors.Is(err, keys.ErrUnavailable), "%v", err)
		return err != nil
	}, patience, tick)
	_, err := p.gov.Usage(t.Context(), governance.UsageQuery{Principal: &l.principal})
	require.ErrorIs(t, err, governance.ErrUnavailable)
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
	r.Header.Set("Authorization", "Bearer "+l.token)
	answer := httptest.NewRecorder()
	httpgov.Middleware(http.NotFoundHandler(), p.db.Keys, nil).ServeHTTP(answer, r)
	require.Equal(t, 503, answer.Code)
	require.Equal(t, "1", answer.Header().Get("Retry-After"))
}

// end stops the callers and waits until everything that they were told is in the books, and nothing else.
func (l *load) end(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.callers.Wait()
	ctx, gov := t.Context(), l.plants[0].gov
	var holds []governance.Hold
	require.Eventually(t, func() bool {
		var err error
		holds, err = gov.Holds(ctx, governance.HoldQuery{Limit: 1000})
		return err == nil && len(holds) == 0
	}, patience, tick, "permits that nobody has are open")
	usage, err := gov.Usage(ctx, governance.UsageQuery{Principal: &l.principal})
	require.NoError(t, err)
	for _, v := range usage.Verdicts {
		switch v.Constraint.Kind {
		case governance.KindTokenQuota:
			require.Equal(t, [3]int64{l.admitted.Load() * l.useOne, 0, 0}, [3]int64{v.Consumed, v.Uncertain, v.Reserved}, "what callers were told is what is counted")
		case governance.KindMoney:
			require.Equal(t, [3]int64{l.admitted.Load(), 0, 0}, [3]int64{v.Consumed, v.Uncertain, v.Reserved})
		}
	}
	v, err := gov.Verify(ctx, governance.VerifyQuery{})
	require.NoError(t, err)
	require.Empty(t, v.Differences)
	for _, p := range l.plants {
		require.Eventually(t, func() bool { return p.pool.Stat().AcquiredConns() == 0 }, patience, tick)
		require.LessOrEqual(t, p.pool.Stat().TotalConns(), p.pool.Stat().MaxConns())
	}
	t.Logf("%d admitted, %d settled later, %d unavailable, %d unknown, %d refused",
		l.admitted.Load(), l.settledLater.Load(), l.unavailable.Load(), l.unknown.Load(), l.refused.Load())
}

// leaks fails the test when goroutines that it started are left at its very end. Call it first.
func leaks(t *testing.T) {
	t.Helper()
	before := []goleak.Option{
		goleak.IgnoreCurrent(),
		goleak.IgnoreAnyFunction("github.com/tallystick-go/tallystick/internal/pgtest/pgserver.(*local).start.func1"), // a server that was started again
	}
	t.Cleanup(func() {
		var err error
		for until := time.Now().Add(patience); time.Now().Before(until); { // connections are closed in the background, within a bound
			if err = goleak.Find(before...); err == nil {
				return
			}
		}
		t.Error(err)
	})
}
