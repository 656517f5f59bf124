package policy_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/governance/policy/policytest"
)

func TestMemory(t *testing.T) {
	policytest.Run(t, policytest.Harness{
		Features: policytest.Features{Barrier: true},
		New:      func(testing.TB) policy.Store { return policy.NewMemory() },
		Hold: func(_ testing.TB, s policy.Store) func() {
			_, release := s.(*policy.Memory).Hold()
			return release
		},
	})
}

// Who holds sees one set, whatever is edited meanwhile; who holds later sees the newer one and is
// not waited for.
func TestMemoryHold(t *testing.T) {
	ctx := t.Context()
	m := policy.NewMemory()
	old, release := m.Hold()
	done := make(chan error, 1)
	go func() {
		_, err := m.Apply(ctx, policy.Apply{Documents: []policy.Document{of("p", team, capped(""))}, Expect: old.Generation})
		done <- err
	}()
	for {
		if now, err := m.Load(ctx); err != nil {
			t.Fatal(err)
		} else if now.Mark != old.Mark {
			break
		}
		runtime.Gosched()
	}
	require.Zero(t, old.Set.Len(), "a set never changes under who holds it")
	newer, releaseNewer := m.Hold()
	require.Equal(t, 1, newer.Set.Len())
	select {
	case err := <-done:
		t.Fatalf("the edit returned, %v, before the older step had ended", err)
	default:
	}
	release()
	release() // twice is once
	require.NoError(t, <-done, "and does not wait for the newer step")
	releaseNewer()
	again, err := m.Apply(ctx, policy.Apply{Documents: []policy.Document{of("p", team, capped(""))}, Expect: old.Generation})
	require.NoError(t, err)
	require.Equal(t, newer.Mark, again.Mark)
}
