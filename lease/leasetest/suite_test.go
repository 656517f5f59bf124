package leasetest_test

import (
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/lease"
	"github.com/tallystick-go/tallystick/lease/leasetest"
)

// The suite is tried on a store without a database.
func TestMemory(t *testing.T) {
	leasetest.Run(t, leasetest.Harness{
		Features: leasetest.Features{Shared: true, Handles: true, Clock: true, Fence: true, Rewind: true},
		New:      func(testing.TB) lease.Leaser { return leasetest.NewMemory() },
		Reopen:   func(_ testing.TB, l lease.Leaser) lease.Leaser { return l.(*leasetest.Memory).Handle() },
		Advance:  func(_ testing.TB, l lease.Leaser, d time.Duration) { l.(*leasetest.Memory).Advance(d) },
		Fence:    func(_ testing.TB, l lease.Leaser, held lease.Lease) error { return l.(*leasetest.Memory).Fence(held) },
		Rewind: func(_ testing.TB, l lease.Leaser, name string, to lease.Generation) {
			l.(*leasetest.Memory).Rewind(name, to)
		},
	})
}
