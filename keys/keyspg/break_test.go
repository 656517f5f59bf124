package keyspg_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgwire"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keyspg"
)

// target is a team with one key of its own, so that every break is judged by itself.
type target struct {
	direct    *keyspg.Store
	team, key string
	brought   keys.Token // for what makes a token: who must repeat a lost answer brings one
	principal keys.Principal
}

// edit is something that an administrator or a gateway asks of a key store.
type edit struct {
	name string
	do   func(ctx context.Context, s *keyspg.Store, at *target) error
	// inForce reports whether it happened.
	inForce func(t *testing.T, at *target) bool
	// twice is what a repetition answers once it is in force; nil: the same again.
	twice error
}

func edits() []edit {
	key := func(t *testing.T, at *target) keys.Key {
		k, err := at.direct.Key(t.Context(), at.key)
		require.NoError(t, err)
		return k
	}
	team := func(t *testing.T, at *target) keys.Team {
		k, err := at.direct.Team(t.Context(), at.team)
		require.NoError(t, err)
		return k
	}
	return []edit{
		{"CreateTeam", func(ctx context.Context, s *keyspg.Store, at *target) error {
			_, err := s.CreateTeam(ctx, keys.CreateTeam{ID: at.team + "-new"})
			return err
		}, func(t *testing.T, at *target) bool {
			_, err := at.direct.Team(t.Context(), at.team+"-new")
			require.True(t, err == nil || errors.Is(err, keys.ErrNotFound), "%v", err)
			return err == nil
		}, keys.ErrExists},
		{"UpdateTeam", func(ctx context.Context, s *keyspg.Store, at *target) error {
			_, err := s.UpdateTeam(ctx, keys.UpdateTeam{ID: at.team, IfRevision: 1, Name: keys.Set("other")})
			return err
		}, func(t *testing.T, at *target) bool {
			k := team(t, at)
			require.Equal(t, k.Name == "other", k.Revision == 2, "changed once or not at all")
			return k.Revision == 2
		}, nil},
		{"DeleteTeam", func(ctx context.Context, s *keyspg.Store, at *target) error {
			_, err := s.DeleteTeam(ctx, keys.DeleteTeam{ID: at.team})
			return err
		}, func(t *testing.T, at *target) bool { return team(t, at).DeletedAt != nil }, nil},
		{"CreateKey", func(ctx context.Context, s *keyspg.Store, at *target) error {
			_, err := s.CreateKey(ctx, keys.CreateKey{ID: at.key + "-new", TeamID: at.team, Token: at.brought})
			return err
		}, func(t *testing.T, at *target) bool {
			_, err := at.direct.Resolve(t.Context(), at.brought.Reveal())
			require.True(t, err == nil || errors.Is(err, keys.ErrUnknown), "%v", err)
			_, of := at.direct.Key(t.Context(), at.key+"-new")
			require.Equal(t, err == nil, of == nil, "key and token are made together")
			return err == nil
		}, keys.ErrExists},
		{"UpdateKey", func(ctx context.Context, s *keyspg.Store, at *target) error {
			_, err := s.UpdateKey(ctx, keys.UpdateKey{ID: at.key, IfRevision: 1, Name: keys.Set("other")})
			return err
		}, func(t *testing.T, at *target) bool {
			k := key(t, at)
			require.Equal(t, k.Name == "other", k.Revision == 2, "changed once or not at all")
			return k.Revision == 2
		}, nil},
		{"RevokeKey", func(ctx context.Context, s *keyspg.Store, at *target) error {
			_, err := s.RevokeKey(ctx, keys.RevokeKey{ID: at.key})
			return err
		}, func(t *testing.T, at *target) bool { return key(t, at).RevokedAt != nil }, nil},
		{"RevokeSelf", func(ctx context.Context, s *keyspg.Store, at *target) error {
			_, err := s.RevokeSelf(ctx, at.principal)
			return err
		}, func(t *testing.T, at *target) bool { return key(t, at).RevokedAt != nil }, nil},
		{"RotateKey", func(ctx context.Context, s *keyspg.Store, at *target) error {
			_, err := s.RotateKey(ctx, keys.RotateKey{ID: at.key, RotationID: "r", IfRevision: 1, Token: at.brought})
			return err
		}, func(t *testing.T, at *target) bool {
			_, err := at.direct.Resolve(t.Context(), at.brought.Reveal())
			require.True(t, err == nil || errors.Is(err, keys.ErrUnknown), "%v", err)
			require.Equal(t, err == nil, key(t, at).Revision == 2, "rotated once or not at all")
			_, old := at.direct.Reload(t.Context(), at.principal)
			require.Equal(t, err == nil, errors.Is(old, keys.ErrRevoked), "one of the two tokens is good")
			return err == nil
		}, nil},
		{"Bootstrap", func(ctx context.Context, s *keyspg.Store, at *target) error {
			_, err := s.Bootstrap(ctx, keys.Bootstrap{Declarations: []keys.Declaration{
				{Key: &keys.CreateKey{ID: at.key + "-new", TeamID: at.team + "-new", Token: at.brought}}, {Team: &keys.CreateTeam{ID: at.team + "-new"}},
			}})
			return err
		}, broughtIn, nil},
		{"Import", func(ctx context.Context, s *keyspg.Store, at *target) error {
			_, err := s.Import(ctx, func(yield func(keys.Rows, error) bool) {
				_ = yield(keys.Rows{Teams: []keys.Team{{ID: at.team + "-new", Revision: 1}}}, nil) && yield(keys.Rows{
					Keys:    []keys.Key{{ID: at.key + "-new", TeamID: at.team + "-new", Revision: 1}},
					Secrets: []keys.Secret{{KeyID: at.key + "-new", Hash: at.brought.Hash()}},
				}, nil)
			})
			return err
		}, broughtIn, nil},
		// Looks: nothing is ever in force, and that nothing could be read is never an unknown key.
		{"Resolve", func(ctx context.Context, s *keyspg.Store, at *target) error {
			_, err := s.Reload(ctx, at.principal)
			return err
		}, nil, nil},
		{"Keys", func(ctx context.Context, s *keyspg.Store, at *target) error {
			_, err := s.Keys(ctx, keys.ListKeys{TeamID: at.team})
			return err
		}, nil, nil},
	}
}

// broughtIn reports whether a team and its key came in, which they do together.
func broughtIn(t *testing.T, at *target) bool {
	_, team := at.direct.Team(t.Context(), at.team+"-new")
	_, key := at.direct.Resolve(t.Context(), at.brought.Reveal())
	require.True(t, team == nil || errors.Is(team, keys.ErrNotFound), "%v", team)
	require.True(t, key == nil || errors.Is(key, keys.ErrUnknown), "%v", key)
	require.Equal(t, team == nil, key == nil, "all or none")
	return key == nil
}

// TestCutAtEveryMessage: the connection ends at the k-th message of an edit, for every k, its barrier
// included. The edit is in force, or not, or may be, and whoever is told which is told the truth.
func TestCutAtEveryMessage(t *testing.T) {
	for _, e := range edits() {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			e.everywhere(t)
		})
	}
}

func (e *edit) everywhere(t *testing.T) {
	ctx := t.Context()
	db := pgtest.New(t)
	direct, err := keyspg.New(db.Pool, &keyspg.Options{Schema: db.Schema})
	require.NoError(t, err)
	require.NoError(t, direct.Migrate(ctx))
	log, events := recording(t, db.Pool, db.Schema) // whose hints go around the proxy
	proxy, err := pgwire.Start(db.DSN)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	pool := pgtest.Connect(t, proxy.DSN(), func(c *pgxpool.Config) {
		c.MaxConns, c.ConnConfig.DefaultQueryExecMode = 1, pgx.QueryExecModeExec
	})
	through, err := keyspg.New(pool, &keyspg.Options{Schema: db.Schema, Events: events})
	require.NoError(t, err)
	connected := func() bool { return pool.Ping(ctx) == nil }

	require.True(t, connected())
	proxy.Arm(pgwire.Fault{})
	dry := newTarget(t, direct, 0)
	require.NoError(t, e.do(ctx, through, dry))
	seen := proxy.Messages()
	asked := pgwire.Before(seen, "commit")
	require.Equal(t, e.inForce != nil, asked[pgwire.Client] > 0, "who edits commits, and who looks does not")
	faults := pgwire.Everywhere(seen, pgwire.Cut, false)
	require.NotEmpty(t, faults)
	told := len(toldBy(t, log)) // of the one that went well
	require.Equal(t, e.inForce != nil, told > 0)
	for i, f := range pgwire.Sample(faults) {
		at := newTarget(t, direct, i+1)
		before := len(toldBy(t, log))
		require.Eventually(t, connected, 30*time.Second, time.Millisecond)
		happened := proxy.Arm(f)
		err := e.do(ctx, through, at)
		<-happened
		require.Eventually(t, connected, 30*time.Second, time.Millisecond)
		if e.inForce != nil { // what is in force was told, and what is not was not
			require.Equal(t, e.inForce(t, at), len(toldBy(t, log)) == before+told)
			require.Contains(t, []int{before, before + told}, len(toldBy(t, log)))
		}
		e.judge(t, through, at, err, f.At > asked[f.From])
		require.Len(t, toldBy(t, log), before+told, "once, whatever was repeated")
		if t.Failed() {
			t.Fatalf("at %+v: %v", f, err)
		}
	}
	require.Zero(t, pool.Stat().AcquiredConns())
}

func newTarget(t *testing.T, direct *keyspg.Store, i int) *target {
	t.Helper()
	at := &target{direct: direct, team: fmt.Sprintf("team-%d", i), key: fmt.Sprintf("key-%d", i)}
	_, err := direct.CreateTeam(t.Context(), keys.CreateTeam{ID: at.team})
	require.NoError(t, err)
	made, err := direct.CreateKey(t.Context(), keys.CreateKey{ID: at.key, TeamID: at.team})
	require.NoError(t, err)
	at.principal, err = direct.Resolve(t.Context(), made.Token.Reveal())
	require.NoError(t, err)
	at.brought, err = keys.Mint(nil)
	require.NoError(t, err)
	return at
}

func (e *edit) judge(t *testing.T, s *keyspg.Store, at *target, err error, asked bool) {
	t.Helper()
	if e.inForce == nil {
		if err != nil {
			require.ErrorIs(t, err, keys.ErrUnavailable)
			require.NotErrorIs(t, err, keys.ErrUnknown)
		}
		require.NoError(t, e.do(t.Context(), s, at))
		return
	}
	done := e.inForce(t, at)
	switch {
	case err == nil:
		require.True(t, done)
	case errors.Is(err, keys.ErrUnconfirmed):
		require.True(t, asked, "nobody had asked for a commit yet")
	default:
		require.ErrorIs(t, err, keys.ErrUnavailable)
		require.False(t, done, "it was said that nothing changed")
	}
	// Repeating it is how to learn, and does nothing a second time.
	again := e.do(t.Context(), s, at)
	if done && e.twice != nil {
		require.ErrorIs(t, again, e.twice)
	} else {
		require.NoError(t, again)
	}
	require.True(t, e.inForce(t, at))
}
