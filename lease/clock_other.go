//go:build !linux

package lease

import "time"

func sinceBoot() time.Duration { return stitchedSinceStart() }
