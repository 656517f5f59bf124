package governancepg_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogpg"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancepg"
	"github.com/tallystick-go/tallystick/governance/governancetest"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
)

// opened is a handle with what the suite needs to make another one on its data.
type opened struct {
	*governancepg.DB
	dsn, schema string
	clock       *clock
	log         *eventlogpg.Store
	pool        *pgxpool.Pool
}

// clock is the database's, or one that stands still unless moved: the suite counts
// tokens, and a running clock drains them.
type clock struct {
	still bool
	us    atomic.Int64
}

func (c *clock) of(database time.Time) time.Time {
	if c.still {
		return time.UnixMicro(c.us.Load())
	}
	return database
}

func stillClock() *clock {
	c := &clock{still: true}
	c.us.Store(time.Now().UnixMicro())
	return c
}

func open(t testing.TB, pool *pgxpool.Pool, dsn, schema string, c *clock) *opened {
	t.Helper()
	log, events := recorder(t, pool, schema)
	return openTelling(t, pool, dsn, schema, c, log, events)
}

// openTelling is open with a log that may hint by another pool.
func openTelling(t testing.TB, pool *pgxpool.Pool, dsn, schema string, c *clock, log *eventlogpg.Store, events *eventlogpg.Recorder) *opened {
	t.Helper()
	db, err := governancepg.Open(pool, &governancepg.Options{
		Schema: schema, LockTimeout: 500 * time.Millisecond,
		Clock: c.of, Events: events,
	})
	require.NoError(t, err)
	return &opened{db, dsn, schema, c, log, pool}
}

// fresh returns a migrated schema of its own, on the database's clock.
func fresh(t testing.TB) *opened { return freshAt(t, &clock{}) }

func freshAt(t testing.TB, c *clock) *opened {
	t.Helper()
	db := pgtest.New(t)
	o := open(t, db.Pool, db.DSN, db.Schema, c)
	o.migrate(t)
	return o
}

// migrate makes all tables, those of the event log too.
func (o *opened) migrate(t testing.TB) {
	t.Helper()
	require.NoError(t, o.Migrate(t.Context()))
	require.NoError(t, o.log.Migrate(t.Context()))
}

// recorder makes a log in the schema, as a process has one, and what appends to it.
func recorder(t testing.TB, pool *pgxpool.Pool, schema string) (*eventlogpg.Store, *eventlogpg.Recorder) {
	t.Helper()
	store, err := eventlogpg.New(pool, &eventlogpg.Options{Schema: schema})
	require.NoError(t, err)
	log, err := eventlog.New(store, nil)
	require.NoError(t, err)
	r, err := eventlogpg.NewRecorder(store, log)
	require.NoError(t, err)
	return store, r
}

// told lists the events in the log of a backend's schema.
func told(t testing.TB, b governance.Backend) []governance.Event {
	t.Helper()
	rows, err := b.(*opened).pool.Query(t.Context(), "select id, stream, type, schema, data from "+b.(*opened).schema+".events order by position")
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[governance.Event])
	require.NoError(t, err)
	return list
}

// another returns a second handle with a pool of its own, as another process has.
func another(t testing.TB, o *opened, adjust func(*pgxpool.Config)) *opened {
	t.Helper()
	return open(t, pgtest.Connect(t, o.dsn, adjust), o.dsn, o.schema, o.clock)
}

// harness gives each case an empty schema, one that a case before it has used where there is
// one. Schemas last for as long as all does.
func harness(all testing.TB) governancetest.Harness {
	used := &schemas{all: all}
	return governancetest.Harness{
		Features: governancetest.Features{Durable: true, Shared: true, RowLocks: true, Snapshots: true, Policies: true, Nodes: true, Events: true},
		Events:   told,
		New: func(t testing.TB) governance.Backend {
			return used.open(t, pgtest.Connect(t, pgtest.Shared(t).DSN(), nil), pgtest.Shared(t).DSN())
		},
		Reopen: func(t testing.TB, b governance.Backend) governance.Backend {
			return another(t, b.(*opened), nil)
		},
		Advance: func(_ testing.TB, b governance.Backend, d time.Duration) { b.(*opened).clock.us.Add(d.Microseconds()) },
	}
}

func TestSuite(t *testing.T) { governancetest.Run(t, harness(t)) }

func BenchmarkSuite(b *testing.B) { governancetest.Bench(b, harness(b)) }

// TestExecModes runs one whole life in each way in which pgx can talk to the
// server, poolers among them.
func TestExecModes(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			o := another(t, fresh(t), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			w := newWorld(t, o, keys.Limits{RequestsPerMinute: keys.Limit(100), TokensPerDay: keys.Limit(1000), Concurrency: keys.Limit(5)})
			permit := w.admit(t, 100)
			require.NoError(t, permit.Raise(t.Context(), governance.Bound{Tokens: 200, Cost: 10}))
			require.NoError(t, permit.Settle(t.Context(), governance.Used(150, 7)))
			held := w.admit(t, 300)
			require.NoError(t, held.Settle(t.Context(), governance.Observed(20, 1)))
			_, err := w.gov.Resolve(t.Context(), governance.Evidence{ID: held.ID(), Outcome: governance.Used(30, 2), Actor: "test", Reason: "asked the provider"})
			require.NoError(t, err)
			w.verify(t, 180, 0, 0)
		})
	}
}

// world is a team with one key and a governor.
type world struct {
	gov       *governance.Governor
	principal keys.Principal
	backend   *opened
}

func newWorld(t testing.TB, o *opened, team keys.Limits) *world {
	t.Helper()
	ctx := t.Context()
	_, err := o.Keys.CreateTeam(ctx, keys.CreateTeam{ID: "team", Name: "team", Limits: team})
	require.NoError(t, err)
	created, err := o.Keys.CreateKey(ctx, keys.CreateKey{ID: "key", TeamID: "team", Owner: "user", Name: "key"})
	require.NoError(t, err)
	p, err := o.Keys.Resolve(ctx, created.Token.Reveal())
	require.NoError(t, err)
	return &world{governor(t, o, nil), p, o}
}

func governor(t testing.TB, o *opened, options *governance.Options) *governance.Governor {
	t.Helper()
	gov, err := governance.New(o, options)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = gov.Close(ctx)
	})
	return gov
}

func (w *world) request(tokens int64) governance.Request {
	return governance.Request{Principal: &w.principal, Model: "model", Bound: governance.Bound{Tokens: governanceTokens(tokens), Cost: 10}, Price: []byte("price")}
}

func (w *world) admit(t testing.TB, tokens int64) *governance.Permit {
	t.Helper()
	permit, err := w.gov.Admit(t.Context(), w.request(tokens))
	require.NoError(t, err)
	return permit
}

// verify compares the tokens of the day, and every account with its permits.
func (w *world) verify(t testing.TB, consumed, uncertain, reserved int64) {
	t.Helper()
	v, err := w.gov.Verify(t.Context(), governance.VerifyQuery{})
	require.NoError(t, err)
	require.Empty(t, v.Differences)
	usage, err := w.gov.Usage(t.Context(), governance.UsageQuery{Principal: &w.principal})
	require.NoError(t, err)
	for _, v := range usage.Verdicts {
		if v.Constraint.Kind == governance.KindTokenQuota {
			require.Equal(t, [3]int64{consumed, uncertain, reserved}, [3]int64{v.Consumed, v.Uncertain, v.Reserved})
			return
		}
	}
	t.Fatal("no token quota")
}
