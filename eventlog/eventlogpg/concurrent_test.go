package eventlogpg_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogpg"
	"github.com/tallystick-go/tallystick/internal/pgtest"
)

// ledger is what writers were told.
type ledger struct {
	mu        sync.Mutex
	committed map[string]bool
	gone      map[string]bool
}

func (l *ledger) note(a eventlog.Append, commit bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range a.Events {
		if commit {
			l.committed[e.ID] = true
		} else {
			l.gone[e.ID] = true
		}
	}
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.committed)
}

// follower checks what comes as it comes.
type follower struct {
	cursor   eventlog.Cursor
	limit    int
	had      map[string]bool
	versions map[string]int64
}

func newFollower(limit int) *follower {
	return &follower{limit: limit, had: map[string]bool{}, versions: map[string]int64{}}
}

func (f *follower) take(s *eventlogpg.Store) (more bool, err error) {
	page, err := s.Read(context.Background(), eventlog.Read{Cursor: f.cursor, Limit: f.limit})
	if err != nil {
		return false, err
	}
	for _, e := range page.Events {
		if f.had[e.ID] {
			return false, fmt.Errorf("%s comes twice", e.ID)
		}
		if e.Version != f.versions[e.Stream]+1 {
			return false, fmt.Errorf("version %d of %s comes after %d", e.Version, e.Stream, f.versions[e.Stream])
		}
		f.had[e.ID], f.versions[e.Stream] = true, e.Version
	}
	f.cursor = page.Next
	return page.More, nil
}

func (f *follower) drain(t *testing.T, s *eventlogpg.Store) {
	t.Helper()
	for more := true; more; {
		var err error
		more, err = f.take(s)
		require.NoError(t, err)
	}
}

// hold opens a transaction that appends and stays open.
func hold(t *testing.T, pool *pgxpool.Pool, s *eventlogpg.Store, stream string) (held, eventlog.Append) {
	t.Helper()
	tx := begin(t, pool, s)
	a := one(stream, "held in "+stream, eventlog.Any)
	_, err := tx.Append(context.Background(), a)
	require.NoError(t, err)
	return tx, a
}

// TestNothingIsLostOrDoubled: sixteen writers with transactions of any length, some of which are rolled back, while one
// transaction is open from before the first to after the last, one in another database, and one is prepared.
func TestNothingIsLostOrDoubled(t *testing.T) {
	srv := pgtest.Own(t, "max_prepared_transactions=10")
	ctx := t.Context()
	pool := pgtest.Connect(t, srv.DSN(), func(c *pgxpool.Config) { c.MaxConns = 24 })
	s := at(t, pool, "events")
	l := &ledger{committed: map[string]bool{}, gone: map[string]bool{}}

	open, heldOpen := hold(t, pool, s, "open")
	prepared, heldPrepared := hold(t, pool, s, "prepared")
	_, err := prepared.Exec(ctx, "prepare transaction 'one'")
	require.NoError(t, err)
	_, err = pool.Exec(ctx, "create database elsewhere")
	require.NoError(t, err)
	u, err := url.Parse(srv.DSN())
	require.NoError(t, err)
	u.Path = "/elsewhere"
	other, err := pgtest.Connect(t, u.String(), nil).Begin(ctx)
	require.NoError(t, err)
	_, err = other.Exec(ctx, "select pg_current_xact_id()")
	require.NoError(t, err)

	seed := rand.Uint64()
	t.Log("seed", seed)
	var writers, readers sync.WaitGroup
	var done atomic.Bool
	followers := []*follower{newFollower(1), newFollower(7), newFollower(256)}
	failed := make(chan error, 32)
	for _, f := range followers {
		readers.Go(func() {
			for !done.Load() {
				if _, err := f.take(s); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	const each = 40
	for w := range 16 {
		writers.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			for n := range each {
				if err := write(ctx, r, pool, s, l, w, n); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	writers.Wait()
	done.Store(true)
	readers.Wait()
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	// The three are still open, and everything else is delivered.
	for _, f := range followers {
		f.drain(t, s)
		require.Len(t, f.had, l.count(), "in pages of %d", f.limit)
	}
	holders, err := s.Holders(ctx, followers[0].cursor)
	require.NoError(t, err)
	require.Len(t, holders, 3, "%+v", holders)
	var names []string
	for _, h := range holders {
		names = append(names, h.Database+"/"+h.Prepared)
		require.True(t, h.PID > 0 != (h.Prepared != ""), "%+v", h)
		require.Positive(t, h.For)
	}
	require.ElementsMatch(t, []string{"postgres/", "postgres/one", "elsewhere/"}, names)

	require.NoError(t, other.Rollback(ctx))
	_, err = pool.Exec(ctx, "commit prepared 'one'")
	require.NoError(t, err)
	l.note(heldPrepared, true)
	require.NoError(t, open.Commit(ctx))
	l.note(heldOpen, true)
	for _, f := range followers {
		f.drain(t, s)
		require.Len(t, f.had, l.count())
		for id := range l.committed {
			require.True(t, f.had[id], id)
		}
		for id := range l.gone {
			require.False(t, f.had[id], id)
		}
		require.True(t, f.cursor.Open().Empty())
	}
}

// write appends in one of the ways there are.
func write(ctx context.Context, r *rand.Rand, pool *pgxpool.Pool, s *eventlogpg.Store, l *ledger, w, n int) error {
	a := eventlog.Append{Stream: fmt.Sprint("own", w), Producer: "p"}
	if r.IntN(3) == 0 {
		a.Stream = fmt.Sprint("shared", r.IntN(4))
	}
	for i := range 1 + r.IntN(4) {
		a.Events = append(a.Events, eventlog.Event{ID: fmt.Sprintf("%d/%d/%d", w, n, i), Type: "t", Schema: 1})
	}
	if r.IntN(2) == 0 {
		_, err := s.Append(ctx, []eventlog.Append{a})
		l.note(a, err == nil)
		return err
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if r.IntN(2) == 0 { // it has an id long before it appends
		if _, err := tx.Exec(ctx, "select pg_current_xact_id()"); err != nil {
			return err
		}
	}
	length := fmt.Sprintf("%dus", r.IntN(4000))
	if _, err := tx.Exec(ctx, "select pg_sleep(extract(epoch from $1::text::interval))", length); err != nil {
		return err
	}
	if _, err := s.AppendTx(ctx, tx, a); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "select pg_sleep(extract(epoch from $1::text::interval))", length); err != nil {
		return err
	}
	if r.IntN(4) == 0 {
		l.note(a, false)
		return tx.Rollback(ctx)
	}
	err = tx.Commit(ctx)
	l.note(a, err == nil)
	return err
}

// TestACrashHandsIDsOutAgain: ids and positions that nobody committed come again after the server was killed.
func TestACrashHandsIDsOutAgain(t *testing.T) {
	srv := pgtest.Own(t)
	ctx := t.Context()
	pool := pgtest.Connect(t, srv.DSN(), nil)
	s := at(t, pool, "events")
	next := func() (xid, position int64) {
		require.Eventually(t, func() bool {
			return pool.QueryRow(ctx, "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint, (select last_value from events.events_position)").Scan(&xid, &position) == nil
		}, time.Minute, 10*time.Millisecond)
		return xid, position
	}
	f := newFollower(3)
	again, rounds := 0, 4
	if thin() {
		rounds = 2
	}
	for round := range rounds {
		before := []eventlog.Append{one("a", fmt.Sprint("before", round), eventlog.Any), one("b", fmt.Sprint("also", round), eventlog.Any)}
		_, err := s.Append(ctx, before)
		require.NoError(t, err)
		tx := begin(t, pool, s)
		for i := range 70 { // more positions than the server logs ahead
			_, err = tx.Append(ctx, one("lost", fmt.Sprint("lost", round, "/", i), eventlog.Any))
			require.NoError(t, err)
		}
		for range 5 {
			gone := begin(t, pool, s)
			require.NoError(t, gone.Rollback(ctx))
		}
		f.drain(t, s)
		open := f.cursor.Open()
		require.NoError(t, srv.Kill(ctx))
		require.NoError(t, srv.Start(ctx))
		xid, _ := next()
		if uint64(xid) < open.Next {
			again++
		}
		for i := range 12 {
			_, err := s.Append(ctx, []eventlog.Append{one("a", fmt.Sprint("after", round, "/", i), eventlog.Any)})
			require.NoError(t, err)
		}
		f.drain(t, s)
		require.Len(t, f.had, 14*(round+1))
	}
	t.Logf("ids were handed out again in %d of %d crashes", again, rounds)
}

// TestAppendsAgainstStandstill: a stream on which a transaction is open makes others wait, and not for ever.
func TestAppendsAgainstStandstill(t *testing.T) {
	_, db := fresh(t)
	s, err := eventlogpg.New(db.Pool, &eventlogpg.Options{Schema: db.Schema, Timeout: 100 * time.Millisecond})
	require.NoError(t, err)
	tx, _ := hold(t, db.Pool, s, "a")
	_, err = s.Append(t.Context(), []eventlog.Append{one("a", "waits", eventlog.Any)})
	require.True(t, errors.Is(err, eventlog.ErrUnknownOutcome) || errors.Is(err, eventlog.ErrUnavailable), "%v", err)
	require.NoError(t, tx.Rollback(t.Context()))
	patient := at(t, db.Pool, db.Schema)
	_, err = patient.Append(t.Context(), []eventlog.Append{one("a", "waits", eventlog.Any)})
	require.NoError(t, err)
	ids, _ := drain(t, s, eventlog.Cursor{}, 10)
	require.Equal(t, []string{"waits"}, ids)
}
