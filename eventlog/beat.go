package eventlog

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// pulse says by time that a checkpoint's owner lives, while it is busy with a page.
type pulse struct {
	taken atomic.Bool // another has claimed the checkpoint
	stop  chan struct{}
	done  chan struct{}
}

// beat begins to; end must follow. c stays as it is meanwhile.
func (r *runner) beat(ctx context.Context, c Checkpoint) *pulse {
	p := &pulse{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		tick := time.NewTicker(r.log.o.Beat)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := r.save(ctx, c); errors.Is(err, ErrTaken) {
				p.taken.Store(true)
				r.note(func(s *SubscriptionStatus) { s.Err = err.Error() })
				return
			}
		}
	}()
	return p
}

// end returns when nothing of it is on its way, so that what is saved next is saved last.
func (p *pulse) end() {
	close(p.stop)
	<-p.done
}
