package leasepg_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgwire"
	"github.com/tallystick-go/tallystick/lease"
	"github.com/tallystick-go/tallystick/lease/leasepg"
)

// operation is something that a holder asks of a lease of its own.
type operation struct {
	do func(ctx context.Context, l *leasepg.Leaser, held lease.Lease) error
	// done reports whether it happened, by the rows before and now.
	done func(before, now lease.Row) bool
}

var operations = map[string]operation{
	"Acquire": {func(ctx context.Context, l *leasepg.Leaser, held lease.Lease) error {
		_, err := l.Acquire(ctx, lease.Claim{Name: held.Name, Holder: held.Holder, TTL: held.TTL})
		return err
	}, func(before, now lease.Row) bool { return now.Generation > before.Generation }},
	"Renew": {func(ctx context.Context, l *leasepg.Leaser, held lease.Lease) error {
		_, err := l.Renew(ctx, held)
		return err
	}, func(before, now lease.Row) bool { return now.RenewedAt.After(before.RenewedAt) }},
	"Release": {func(ctx context.Context, l *leasepg.Leaser, held lease.Lease) error {
		return l.Release(ctx, held)
	}, func(_, now lease.Row) bool { return !now.Held() }},
	"Look": {func(ctx context.Context, l *leasepg.Leaser, held lease.Lease) error {
		_, err := l.Look(ctx, held.Name)
		return err
	}, nil},
}

// TestCutAtEveryMessage: the connection ends at the k-th message of an operation, for every k. It was done, or not, or
// may have been, and whoever is told which is told the truth. Repeating it is how to learn.
func TestCutAtEveryMessage(t *testing.T) {
	for name, op := range operations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everywhere(t, op)
		})
	}
}

func everywhere(t *testing.T, op operation) {
	ctx := t.Context()
	db, direct := setup(t)
	proxy, err := pgwire.Start(db.DSN)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	pool := pgtest.Connect(t, proxy.DSN(), func(c *pgxpool.Config) {
		c.MaxConns, c.ConnConfig.DefaultQueryExecMode = 1, pgx.QueryExecModeExec
	})
	through, err := leasepg.New(pool, &leasepg.Options{Schema: db.Schema})
	require.NoError(t, err)
	connected := func() bool { return pool.Ping(ctx) == nil }
	fresh := func(i int) lease.Lease {
		held, err := direct.Acquire(ctx, lease.Claim{Name: fmt.Sprint(name, i), Holder: "a", TTL: time.Hour})
		require.NoError(t, err)
		return held
	}
	held := fresh(0)
	require.True(t, connected())
	proxy.Arm(pgwire.Fault{})
	require.NoError(t, op.do(ctx, through, held))
	faults := pgwire.Everywhere(proxy.Messages(), pgwire.Cut, false)
	require.NotEmpty(t, faults)
	for i, f := range pgwire.Sample(faults) {
		held := fresh(i + 1)
		before, err := direct.Look(ctx, held.Name)
		require.NoError(t, err)
		require.Eventually(t, connected, 30*time.Second, time.Millisecond)
		happened := proxy.Arm(f)
		err = op.do(ctx, through, held)
		<-happened
		now, lerr := direct.Look(ctx, held.Name)
		require.NoError(t, lerr)
		if op.done == nil {
			require.True(t, err == nil || errors.Is(err, lease.ErrUnavailable), "%v", err)
			continue
		}
		switch {
		case err == nil:
			require.True(t, op.done(before, now), "at %+v", f)
		case errors.Is(err, lease.ErrUnavailable):
			require.False(t, op.done(before, now), "at %+v it was said that nothing changed", f)
		default:
			require.ErrorIs(t, err, lease.ErrUnknownOutcome, "at %+v", f)
		}
		require.Eventually(t, connected, 30*time.Second, time.Millisecond)
		require.NoError(t, op.do(ctx, through, held), "at %+v: the repetition", f)
		now, err = direct.Look(ctx, held.Name)
		require.NoError(t, err)
		require.True(t, op.done(before, now))
	}
	require.Eventually(t, func() bool { return pool.Stat().AcquiredConns() == 0 }, 30*time.Second, time.Millisecond, "a broken one is given back too")
}

// A connection that falls silent is an error within the bound, and not the end of the belief.
func TestSilence(t *testing.T) {
	db, direct := setup(t)
	proxy, err := pgwire.Start(db.DSN)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	pool := pgtest.Connect(t, proxy.DSN(), func(c *pgxpool.Config) { c.MaxConns = 2 })
	through, err := leasepg.New(pool, &leasepg.Options{Schema: db.Schema, Timeout: 200 * time.Millisecond})
	require.NoError(t, err)
	held := acquire(t, direct, "a", time.Hour)
	_, err = through.Renew(t.Context(), held)
	require.NoError(t, err)
	proxy.Sever(pgwire.Hole)
	_, err = through.Renew(t.Context(), held)
	require.True(t, errors.Is(err, lease.ErrUnknownOutcome) || errors.Is(err, lease.ErrUnavailable), "%v", err)
	_, err = through.Acquire(t.Context(), lease.Claim{Name: name, Holder: "b", TTL: time.Hour})
	require.True(t, errors.Is(err, lease.ErrUnknownOutcome) || errors.Is(err, lease.ErrUnavailable), "%v", err)
	_, err = through.Look(t.Context(), name)
	require.ErrorIs(t, err, lease.ErrUnavailable)
	proxy.Heal()
	require.Eventually(t, func() bool { _, err := through.Renew(t.Context(), held); return err == nil }, 30*time.Second, time.Millisecond)
}

// A keeper in a network that breaks again and again keeps its lease, or loses it and says so; the store never
// shows a generation that it went without noticing.
func TestKeeperThroughBreaks(t *testing.T) {
	db, direct := setup(t)
	proxy, err := pgwire.Start(db.DSN)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	pool := pgtest.Connect(t, proxy.DSN(), func(c *pgxpool.Config) { c.MaxConns = 2 })
	through, err := leasepg.New(pool, &leasepg.Options{Schema: db.Schema})
	require.NoError(t, err)
	k, err := lease.NewKeeper(through, []string{name}, &lease.KeeperOptions{TTL: 3 * time.Second, Renew: 30 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	for range 8 {
		held, err := k.Await(t.Context(), name)
		require.NoError(t, err)
		proxy.Sever(pgwire.Cut)
		require.Eventually(t, func() bool { return k.Status()[0].Failures > 0 }, 30*time.Second, time.Millisecond)
		proxy.Heal()
		require.Eventually(t, func() bool { return k.Status()[0].Failures == 0 }, 30*time.Second, time.Millisecond)
		row, err := direct.Look(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, k.Holder(), row.Holder)
		require.GreaterOrEqual(t, row.Generation, held.Generation)
	}
	require.NoError(t, k.Close(t.Context()))
	row, err := direct.Look(t.Context(), name)
	require.NoError(t, err)
	require.False(t, row.Held())
}

func TestErrorsGiveNothingAway(t *testing.T) {
	config, err := pgxpool.ParseConfig("postgres://user-s3cret:pass-s3cret@127.0.0.1:1/db-s3cret")
	require.NoError(t, err)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	l, err := leasepg.New(pool, nil)
	require.NoError(t, err)
	_, away := l.Acquire(t.Context(), lease.Claim{Name: name, Holder: "a", TTL: time.Minute})
	require.ErrorIs(t, away, lease.ErrUnavailable)
	db := pgtest.New(t)
	l, err = leasepg.New(db.Pool, &leasepg.Options{Schema: db.Schema}) // not migrated
	require.NoError(t, err)
	_, missing := l.Renew(t.Context(), lease.Lease{Name: name, Holder: "a", Generation: 1})
	require.ErrorIs(t, missing, lease.ErrUnavailable)
	for _, text := range []string{away.Error(), missing.Error()} {
		for _, secret := range []string{"s3cret", "select", "127.0.0.1", db.Schema} {
			require.False(t, strings.Contains(text, secret), text)
		}
	}
	_, err = leasepg.New(pool, &leasepg.Options{Schema: "Bad Name"})
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorIs(t, l.Check(t.Context()), leasepg.ErrOlder)
}

func TestRowsAreNotDeleted(t *testing.T) {
	db, l := setup(t)
	acquire(t, l, "a", time.Minute)
	for _, sql := range []string{"delete from " + db.Schema + ".leases", "truncate " + db.Schema + ".leases"} {
		_, err := db.Pool.Exec(t.Context(), sql)
		require.ErrorContains(t, err, "never deleted")
	}
	var unlogged bool
	require.NoError(t, db.Pool.QueryRow(t.Context(), "select relpersistence <> 'p' from pg_class where oid = ($1 || '.leases')::regclass", db.Schema).Scan(&unlogged))
	require.False(t, unlogged)
}

// Another schema begins at generation 1, which is no progress; a name that neither has is refused as well.
func TestAnotherSchemaIsAnotherOrigin(t *testing.T) {
	seen := &lease.History{}
	open := func() *leasepg.Leaser {
		db, _ := setup(t)
		l, err := leasepg.New(db.Pool, &leasepg.Options{Schema: db.Schema, History: seen})
		require.NoError(t, err)
		return l
	}
	acquire(t, open(), "a", time.Minute)
	other := open()
	for _, n := range []string{name, "new"} {
		_, err := other.Acquire(t.Context(), lease.Claim{Name: n, Holder: "a", TTL: time.Minute})
		require.ErrorIs(t, err, lease.ErrHistoryRegressed)
	}
}
