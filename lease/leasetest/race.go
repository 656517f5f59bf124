package leasetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tallystick-go/tallystick/lease"
)

var raceCases = []suiteCase{
	{name: "Acquire/RaceForANewNameHasOneWinner", run: func(k *kit) { k.oneWinner(1) }},
	{name: "Acquire/RaceForAReleasedLeaseHasOneWinner", run: func(k *kit) {
		k.release(k.acquire("before"))
		k.oneWinner(2)
	}},
	{name: "Acquire/RaceForALapsedLeaseHasOneWinner", needs: Features{Clock: true}, run: func(k *kit) {
		k.acquire("before")
		k.advance(ttl)
		k.oneWinner(2)
	}},
	{name: "Renew/RaceWithAcquirersHasOneHolder", needs: Features{Clock: true}, run: func(k *kit) {
		held := k.acquire("before")
		k.advance(ttl)
		errs := k.race(func(i int, l lease.Leaser) error {
			if i%3 == 0 {
				_, err := l.Renew(k.ctx, held)
				return err
			}
			_, err := l.Acquire(k.ctx, claim(holder(i)))
			return err
		})
		won := 0
		for i, err := range errs {
			switch {
			case i%3 == 0:
				k.fails(err, lease.ErrLost, "a renewal after the end")
			case err == nil:
				won++
			default:
				k.fails(err, lease.ErrHeld, "a loser")
			}
		}
		k.equal(won, 1, "winners")
	}},
	{name: "Release/RaceWithItsOwnRenewal", run: func(k *kit) {
		held := k.acquire("a")
		errs := k.race(func(i int, l lease.Leaser) error {
			if i == racers/2 {
				return l.Release(k.ctx, held)
			}
			_, err := l.Renew(k.ctx, held)
			return err
		})
		for i, err := range errs {
			if err != nil {
				k.equal(i == racers/2, false, "the release succeeds")
				k.fails(err, lease.ErrLost, "a renewal after the release")
			}
		}
		k.equal(k.look().Held(), false, "released is released")
	}},
	{name: "Acquire/HoldersOneAfterAnother", run: func(k *kit) {
		const each = 3
		generations := make([][]lease.Generation, racers)
		errs := k.race(func(i int, l lease.Leaser) error {
			for len(generations[i]) < each {
				held, err := l.Acquire(k.ctx, claim(holder(i)))
				if errors.Is(err, lease.ErrHeld) {
					continue
				}
				if err != nil {
					return err
				}
				if k.h.Features.Fence {
					if err := k.h.Fence(k, l, held); err != nil {
						return err
					}
				}
				generations[i] = append(generations[i], held.Generation)
				if err := l.Release(k.ctx, held); err != nil {
					return err
				}
			}
			return nil
		})
		seen := map[lease.Generation]bool{}
		for i, list := range generations {
			k.succeeds(errs[i], "a racer")
			for _, g := range list {
				k.equal(seen[g], false, "a generation is given once")
				seen[g] = true
			}
		}
		k.equal(k.look().Generation, lease.Generation(racers*each), "no generation was left out")
	}},
}

// oneWinner has everybody ask for a lease that nobody holds.
func (k *kit) oneWinner(generation lease.Generation) {
	k.Helper()
	got := make([]lease.Lease, racers)
	errs := k.race(func(i int, l lease.Leaser) (err error) {
		got[i], err = l.Acquire(k.ctx, claim(holder(i)))
		return err
	})
	won := -1
	for i, err := range errs {
		if err != nil {
			k.fails(err, lease.ErrHeld, "a loser")
			continue
		}
		if won >= 0 {
			k.Fatalf("racers %d and %d both won", won, i)
		}
		won = i
	}
	if won < 0 {
		k.Fatal("nobody won")
	}
	k.equal(got[won].Generation, generation, "the winner's generation")
	k.equal(k.look().Holder, holder(won), "the winner has the lease")
}

var randomCases = []suiteCase{
	{name: "Random/AgainstANaiveModel", needs: Features{Clock: true}, run: random},
}

// model is a lease as one would tell it: who has it, in which generation, and how long that lasts.
type model struct {
	now, end   time.Duration
	holder     string
	generation lease.Generation
}

func (m *model) live() bool { return m.holder != "" && m.now < m.end }

// random does anything in any order with stale and fresh leases. The model's clock moves in steps that are far longer than
// the case runs.
func random(k *kit) {
	seed := rand.Uint64()
	k.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	handles := k.handles()
	const tenure = 10 * time.Hour
	var m model
	var known []lease.Lease
	for i := range 250 {
		l := handles[r.IntN(2)]
		who := holder(r.IntN(3))
		what := ""
		var err, want error
		some := lease.Lease{Name: name, Holder: who, Generation: 1}
		if len(known) > 0 {
			some = known[max(0, len(known)-1-r.IntN(4))]
		}
		mine := m.holder == some.Holder && m.generation == some.Generation
		switch op := r.IntN(10); {
		case op < 3:
			what = "acquire by " + who
			var got lease.Lease
			got, err = l.Acquire(k.ctx, lease.Claim{Name: name, Holder: who, TTL: tenure})
			if want = lease.ErrHeld; !m.live() || m.holder == who {
				want, m.holder, m.end = nil, who, m.now+tenure
				m.generation++
			}
			if err == nil {
				k.equal(got.Generation, m.generation, what)
				known = append(known, got)
			}
		case len(known) == 0:
			continue
		case op < 5:
			what = fmt.Sprintf("renew %d", some.Generation)
			_, err = l.Renew(k.ctx, some)
			if want = lease.ErrLost; mine && m.live() {
				want, m.end = nil, m.now+tenure
			}
		case op < 6:
			what = fmt.Sprintf("release %d", some.Generation)
			err = l.Release(k.ctx, some)
			switch {
			case mine:
				m.holder = ""
			case m.generation != some.Generation || m.holder != "":
				want = lease.ErrLost
			}
		case op < 8 && k.h.Features.Fence:
			what = fmt.Sprintf("fence %d", some.Generation)
			err = k.h.Fence(k, l, some)
			if want = lease.ErrLost; mine && m.live() {
				want = nil
			}
		default:
			d := time.Duration(1+r.IntN(8)) * time.Hour
			k.advance(d)
			m.now += d
			continue
		}
		if want == nil {
			k.succeeds(err, fmt.Sprintf("seed %d, step %d: %s", seed, i, what))
		} else {
			k.fails(err, want, fmt.Sprintf("seed %d, step %d: %s", seed, i, what))
		}
		row := must(l.Look(k.ctx, name))(k)
		k.equal(row.Held(), m.live(), what+": held")
		k.equal(row.Generation, m.generation, what+": generation")
		k.equal(row.Holder, m.holder, what+": holder")
	}
}
