package leasetest

import (
	"errors"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/lease"
)

var acquireCases = []suiteCase{
	{name: "Acquire/FirstIsGenerationOne", run: func(k *kit) {
		l := k.acquire("a")
		k.equal(l.Generation, lease.Generation(1), "generation")
		k.equal(l.Name+l.Holder+l.TTL.String(), name+"a"+ttl.String(), "what was asked for")
		r := k.look()
		k.equal(r.Held() && r.Holder == "a" && r.Generation == 1, true, "the row")
		k.equal(r.ExpiresAt, l.ExpiresAt, "the end, on the store's clock")
		k.equal(r.ExpiresAt.Sub(r.RenewedAt), ttl, "the tenure begins when it was granted")
		k.equal(r.AcquiredAt, r.RenewedAt, "acquired and renewed")
	}},
	{name: "Acquire/HeldIsRefusedAndSaysByWhom", run: func(k *kit) {
		k.acquire("a")
		_, err := k.l.Acquire(k.ctx, claim("b"))
		k.fails(err, lease.ErrHeld, "another's lease")
		var held *lease.HeldError
		k.equal(errors.As(err, &held) && held.Row.Holder == "a" && held.Row.Generation == 1 && held.Row.TTL == ttl, true, "who holds it, and for how long")
		k.equal(held.Row.Remaining() > 0 && held.Row.Remaining() <= ttl, true, "what is left of it")
		k.equal(k.look().Holder, "a", "nothing changed")
	}},
	{name: "Acquire/LapsedIsTaken", needs: Features{Clock: true}, run: func(k *kit) {
		k.acquire("a")
		k.advance(ttl)
		l := k.acquire("b")
		k.equal(l.Generation, lease.Generation(2), "generation")
		r := k.look()
		k.equal(r.Holder, "b", "holder")
		k.equal(r.ExpiresAt.Sub(r.RenewedAt), ttl, "a whole tenure")
	}},
	{name: "Acquire/NotBeforeTheEnd", needs: Features{Clock: true}, run: func(k *kit) {
		k.acquire("a")
		k.advance(ttl / 2)
		_, err := k.l.Acquire(k.ctx, claim("b"))
		k.fails(err, lease.ErrHeld, "half of the tenure is left")
	}},
	{name: "Acquire/ReleasedIsTakenAtOnce", run: func(k *kit) {
		k.release(k.acquire("a"))
		k.equal(k.acquire("b").Generation, lease.Generation(2), "generation")
	}},
	// Who does not know whether its first call went through asks again, and must not wait for itself.
	{name: "Acquire/OwnIsTakenAnew", run: func(k *kit) {
		first := k.acquire("a")
		second := k.acquire("a")
		k.equal(second.Generation, first.Generation+1, "a generation of its own")
		_, err := k.l.Renew(k.ctx, first)
		k.fails(err, lease.ErrLost, "the earlier one is over")
	}},
	{name: "Acquire/GenerationNeverFallsOrRestarts", needs: Features{Handles: true}, run: func(k *kit) {
		for want := lease.Generation(1); want <= 6; want++ {
			l := k.acquire("a")
			k.equal(l.Generation, want, "generation")
			switch want % 3 {
			case 0:
				k.release(l)
			case 1:
				k.l = k.reopen()
			}
		}
	}},
	{name: "Acquire/BadInputChangesNothing", run: func(k *kit) {
		for _, c := range []lease.Claim{
			{Holder: "a", TTL: ttl}, {Name: name, TTL: ttl}, {Name: name, Holder: "a"}, {Name: name, Holder: "a", TTL: time.Millisecond},
			{Name: name, Holder: "a", TTL: 25 * time.Hour}, {Name: "a\x00b", Holder: "a", TTL: ttl}, {Name: "a\xff", Holder: "a", TTL: ttl},
			{Name: strings.Repeat("n", 201), Holder: "a", TTL: ttl}, {Name: name, Holder: strings.Repeat("n", 201), TTL: ttl}, {Name: name, Holder: "a", TTL: -ttl},
		} {
			_, err := k.l.Acquire(k.ctx, c)
			k.fails(err, lease.ErrInvalid, "bad input")
		}
		k.equal(k.look().Generation, lease.Generation(0), "nothing was acquired")
	}},
	{name: "Acquire/NamesAreApart", run: func(k *kit) {
		for _, n := range []string{"sweep", "Sweep", "sweep ", "swéep", "swe\u0301ep", "'; drop table leases --", strings.Repeat("n", 200)} {
			l := must(k.l.Acquire(k.ctx, lease.Claim{Name: n, Holder: "a", TTL: ttl}))(k)
			k.equal(l.Generation, lease.Generation(1), "each name counts for itself")
			k.equal(must(k.l.Look(k.ctx, n))(k).Name, n, "name")
		}
	}},
	{name: "Acquire/CancelledContextChangesNothing", run: func(k *kit) {
		ctx, cancel := contextThatEnded(k.ctx)
		defer cancel()
		_, err := k.l.Acquire(ctx, claim("a"))
		k.fails(err, lease.ErrUnavailable, "a caller that left")
		k.equal(k.look().Generation, lease.Generation(0), "nothing was acquired")
	}},
}

var renewCases = []suiteCase{
	{name: "Renew/ExtendsAndKeepsTheGeneration", needs: Features{Clock: true}, run: func(k *kit) {
		l := k.acquire("a")
		k.advance(ttl / 2)
		again := must(k.l.Renew(k.ctx, l))(k)
		k.equal(again.Generation, l.Generation, "generation")
		r := k.look()
		k.equal(r.ExpiresAt, again.ExpiresAt, "the end")
		k.equal(r.ExpiresAt.Sub(r.RenewedAt), ttl, "a whole tenure from now")
		k.equal(r.AcquiredAt.Before(r.RenewedAt), true, "acquired before")
		k.advance(ttl * 3 / 4)
		k.equal(k.look().Held(), true, "it outlives the first tenure")
	}},
	// Nobody took it, and still it is over: otherwise the renewal would race an acquirer.
	{name: "Renew/LapsedIsLost", needs: Features{Clock: true}, run: func(k *kit) {
		l := k.acquire("a")
		k.advance(ttl)
		_, err := k.l.Renew(k.ctx, l)
		k.fails(err, lease.ErrLost, "a tenure that has ended")
		k.equal(k.look().Held(), false, "it stays ended")
	}},
	{name: "Renew/TakenIsLost", needs: Features{Clock: true}, run: func(k *kit) {
		l := k.acquire("a")
		k.advance(ttl)
		k.acquire("b")
		_, err := k.l.Renew(k.ctx, l)
		k.fails(err, lease.ErrLost, "another's")
		var lost *lease.LostError
		k.equal(errors.As(err, &lost) && lost.Row.Holder == "b" && lost.Row.Generation == 2, true, "whose it is")
		k.equal(k.look().Holder, "b", "the successor's tenure stands")
	}},
	{name: "Renew/ReleasedIsLost", run: func(k *kit) {
		l := k.acquire("a")
		k.release(l)
		_, err := k.l.Renew(k.ctx, l)
		k.fails(err, lease.ErrLost, "what was released")
		k.equal(k.look().Held(), false, "it stays free")
	}},
	{name: "Renew/NeitherLowerNorHigherGeneration", run: func(k *kit) {
		k.acquire("a")
		l := k.acquire("a")
		lower := l
		lower.Generation--
		_, err := k.l.Renew(k.ctx, lower)
		k.fails(err, lease.ErrLost, "a lower generation")
		higher := l
		higher.Generation++
		if _, err = k.l.Renew(k.ctx, higher); err == nil {
			k.Fatal("a higher generation was renewed")
		}
		must(k.l.Renew(k.ctx, l))(k)
	}},
	{name: "Renew/AnotherHolderOfTheGenerationIsLost", run: func(k *kit) {
		l := k.acquire("a")
		l.Holder = "b"
		_, err := k.l.Renew(k.ctx, l)
		k.fails(err, lease.ErrLost, "another holder")
	}},
}

var releaseCases = []suiteCase{
	{name: "Release/KeepsTheGeneration", run: func(k *kit) {
		k.release(k.acquire("a"))
		r := k.look()
		k.equal(r.Held(), false, "held")
		k.equal(r.Generation, lease.Generation(1), "generation")
		k.equal(r.Remaining(), time.Duration(0), "remaining")
	}},
	{name: "Release/IsRepeatable", run: func(k *kit) {
		l := k.acquire("a")
		k.release(l)
		k.release(l)
	}},
	// The work took longer than the tenure, and its release comes when another has the lease.
	{name: "Release/OfAStaleTenureFreesNothing", needs: Features{Clock: true}, run: func(k *kit) {
		l := k.acquire("a")
		k.advance(ttl)
		k.acquire("b")
		k.fails(k.l.Release(k.ctx, l), lease.ErrLost, "a stale release")
		k.equal(k.look().Holder, "b", "the successor's tenure stands")
	}},
	{name: "Release/OfAnEarlierTenureOfOnesOwnFreesNothing", run: func(k *kit) {
		first := k.acquire("a")
		k.acquire("a")
		k.fails(k.l.Release(k.ctx, first), lease.ErrLost, "a stale release")
		k.equal(k.look().Held(), true, "the later tenure stands")
	}},
	{name: "Release/WhateverTheHolderHas", run: func(k *kit) {
		k.release(lease.Lease{Name: name, Holder: "a"})
		k.acquire("a")
		k.fails(k.l.Release(k.ctx, lease.Lease{Name: name, Holder: "b"}), lease.ErrLost, "another's")
		k.release(lease.Lease{Name: name, Holder: "a"})
		k.equal(k.look().Held(), false, "held")
	}},
}

var lookCases = []suiteCase{
	{name: "Look/NeverAcquired", run: func(k *kit) {
		r := k.look()
		k.equal(r.Generation, lease.Generation(0), "generation")
		k.equal(r.Held(), false, "held")
		k.equal(r.Now.IsZero(), false, "the store's clock")
		_, err := k.l.Look(k.ctx, "")
		k.fails(err, lease.ErrInvalid, "no name")
	}},
	{name: "Look/ShowsTheTenureInForce", needs: Features{Clock: true}, run: func(k *kit) {
		must(k.l.Acquire(k.ctx, lease.Claim{Name: name, Holder: "a", TTL: time.Hour}))(k)
		k.equal(k.look().TTL, time.Hour, "the holder's")
		k.advance(time.Hour)
		k.equal(k.look().Held(), false, "health is judged on the store's clock")
		must(k.l.Acquire(k.ctx, lease.Claim{Name: name, Holder: "b", TTL: 10 * time.Second}))(k)
		k.equal(k.look().TTL, 10*time.Second, "the holder's")
	}},
	{name: "Look/SaysWhetherItIsShared", run: func(k *kit) {
		k.equal(k.l.Shared(), k.h.Features.Shared, "Shared")
	}},
}

var fenceCases = []suiteCase{
	{name: "Fence/LetsTheHolderThrough", needs: Features{Fence: true}, run: func(k *kit) {
		l := k.acquire("a")
		k.succeeds(k.h.Fence(k, k.l, l), "the holder")
		again := must(k.l.Renew(k.ctx, l))(k)
		k.succeeds(k.h.Fence(k, k.l, l), "the lease as it was granted, after a renewal")
		k.succeeds(k.h.Fence(k, k.l, again), "the lease as it was renewed")
	}},
	{name: "Fence/StaleGenerationMatchesNothing", needs: Features{Fence: true, Clock: true}, run: func(k *kit) {
		l := k.acquire("a")
		k.advance(ttl)
		second := k.acquire("b")
		k.fails(k.h.Fence(k, k.l, l), lease.ErrLost, "a lower generation")
		k.succeeds(k.h.Fence(k, k.l, second), "the successor")
		third := k.acquire("b")
		k.fails(k.h.Fence(k, k.l, second), lease.ErrLost, "an earlier tenure of one's own")
		third.Generation++
		k.fails(k.h.Fence(k, k.l, third), lease.ErrLost, "a higher generation")
	}},
	{name: "Fence/LapsedMatchesNothing", needs: Features{Fence: true, Clock: true}, run: func(k *kit) {
		l := k.acquire("a")
		k.advance(ttl)
		k.fails(k.h.Fence(k, k.l, l), lease.ErrLost, "a tenure that has ended")
	}},
	{name: "Fence/ReleasedMatchesNothing", needs: Features{Fence: true}, run: func(k *kit) {
		l := k.acquire("a")
		k.release(l)
		k.fails(k.h.Fence(k, k.l, l), lease.ErrLost, "what was released")
	}},
	{name: "Fence/AnothersMatchesNothing", needs: Features{Fence: true}, run: func(k *kit) {
		l := k.acquire("a")
		l.Holder = "b"
		k.fails(k.h.Fence(k, k.l, l), lease.ErrLost, "another holder")
		l.Holder, l.Generation = "a", 0
		k.fails(k.h.Fence(k, k.l, l), lease.ErrInvalid, "any generation")
	}},
}
