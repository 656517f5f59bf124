package keyspg_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtx"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keyspg"
)

// hurried gives a store whose edits wait hardly at all for admissions.
func hurried(t *testing.T) (*keyspg.Store, *pgtest.DB) { return waiting(t, 20*time.Millisecond) }

// waiting returns a store that waits so long for admissions; zero is the default.
func waiting(t *testing.T, wait time.Duration) (*keyspg.Store, *pgtest.DB) {
	t.Helper()
	db := pgtest.New(t)
	s, err := keyspg.New(db.Pool, &keyspg.Options{Schema: db.Schema, BarrierWait: wait})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	return s, db
}

// admission holds the barrier as an admission does until end is called.
func admission(t *testing.T, s *keyspg.Store, db *pgtest.DB) (end func()) {
	t.Helper()
	tx, err := db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), pgtx.SharedLock, s.Schema().LockKey())
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(context.Background())) }
}

func TestEveryEditPassesTheBarrier(t *testing.T) {
	ctx := t.Context()
	set := keys.Set("x")
	// Each edit is repeated until it is confirmed, so each must also pass the barrier
	// when it finds itself in force.
	edits := map[string]func(s *keyspg.Store, p keys.Principal) error{
		"UpdateTeam": func(s *keyspg.Store, _ keys.Principal) error {
			team, err := s.UpdateTeam(ctx, keys.UpdateTeam{ID: "red", IfRevision: 1, Name: set})
			assert.Equal(t, int64(2), team.Revision, "the result goes out though the wait failed")
			return err
		},
		"DeleteTeam": func(s *keyspg.Store, _ keys.Principal) error {
			team, err := s.DeleteTeam(ctx, keys.DeleteTeam{ID: "red"})
			assert.NotNil(t, team.DeletedAt)
			return err
		},
		"UpdateKey": func(s *keyspg.Store, _ keys.Principal) error {
			key, err := s.UpdateKey(ctx, keys.UpdateKey{ID: "k", IfRevision: 1, Owner: set})
			assert.Equal(t, "x", key.Owner)
			return err
		},
		"RevokeKey": func(s *keyspg.Store, _ keys.Principal) error {
			key, err := s.RevokeKey(ctx, keys.RevokeKey{ID: "k"})
			assert.NotNil(t, key.RevokedAt)
			return err
		},
		"RevokeSelf": func(s *keyspg.Store, p keys.Principal) error {
			key, err := s.RevokeSelf(ctx, p)
			assert.NotNil(t, key.RevokedAt)
			return err
		},
		"RotateKey": func(s *keyspg.Store, _ keys.Principal) error {
			rotated, err := s.RotateKey(ctx, keys.RotateKey{ID: "k", RotationID: "r", IfRevision: 1})
			assert.Equal(t, rotated.Replayed, rotated.Token.IsZero(), "a token shown once is not lost to a slow admission")
			return err
		},
	}
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			s, db := hurried(t)
			_, err := s.CreateTeam(ctx, keys.CreateTeam{ID: "red"})
			require.NoError(t, err)
			made, err := s.CreateKey(ctx, keys.CreateKey{ID: "k", TeamID: "red"})
			require.NoError(t, err)
			p, err := s.Resolve(ctx, made.Token.Reveal())
			require.NoError(t, err)

			end := admission(t, s, db)
			require.ErrorIs(t, edit(s, p), keys.ErrUnconfirmed, "an admission from before the edit is running")
			require.ErrorIs(t, edit(s, p), keys.ErrUnconfirmed, "it still is, though the edit is in force")
			end()
			end = admission(t, s, db) // begun after the edit: it reads what was committed
			if name != "RevokeSelf" {
				require.ErrorIs(t, edit(s, p), keys.ErrUnconfirmed, "a repetition cannot tell and waits for it too")
			}
			end()
			err = edit(s, p)
			for errors.Is(err, keys.ErrUnconfirmed) { // a busy machine needs longer than a hurried store waits
				err = edit(s, p)
			}
			require.NoError(t, err)
		})
	}
}

func TestCreatingWaitsForNobody(t *testing.T) {
	ctx := t.Context()
	s, db := hurried(t)
	defer admission(t, s, db)()
	_, err := s.CreateTeam(ctx, keys.CreateTeam{ID: "red"})
	require.NoError(t, err)
	made, err := s.CreateKey(ctx, keys.CreateKey{ID: "k", TeamID: "red"})
	require.NoError(t, err)
	_, err = s.Resolve(ctx, made.Token.Reveal())
	require.NoError(t, err, "nor does resolving")
}

func TestARefusedEditDoesNotWait(t *testing.T) {
	ctx := t.Context()
	s, db := hurried(t)
	_, err := s.CreateTeam(ctx, keys.CreateTeam{ID: "red"})
	require.NoError(t, err)
	defer admission(t, s, db)()
	_, err = s.UpdateTeam(ctx, keys.UpdateTeam{ID: "red", IfRevision: 7, Name: keys.Set("x")})
	require.ErrorIs(t, err, keys.ErrStale)
	require.NotErrorIs(t, err, keys.ErrUnconfirmed)
}

// TestRevocationReturnsAfterTheLastOldAdmission checks the order: an admission that
// read the old row has ended by the time the revocation says that it is done.
func TestRevocationReturnsAfterTheLastOldAdmission(t *testing.T) {
	ctx := t.Context()
	db := pgtest.New(t)
	s, err := keyspg.New(db.Pool, &keyspg.Options{Schema: db.Schema})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(ctx))
	_, err = s.CreateTeam(ctx, keys.CreateTeam{ID: "red"})
	require.NoError(t, err)
	_, err = s.CreateKey(ctx, keys.CreateKey{ID: "k", TeamID: "red"})
	require.NoError(t, err)

	end := admission(t, s, db)
	var ended atomic.Bool
	done := make(chan error, 1)
	go func() {
		_, err := s.RevokeKey(ctx, keys.RevokeKey{ID: "k"})
		if err == nil && !ended.Load() {
			err = keys.ErrUnconfirmed
		}
		done <- err
	}()
	require.Eventually(t, func() bool { // committed, and waiting
		key, err := s.Key(ctx, "k")
		return err == nil && key.RevokedAt != nil
	}, 10*time.Second, time.Millisecond)
	ended.Store(true)
	end()
	require.NoError(t, <-done)
}
