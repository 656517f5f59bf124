package leasepg_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/lease"
	"github.com/tallystick-go/tallystick/lease/leasepg"
)

const name = "sweep"

func acquire(t *testing.T, l lease.Leaser, holder string, ttl time.Duration) lease.Lease {
	t.Helper()
	held, err := l.Acquire(t.Context(), lease.Claim{Name: name, Holder: holder, TTL: ttl})
	require.NoError(t, err)
	return held
}

// fenced begins a transaction and fences it. It is rolled back at the test's end, at the latest.
func fenced(t *testing.T, pool *pgxpool.Pool, l *leasepg.Leaser, held lease.Lease) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	require.NoError(t, l.Fence(t.Context(), tx, held))
	return tx
}

// Renewals go through while sixteen fenced transactions are open, one of them always older than the next; who
// wants to take over waits for every one of them.
func TestFencedWorkDelaysTakeoversAndNoRenewal(t *testing.T) {
	db, l := setup(t)
	pool := db.Connect(t, func(c *pgxpool.Config) { c.MaxConns = 20 })
	held := acquire(t, l, "a", time.Minute)
	var open []pgx.Tx
	for range 16 {
		open = append(open, fenced(t, pool, l, held))
		_, err := l.Renew(t.Context(), held)
		require.NoError(t, err)
		again := fenced(t, pool, l, held) // and after a renewal
		require.NoError(t, again.Commit(t.Context()))
	}
	// A live lease is read, not locked: who asks for it waits for nobody.
	quick, err := leasepg.New(db.Pool, &leasepg.Options{Schema: db.Schema, Timeout: time.Second})
	require.NoError(t, err)
	_, err = quick.Acquire(t.Context(), lease.Claim{Name: name, Holder: "b", TTL: time.Minute})
	var is *lease.HeldError
	require.ErrorAs(t, err, &is)
	require.False(t, is.Fenced)

	// Released while fenced work is open, it is handed over, and the next holder waits.
	require.NoError(t, l.Release(t.Context(), held))
	_, err = quick.Acquire(t.Context(), lease.Claim{Name: name, Holder: "b", TTL: time.Minute})
	require.ErrorAs(t, err, &is)
	require.True(t, is.Fenced, "%v", err)
	for _, tx := range open[:15] {
		require.NoError(t, tx.Commit(t.Context()))
	}
	took := make(chan error, 1)
	go func() {
		_, err := l.Acquire(context.Background(), lease.Claim{Name: name, Holder: "b", TTL: time.Minute})
		took <- err
	}()
	waits(t, db, 1)
	require.Empty(t, took)
	require.NoError(t, open[15].Commit(t.Context()))
	require.NoError(t, <-took)
}

// waits until so many sessions of the schema wait for a lock.
func waits(t *testing.T, db *pgtest.DB, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		var waiting int
		require.NoError(t, db.Pool.QueryRow(t.Context(), `select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%' || $1 || '%'`, db.Schema).Scan(&waiting))
		return waiting >= n
	}, patienceToWait, 5*time.Millisecond)
}

const patienceToWait = time.Minute

// Whoever waited for fenced work has a whole tenure: the clock is read after the wait.
func TestTenureBeginsAfterTheWait(t *testing.T) {
	db, l := setup(t)
	held := acquire(t, l, "a", time.Minute)
	tx := fenced(t, db.Pool, l, held)
	shift(t, db, time.Hour)
	took := make(chan error, 1)
	go func() {
		_, err := l.Acquire(context.Background(), lease.Claim{Name: name, Holder: "b", TTL: time.Minute})
		took <- err
	}()
	waits(t, db, 1)
	var ended time.Time
	require.NoError(t, db.Pool.QueryRow(t.Context(), "select clock_timestamp()").Scan(&ended))
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-took)
	row, err := l.Look(t.Context(), name)
	require.NoError(t, err)
	require.False(t, row.AcquiredAt.Before(ended.Truncate(time.Microsecond)), "acquired when it was free")
	require.Equal(t, time.Minute, row.ExpiresAt.Sub(row.AcquiredAt))
}

// Fences and takeovers at once: each fence is before or after, and no fenced write comes from two generations.
func TestFenceRacesTakeovers(t *testing.T) {
	db, l := setup(t)
	pool := db.Connect(t, nil)
	_, err := pool.Exec(t.Context(), "create table "+db.Schema+".current (generation bigint)")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "insert into "+db.Schema+".current values (0)")
	require.NoError(t, err)
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for i := range 8 {
		wg.Go(func() {
			holder := string(rune('a' + i%2)) // two processes, of four workers each, who acquire from themselves
			errs <- func() error {
				for range 12 {
					held, err := l.Acquire(t.Context(), lease.Claim{Name: name + holder, Holder: holder, TTL: time.Minute})
					if err != nil {
						return err
					}
					err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
						if err := l.Fence(t.Context(), tx, held); err != nil {
							return err
						}
						_, err := tx.Exec(t.Context(), "select pg_sleep(0.001)")
						return err
					})
					if err != nil && !errors.Is(err, lease.ErrLost) {
						return err
					}
				}
				return nil
			}()
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	for _, holder := range []string{"a", "b"} {
		row, err := l.Look(t.Context(), name+holder)
		require.NoError(t, err)
		require.EqualValues(t, 48, row.Generation)
	}
}

func TestFenceBoundsTheIdleTransaction(t *testing.T) {
	db, l := setup(t)
	held := acquire(t, l, "a", 10*time.Second)
	for _, c := range []struct {
		own  string
		most time.Duration
	}{{"0", 10 * time.Second}, {"90s", 10 * time.Second}, {"1h", 10 * time.Second}, {"2d", 10 * time.Second}, {"150", 150 * time.Millisecond}, {"3s", 3 * time.Second}} {
		tx, err := db.Pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "set local idle_in_transaction_session_timeout = '"+c.own+"'")
		require.NoError(t, err)
		require.NoError(t, l.Fence(t.Context(), tx, held))
		var ms int64
		require.NoError(t, tx.QueryRow(t.Context(), "select setting::bigint from pg_settings where name = 'idle_in_transaction_session_timeout'").Scan(&ms))
		require.Positive(t, ms, c.own)
		require.LessOrEqual(t, ms, c.most.Milliseconds(), c.own)
		require.NoError(t, tx.Commit(t.Context()))
	}
	var now string
	require.NoError(t, db.Pool.QueryRow(t.Context(), "select current_setting('idle_in_transaction_session_timeout')").Scan(&now))
	require.Equal(t, "0", now, "for the transaction alone")
}

func TestFenceInTheCallersTransaction(t *testing.T) {
	db, l := setup(t)
	held := acquire(t, l, "a", time.Minute)
	stale := held
	stale.Holder = "b"
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		tx, err := db.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "select 1") // the snapshot
		require.NoError(t, err)
		_, err = l.Renew(t.Context(), held)
		require.NoError(t, err)
		require.NoError(t, l.Fence(t.Context(), tx, held), "a renewal in between does not matter at %s", level)
		require.ErrorIs(t, l.Fence(t.Context(), tx, stale), lease.ErrLost)
		require.NoError(t, tx.Rollback(t.Context()))
	}
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		tx, err := db.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "select 1 from "+db.Schema+".leases")
		require.NoError(t, err)
		held = acquire(t, l, "a", time.Minute)
		old := held
		old.Generation--
		require.Error(t, l.Fence(t.Context(), tx, old), "a takeover that the snapshot does not see, at %s", level)
		require.NoError(t, tx.Rollback(t.Context()))
	}
	tx, err := db.Pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	require.ErrorIs(t, l.Fence(t.Context(), tx, held), lease.ErrUnavailable, "a transaction that has ended")
}

func TestFenceSQL(t *testing.T) {
	db, l := setup(t)
	held := acquire(t, l, "a", time.Minute)
	handle := stdlib.OpenDBFromPool(db.Pool)
	defer handle.Close()
	try := func(level sql.IsolationLevel, held lease.Lease) error {
		tx, err := handle.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		return l.FenceSQL(t.Context(), tx, held)
	}
	require.NoError(t, try(sql.LevelDefault, held))
	require.NoError(t, try(sql.LevelSerializable, held))
	stale := held
	stale.Generation++
	require.ErrorIs(t, try(sql.LevelDefault, stale), lease.ErrLost)
	stale.Generation = 0
	require.ErrorIs(t, try(sql.LevelDefault, stale), lease.ErrInvalid)
	tx, err := handle.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	require.Equal(t, lease.ErrUnavailable, l.FenceSQL(t.Context(), tx, held), "nothing of another driver's text")
}
