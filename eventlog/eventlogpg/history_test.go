package eventlogpg_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogpg"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgserver"
)

func run(t *testing.T, srv *pgserver.Server, sql string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), srv.DSN())
	require.NoError(t, err)
	defer func() { _ = c.Close(context.Background()) }()
	_, err = c.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// eitherHost is a DSN of both servers that leads to the one which can be written to.
func eitherHost(t *testing.T, a, b *pgserver.Server) string {
	t.Helper()
	first, err := url.Parse(a.DSN())
	require.NoError(t, err)
	second, err := url.Parse(b.DSN())
	require.NoError(t, err)
	first.Host += "," + second.Host
	q := first.Query()
	q.Set("target_session_attrs", "read-write")
	first.RawQuery = q.Encode()
	return first.String()
}

// takenOver is a log of which a standby has taken over.
type takenOver struct {
	s              *eventlogpg.Store
	outside        eventlog.Cursor // had delivered all there was
	ids            []string        // what the standby has
	lost           []string
	log            *eventlog.Log // of a process that goes on through it, where all is there
	effects, views chan string
	ended          chan error
}

// goThrough has a process with an effect and a projection run from before to after.
func (o *takenOver) goThrough(t *testing.T, into *[]string) {
	t.Helper()
	o.effects, o.views, o.ended = make(chan string, 100), make(chan string, 100), make(chan error, 1)
	var err error
	o.log, err = eventlog.New(o.s, &eventlog.Options{Poll: time.Millisecond, Subscriptions: []eventlog.Subscription{
		eventlog.Effect("export", func(_ context.Context, e eventlog.Recorded, _ eventlog.Appender) error { o.effects <- e.ID; return nil }),
		eventlog.Projection("view", func(_ context.Context, e eventlog.Recorded) error { o.views <- e.ID; return nil },
			&eventlog.ViewOptions{Resync: func(context.Context, error) (eventlog.Cursor, error) {
				o.views <- "resynchronized"
				return eventlog.Cursor{}, nil
			}}),
	}})
	require.NoError(t, err)
	go func() { o.ended <- o.log.Run(t.Context()) }()
	_, err = o.log.Append(t.Context(), eventlog.Append{Stream: "own", Events: []eventlog.Event{{ID: "own 1", Type: "t"}}})
	require.NoError(t, err)
	*into = append(*into, "own 1")
	require.Equal(t, "own 1", <-o.effects)
	for id := ""; id != "own 1"; id = <-o.views {
	}
}

// goOn has the process run again in what is left, where nothing is known of it: neither its events nor its checkpoint.
func (o *takenOver) goOn(t *testing.T) {
	t.Helper()
	require.ErrorIs(t, <-o.ended, eventlog.ErrHistoryRegressed, "it had ended")
	list, err := o.s.Checkpoints(t.Context(), "export")
	require.NoError(t, err)
	require.Empty(t, list)
	go func() { o.ended <- o.log.Run(t.Context()) }()
	_, err = o.log.Append(t.Context(), eventlog.Append{Stream: "own", Events: []eventlog.Event{{ID: "own 2", Type: "t"}}})
	require.NoError(t, err)
	select {
	case id := <-o.effects:
		require.Equal(t, "own 2", id)
	case err := <-o.ended:
		t.Fatal("the process ended:", err)
	}
}

// takeOver has a log, a checkpoint behind its second event, and a standby that is promoted: with all, or without the last events.
func takeOver(t *testing.T, lagging bool) takenOver {
	t.Helper()
	ctx := t.Context()
	primary := pgtest.Own(t, "fsync=on")
	standby := pgtest.Standby(t, primary)
	pool := pgtest.Connect(t, eitherHost(t, primary, standby), nil)
	o := takenOver{s: at(t, pool, "events")}
	put := func(id string, into *[]string) {
		_, err := o.s.Append(ctx, []eventlog.Append{one("a", id, eventlog.Any)})
		require.NoError(t, err)
		*into = append(*into, id)
	}
	follower := at2(t, pgtest.Connect(t, standby.DSN(), nil))
	caughtUp := func() bool {
		var behind bool
		c, err := pgx.Connect(ctx, primary.DSN())
		require.NoError(t, err)
		defer func() { _ = c.Close(context.Background()) }()
		err = c.QueryRow(ctx, "select coalesce(bool_and(replay_lsn < pg_current_wal_lsn()), true) from pg_stat_replication").Scan(&behind)
		return err == nil && !behind
	}
	put("1", &o.ids)
	put("2", &o.ids)
	c, err := o.s.Claim(ctx, eventlog.Claim{Consumer: "kept", Owner: "me"})
	require.NoError(t, err)
	_, c.Cursor = drain(t, o.s, eventlog.Cursor{}, 10)
	require.NoError(t, o.s.Save(ctx, c))
	put("3", &o.ids)
	if !lagging {
		o.goThrough(t, &o.ids)
	}
	require.Eventually(t, caughtUp, time.Minute, 10*time.Millisecond)
	for name, refused := range map[string]error{
		"Read":   ignore(follower.Read(ctx, eventlog.Read{})),
		"Head":   ignore(follower.Head(ctx)),
		"Check":  follower.Check(ctx),
		"Append": ignore(follower.Append(ctx, []eventlog.Append{one("a", "x", eventlog.Any)})),
		"Claim":  ignore(follower.Claim(ctx, eventlog.Claim{Consumer: "x", Owner: "x"})),
	} {
		require.ErrorIs(t, refused, eventlog.ErrStandby, name)
	}
	if lagging { // it hears no more
		run(t, standby, "alter system set primary_conninfo = ''")
		run(t, standby, "select pg_reload_conf()")
		require.Eventually(t, func() bool {
			var n int
			c, err := pgx.Connect(ctx, standby.DSN())
			require.NoError(t, err)
			defer func() { _ = c.Close(context.Background()) }()
			return c.QueryRow(ctx, "select count(*) from pg_stat_wal_receiver").Scan(&n) == nil && n == 0
		}, time.Minute, 10*time.Millisecond)
		put("lost 4", &o.lost)
		put("lost 5", &o.lost)
		o.goThrough(t, &o.lost)
	}
	_, o.outside = drain(t, o.s, eventlog.Cursor{}, 10)
	require.NoError(t, primary.Kill(ctx))
	run(t, standby, "select pg_promote()")
	require.Eventually(t, func() bool {
		_, err := o.s.Checkpoints(ctx, "")
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	return o
}

func at2(t *testing.T, pool *pgxpool.Pool) *eventlogpg.Store {
	t.Helper()
	s, err := eventlogpg.New(pool, &eventlogpg.Options{Schema: "events"})
	require.NoError(t, err)
	return s
}

func ignore[T any](_ T, err error) error { return err }

func TestAStandbyWithEverythingTakesOver(t *testing.T) {
	if thin() {
		t.Skip("the one that lacks commits shows more")
	}
	o := takeOver(t, false)
	ctx := t.Context()
	_, err := o.s.Read(ctx, eventlog.Read{Cursor: o.outside})
	var why *eventlog.ResyncError
	require.ErrorAs(t, err, &why)
	require.Equal(t, eventlog.TimelineChanged, why.Reason, "also before the control file says so")
	require.Nil(t, o.s.Regressed())
	again, err := o.s.At(ctx, why.Through-1)
	require.NoError(t, err)
	ids, _ := drain(t, o.s, again, 10)
	require.Equal(t, []string{"own 1"}, ids, "from a position that both histories have")

	// A process that ran all along goes on: its effect by the checkpoint, its view by a fresh state.
	_, err = o.log.Append(ctx, eventlog.Append{Stream: "own", Expect: 1, Events: []eventlog.Event{{ID: "own 2", Type: "t"}}})
	require.NoError(t, err)
	for id := ""; id != "own 2"; id = <-o.effects {
	}
	for id := ""; id != "resynchronized"; id = <-o.views {
	}
	var seen []string
	for id := ""; id != "own 2"; {
		id = <-o.views
		seen = append(seen, id)
	}
	require.Equal(t, append(o.ids, "own 2"), seen)

	c, err := o.s.Claim(ctx, eventlog.Claim{Consumer: "kept", Owner: "me again"})
	require.NoError(t, err)
	ids, _ = drain(t, o.s, c.Cursor, 10)
	require.Equal(t, []string{"3", "own 1", "own 2"}, ids)
	select {
	case err := <-o.ended:
		t.Fatal("the process ended:", err)
	default:
	}
}

// TestAStandbyThatLacksCommitsTakesOver: history went back, and nothing is read of it until somebody accepts that.
func TestAStandbyThatLacksCommitsTakesOver(t *testing.T) {
	o := takeOver(t, true)
	ctx := t.Context()
	for range 2 {
		_, err := o.s.Read(ctx, eventlog.Read{Cursor: o.outside})
		require.ErrorIs(t, err, eventlog.ErrHistoryRegressed)
		_, err = o.s.Read(ctx, eventlog.Read{})
		require.ErrorIs(t, err, eventlog.ErrHistoryRegressed)
		_, err = o.s.Head(ctx)
		require.ErrorIs(t, err, eventlog.ErrHistoryRegressed)
	}
	went := o.s.Regressed()
	require.Equal(t, eventlog.Regressed, went.Reason)
	require.Greater(t, went.Through, went.Head)
	for i := range 5 { // it grows past what was seen
		_, err := o.s.Append(ctx, []eventlog.Append{one("b", fmt.Sprint("later", i), eventlog.Any)})
		require.NoError(t, err)
		o.ids = append(o.ids, fmt.Sprint("later", i))
	}
	_, err := o.s.Head(ctx)
	require.ErrorIs(t, err, eventlog.ErrHistoryRegressed, "and is refused all the same")
	l, err := eventlog.New(o.s, &eventlog.Options{Subscriptions: []eventlog.Subscription{eventlog.Projection("p", func(context.Context, eventlog.Recorded) error { return nil }, nil)}})
	require.NoError(t, err)
	err = l.Run(ctx)
	require.ErrorIs(t, err, eventlog.ErrHistoryRegressed, "a subscription ends with it")
	require.NotNil(t, l.Status().Regressed)
	o.s.AcceptHistory()
	o.goOn(t)
	_, err = o.s.Read(ctx, eventlog.Read{Cursor: o.outside})
	require.ErrorIs(t, err, eventlog.ErrResync, "what was delivered of the lost history is not this one's")
	_, err = o.s.Append(ctx, []eventlog.Append{one("a", "new", eventlog.Any)})
	require.NoError(t, err)
	c, err := o.s.Claim(ctx, eventlog.Claim{Consumer: "kept", Owner: "me again"})
	require.NoError(t, err)
	ids, _ := drain(t, o.s, c.Cursor, 10)
	require.Equal(t, append(append([]string{}, o.ids[2:]...), "own 2", "new"), ids, "a checkpoint went back with the events")
}

// TestRestoredRows: rows from a cluster that had had more transactions, and a sequence that stayed behind.
func TestRestoredRows(t *testing.T) {
	s, db := fresh(t)
	ctx := t.Context()
	exec := func(sql string) {
		_, err := db.Pool.Exec(ctx, sql)
		require.NoError(t, err)
	}
	for i := range 6 {
		_, err := s.Append(ctx, []eventlog.Append{one("a", fmt.Sprint(i), eventlog.Any)})
		require.NoError(t, err)
	}
	c, err := s.Claim(ctx, eventlog.Claim{Consumer: "kept", Owner: "me"})
	require.NoError(t, err)
	page, err := s.Read(ctx, eventlog.Read{Limit: 2})
	require.NoError(t, err)
	c.Cursor = page.Next
	require.NoError(t, s.Save(ctx, c))
	require.NoError(t, s.Check(ctx))

	exec("update " + db.Schema + ".events set xid = '9999999999' where version > 3")
	require.ErrorIs(t, s.Check(ctx), eventlog.ErrFuture)
	n, err := s.Repair(ctx)
	require.NoError(t, err)
	require.Equal(t, int64(3), n)
	require.NoError(t, s.Check(ctx))
	exec("select setval('" + db.Schema + ".events_position', 2)")
	require.ErrorIs(t, s.Check(ctx), eventlog.ErrFuture, "it would hand out positions twice")
	n, err = s.Repair(ctx)
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, s.Check(ctx))

	_, err = s.Read(ctx, eventlog.Read{Cursor: page.Next})
	require.ErrorIs(t, err, eventlog.ErrResync, "a cursor from before")
	_, err = s.Append(ctx, []eventlog.Append{one("a", "6", eventlog.Any)})
	require.NoError(t, err)
	c, err = s.Claim(ctx, eventlog.Claim{Consumer: "kept", Owner: "me"})
	require.NoError(t, err)
	ids, _ := drain(t, s, c.Cursor, 2)
	require.Equal(t, []string{"2", "3", "4", "5", "6"}, ids, "a checkpoint goes on")
}

// TestARestoredCheckpointLosesNothing: what it waited for committed at an early position, and both were restored.
func TestARestoredCheckpointLosesNothing(t *testing.T) {
	s, db := fresh(t)
	ctx := t.Context()
	late, _ := hold(t, db.Pool, s, "late")
	_, err := s.Append(ctx, []eventlog.Append{one("a", "early", eventlog.Any)})
	require.NoError(t, err)
	c, err := s.Claim(ctx, eventlog.Claim{Consumer: "kept", Owner: "me"})
	require.NoError(t, err)
	_, c.Cursor = drain(t, s, eventlog.Cursor{}, 10)
	require.NoError(t, s.Save(ctx, c))
	require.NoError(t, late.Commit(ctx))
	_, err = s.Repair(ctx)
	require.NoError(t, err)
	c, err = s.Claim(ctx, eventlog.Claim{Consumer: "kept", Owner: "me"})
	require.NoError(t, err)
	ids, _ := drain(t, s, c.Cursor, 10)
	require.Equal(t, []string{"held in late", "early"}, ids, "at least once")
}

// TestARepairedCheckpointIsNotBehindRetention: what it waited for is at an early position, and all around that is gone.
func TestARepairedCheckpointIsNotBehindRetention(t *testing.T) {
	s, db := fresh(t)
	ctx := t.Context()
	late, _ := hold(t, db.Pool, s, "late")
	for i := range 4 {
		_, err := s.Append(ctx, []eventlog.Append{one("a", fmt.Sprint(i), eventlog.Any)})
		require.NoError(t, err)
	}
	c, err := s.Claim(ctx, eventlog.Claim{Consumer: "kept", Owner: "me"})
	require.NoError(t, err)
	_, c.Cursor = drain(t, s, eventlog.Cursor{}, 10)
	require.NoError(t, s.Save(ctx, c))
	require.NoError(t, late.Commit(ctx))
	out, err := s.Prune(ctx, eventlog.Prune{Before: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.Equal(t, int64(4), out.Events)
	_, err = s.Append(ctx, []eventlog.Append{one("a", "next", eventlog.Any)})
	require.NoError(t, err)
	_, err = s.Repair(ctx)
	require.NoError(t, err)
	c, err = s.Claim(ctx, eventlog.Claim{Consumer: "kept", Owner: "me"})
	require.NoError(t, err)
	require.Zero(t, c.Skipped)
	ids, _ := drain(t, s, c.Cursor, 10)
	require.Equal(t, []string{"held in late", "next"}, ids, "it goes on, and has what was kept for it")

	// One that was put behind it all the same, by an earlier version, goes on from what is left, and says so.
	behind, err := eventlog.View{Origin: c.Cursor.Origin()}.At(0)
	require.NoError(t, err)
	_, err = db.Pool.Exec(ctx, "update "+db.Schema+".event_consumers set cursor = $1", behind.String())
	require.NoError(t, err)
	c, err = s.Claim(ctx, eventlog.Claim{Consumer: "kept", Owner: "me"})
	require.NoError(t, err)
	require.Equal(t, out.Through, c.Skipped)
	ids, _ = drain(t, s, c.Cursor, 10)
	require.Equal(t, []string{"next"}, ids)
}

// TestAProcessGoesOnInAnotherHistory: its checkpoint was lost with the history that its cursor is of.
func TestAProcessGoesOnInAnotherHistory(t *testing.T) {
	s, db := fresh(t)
	ctx := t.Context()
	exports := make(chan string, 100)
	l, err := eventlog.New(s, &eventlog.Options{Poll: time.Millisecond, Beat: time.Millisecond, Subscriptions: []eventlog.Subscription{
		eventlog.Effect("export", func(_ context.Context, e eventlog.Recorded, _ eventlog.Appender) error { exports <- e.ID; return nil }),
	}})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	put := func(id string) {
		_, err := l.Append(ctx, eventlog.Append{Stream: "own", Events: []eventlog.Event{{ID: id, Type: "t"}}})
		require.NoError(t, err)
		for got := ""; got != id; {
			select {
			case got = <-exports:
			case err := <-ended:
				t.Fatal("the process ended:", err)
			}
		}
	}
	put("1")
	for _, sql := range []string{"delete from {}.event_consumers; update {}.event_log set log = gen_random_uuid()"} {
		_, err := db.Pool.Exec(ctx, strings.ReplaceAll(sql, "{}", db.Schema))
		require.NoError(t, err)
	}
	put("2")
	put("3")
}

// TestADatabaseThatWasPutBack: the same cluster and timeline, and less than a process has seen.
func TestADatabaseThatWasPutBack(t *testing.T) {
	s, db := fresh(t)
	ctx := t.Context()
	_, err := s.Append(ctx, []eventlog.Append{one("a", "1", eventlog.Any), one("a", "2", eventlog.Any)})
	require.NoError(t, err)
	_, seen := drain(t, s, eventlog.Cursor{}, 10)
	_, err = db.Pool.Exec(ctx, "delete from "+db.Schema+".events where id = '2'")
	require.NoError(t, err)
	_, err = s.Read(ctx, eventlog.Read{Cursor: seen})
	require.ErrorIs(t, err, eventlog.ErrHistoryRegressed)
	other := at(t, db.Pool, db.Schema)
	_, err = other.Read(ctx, eventlog.Read{Cursor: seen})
	require.ErrorIs(t, err, eventlog.ErrHistoryRegressed, "a process that has seen nothing knows it by the cursor")
	_, err = other.Read(ctx, eventlog.Read{})
	require.NoError(t, err)
}
