package lease

import (
	"sync"
	"time"
)

// SinceBoot reads the clock by which a Keeper counts trust: time that has passed since some instant, which
// nobody can set back.
//
// On Linux it is CLOCK_BOOTTIME, which goes on while the machine is suspended. Elsewhere it is the monotonic
// clock, moved on by what the wall clock gained more than it: Go's monotonic clock stops in suspension on
// some systems. A wall clock that is set forward then ends trust early, which is safe; set back it does
// nothing. A virtual machine that its host pauses may notice nothing at all: that is what Fence is for.
func SinceBoot() time.Duration { return sinceBoot() }

// stitched is a clock made of two, of which each may miss something.
type stitched struct {
	mu         sync.Mutex
	mono, wall time.Duration // as read last
	passed     time.Duration
}

// read moves on by what the faster of the two moved.
func (s *stitched) read(mono, wall time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passed += max(mono-s.mono, wall-s.wall, 0)
	s.mono, s.wall = max(s.mono, mono), wall
	return s.passed
}

var (
	started = time.Now()
	pieces  = stitched{wall: time.Duration(started.UnixNano())}
)

func stitchedSinceStart() time.Duration {
	now := time.Now()
	return pieces.read(now.Sub(started), time.Duration(now.UnixNano()))
}
