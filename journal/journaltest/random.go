package journaltest

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/journal"
)

// spent is the naive truth: what attempts really cost, and what the journal was told.
type spent struct {
	id     journal.ID
	needs  []journal.Need
	cost   amount.MicroUSD // really
	told   journal.State
	open   bool
	burned bool
}

// testRandom plays any mixture of calls, losses, deaths and delays, and holds the books of
// node and authority against what was really spent.
func testRandom(t *testing.T, h Harness) {
	seed := uint64(time.Now().UnixNano())
	for range 3 {
		seed++
		t.Logf("seed %d", seed)
		play(t, h, rand.New(rand.NewPCG(seed, 1)), 250)
	}
}

func play(t *testing.T, h Harness, rnd *rand.Rand, steps int) {
	r := newRig(t, h)
	accounts := []escrow.Account{account("a"), account("b"), account("c")}
	const limit = 5000
	for i, a := range accounts {
		r.budget(a, limit, 200, i < 2)
	}
	var all []*spent
	open := func() (list []*spent) {
		for _, s := range all {
			if s.open {
				list = append(list, s)
			}
		}
		return list
	}
	var late []func() // answers that come when nobody waits for them any more
	for range steps {
		switch n := rnd.IntN(100); {
		case n < 45:
			s := &spent{id: journal.NewID(), open: true}
			for i, a := range accounts {
				if rnd.IntN(3) > 0 {
					s.needs = append(s.needs, journal.Need{Account: a, Amount: amount.MicroUSD(rnd.IntN(60)), Soft: i == 2})
				}
			}
			bound := amount.MicroUSD(1 << 40)
			for _, n := range s.needs {
				bound = min(bound, n.Amount)
			}
			if len(s.needs) == 0 {
				bound = 0
			}
			s.cost = amount.MicroUSD(rnd.Int64N(int64(bound) + 1))
			err := r.j.Reserve(t.Context(), journal.Reservation{ID: s.id, Needs: s.needs})
			switch {
			case err == nil:
				all = append(all, s)
			case !errors.Is(err, journal.ErrShortage):
				t.Fatal(err)
			}
		case n < 52:
			if list := open(); len(list) > 0 {
				s := list[rnd.IntN(len(list))]
				more := larger(s.needs, func() amount.MicroUSD { return amount.MicroUSD(rnd.IntN(20)) })
				switch err := r.more(s.id, more); {
				case err == nil:
					s.needs = more
				case !errors.Is(err, journal.ErrShortage):
					t.Fatal(err)
				}
			}
		case n < 75:
			if list := open(); len(list) > 0 {
				s := list[rnd.IntN(len(list))]
				o := journal.Used(s.cost)
				switch rnd.IntN(5) {
				case 0:
					o = journal.Unknown(s.cost / 2)
				case 1:
					o, s.cost = journal.NotSent(), 0
				}
				r.settle(s.id, o, nil)
				s.open, s.told = false, o.State
				r.settle(s.id, o, nil)
			}
		case n < 90:
			beat, err := r.j.Next(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			sent := r.clock.Now()
			if rnd.IntN(4) == 0 {
				break // lost on the way
			}
			answer := r.send(beat)
			j := r.j
			take := func() {
				if err := j.Take(t.Context(), beat, answer, sent); err != nil && !errors.Is(err, journal.ErrFenced) {
					t.Fatal(err)
				}
			}
			switch rnd.IntN(4) {
			case 0:
				late = append(late, take)
			case 1:
				take()
				take()
			default:
				take()
			}
		case n < 93 && len(late) > 0:
			late[rnd.IntN(len(late))]()
		case n < 97:
			r.clock.advance(time.Duration(rnd.Int64N(int64(life / 2))))
		default:
			r.crash()
			for _, s := range open() {
				s.open, s.burned = false, true
			}
		}
		check(t, r, accounts, all, limit)
	}
	// In the end the node leaves, and the authority knows all.
	for range 3 {
		bye, err := r.j.Next(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		r.take(bye, r.send(bye))
	}
	for _, s := range open() {
		s.open, s.burned = false, true
	}
	check(t, r, accounts, all, limit)
	if l := r.load(&journal.Plan{Everything: true, OnTheirWay: true}); len(l.Records) != 0 {
		t.Fatalf("reservations are left: %+v", l.Records)
	}
	for i, a := range accounts[:2] {
		known, unknown := tally(all, i, accounts)
		var consumed, uncertain amount.MicroUSD
		for _, g := range r.bank.grants {
			if g.Account == a {
				consumed, uncertain = consumed+g.Consumed, uncertain+g.Uncertain
			}
		}
		if consumed != known || uncertain < unknown {
			t.Fatalf("account %d: the authority heard of %d and of %d uncertain; it was %d and %d", i, consumed, uncertain, known, unknown)
		}
	}
}

// tally is what the account was charged for certain, and what nobody knows.
func tally(all []*spent, account int, accounts []escrow.Account) (known, unknown amount.MicroUSD) {
	for _, s := range all {
		for _, n := range s.needs {
			switch {
			case n.Account != accounts[account]:
			case s.burned, s.told == journal.Uncertain:
				unknown += n.Amount
			case s.told == journal.Settled:
				known += s.cost
			}
		}
	}
	return known, unknown
}

func check(t *testing.T, r *rig, accounts []escrow.Account, all []*spent, limit amount.MicroUSD) {
	t.Helper()
	if err := r.books(); err != nil {
		t.Fatal(err)
	}
	for i, a := range accounts {
		var reserved, really amount.MicroUSD
		for _, s := range all {
			for _, n := range s.needs {
				if n.Account == a {
					really += s.cost
					if s.open {
						reserved += n.Amount
					}
				}
			}
		}
		if got := r.sums(a).Reserved; got != reserved {
			t.Fatalf("account %d: %d are reserved, it should be %d", i, got, reserved)
		}
		if i == 2 {
			continue
		}
		if r.bank.bound(a) > limit || really > r.bank.bound(a) {
			t.Fatalf("account %d: %d were really spent of %d that are bound under a limit of %d", i, really, r.bank.bound(a), limit)
		}
	}
}
