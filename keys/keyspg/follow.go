package keyspg

import (
	"context"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/keys"
)

// Following is the projection that keeps a cache of principals as the log says, on every replica: what any of them edits is
// evicted everywhere, within one look at the log. It tells nothing of a store whose Options have no Events.
//
// The log that follows may be the one that Options.Events appends to: put the cache before a second Store on the same pool, which has no
// Events and is only asked.
//
// A cache that has missed something cannot know what, so that it begins, and begins again, empty.
//
// Source: ADR-020 "Events of keys, teams and policies".
func Following(cache *keys.Cache, log eventlog.Store) eventlog.Subscription {
	begin := func(ctx context.Context) (eventlog.Cursor, error) {
		at, err := log.Head(ctx)
		if err == nil { // in this order: what is read from now on is no older than the cursor
			cache.Clear()
		}
		return at, err
	}
	return eventlog.Projection("principals", func(_ context.Context, e eventlog.Recorded) error {
		cache.Follow(e.Stream)
		return nil
	}, &eventlog.ViewOptions{From: begin, Resync: func(ctx context.Context, _ error) (eventlog.Cursor, error) { return begin(ctx) }})
}
