package eventlogpg_test

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogpg"
	"github.com/tallystick-go/tallystick/internal/pgtest"
)

// TestReadsInTransactions: a snapshot does not show the transaction that it belongs to, and differs from statement to statement
// where nobody asked for one.
func TestReadsInTransactions(t *testing.T) {
	s, db := fresh(t)
	ctx := t.Context()
	_, err := s.Append(ctx, []eventlog.Append{one("a", "1", eventlog.Any)})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		o       pgx.TxOptions
		sql     string
		refused bool
	}{
		"read committed":  {pgx.TxOptions{}, "select 1", true},
		"has written":     {pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, "select pg_current_xact_id()", true},
		"repeatable read": {pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, "select 1", false},
		"serializable":    {pgx.TxOptions{IsoLevel: pgx.Serializable, AccessMode: pgx.ReadOnly}, "select 1", false},
	} {
		tx, err := db.Pool.BeginTx(ctx, c.o)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, c.sql)
		require.NoError(t, err)
		_, err = s.HeadTx(ctx, tx)
		_, err2 := s.ReadTx(ctx, tx, eventlog.Read{})
		if c.refused {
			require.ErrorIs(t, err, eventlog.ErrInTransaction, name)
			require.ErrorIs(t, err2, eventlog.ErrInTransaction, name)
		} else {
			require.NoError(t, err, name)
			require.NoError(t, err2, name)
		}
		require.NoError(t, tx.Rollback(ctx))
	}
}

// TestJoiningLate: a state and its cursor are read in one snapshot while others append. Together they leave nothing out
// and repeat nothing.
func TestJoiningLate(t *testing.T) {
	s, db := fresh(t)
	ctx := t.Context()
	var done atomic.Bool
	var writers sync.WaitGroup
	for w := range 6 {
		writers.Go(func() {
			for n := 0; !done.Load(); n++ {
				tx, err := db.Pool.Begin(ctx)
				if err == nil {
					_, err = s.AppendTx(ctx, tx, one(fmt.Sprint("s", w), fmt.Sprint(w, "/", n), eventlog.Any))
				}
				if err == nil {
					err = tx.Commit(ctx)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	type joined struct {
		state map[string]bool
		from  eventlog.Cursor
	}
	var all []joined
	for range 20 {
		j := joined{state: map[string]bool{}}
		err := pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
			rows, err := tx.Query(ctx, "select id from "+db.Schema+".events")
			if err != nil {
				return err
			}
			ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
			for _, id := range ids {
				j.state[id] = true
			}
			if err == nil {
				j.from, err = s.HeadTx(ctx, tx)
			}
			return err
		})
		require.NoError(t, err)
		all = append(all, j)
	}
	done.Store(true)
	writers.Wait()
	everything, _ := drain(t, s, eventlog.Cursor{}, 1000)
	for _, j := range all {
		ids, _ := drain(t, s, j.from, 100)
		for _, id := range ids {
			require.False(t, j.state[id], "%s comes again", id)
			j.state[id] = true
		}
		require.Len(t, j.state, len(everything))
	}
}

func TestSaveTxIsOneWithWhatTheCallerWrites(t *testing.T) {
	s, db := fresh(t)
	ctx := t.Context()
	_, err := s.Append(ctx, []eventlog.Append{one("a", "1", eventlog.Any)})
	require.NoError(t, err)
	c, err := s.Claim(ctx, eventlog.Claim{Consumer: "c", Owner: "me"})
	require.NoError(t, err)
	_, c.Cursor = drain(t, s, c.Cursor, 10)
	behind := func() int64 {
		list, err := s.Checkpoints(ctx, "c")
		require.NoError(t, err)
		return list[0].Behind
	}
	tx, err := db.Pool.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, s.SaveTx(ctx, tx, c))
	require.NoError(t, tx.Rollback(ctx))
	require.Equal(t, int64(1), behind())
	require.NoError(t, pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error { return s.SaveTx(ctx, tx, c) }))
	require.Zero(t, behind())
	_, err = s.Claim(ctx, eventlog.Claim{Consumer: "c", Owner: "other"})
	require.NoError(t, err)
	err = pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error { return s.SaveTx(ctx, tx, c) })
	require.ErrorIs(t, err, eventlog.ErrTaken)
}

func TestProjectionsMayNotAppendInATransactionEither(t *testing.T) {
	s, db := fresh(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	_, err := s.Append(ctx, []eventlog.Append{one("a", "1", eventlog.Any)})
	require.NoError(t, err)
	tried := make(chan error, 1)
	l, err := eventlog.New(s, &eventlog.Options{Subscriptions: []eventlog.Subscription{eventlog.Projection("p", func(ctx context.Context, _ eventlog.Recorded) error {
		tried <- pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error {
			_, err := s.AppendTx(ctx, tx, one("echo", "2", eventlog.Any))
			return err
		})
		return nil
	}, nil)}})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	require.ErrorIs(t, <-tried, eventlog.ErrMayNotAppend)
	stop()
	<-ended
}

// TestHints: with nobody polling, an append elsewhere is delivered by a hint, also after the listener's connection was broken.
func TestHints(t *testing.T) {
	s, db := fresh(t)
	ctx, stop := context.WithCancel(t.Context())
	wake := s.Listen(ctx, nil)
	<-wake // it listens
	tail, err := eventlog.NewTailer(s, eventlog.TailOptions{Poll: time.Hour, Wake: wake})
	require.NoError(t, err)
	elsewhere, err := eventlog.New(at(t, db.Connect(t, nil), db.Schema), nil)
	require.NoError(t, err)
	next := func(id string) {
		_, err := elsewhere.Append(ctx, eventlog.Append{Stream: "a", Events: []eventlog.Event{{ID: id, Type: "t"}}})
		require.NoError(t, err)
		page, err := tail.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, id, page.Events[0].ID)
	}
	next("1")
	next("2")
	for i := range 3 { // what is said while nobody listens is found when somebody does again
		_, err = db.Pool.Exec(ctx, "select pg_terminate_backend(pid) from pg_stat_activity where query like 'listen tallystick_events%' and pid <> pg_backend_pid()")
		require.NoError(t, err)
		next(fmt.Sprint("broken", i))
	}
	require.Zero(t, tail.Lag().Failures)
	stop()
	for range wake { // closed in the end
	}
}

// TestNoPrivileges: what a log needs is its schema, nothing of the server.
func TestNoPrivileges(t *testing.T) {
	s, db := fresh(t)
	ctx := t.Context()
	role := "plain_" + db.Schema
	for _, sql := range []string{
		"create role " + role + " login password 'x'", "grant usage on schema " + db.Schema + " to " + role,
		"grant select, insert, update, delete on all tables in schema " + db.Schema + " to " + role, "grant usage, select on all sequences in schema " + db.Schema + " to " + role,
	} {
		_, err := db.Pool.Exec(ctx, sql)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		_, err := db.Pool.Exec(context.Background(), "drop owned by "+role+"; drop role "+role)
		require.NoError(t, err)
	})
	u, err := url.Parse(db.DSN)
	require.NoError(t, err)
	u.User = url.UserPassword(role, "x")
	plain, err := eventlogpg.New(pgtest.Connect(t, u.String(), nil), &eventlogpg.Options{Schema: db.Schema})
	require.NoError(t, err)
	require.NoError(t, plain.Check(ctx))
	tx, _ := hold(t, db.Pool, s, "another's")
	_, err = plain.Append(ctx, []eventlog.Append{one("a", "1", eventlog.Any)})
	require.NoError(t, err)
	ids, c := drain(t, plain, eventlog.Cursor{}, 10)
	require.Equal(t, []string{"1"}, ids)
	holders, err := plain.Holders(ctx, c)
	require.NoError(t, err)
	require.Len(t, holders, 1)
	require.Positive(t, holders[0].PID, "who may not see names and times sees a process")
	require.NoError(t, tx.Rollback(ctx))
	_, err = plain.Claim(ctx, eventlog.Claim{Consumer: "c", Owner: "me"})
	require.NoError(t, err)
	require.NoError(t, plain.Hint(ctx))
	out, err := plain.Prune(ctx, eventlog.Prune{Before: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.Equal(t, "c", out.HeldBy)
}

// TestTheSequenceHoldsNothingBack: a session that kept positions for itself would give a stream's later event an earlier one.
func TestTheSequenceHoldsNothingBack(t *testing.T) {
	s, db := fresh(t)
	ctx := t.Context()
	var cache int64
	require.NoError(t, db.Pool.QueryRow(ctx, "select cache_size from pg_sequences where schemaname = $1 and sequencename = 'events_position'", db.Schema).Scan(&cache))
	require.Equal(t, int64(1), cache)
	// A row that was written by hand, as an importer does, has its transaction before its position too.
	tx, err := db.Pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "insert into "+db.Schema+".events (version, schema, stream, id, type, data) values (1, 1, 'old', 'by hand', 't', '')")
	require.NoError(t, err)
	_, err = s.Append(ctx, []eventlog.Append{one("a", "1", eventlog.Any)})
	require.NoError(t, err)
	ids, c := drain(t, s, eventlog.Cursor{}, 10)
	require.Equal(t, []string{"1"}, ids)
	require.NoError(t, tx.Commit(ctx))
	page, err := s.Read(ctx, eventlog.Read{Cursor: c})
	require.NoError(t, err)
	require.Equal(t, "by hand", page.Events[0].ID)
	require.Equal(t, eventlog.Unknown, page.Events[0].Producer, "who does not say is nobody")
}
