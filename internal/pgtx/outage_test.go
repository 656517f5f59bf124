package pgtx_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgserver"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgwire"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

// A deferred trigger makes COMMIT itself take as long as the test needs.
const slowCommit = `create schema slow; create table slow.t (id bigint);
create function slow.wait() returns trigger language plpgsql as $$ begin perform pg_sleep(new.id); return null; end $$;
create constraint trigger wait after insert on slow.t deferrable initially deferred for each row execute function slow.wait()`

func beginSlow(t *testing.T, ctx context.Context, pool *pgxpool.Pool, o pgtx.Options) *pgtx.Tx {
	t.Helper()
	tx, err := pgtx.Begin(ctx, pool, o, nil)
	require.NoError(t, err)
	return tx
}

func insertSlow(seconds int64) *pgx.Batch {
	b := &pgx.Batch{}
	b.Queue("insert into slow.t values ($1::bigint)", seconds)
	return b
}

// committing waits until some backend is inside its COMMIT.
func committing(t *testing.T, ctx context.Context, pool *pgxpool.Pool) (pid int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		return pool.QueryRow(ctx, "select pid from pg_stat_activity where wait_event = 'PgSleep' and query ilike 'commit%'").Scan(&pid) == nil
	}, 30*time.Second, 5*time.Millisecond)
	return pid
}

func TestLostAnswerToCommitIsUnknown(t *testing.T) {
	s := pgtest.Own(t)
	ctx := bounded(t)
	pool, watch := pgtest.Connect(t, s.DSN(), nil), pgtest.Connect(t, s.DSN(), nil)
	_, err := pool.Exec(ctx, slowCommit)
	require.NoError(t, err)
	commit := func(o pgtx.Options) <-chan error {
		tx := beginSlow(t, ctx, pool, o)
		out := make(chan error, 1)
		go func() { out <- tx.Commit(ctx, insertSlow(60)) }()
		return out
	}
	long := pgtx.Options{Statement: time.Minute, Commit: time.Minute}

	answer := commit(long)
	_, err = watch.Exec(ctx, "select pg_terminate_backend($1::int)", committing(t, ctx, watch))
	require.NoError(t, err)
	err = <-answer
	require.Equal(t, pgtx.UnknownOutcome, pgtx.Classify(err), "terminated: %v", err)

	// A server's own error while committing proves nothing by itself.
	answer = commit(long)
	_, err = watch.Exec(ctx, "select pg_cancel_backend($1::int)", committing(t, ctx, watch))
	require.NoError(t, err)
	err = <-answer
	require.Equal(t, pgtx.UnknownOutcome, pgtx.Classify(err), "cancelled: %v", err)

	// statement_timeout does not reach into COMMIT: only our own deadline does.
	err = <-commit(pgtx.Options{Commit: 50 * time.Millisecond})
	require.Equal(t, pgtx.UnknownOutcome, pgtx.Classify(err), "own deadline: %v", err)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	answer = commit(long)
	committing(t, ctx, watch)
	require.NoError(t, s.Kill(ctx))
	err = <-answer
	require.Equal(t, pgtx.UnknownOutcome, pgtx.Classify(err), "killed: %v", err)
	require.NoError(t, s.Start(ctx))
	require.NoError(t, pgtx.Run(ctx, pool, pgtx.Options{}, func(context.Context, *pgtx.Tx) error { return nil }), "the pool recovers")
	require.Zero(t, pool.Stat().AcquiredConns())
}

func TestLostConnectionBeforeCommitIsNotCommitted(t *testing.T) {
	s := pgtest.Own(t)
	ctx := bounded(t)
	pool := pgtest.Connect(t, s.DSN(), nil)
	err := pgtx.Run(ctx, pool, pgtx.Options{}, func(ctx context.Context, tx *pgtx.Tx) error {
		require.NoError(t, s.Stop(ctx, pgserver.Immediate))
		_, err := tx.Exec(ctx, "select 1")
		return err
	})
	require.Equal(t, pgtx.Unavailable, pgtx.Classify(err), "%v", err)
	err = pgtx.Run(ctx, pool, pgtx.Options{}, func(context.Context, *pgtx.Tx) error { return nil })
	require.Equal(t, pgtx.Unavailable, pgtx.Classify(err), "%v", err)
	require.NoError(t, s.Start(ctx))
	require.NoError(t, pgtx.Run(ctx, pool, pgtx.Options{}, func(context.Context, *pgtx.Tx) error { return nil }))
}

// After a restart every pooled connection is dead. No transaction fails for that, however many begin at once.
func TestDeadConnectionsAreReplaced(t *testing.T) {
	const conns = 6
	s := pgtest.Own(t)
	ctx := bounded(t)
	pool := pgtest.Connect(t, s.DSN(), func(c *pgxpool.Config) {
		c.MaxConns, c.ShouldPing = conns, func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	})
	all := func() {
		var txs []*pgtx.Tx
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range conns {
			wg.Go(func() {
				read := 0
				lead := &pgx.Batch{}
				lead.Queue("select $1::bigint", int64(7)).QueryRow(func(row pgx.Row) error { read++; return row.Scan(nil) })
				tx, err := pgtx.Begin(ctx, pool, pgtx.Options{}, lead)
				assert.NoError(t, err)
				assert.Equal(t, 1, read)
				mu.Lock()
				defer mu.Unlock()
				txs = append(txs, tx)
			})
		}
		wg.Wait()
		for _, tx := range txs {
			if tx != nil {
				assert.NoError(t, tx.Commit(ctx, nil))
			}
		}
	}
	all()
	require.EqualValues(t, conns, pool.Stat().IdleConns())
	require.NoError(t, s.Stop(ctx, pgserver.Immediate))
	require.NoError(t, s.Start(ctx))
	all()
}

// A connection that breaks once BEGIN was answered is not replaced: what was read so far would be read twice.
func TestBeginReadsOnce(t *testing.T) {
	ctx, db, _ := setUp(t, oneTable)
	proxy, err := pgwire.Start(db.DSN)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	pool := pgtest.Connect(t, proxy.DSN(), func(c *pgxpool.Config) { c.MaxConns, c.ConnConfig.DefaultQueryExecMode = 1, pgx.QueryExecModeExec })
	begin := func(f pgwire.Fault) (read int, err error) {
		require.Eventually(t, func() bool { return pool.Ping(ctx) == nil }, 30*time.Second, time.Millisecond)
		proxy.Arm(f)
		lead := &pgx.Batch{}
		lead.Queue("select 7::bigint").QueryRow(func(row pgx.Row) error { read++; return row.Scan(nil) })
		lead.Queue("select 8::bigint").QueryRow(func(row pgx.Row) error { return row.Scan(nil) })
		tx, err := pgtx.Begin(ctx, pool, pgtx.Options{}, lead)
		if err == nil {
			tx.Rollback()
		}
		return read, err
	}
	read, err := begin(pgwire.Fault{})
	require.NoError(t, err)
	require.Equal(t, 1, read)
	replaced, failed := 0, 0
	for _, f := range pgwire.Everywhere(proxy.Messages(), pgwire.Cut, false) {
		read, err := begin(f)
		require.LessOrEqual(t, read, 1, "%+v", f)
		if err == nil {
			replaced++
			require.Equal(t, 1, read)
		} else {
			failed++
			require.Equal(t, pgtx.Unavailable, pgtx.Classify(err), "%+v: %v", f, err)
		}
	}
	require.Greater(t, replaced, 3)
	require.Greater(t, failed, 3)
}

// A peer that is cut off sends nothing, not even a refusal: no call may wait for ever.
func TestSilenceIsBounded(t *testing.T) {
	s := pgtest.Own(t)
	ctx := bounded(t)
	pool := pgtest.Connect(t, s.DSN(), nil)
	short := pgtx.Options{Statement: 50 * time.Millisecond, Answer: 50 * time.Millisecond, Commit: 50 * time.Millisecond}
	txs := map[string]*pgtx.Tx{}
	for _, name := range []string{"exec", "send", "query", "commit"} {
		tx, err := pgtx.Begin(ctx, pool, pgtx.Options{}, nil)
		require.NoError(t, err)
		txs[name] = tx
	}
	require.NoError(t, pool.Ping(ctx))
	require.NoError(t, s.Pause(ctx))
	defer func() { require.NoError(t, s.Resume(ctx)) }()
	_, err := pgtx.Begin(ctx, pool, short, nil)
	require.Equal(t, pgtx.Unavailable, pgtx.Classify(err), "%v", err)
	for name, tx := range txs {
		tx.Shorten(short)
		var err error
		switch name {
		case "exec":
			_, err = tx.Exec(ctx, "select 1")
		case "send":
			b := &pgx.Batch{}
			b.Queue("select 1")
			err = tx.Send(ctx, b)
		case "query":
			var n int
			err = pgtx.Scrub(tx.QueryRow(ctx, "select 1").Scan(&n))
		case "commit":
			err = tx.Commit(ctx, nil)
		}
		want := map[string]pgtx.Class{"exec": pgtx.Unavailable, "send": pgtx.Unavailable, "query": pgtx.Canceled, "commit": pgtx.UnknownOutcome}[name]
		require.Equal(t, want, pgtx.Classify(err), "%s: %v", name, err)
		tx.Rollback()
	}
}

func TestPlanOutdatedByAMigration(t *testing.T) {
	ctx, db, s := setUp(t, oneTable+"; insert into {{schema}}.t (id) values (1)")
	single := db.Connect(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	read := func() error {
		return pgtx.Run(ctx, single, pgtx.Options{}, func(ctx context.Context, tx *pgtx.Tx) error {
			rows, err := tx.Query(ctx, s.Splice("select * from {{schema}}.t"))
			if err != nil {
				return err
			}
			rows.Close()
			return rows.Err()
		})
	}
	require.NoError(t, read())
	_, err := db.Pool.Exec(ctx, s.Splice("alter table {{schema}}.t add column later text"))
	require.NoError(t, err)
	err = read()
	require.Equal(t, pgtx.Retryable, pgtx.Classify(err), "%v", err)
	require.NoError(t, read())
}

func TestStalledHolderIsEndedByTheServer(t *testing.T) {
	ctx, db, s := setUp(t, oneTable+"; insert into {{schema}}.t (id) values (1)")
	tx, err := pgtx.Begin(ctx, db.Pool, pgtx.Options{Idle: 50 * time.Millisecond}, nil)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, s.Splice("update {{schema}}.t set v = 1"))
	require.NoError(t, err)
	// The first to go on is a peer that needs the row, while the stalled process does nothing at all.
	require.NoError(t, pgtx.Run(ctx, db.Pool, pgtx.Options{Lock: 30 * time.Second}, func(ctx context.Context, tx *pgtx.Tx) error {
		_, err := tx.Exec(ctx, s.Splice("update {{schema}}.t set v = 2"))
		return err
	}))
	err = tx.Commit(ctx, nil)
	require.Error(t, err)
	require.NotEqual(t, pgtx.OK, pgtx.Classify(err))
}

func TestStandbyIsRefusedAndThePoolReset(t *testing.T) {
	s := pgtest.Own(t)
	ctx := bounded(t)
	pool := pgtest.Connect(t, s.DSN(), nil)
	require.NoError(t, pool.Ping(ctx))
	require.NoError(t, s.Demote(ctx))
	for _, o := range []pgtx.Options{{}, {ReadOnly: true}} {
		err := pgtx.Run(ctx, pool, o, func(context.Context, *pgtx.Tx) error { return nil })
		require.Equal(t, pgtx.ReadOnly, pgtx.Classify(err), "%v", err)
	}
	require.Eventually(t, func() bool { return pool.Stat().TotalConns() == 0 }, 10*time.Second, 5*time.Millisecond)
	_, err := pool.Exec(ctx, "select pg_promote()")
	require.NoError(t, err)
	require.NoError(t, pgtx.Run(ctx, pool, pgtx.Options{}, func(context.Context, *pgtx.Tx) error { return nil }))
}
