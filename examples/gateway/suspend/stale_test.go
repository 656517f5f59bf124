package suspend_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/examples/gateway/coordination"
	"github.com/tallystick-go/tallystick/examples/gateway/suspend"
	"github.com/tallystick-go/tallystick/internal/pgtest"
)

// TestStaleSuspensionsAreNotServed: a gateway that cannot read the log for too long does not know whom others have suspended,
// says so, and goes on when it can.
func TestStaleSuspensionsAreNotServed(t *testing.T) {
	db := pgtest.New(t)
	_, other := join(t, db)
	b, err := coordination.Open(t.Context(), coordination.Options{
		DSN: db.DSN, Schema: db.Schema, Connect: 5 * time.Second, Call: 200 * time.Millisecond,
		Tenure: 3 * time.Second, Tail: 10 * time.Millisecond, Stale: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	s := suspend.New(b)
	require.NoError(t, b.Start(s.Subscription()))
	t.Cleanup(func() { require.NoError(t, b.Close(context.WithoutCancel(t.Context()))) })
	require.Eventually(t, func() bool { return s.Known() == nil }, patience, tick)
	require.Less(t, b.Age(), patience)

	tx, err := db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "lock table "+db.Schema+".events in access exclusive mode")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return b.Following() != nil }, patience, tick)
	_, err = s.Of("k", "")
	require.ErrorIs(t, err, coordination.ErrStale)
	require.Greater(t, b.Age(), time.Second)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Eventually(t, func() bool { return s.Known() == nil }, patience, tick)

	// What uses all other connections of this gateway does not keep it from looking.
	hold, held := make(chan struct{}), make(chan struct{}, 20)
	for range cap(held) {
		go func() {
			_ = b.Edit(context.WithoutCancel(t.Context()), func(context.Context, *coordination.Tx) error {
				held <- struct{}{}
				<-hold
				return coordination.ErrNotFound
			})
		}()
	}
	<-held
	_, err = other.Put(t.Context(), begin("k", "", "leaked"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return why(t, s, "k", "") == "leaked" }, patience, tick)
	close(hold)
}

// TestOldEventsThatStay: the reader that keeps them is named, and an operator can give it up.
func TestOldEventsThatStay(t *testing.T) {
	db := pgtest.New(t)
	b, s := join(t, db)
	ctx := t.Context()
	_, err := b.Store.Claim(ctx, eventlog.Claim{Consumer: "an export of old", Owner: "somebody"})
	require.NoError(t, err)
	for _, key := range []string{"j", "k"} {
		_, err := s.Put(ctx, begin(key, "", "leaked"))
		require.NoError(t, err)
	}
	require.NoError(t, b.Retain(ctx, time.Now().Add(time.Hour)))
	require.Equal(t, "an export of old", b.HeldBy())
	n, err := b.Drop(ctx, "an export of old")
	require.NoError(t, err)
	require.Zero(t, n, "it may be in use")
	_, err = db.Pool.Exec(ctx, "update "+db.Schema+".event_consumers set seen_us = seen_us - 3600000000")
	require.NoError(t, err)
	n, err = b.Drop(ctx, "an export of old")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = b.Drop(ctx, "an export of old")
	require.ErrorIs(t, err, coordination.ErrNotFound)
	require.NoError(t, b.Retain(ctx, time.Now().Add(time.Hour)))
	require.Empty(t, b.HeldBy())
	page, err := b.Store.Stream(ctx, eventlog.ReadStream{Stream: "suspension/k"})
	require.NoError(t, err)
	require.Empty(t, page)
}
