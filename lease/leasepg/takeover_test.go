package leasepg_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/lease"
	"github.com/tallystick-go/tallystick/lease/leasepg"
)

// A standby answers what was: it is not asked, and nobody leads there. When it takes over without the last acquisitions, who has seen
// them refuses it, says so, and changes nothing; who has seen nothing takes it as it is, and the others go on once it is ahead of them.
func TestAStandbyThatLacksCommitsTakesOver(t *testing.T) {
	primary := pgtest.Own(t)
	standby := pgtest.Standby(t, primary)
	open := func(dsn string) *leasepg.Leaser {
		l, err := leasepg.New(pgtest.Connect(t, dsn, nil), nil)
		require.NoError(t, err)
		return l
	}
	l := open(pgtest.EitherHost(t, primary, standby))
	require.NoError(t, l.Migrate(t.Context()))
	before := acquire(t, l, "before", time.Hour)
	pgtest.Deafen(t, primary, standby)
	behind := open(standby.DSN())
	_, err := behind.Look(t.Context(), name)
	require.ErrorIs(t, err, lease.ErrUnavailable)
	_, err = behind.Acquire(t.Context(), lease.Claim{Name: name, Holder: "b", TTL: time.Minute})
	require.ErrorIs(t, err, lease.ErrUnavailable)

	require.NoError(t, l.Release(t.Context(), before))
	k, err := lease.NewKeeper(open(pgtest.EitherHost(t, primary, standby)), []string{name}, &lease.KeeperOptions{
		TTL: 30 * time.Second, Renew: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = k.Close(t.Context()) })
	held, err := k.Await(t.Context(), name)
	require.NoError(t, err)
	require.Greater(t, held.Generation, before.Generation)

	pgtest.TakeOver(t, primary, standby)
	require.Eventually(t, func() bool { return k.Status()[0].Regressed }, time.Minute, time.Millisecond)
	require.ErrorIs(t, k.Status()[0].Err, lease.ErrHistoryRegressed)
	_, holds := k.Held(name)
	require.False(t, holds, "what it held is of a history that is gone")
	stranger := open(standby.DSN())
	row, err := stranger.Look(t.Context(), name)
	require.NoError(t, err)
	require.Equal(t, []any{"before", before.Generation}, []any{row.Holder, row.Generation}, "who saw more has changed nothing")
	require.NoError(t, stranger.Release(t.Context(), lease.Lease{Name: name, Holder: row.Holder, Generation: row.Generation}))
	for range 2 { // it gets ahead of what was seen
		next := acquire(t, stranger, "next", time.Hour)
		require.NoError(t, stranger.Release(t.Context(), next))
	}
	again, err := k.Await(t.Context(), name)
	require.NoError(t, err)
	require.Greater(t, again.Generation, held.Generation)
	require.False(t, k.Status()[0].Regressed)
}
