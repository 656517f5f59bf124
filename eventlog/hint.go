package eventlog

import "context"

// Hinter is a store that can tell other processes that there may be something new.
type Hinter interface {
	// Hint tells them. It is no data and may be lost: who misses it polls.
	Hint(ctx context.Context) error
}
