package governancepg_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancepg"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgwire"
	"github.com/tallystick-go/tallystick/keys"
)

// bench is a gateway behind a proxy that breaks its connection, and a look at the database that does not
// lead through it. Time stands still, so that rates can be counted.
type bench struct {
	direct  *opened
	truth   *governance.Governor
	proxy   *pgwire.Proxy
	through *opened
	pool    *pgxpool.Pool
	gov     *governance.Governor
	made    *atomic.Int64
	loose   bool // messages do not come in the same number each time
	hasty   bool // a busy machine may be slower than the gateway is patient
}

// benchOptions are short where a break is waited out.
type benchOptions struct {
	mode   pgx.QueryExecMode
	behind func(dsn string) string // what stands between the proxy and the server
	ahead  func(dsn string) string // what stands between the gateway and the proxy
	conns  int32
	step   time.Duration
	store  governancepg.Options
	wrap   func(governance.Store) governance.Store
	ruled  bool // it goes by policies
	each   int  // only each so-manieth fault; 0: all
}

func newBench(t *testing.T, b benchOptions) *bench {
	t.Helper()
	w := &bench{direct: freshAt(t, stillClock()), made: &atomic.Int64{}}
	w.truth = governor(t, w.direct, nil)
	_, err := w.direct.Keys.CreateTeam(t.Context(), keys.CreateTeam{ID: "team"})
	require.NoError(t, err)
	w.connect(t, b)
	return w
}

// beside is another gateway on the same data.
func (w *bench) beside(t *testing.T, b benchOptions) *bench {
	t.Helper()
	other := &bench{direct: w.direct, truth: w.truth, made: w.made}
	other.connect(t, b)
	return other
}

// connect makes the gateway.
func (w *bench) connect(t *testing.T, b benchOptions) {
	t.Helper()
	dsn := w.direct.dsn
	if b.behind != nil {
		dsn = b.behind(dsn)
	}
	var err error
	w.proxy, err = pgwire.Start(dsn)
	require.NoError(t, err)
	t.Cleanup(w.proxy.Close)
	dsn = w.proxy.DSN()
	if w.loose = b.ahead != nil; w.loose {
		dsn = b.ahead(dsn)
	}
	w.pool = pgtest.Connect(t, dsn, func(c *pgxpool.Config) {
		c.MaxConns, c.ConnConfig.DefaultQueryExecMode = max(1, b.conns), b.mode
	})
	b.store.Schema, b.store.Clock = w.direct.schema, w.direct.clock.of
	if b.store.LockTimeout == 0 {
		b.store.LockTimeout = 10 * time.Second // a broken transaction is awaited, not skipped
	}
	_, b.store.Events = recorder(t, w.direct.pool, w.direct.schema) // hints are sent beside the proxy
	db, err := governancepg.Open(w.pool, &b.store)
	require.NoError(t, err)
	w.through = &opened{db, dsn, w.direct.schema, w.direct.clock, w.direct.log, w.pool}
	if w.hasty = b.step > 0; !w.hasty {
		b.step = 20 * time.Second
	}
	store := governance.Store(w.through.Store)
	if b.wrap != nil {
		store = b.wrap(store)
	}
	stores := governance.Stores{Keys: w.through.Keys, Store: store}
	if b.ruled {
		stores.Policies, stores.Profile = w.through.Policies, policy.Shared
	}
	w.gov, err = governance.New(stores, &governance.Options{
		StepTimeout: b.step, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(t, w.gov.Close(ctx))
	})
}

// settled checks, at the end, that nothing is left behind: in the books, in the pool.
func (w *bench) settled(t *testing.T) {
	t.Helper()
	v, err := w.truth.Verify(t.Context(), governance.VerifyQuery{})
	require.NoError(t, err)
	require.Empty(t, v.Differences)
	require.Eventually(t, func() bool { return w.pool.Stat().AcquiredConns() == 0 }, patience, tick)
}

// How long something that must happen is awaited, and how often it is looked for.
const (
	patience = time.Minute
	tick     = 2 * time.Millisecond
)

// subject is a key with limits of its own, so that every break is judged by itself.
type subject struct {
	w         *bench
	principal keys.Principal
	id        governance.PermitID
	permit    *governance.Permit
	account   governance.AccountKey // that is frozen
	calls     int
}

func (w *bench) subject(t *testing.T) *subject {
	t.Helper()
	created, err := w.direct.Keys.CreateKey(t.Context(), keys.CreateKey{ID: fmt.Sprintf("key-%d", w.made.Add(1)), TeamID: "team", Limits: keys.Limits{
		RequestsPerMinute: keys.Limit(100), TokensPerDay: keys.Limit(2000), Concurrency: keys.Limit(20), CostPerDay: keys.Cost(1000),
	}})
	require.NoError(t, err)
	s := &subject{w: w, id: governance.NewPermitID(time.Now())}
	s.principal, err = w.direct.Keys.Resolve(t.Context(), created.Token.Reveal())
	require.NoError(t, err)
	return s
}

// request is the subject's request, told by its id from any other.
func (s *subject) request() governance.Request {
	return governance.Request{ID: s.id, Principal: &s.principal, Model: "model", Bound: governance.Bound{Tokens: 100, Cost: 10}, Price: []byte("price")}
}

func (s *subject) admit(t *testing.T) {
	t.Helper()
	var err error
	require.Eventually(t, func() bool {
		s.permit, err = s.w.gov.Admit(t.Context(), s.request())
		return !s.w.hasty || !errors.Is(err, governance.ErrUnavailable)
	}, patience, tick)
	require.NoError(t, err)
}

// books is what a subject's limits count.
type books struct{ consumed, uncertain, reserved, requests, slots int64 }

func (s *subject) books(t testing.TB) (b books) {
	t.Helper()
	usage, err := s.w.truth.Usage(t.Context(), governance.UsageQuery{Principal: &s.principal})
	require.NoError(t, err)
	for _, v := range usage.Verdicts {
		switch v.Constraint.Kind {
		case governance.KindTokenQuota:
			b.consumed, b.uncertain, b.reserved = v.Consumed, v.Uncertain, v.Reserved
		case governance.KindRequestRate:
			b.requests = v.Reserved
		case governance.KindConcurrency:
			b.slots = v.Reserved
		}
	}
	return b
}

// count waits until the books say this: what could not be recorded is, in the background.
func (s *subject) count(t *testing.T, eventually bool, want books) {
	t.Helper()
	if eventually {
		require.Eventually(t, func() bool { return s.books(t) == want }, patience, tick, "%+v", want)
	}
	require.Equal(t, want, s.books(t))
}

// held lists the subject's permits that hold something.
func (s *subject) held(t *testing.T) []governance.Hold {
	t.Helper()
	list, err := s.w.truth.Holds(t.Context(), governance.HoldQuery{Key: s.principal.KeyID, Limit: 1000})
	require.NoError(t, err)
	return list
}

// unavailable checks that a call which failed says so in the one way that is allowed before a commit.
func unavailable(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, governance.ErrUnavailable)
	require.Equal(t, governance.Status{Code: 503, RetryAfter: time.Second, Retryable: true}, governance.StatusOf(err))
}

// ended settles the permit and asks for it once more: it has ended, and for good.
func (s *subject) ended(t *testing.T) {
	t.Helper()
	require.NoError(t, s.permit.Settle(t.Context(), governance.Used(60, 3)))
	_, err := s.w.truth.Admit(t.Context(), s.request())
	require.ErrorIs(t, err, governance.ErrTerminal)
	require.Empty(t, s.held(t))
}

// notes counts what operators did that is recorded.
func (s *subject) notes(t *testing.T, picks func(governance.Note) bool) (n int) {
	t.Helper()
	list, err := s.w.truth.Notes(t.Context(), governance.NoteQuery{Limit: 1000})
	require.NoError(t, err)
	for _, note := range list {
		if picks(note) {
			n++
		}
	}
	return n
}
