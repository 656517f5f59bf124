package pgtx_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

// looks counts the barrier's looks at pg_locks, so that a test knows what it has seen.
type looks struct{ n atomic.Int64 }

func (l *looks) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (l *looks) TraceQueryEnd(_ context.Context, c *pgx.Conn, d pgx.TraceQueryEndData) {
	if strings.HasPrefix(d.CommandTag.String(), "SELECT") {
		l.n.Add(1)
	}
}

func (l *looks) await(t *testing.T, n int64) {
	t.Helper()
	from := l.n.Load()
	require.Eventually(t, func() bool { return l.n.Load() >= from+n }, 30*time.Second, time.Millisecond)
}

func watched(t *testing.T, db *pgtest.DB) (*pgxpool.Pool, *looks) {
	l := &looks{}
	return db.Connect(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = l }), l
}

func enter(t *testing.T, ctx context.Context, pool *pgxpool.Pool, s pgtx.Schema) *pgtx.Tx {
	t.Helper()
	lead := &pgx.Batch{}
	lead.Queue(pgtx.SharedLock, s.LockKey())
	tx, err := pgtx.Begin(ctx, pool, pgtx.Options{Idle: time.Minute}, lead)
	require.NoError(t, err)
	return tx
}

func TestBarrierWaitsForTheHoldersOfThatMomentOnly(t *testing.T) {
	ctx, db, s := setUp(t, oneTable)
	pool, l := watched(t, db)
	require.NoError(t, pgtx.Barrier(ctx, pool, s, 0), "nobody holds it")

	first, second := enter(t, ctx, db.Pool, s), enter(t, ctx, db.Pool, s)
	other := enter(t, ctx, db.Pool, schema(t, "some_other_schema"))
	defer other.Rollback()
	done := make(chan error, 1)
	go func() { done <- pgtx.Barrier(ctx, pool, s, 0) }()
	l.await(t, 1)
	later := enter(t, ctx, db.Pool, s) // at once: the barrier does not queue for the exclusive lock
	defer later.Rollback()
	require.NoError(t, first.Commit(ctx, nil))
	l.await(t, 2)
	select {
	case err := <-done:
		t.Fatal("the barrier passed while a holder was running:", err)
	default:
	}
	second.Rollback()
	require.NoError(t, <-done, "the later holder and the other schema's are not waited for")
}

func TestBarrierKnowsAConnectionsNextTransactionFromItsLast(t *testing.T) {
	ctx, db, s := setUp(t, oneTable)
	pool, l := watched(t, db)
	single := db.Connect(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	tx := enter(t, ctx, single, s)
	done := make(chan error, 1)
	go func() { done <- pgtx.Barrier(ctx, pool, s, 0) }()
	l.await(t, 1)
	require.NoError(t, tx.Commit(ctx, nil))
	again := enter(t, ctx, single, s) // same backend, same lock, another transaction
	defer again.Rollback()
	require.NoError(t, <-done)
}

func TestBarrierIsBounded(t *testing.T) {
	ctx, db, s := setUp(t, oneTable)
	tx := enter(t, ctx, db.Pool, s)
	require.ErrorIs(t, pgtx.Barrier(ctx, db.Pool, s, 30*time.Millisecond), pgtx.ErrUnconfirmed)
	gone, leave := context.WithCancel(ctx)
	leave()
	err := pgtx.Barrier(gone, db.Pool, s, 0)
	require.ErrorIs(t, err, pgtx.ErrUnconfirmed)
	require.ErrorIs(t, err, context.Canceled)
	require.NotContains(t, err.Error(), "select")
	tx.Rollback()
	require.NoError(t, pgtx.Barrier(ctx, db.Pool, s, 0), "repeating waits again")
}

// Advisory keys are shown in two halves: every sign and size must find its way back.
func TestBarrierFindsEveryKey(t *testing.T) {
	ctx, db, _ := setUp(t, oneTable)
	negative := 0
	for i := range 40 {
		s := schema(t, fmt.Sprintf("k_%d", i))
		if s.LockKey() < 0 {
			negative++
		}
		tx := enter(t, ctx, db.Pool, s)
		require.ErrorIs(t, pgtx.Barrier(ctx, db.Pool, s, time.Millisecond), pgtx.ErrUnconfirmed, s.LockKey())
		tx.Rollback()
	}
	require.NotZero(t, negative)
}

// What the barrier is for: after an edit returned, nobody works by the old definition any more.
func TestNobodyWorksByTheOldDefinitionAfterTheBarrier(t *testing.T) {
	ctx, db, s := setUp(t, oneTable+"; insert into {{schema}}.t (id, v) values (1, 0)")
	var inForce atomic.Int64 // the definition that every running admission must at least know
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				lead := &pgx.Batch{}
				lead.Queue(pgtx.SharedLock, s.LockKey())
				var seen int64
				lead.Queue(s.Splice("select v from {{schema}}.t where id = 1")).QueryRow(func(row pgx.Row) error { return row.Scan(&seen) })
				tx, err := pgtx.Begin(ctx, db.Pool, pgtx.Options{}, lead)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = tx.Exec(ctx, "select pg_sleep(0.001)")
				if now := inForce.Load(); err != nil || seen < now {
					t.Errorf("works by definition %d while %d is in force (%v)", seen, now, err)
				}
				tx.Rollback()
			}
		})
	}
	for v := int64(1); v <= 40; v++ {
		_, err := db.Pool.Exec(ctx, s.Splice("update {{schema}}.t set v = $1::bigint where id = 1"), v)
		require.NoError(t, err)
		require.NoError(t, pgtx.Barrier(ctx, db.Pool, s, 0))
		inForce.Store(v)
	}
	close(stop)
	wg.Wait()
}

func TestBarrierWithoutAServerIsUnconfirmed(t *testing.T) {
	srv := pgtest.Own(t)
	ctx := bounded(t)
	pool := pgtest.Connect(t, srv.DSN(), nil)
	require.NoError(t, srv.Kill(ctx))
	err := pgtx.Barrier(ctx, pool, schema(t, "x"), time.Second)
	require.ErrorIs(t, err, pgtx.ErrUnconfirmed)
	require.NotContains(t, err.Error(), srv.DSN())
}
