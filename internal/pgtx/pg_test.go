package pgtx_test

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func schema(t testing.TB, name string) pgtx.Schema {
	t.Helper()
	s, err := pgtx.ParseSchema(name)
	require.NoError(t, err)
	return s
}

func setUp(t testing.TB, ddl string) (context.Context, *pgtest.DB, pgtx.Schema) {
	t.Helper()
	ctx, db := bounded(t), pgtest.New(t)
	s := schema(t, db.Schema)
	_, err := db.Pool.Exec(ctx, s.Splice(ddl))
	require.NoError(t, err)
	return ctx, db, s
}

const oneTable = "create table {{schema}}.t (id bigint primary key, v bigint not null default 0)"

func count(t testing.TB, ctx context.Context, pool *pgxpool.Pool, s pgtx.Schema) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(ctx, s.Splice("select count(*) from {{schema}}.t")).Scan(&n))
	return n
}

// Through a transaction pooler no statement may be prepared for later: every exec mode must do.
func TestTwoRoundTripsInEveryExecMode(t *testing.T) {
	ctx, db, s := setUp(t, oneTable)
	for i, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		pool := db.Connect(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		lead := &pgx.Batch{}
		var got int64
		lead.Queue("select $1::bigint", int64(7)).QueryRow(func(row pgx.Row) error { return row.Scan(&got) })
		tx, err := pgtx.Begin(ctx, pool, pgtx.Options{Lock: 1234 * time.Millisecond}, lead)
		require.NoError(t, err, mode)
		require.EqualValues(t, 7, got)
		var lock, idle, iso string
		require.NoError(t, tx.QueryRow(ctx, "select current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'), current_setting('transaction_isolation')").Scan(&lock, &idle, &iso))
		require.Equal(t, []string{"1234ms", "5s", "read committed"}, []string{lock, idle, iso})
		last := &pgx.Batch{}
		var tag pgconn.CommandTag
		last.Queue(s.Splice("insert into {{schema}}.t (id) values ($1::bigint)"), int64(i)).Exec(func(ct pgconn.CommandTag) error { tag = ct; return nil })
		require.NoError(t, tx.Commit(ctx, last), mode)
		require.EqualValues(t, 1, tag.RowsAffected())
		require.Equal(t, i+1, count(t, ctx, db.Pool, s))
		require.NoError(t, pool.QueryRow(ctx, "select current_setting('lock_timeout')").Scan(&lock))
		require.Equal(t, "0", lock, "the timeouts are the transaction's own")
		require.Zero(t, pool.Stat().AcquiredConns())
		tx.Rollback() // harmless
		require.Error(t, tx.Commit(ctx, nil))

		dup := &pgx.Batch{}
		dup.Queue(s.Splice("insert into {{schema}}.t (id) values (100)"))
		dup.Queue(s.Splice("insert into {{schema}}.t (id) values ($1::bigint)"), int64(i))
		tx, err = pgtx.Begin(ctx, pool, pgtx.Options{}, nil)
		require.NoError(t, err)
		err = tx.Commit(ctx, dup)
		require.Equal(t, pgtx.UniqueViolation, pgtx.Classify(err), "%v %v", mode, err)
		require.Equal(t, i+1, count(t, ctx, db.Pool, s), "a failed write took the commit with it")
	}
}

func TestBeginLeavesNothingOpenOnError(t *testing.T) {
	ctx, db, s := setUp(t, oneTable)
	own := pgtx.ErrUnconfirmed // any sentinel that is not the driver's
	for _, c := range []struct {
		queue func(*pgx.Batch)
		want  pgtx.Class
	}{
		{func(b *pgx.Batch) { b.Queue("select 1/0") }, pgtx.Poison},
		{func(b *pgx.Batch) { b.Queue("selec") }, pgtx.Rejected},
		{func(b *pgx.Batch) {
			b.Queue(s.Splice("insert into {{schema}}.t (id) values (1)"))
			b.Queue("select 1").QueryRow(func(pgx.Row) error { return own })
		}, 0},
	} {
		b := &pgx.Batch{}
		c.queue(b)
		_, err := pgtx.Begin(ctx, db.Pool, pgtx.Options{}, b)
		if c.want == 0 {
			require.Equal(t, own, err)
		} else {
			require.Equal(t, c.want, pgtx.Classify(err), "%v", err)
		}
		require.Zero(t, db.Pool.Stat().AcquiredConns())
	}
	require.Zero(t, count(t, ctx, db.Pool, s))
}

func TestCommitOfAFailedTransactionIsNotCommitted(t *testing.T) {
	ctx, db, s := setUp(t, oneTable)
	err := pgtx.Run(ctx, db.Pool, pgtx.Options{}, func(ctx context.Context, tx *pgtx.Tx) error {
		_, err := tx.Exec(ctx, s.Splice("insert into {{schema}}.t (id) values (1)"))
		require.NoError(t, err)
		_, err = tx.Exec(ctx, "select 1/0")
		require.Error(t, err)
		return nil // swallowed: COMMIT will be answered with ROLLBACK
	})
	require.True(t, pgtx.Classify(err).NotCommitted(), "%v", err)
	require.Zero(t, count(t, ctx, db.Pool, s))
}

func TestCallerGoneDoesNotStopACommit(t *testing.T) {
	ctx, db, s := setUp(t, oneTable)
	leaving, leave := context.WithCancel(ctx)
	tx, err := pgtx.Begin(leaving, db.Pool, pgtx.Options{}, nil)
	require.NoError(t, err)
	b := &pgx.Batch{}
	b.Queue(s.Splice("insert into {{schema}}.t (id) values (1)"))
	leave()
	require.NoError(t, tx.Commit(leaving, b))
	require.Equal(t, 1, count(t, ctx, db.Pool, s))
}

func TestRunRollsBackOnErrorAndPanic(t *testing.T) {
	ctx, db, s := setUp(t, oneTable)
	insert := func(ctx context.Context, tx *pgtx.Tx) {
		_, err := tx.Exec(ctx, s.Splice("insert into {{schema}}.t (id) values (1)"))
		require.NoError(t, err)
	}
	own := pgtx.ErrUnconfirmed
	require.Equal(t, own, pgtx.Run(ctx, db.Pool, pgtx.Options{}, func(ctx context.Context, tx *pgtx.Tx) error {
		insert(ctx, tx)
		return own
	}))
	require.Panics(t, func() {
		_ = pgtx.Run(ctx, db.Pool, pgtx.Options{}, func(ctx context.Context, tx *pgtx.Tx) error {
			insert(ctx, tx)
			panic("x")
		})
	})
	require.Zero(t, count(t, ctx, db.Pool, s))
	require.Zero(t, db.Pool.Stat().AcquiredConns())
}

func TestServerErrorsHaveTheirClassAndNoText(t *testing.T) {
	ctx, db, s := setUp(t, oneTable+`; insert into {{schema}}.t (id) values (1), (2);
		alter table {{schema}}.t add check (v < 1000)`)
	const secret = "hunter2"
	hold := func(id int64) *pgtx.Tx {
		tx, err := pgtx.Begin(ctx, db.Pool, pgtx.Options{Lock: 30 * time.Second, Statement: 30 * time.Second}, nil)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, s.Splice("update {{schema}}.t set v = v where id = $1::bigint"), id)
		require.NoError(t, err)
		return tx
	}
	holder := hold(2)
	for name, c := range map[string]struct {
		opt  pgtx.Options
		sql  string
		want pgtx.Class
	}{
		"unique":    {sql: "insert into {{schema}}.t (id) values (1) /* hunter2 */", want: pgtx.UniqueViolation},
		"check":     {sql: "insert into {{schema}}.t (id, v) values (9, 5000) /* hunter2 */", want: pgtx.Poison},
		"overflow":  {sql: "select 9223372036854775807 + 1 /* hunter2 */", want: pgtx.Poison},
		"missing":   {sql: "select * from {{schema}}.hunter2", want: pgtx.Rejected},
		"lock":      {opt: pgtx.Options{Lock: 20 * time.Millisecond}, sql: "select * from {{schema}}.t where id = 2 for update /* hunter2 */", want: pgtx.LockTimeout},
		"statement": {opt: pgtx.Options{Statement: 20 * time.Millisecond}, sql: "select pg_sleep(20) /* hunter2 */", want: pgtx.Canceled},
		"read-only": {opt: pgtx.Options{ReadOnly: true}, sql: "insert into {{schema}}.t (id) values (77) /* hunter2 */", want: pgtx.ReadOnly},
	} {
		err := pgtx.Run(ctx, db.Pool, c.opt, func(ctx context.Context, tx *pgtx.Tx) error {
			_, err := tx.Exec(ctx, s.Splice(c.sql))
			return err
		})
		require.Equal(t, c.want, pgtx.Classify(err), "%s: %v", name, err)
		require.NotContains(t, err.Error(), secret)
		require.NotContains(t, err.Error(), db.Schema)
	}
	holder.Rollback()

	// A deadlock: one of the two is the victim, and Retry runs it again.
	a := hold(1)
	started, done := make(chan struct{}), make(chan error, 1)
	var runs atomic.Int32
	go func() {
		done <- pgtx.Retry(ctx, db.Pool, pgtx.Options{Lock: 30 * time.Second}, func(ctx context.Context, tx *pgtx.Tx) error {
			_, err := tx.Exec(ctx, s.Splice("update {{schema}}.t set v = v + 1 where id = 2"))
			if err == nil {
				if runs.Add(1) == 1 {
					close(started)
				}
				_, err = tx.Exec(ctx, s.Splice("update {{schema}}.t set v = v + 1 where id = 1"))
			}
			return err
		})
	}()
	<-started
	_, err := a.Exec(ctx, s.Splice("update {{schema}}.t set v = v + 1 where id = 2"))
	if err != nil {
		require.Equal(t, pgtx.Retryable, pgtx.Classify(err))
		a.Rollback()
	} else {
		require.NoError(t, a.Commit(ctx, nil))
	}
	require.NoError(t, <-done)
}

func TestConnectionErrorsDoNotNameTheServer(t *testing.T) {
	db := pgtest.New(t)
	ctx := bounded(t)
	wrong := strings.Replace(db.DSN, "@", "hunter2@", 1)
	if wrong == db.DSN {
		t.Skip("the given DSN has no password to make wrong")
	}
	for _, dsn := range []string{wrong, "postgres://someone:hunter2@127.0.0.1:1/x"} {
		pool, err := pgxpool.New(ctx, dsn)
		require.NoError(t, err)
		_, err = pgtx.Begin(ctx, pool, pgtx.Options{}, nil)
		pool.Close()
		require.Equal(t, pgtx.Unavailable, pgtx.Classify(err))
		for _, s := range []string{"hunter2", "127.0.0.1", "someone"} {
			require.NotContains(t, err.Error(), s)
		}
	}
	pool, err := pgxpool.New(ctx, db.DSN)
	require.NoError(t, err)
	pool.Close()
	_, err = pgtx.Begin(ctx, pool, pgtx.Options{}, nil)
	require.Equal(t, pgtx.Unavailable, pgtx.Classify(err))
	gone, leave := context.WithCancel(ctx)
	leave()
	_, err = pgtx.Begin(gone, db.Pool, pgtx.Options{}, nil)
	require.Equal(t, pgtx.Canceled, pgtx.Classify(err))
	require.ErrorIs(t, err, context.Canceled)
}

// A plan that avoids a scan at any price counts as dear enough to be compiled.
func TestNothingIsCompiled(t *testing.T) {
	db := pgtest.New(t)
	var was, is string
	require.NoError(t, db.Pool.QueryRow(t.Context(), "show jit").Scan(&was))
	require.Equal(t, "on", was, "test servers have the server's own default")
	require.NoError(t, pgtx.Run(t.Context(), db.Pool, pgtx.Options{}, func(ctx context.Context, tx *pgtx.Tx) error {
		return tx.QueryRow(ctx, "show jit").Scan(&is)
	}))
	require.Equal(t, "off", is)
	require.NoError(t, db.Pool.QueryRow(t.Context(), "show jit").Scan(&is))
	require.Equal(t, "on", is, "for the transaction alone")
}
