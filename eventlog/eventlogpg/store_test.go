package eventlogpg_test

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogpg"
	"github.com/tallystick-go/tallystick/eventlog/eventlogtest"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgwire"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// places remembers where a store keeps its log. adjust is how pools are opened.
type places struct {
	mu     sync.Mutex
	of     map[eventlog.Store]*pgtest.DB
	adjust func(*pgxpool.Config)
}

func (p *places) open(t testing.TB, db *pgtest.DB) eventlog.Store {
	t.Helper()
	s := at(t, db.Connect(t, p.adjust), db.Schema)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[s] = db
	return s
}

func (p *places) where(s eventlog.Store) *pgtest.DB {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[s]
}

// held is a transaction of the caller's, with the store that appends in it.
type held struct {
	pgx.Tx
	s *eventlogpg.Store
}

func (h held) Append(ctx context.Context, appends ...eventlog.Append) ([]eventlog.Appended, error) {
	return h.s.AppendTx(ctx, h.Tx, appends...)
}

func begin(t testing.TB, pool *pgxpool.Pool, s eventlog.Store) held {
	t.Helper()
	ctx := context.Background()
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(ctx) })
	_, err = tx.Exec(ctx, "select pg_current_xact_id()") // now it has begun
	require.NoError(t, err)
	return held{tx, s.(*eventlogpg.Store)}
}

func harness(dsn string, adjust func(*pgxpool.Config)) eventlogtest.Harness {
	p := &places{of: map[eventlog.Store]*pgtest.DB{}, adjust: adjust}
	return eventlogtest.Harness{
		Features: eventlogtest.Features{Handles: true, Open: true},
		New: func(t testing.TB) eventlog.Store {
			db := pgtest.New(t)
			if dsn != "" {
				db.DSN = dsn
			}
			return p.open(t, db)
		},
		Reopen: func(t testing.TB, s eventlog.Store) eventlog.Store { return p.open(t, p.where(s)) },
		Begin: func(t testing.TB, s eventlog.Store) eventlogtest.Tx {
			return begin(t, p.where(s).Connect(t, p.adjust), s)
		},
	}
}

func TestStore(t *testing.T) { eventlogtest.Run(t, harness("", nil)) }

// thin says that there is no time for everything.
func thin() bool { return testing.Short() || os.Getenv(pgwire.EnvEach) != "" }

// TestStoreModes runs the suite as poolers and hostile sessions would have it: no named statements, no
// binary formats, another time zone, another search_path, another isolation.
func TestStoreModes(t *testing.T) {
	if thin() {
		t.Skip("TestBouncer has the mode that differs most")
	}
	for name, mode := range map[string]pgx.QueryExecMode{
		"Exec": pgx.QueryExecModeExec, "SimpleProtocol": pgx.QueryExecModeSimpleProtocol, "DescribeExec": pgx.QueryExecModeDescribeExec, "CacheDescribe": pgx.QueryExecModeCacheDescribe,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eventlogtest.Run(t, harness("", func(c *pgxpool.Config) {
				c.ConnConfig.DefaultQueryExecMode = mode
				c.ConnConfig.RuntimeParams["timezone"] = "Asia/Kathmandu"
				c.ConnConfig.RuntimeParams["datestyle"] = "German, DMY"
				c.ConnConfig.RuntimeParams["search_path"] = "pg_catalog"
				c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
			}))
		})
	}
}

// TestBouncer runs the suite through PgBouncer in transaction mode.
func TestBouncer(t *testing.T) {
	b := pgtest.PgBouncer(t, pgtest.Shared(t).DSN())
	modes := []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol}
	if !thin() {
		modes = append(modes, pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe)
	}
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			eventlogtest.Run(t, harness(b.DSN(), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }))
		})
	}
}

// fresh is a store in a schema of its own.
func fresh(t testing.TB) (*eventlogpg.Store, *pgtest.DB) {
	t.Helper()
	db := pgtest.New(t)
	return at(t, db.Pool, db.Schema), db
}

func at(t testing.TB, pool *pgxpool.Pool, schema string) *eventlogpg.Store {
	t.Helper()
	s, err := eventlogpg.New(pool, &eventlogpg.Options{Schema: schema})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(context.Background()))
	require.NoError(t, s.Check(context.Background()))
	return s
}

// one is an append of one event.
func one(stream, id string, e eventlog.Expect) eventlog.Append {
	return eventlog.Append{Stream: stream, Expect: e, Producer: "p", Events: []eventlog.Event{{ID: id, Type: "t", Schema: 1, Data: []byte(id)}}}
}

// drain reads all there is from c.
func drain(t testing.TB, s eventlog.Store, c eventlog.Cursor, limit int) ([]string, eventlog.Cursor) {
	t.Helper()
	var ids []string
	for {
		page, err := s.Read(context.Background(), eventlog.Read{Cursor: c, Limit: limit})
		require.NoError(t, err)
		for _, e := range page.Events {
			ids = append(ids, e.ID)
		}
		c = page.Next
		if !page.More {
			return ids, c
		}
	}
}

// TestAPoolOfItsOwn: who follows the log goes on while everybody else has taken all connections.
func TestAPoolOfItsOwn(t *testing.T) {
	db := pgtest.New(t)
	busy := db.Connect(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	s, err := eventlogpg.New(busy, &eventlogpg.Options{Schema: db.Schema, Following: db.Pool})
	require.NoError(t, err)
	ctx := t.Context()
	require.NoError(t, s.Migrate(ctx))
	c, err := s.Claim(ctx, eventlog.Claim{Consumer: "c", Owner: "me"})
	require.NoError(t, err)
	_, err = s.Append(ctx, []eventlog.Append{one("a", "1", eventlog.Any)})
	require.NoError(t, err)
	all, err := busy.Acquire(ctx)
	require.NoError(t, err)
	defer all.Release()
	ids, at := drain(t, s, c.Cursor, 10)
	require.Equal(t, []string{"1"}, ids)
	c.Cursor = at
	require.NoError(t, s.Save(ctx, c))
	_, err = s.Head(ctx)
	require.NoError(t, err)
}
