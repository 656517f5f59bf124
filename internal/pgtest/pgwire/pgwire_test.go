package pgwire_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgwire"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

func behind(t *testing.T, dsn string) *pgwire.Proxy {
	t.Helper()
	p, err := pgwire.Start(dsn)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func connect(t *testing.T, ctx context.Context, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// TestEveryMessage: at which message a connection ends decides what the server did.
func TestEveryMessage(t *testing.T) {
	db := pgtest.New(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := db.Pool.Exec(ctx, "create table "+db.Schema+".t (i int primary key)")
	require.NoError(t, err)
	p := behind(t, db.DSN)
	insert := "insert into " + db.Schema + ".t values ($1)"
	dry := connect(t, ctx, p.DSN())
	_, err = dry.Prepare(ctx, "put", insert)
	require.NoError(t, err)
	p.Arm(pgwire.Fault{})
	_, err = dry.Exec(ctx, "put", 0)
	require.NoError(t, err)
	letters := map[pgwire.Side]string{}
	for _, m := range p.Messages() {
		letters[m.From] += string(m.Type)
		if m.Type == 'E' {
			require.Equal(t, insert, m.SQL)
		}
	}
	require.Equal(t, map[pgwire.Side]string{pgwire.Client: "BES", pgwire.Server: "2CZ"}, letters)

	row := 0
	for _, c := range []struct {
		from pgwire.Side
		at   int
		pass bool
		done bool // the server did it
	}{
		{pgwire.Client, 1, false, false}, {pgwire.Client, 2, false, false},
		{pgwire.Client, 2, true, false}, {pgwire.Client, 3, false, false}, {pgwire.Client, 3, true, true},
		{pgwire.Server, 1, false, true}, {pgwire.Server, 2, false, true}, {pgwire.Server, 3, false, true},
	} {
		for _, end := range []pgwire.End{pgwire.Cut, pgwire.Hole} {
			row++
			conn := connect(t, ctx, p.DSN())
			_, err := conn.Prepare(ctx, "put", insert)
			require.NoError(t, err)
			happened := p.Arm(pgwire.Fault{From: c.from, At: c.at, Pass: c.pass, Then: end})
			within, stop := context.WithCancel(ctx)
			answer := make(chan error, 1)
			go func() {
				_, err := conn.Exec(within, "put", row)
				answer <- err
			}()
			<-happened
			if end == pgwire.Hole {
				select {
				case err := <-answer:
					t.Fatalf("a hole answered: %v", err)
				case <-time.After(2 * time.Millisecond): // the only way to see that nothing happens
				}
				stop()
			}
			require.Error(t, <-answer, "%+v", c)
			stop()
			p.Heal()
			// The server has seen the end: nothing of this connection is still to come.
			require.Eventually(t, func() bool {
				var n int
				return db.Pool.QueryRow(ctx, "select count(*) from pg_stat_activity where pid = $1", conn.PgConn().PID()).Scan(&n) == nil && n == 0
			}, 30*time.Second, time.Millisecond)
			var n int
			require.NoError(t, db.Pool.QueryRow(ctx, "select count(*) from "+db.Schema+".t where i = $1", row).Scan(&n))
			require.Equal(t, c.done, n == 1, "%+v", c)
		}
	}
}

// TestSever: nobody comes through until it is healed, and nobody learns why through a hole.
func TestSever(t *testing.T) {
	db := pgtest.New(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := behind(t, db.DSN)
	for _, end := range []pgwire.End{pgwire.Cut, pgwire.Hole} {
		before := connect(t, ctx, p.DSN())
		p.Sever(end)
		short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
		require.Error(t, before.Ping(short))
		_, err := pgx.Connect(short, p.DSN())
		require.Error(t, err)
		require.Equal(t, end == pgwire.Hole, short.Err() != nil, "a cut is told at once, a hole never")
		stop()
		p.Heal()
		require.NoError(t, connect(t, ctx, p.DSN()).Ping(ctx))
	}
}

// TestDeafen: a request to cancel gets lost, and only that.
func TestDeafen(t *testing.T) {
	db := pgtest.New(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := behind(t, db.DSN)
	conn := connect(t, ctx, p.DSN())
	asleep := func() bool {
		var n int
		err := db.Pool.QueryRow(ctx, "select count(*) from pg_stat_activity where pid = $1 and wait_event = 'PgSleep'", conn.PgConn().PID()).Scan(&n)
		return err == nil && n == 1
	}
	p.Deafen()
	answer := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, "select pg_sleep(600)")
		answer <- err
	}()
	require.Eventually(t, asleep, 30*time.Second, time.Millisecond)
	_ = conn.PgConn().CancelRequest(ctx)
	require.True(t, asleep())
	p.Heal()
	require.NoError(t, conn.PgConn().CancelRequest(ctx))
	require.ErrorContains(t, <-answer, "57014")
}
