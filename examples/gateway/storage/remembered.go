package storage

import (
	"context"
	"errors"
	"time"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/examples/gateway/audit"
)

// rememberEvery is well below the shortest coordination.keep, an hour.
const rememberEvery = 10 * time.Minute

// remembered keeps what a process tells from being nobody's, for as long as it runs. It follows nothing, so that its checkpoint is adopted
// and closed while it lives; once it has been quiet for coordination.keep, retention would forget that, and nobody would
// look for what it tells then. end ends it. What fails is tried again with the next turn.
func remembered(store eventlog.Store, producer eventlog.Producer) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(rememberEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = remember(ctx, store, producer)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// remember touches the closed checkpoint of a process that lives, and makes one that is gone anew. An open one is left alone.
//
// Errors: those of eventlog.Store.
func remember(ctx context.Context, store eventlog.Store, producer eventlog.Producer) error {
	list, err := store.Checkpoints(ctx, audit.Name)
	if err != nil {
		return err
	}
	for _, c := range list {
		switch {
		case c.Producer != producer:
		case !c.Closed:
			return nil
		default: // as it is: opened, it would deliver again what was adopted since
			if err := store.Save(ctx, c); !errors.Is(err, eventlog.ErrTaken) {
				return err
			}
			return nil
		}
	}
	head, err := store.Head(ctx)
	if err != nil {
		return err
	}
	c, err := store.Claim(ctx, eventlog.Claim{Consumer: audit.Name, Producer: producer, Owner: producer, From: head})
	if err != nil {
		return err
	}
	c.Left = true // nobody here reads it
	return store.Save(ctx, c)
}
