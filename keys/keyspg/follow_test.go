package keyspg_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keyspg"
)

// TestCachesFollow: what one process edits, the caches of two others forget; and what was cached before one began to follow.
func TestCachesFollow(t *testing.T) {
	db := pgtest.New(t)
	s, _ := telling(t, db)
	ctx, stop := context.WithCancel(t.Context())
	_, err := s.CreateTeam(ctx, keys.CreateTeam{ID: "red"})
	require.NoError(t, err)
	made, err := s.CreateKey(ctx, keys.CreateKey{ID: "k", TeamID: "red"})
	require.NoError(t, err)

	var caches [2]*keys.Cache
	ended := make(chan error, len(caches))
	for i := range caches {
		pool := db.Connect(t, nil)
		theirs, err := keyspg.New(pool, &keyspg.Options{Schema: db.Schema})
		require.NoError(t, err)
		log, _ := recording(t, pool, db.Schema)
		caches[i] = keys.NewCache(theirs, &keys.CacheOptions{MaxAge: time.Hour})
		_, err = caches[i].Resolve(ctx, made.Token.Reveal())
		require.NoError(t, err)
		l, err := eventlog.New(log, &eventlog.Options{Poll: 10 * time.Millisecond, Subscriptions: []eventlog.Subscription{keyspg.Following(caches[i], log)}})
		require.NoError(t, err)
		go func() { ended <- l.Run(ctx) }()
		require.Eventually(t, func() bool { return caches[i].Len() == 0 }, time.Minute, time.Millisecond, "what it had seen before it followed")
	}
	eventually := func(want func(keys.Principal, error) bool) {
		t.Helper()
		for _, c := range caches {
			require.Eventually(t, func() bool { return want(c.Resolve(ctx, made.Token.Reveal())) }, time.Minute, time.Millisecond)
		}
	}
	eventually(func(_ keys.Principal, err error) bool { return err == nil })
	_, err = s.UpdateTeam(ctx, keys.UpdateTeam{ID: "red", IfRevision: 1, Name: keys.Set("x")})
	require.NoError(t, err)
	eventually(func(p keys.Principal, err error) bool { return err == nil && p.Team.Name == "x" })
	_, err = s.UpdateKey(ctx, keys.UpdateKey{ID: "k", IfRevision: 1, Owner: keys.Set("ann")})
	require.NoError(t, err)
	eventually(func(p keys.Principal, err error) bool { return err == nil && p.User == "ann" })
	_, err = s.RevokeKey(ctx, keys.RevokeKey{ID: "k"})
	require.NoError(t, err)
	for _, c := range caches {
		require.Eventually(t, func() bool { _, err := c.Resolve(ctx, made.Token.Reveal()); return err != nil }, time.Minute, time.Millisecond)
		_, err := c.Resolve(ctx, made.Token.Reveal())
		require.ErrorIs(t, err, keys.ErrRevoked)
	}
	stop()
	for range caches {
		require.ErrorIs(t, <-ended, context.Canceled)
	}
}
