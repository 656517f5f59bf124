package policy_test

import (
	"testing"

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
