package lease

import (
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7 // CLOCK_BOOTTIME of linux/time.h

func sinceBoot() time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return stitchedSinceStart() // a sandbox that forbids the call forbids it always
	}
	return time.Duration(ts.Nano())
}
