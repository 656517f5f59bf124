package journaltest

import (
	"errors"
	"slices"
	"testing"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/journal"
)

// raise tries to take more of a reservation, and must be told what is wanted.
func (r *rig) raise(id journal.ID, want error, needs ...journal.Need) error {
	r.t.Helper()
	err := r.more(id, needs)
	if !errors.Is(err, want) {
		r.t.Fatalf("Raise says %v, want %v", err, want)
	}
	return err
}

// more raises in a transaction, as whoever decides other things beside does.
func (r *rig) more(id journal.ID, needs []journal.Need) error {
	plan := &journal.Plan{Reservations: []journal.ID{id}}
	for _, n := range needs {
		plan.Accounts = append(plan.Accounts, n.Account)
	}
	var book *journal.Book
	var refused error
	err := r.store.Step(r.t.Context(), plan, func(l *journal.Loaded) (_ *journal.Changes, err error) {
		if book, err = r.j.Book(l); err != nil {
			return nil, err
		}
		refused = book.Raise(journal.Reservation{ID: id, Needs: needs})
		return book.Changes(), nil
	})
	if err == nil {
		r.j.Done(book)
		err = refused
	}
	return err
}

func testRaise(t *testing.T, h Harness) {
	a, b, s := account("a"), account("b"), account("soft")

	t.Run("IsAbsoluteAndMonotone", func(t *testing.T) {
		r := budgeted(t, h, a)
		r.fund(a, 60)
		id := r.reserve(nil, need(a, 10), soft(s, 10))
		for range 2 {
			_ = r.raise(id, nil, need(a, 30), soft(s, 25))
			r.expect(a, 30, 0, 0, 0)
			r.expect(s, 25, 0, 0, 0)
		}
		_ = r.raise(id, nil, need(a, 5), soft(s, 26))
		r.expect(a, 30, 0, 0, 0)
		r.expect(s, 26, 0, 0, 0)
		r.settle(id, journal.Used(28), nil) // more than the meter had alone, not more than the grant
		r.expect(a, 0, 28, 0, 0)
		r.expect(s, 0, 28, 0, 0)
	})

	t.Run("AllOrNothing", func(t *testing.T) {
		r := newRig(t, h)
		r.budget(a, 1000, 100, true)
		r.budget(b, 1000, 10, true)
		r.beat()
		r.fund(a, 50)
		r.fund(b, 10)
		id := r.reserve(nil, need(a, 10), need(b, 10))
		had := r.sums(b).Amount
		err := r.raise(id, journal.ErrShortage, need(a, 50), need(b, had+1))
		var short *journal.Shortage
		if !errors.As(err, &short) || len(short.Lacks) != 1 || short.Lacks[0].Account != b || short.Lacks[0].Need != had+1-10 {
			t.Fatalf("the error is %#v", err)
		}
		r.expect(a, 10, 0, 0, 0)
		r.expect(b, 10, 0, 0, 0)
		if len(r.j.Wants()) != 1 {
			t.Fatal("nobody is told that credit is missing")
		}
		r.beat()
		_ = r.raise(id, nil, need(a, 50), need(b, had+1)) // of more grants than before
		r.expect(a, 50, 0, 0, 0)
		r.expect(b, had+1, 0, 0, 0)
		record := r.load(&journal.Plan{Reservations: []journal.ID{id}}).Records[0]
		if !slices.IsSortedFunc(record.Portions, func(x, y journal.Portion) int { return x.Need - y.Need }) || len(record.Portions) < 3 {
			t.Fatalf("%+v", record.Portions)
		}
		r.settle(id, journal.Unknown(7), nil)
		r.expect(a, 0, 0, 50, 7)
		r.expect(b, 0, 0, had+1, 7)
	})

	t.Run("OtherAccountsAreAConflict", func(t *testing.T) {
		r := budgeted(t, h, a)
		r.fund(a, 60)
		id := r.reserve(nil, need(a, 10), soft(s, 10))
		for _, needs := range [][]journal.Need{{need(a, 20)}, {soft(s, 20), need(a, 20)}, {need(a, 20), need(s, 20)}} {
			_ = r.raise(id, journal.ErrConflict, needs...)
		}
		_ = r.raise(id, journal.ErrInvalid, need(a, -1), soft(s, 1))
		_ = r.raise(journal.NewID(), journal.ErrNotFound, need(a, 1))
		r.expect(a, 10, 0, 0, 0)
	})

	t.Run("OfNothingFromAGrantThatIsGone", func(t *testing.T) {
		r := budgeted(t, h, a)
		r.fund(a, 10)
		id := r.reserve(nil, need(a, 0))
		r.clock.advance(life)
		r.beat() // closed
		r.beat() // and forgotten
		r.fund(a, 10)
		_ = r.raise(id, nil, need(a, 4))
		r.settle(id, journal.Used(3), nil)
		if got := r.sums(a); got.Consumed != 3 || got.Reserved != 0 {
			t.Fatalf("%+v", got)
		}
	})

	t.Run("NotWhatHasEnded", func(t *testing.T) {
		r := budgeted(t, h, a)
		r.fund(a, 60)
		id := r.reserve(nil, need(a, 10))
		burned := r.reserve(nil, need(a, 10))
		r.settle(id, journal.Used(1), nil)
		_ = r.raise(id, journal.ErrEnded, need(a, 20))
		old := r.j
		r.crash()
		_ = r.raise(burned, journal.ErrEnded, need(a, 20))
		r.j, old = old, r.j
		_ = r.raise(burned, journal.ErrFenced, need(a, 20))
		r.j = old
	})

	t.Run("RefusedAsReserveIs", func(t *testing.T) {
		r := budgeted(t, h, a)
		r.fund(a, 60)
		id, other := r.reserve(nil, need(a, 10)), r.reserve(nil, need(a, 10))
		r.settle(other, journal.Used(11), nil)
		_ = r.raise(id, journal.ErrPoisoned, need(a, 20))
		_ = r.raise(id, nil, need(a, 10)) // which it has
		if err := r.j.Release(t.Context(), "op", "looked"); err != nil {
			t.Fatal(err)
		}
		_ = r.raise(id, nil, need(a, 20))
		r.clock.advance(life)
		_ = r.raise(id, journal.ErrShortage, need(a, 21))
		if err := r.j.Fence(t.Context(), &escrow.Fenced{Reason: escrow.Cloned, BootNumber: 1}); err != nil {
			t.Fatal(err)
		}
		_ = r.raise(id, journal.ErrFenced, need(a, 21))
		r.settle(id, journal.Used(20), nil)
		r.expect(a, 0, 31, 0, 0)
	})

	t.Run("AskingWantsNothing", func(t *testing.T) {
		r := budgeted(t, h, a)
		l := r.load(&journal.Plan{Accounts: []escrow.Account{a}})
		book, err := r.j.Book(l)
		if err != nil {
			t.Fatal(err)
		}
		if err := book.Lacks([]journal.Need{need(a, 10)}); !errors.Is(err, journal.ErrShortage) {
			t.Fatal(err)
		}
		r.j.Done(book)
		if beat := r.next(); len(beat.Requests) != 0 || len(r.j.Wants()) != 0 || !book.Changes().Empty() {
			t.Fatalf("somebody was asked: %+v", beat.Requests)
		}
		if s := book.Standing(a); s != (journal.Standing{}) {
			t.Fatalf("%+v", s)
		}
	})
}

// larger are the needs of a reservation, each up to n more.
func larger(needs []journal.Need, n func() amount.MicroUSD) []journal.Need {
	out := slices.Clone(needs)
	for i := range out {
		out[i].Amount += n()
	}
	return out
}
