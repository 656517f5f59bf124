package leasetest

import (
	"context"
	"errors"

	"github.com/tallystick-go/tallystick/lease"
)

func contextThatEnded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx, cancel
}

var historyCases = []suiteCase{
	{name: "History/LowerGenerationIsRefused", needs: Features{Rewind: true}, run: func(k *kit) {
		var held lease.Lease
		for range 3 {
			held = k.acquire("a")
		}
		k.h.Rewind(k, k.l, name, 1)
		_, err := k.l.Acquire(k.ctx, claim("a"))
		k.regressed(err, 3, 1)
		_, err = k.l.Renew(k.ctx, held)
		k.regressed(err, 3, 1)
		k.regressed(k.l.Release(k.ctx, held), 3, 1)
		_, err = k.l.Look(k.ctx, name)
		k.regressed(err, 3, 1)
	}},
	{name: "History/MissingRowIsRefused", needs: Features{Rewind: true}, run: func(k *kit) {
		k.acquire("a")
		k.h.Rewind(k, k.l, name, 0)
		_, err := k.l.Acquire(k.ctx, claim("a"))
		k.regressed(err, 1, 0)
		_, err = k.l.Look(k.ctx, name)
		k.regressed(err, 1, 0)
	}},
	{name: "History/RefusedChangesNothing", needs: Features{Rewind: true, Handles: true}, run: func(k *kit) {
		k.acquire("a")
		k.acquire("a")
		k.h.Rewind(k, k.l, name, 1)
		_, err := k.l.Acquire(k.ctx, claim("a"))
		k.regressed(err, 2, 1)
		r := must(k.reopen().Look(k.ctx, name))(k)
		k.equal(r.Generation, lease.Generation(1), "generation")
		k.equal(r.Held(), false, "held")
	}},
	{name: "History/IsOfOneName", needs: Features{Rewind: true}, run: func(k *kit) {
		k.acquire("a")
		k.h.Rewind(k, k.l, name, 0)
		other := lease.Claim{Name: "other", Holder: "a", TTL: ttl}
		k.equal(must(k.l.Acquire(k.ctx, other))(k).Generation, lease.Generation(1), "a name that did not go back")
	}},
	// What another process did is seen by looking, and by being refused.
	{name: "History/SeesWhatOthersDid", needs: Features{Rewind: true, Handles: true}, run: func(k *kit) {
		other := k.reopen()
		must(other.Acquire(k.ctx, claim("b")))(k)
		must(other.Acquire(k.ctx, claim("b")))(k)
		_, err := k.l.Acquire(k.ctx, claim("a"))
		k.fails(err, lease.ErrHeld, "another's lease")
		k.h.Rewind(k, k.l, name, 1)
		_, err = k.l.Acquire(k.ctx, claim("a"))
		k.regressed(err, 2, 1)
	}},
	// A process that was started again has seen nothing, and goes on; then the others do too.
	{name: "History/EndsWhenTheStoreIsAhead", needs: Features{Rewind: true, Handles: true}, run: func(k *kit) {
		k.acquire("a")
		k.acquire("a")
		k.h.Rewind(k, k.l, name, 1)
		other := k.reopen()
		must(other.Acquire(k.ctx, claim("b")))(k) // 2, which was given away before
		_, err := k.l.Acquire(k.ctx, claim("a"))
		k.fails(err, lease.ErrHeld, "no less than was seen")
		must(other.Acquire(k.ctx, claim("b")))(k)
		k.equal(k.look().Generation, lease.Generation(3), "generation")
	}},
}

func (k *kit) regressed(err error, seen, shown lease.Generation) {
	k.Helper()
	k.fails(err, lease.ErrHistoryRegressed, "history that went back")
	var h *lease.HistoryError
	if !errors.As(err, &h) || h.Name != name || h.Seen != seen || h.Shown != shown {
		k.Fatalf("history that went back: got %#v, want %d seen and %d shown", h, seen, shown)
	}
}
