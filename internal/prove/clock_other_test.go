//go:build !linux

package prove

import "testing"

func monotonic() int64 { return 0 }

// needClock skips where no clock is known that processes share.
func needClock(t testing.TB) {
	t.Helper()
	t.Skip("operations of several processes are ordered by Linux's CLOCK_MONOTONIC, which this system has not")
}
