package policy_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/policy"
)

// What an authority sends is put in force under its own mark, never an older one, and never another
// authority's.
func TestFollow(t *testing.T) {
	ctx := t.Context()
	authority := policy.NewMemory()
	first, err := authority.Load(ctx)
	require.NoError(t, err)
	second, err := authority.Apply(ctx, policy.Apply{Documents: []policy.Document{of("p", team, capped(""))}, Expect: first.Generation})
	require.NoError(t, err)

	m := policy.NewFollower()
	now, err := m.Load(ctx)
	require.NoError(t, err)
	require.True(t, now.Namespace.IsZero(), "it follows nobody yet")
	require.Zero(t, now.Set.Len())

	edits := func() {
		t.Helper()
		now, err := m.Load(ctx)
		require.NoError(t, err)
		_, err = m.Apply(ctx, policy.Apply{Documents: []policy.Document{of("q", team, capped(""))}, Expect: now.Generation})
		require.ErrorIs(t, err, policy.ErrFollows)
		_, err = m.Delete(ctx, policy.Delete{Names: []string{"p"}, Expect: now.Generation})
		require.ErrorIs(t, err, policy.ErrFollows)
		_, err = m.Replace(ctx, policy.Replace{Expect: now.Generation})
		require.ErrorIs(t, err, policy.ErrFollows)
		after, err := m.Load(ctx)
		require.NoError(t, err)
		require.Equal(t, now.Mark, after.Mark)
	}
	edits()
	require.ErrorIs(t, m.Follow(ctx, policy.Mark{Generation: first.Generation, Revision: 1}, first.Set), policy.ErrInvalid)
	require.ErrorIs(t, m.Follow(ctx, first.Mark, second.Set), policy.ErrInvalid, "documents of another generation")
	require.NoError(t, m.Follow(ctx, first.Mark, first.Set))
	edits()
	require.NoError(t, m.Follow(ctx, second.Mark, second.Set))
	require.NoError(t, m.Follow(ctx, second.Mark, second.Set), "once more")
	now, err = m.Load(ctx)
	require.NoError(t, err)
	require.Equal(t, second.Mark, now.Mark)
	require.Equal(t, 1, now.Set.Len())

	for name, mark := range map[string]policy.Mark{
		"a lower revision":           first.Mark,
		"the revision of another":    {Namespace: second.Namespace, Generation: first.Generation, Revision: second.Revision},
		"a higher one, of elsewhere": {Namespace: policy.Namespace{1}, Generation: first.Generation, Revision: second.Revision + 1},
	} {
		err := m.Follow(ctx, mark, first.Set)
		var regressed *policy.RegressedError
		require.ErrorAs(t, err, &regressed, name)
		require.ErrorIs(t, err, policy.ErrRegressed, name)
		require.Equal(t, second.Mark, regressed.Now, name)
		require.Equal(t, mark, regressed.Offered, name)
	}
	require.ErrorIs(t, authority.Follow(ctx, second.Mark, second.Set), policy.ErrInvalid, "it has a set of its own")

	// It returns when every step that read the older set has ended.
	_, release := m.Hold()
	short, cancel := context.WithCancel(ctx)
	third := second.Mark
	third.Revision++
	cancel()
	require.ErrorIs(t, m.Follow(short, third, second.Set), policy.ErrUnavailable)
	waits, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- m.Follow(waits, third, second.Set) }()
	for {
		if now, err := m.Mark(ctx); err != nil || now == third {
			require.NoError(t, err)
			break
		}
	}
	stop()
	require.ErrorIs(t, <-done, policy.ErrUnconfirmed, "in force, and somebody still goes by the older one")
	go func() { done <- m.Follow(ctx, third, second.Set) }()
	release()
	require.NoError(t, <-done)
}
