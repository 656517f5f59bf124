package prove

import (
	"syscall"
	"testing"
	"unsafe"
)

// clockMonotonic is CLOCK_MONOTONIC of linux/time.h: one clock for all processes since the machine
// was started, which nobody can set. Go's own monotonic readings begin with each process.
const clockMonotonic = 1

// monotonic reads the clock by which operations of all processes are ordered, in nanoseconds.
func monotonic() int64 {
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic("clock_gettime: " + errno.Error())
	}
	return ts.Nano()
}

func needClock(testing.TB) {}
