package journaltest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/journal"
)

func testBeat(t *testing.T, h Harness) {
	a := account("hard")

	t.Run("ShortageWakesOnceAndAsksForEnough", func(t *testing.T) {
		r := budgeted(t, h, a)
		for range 3 {
			r.reserve(journal.ErrShortage, need(a, 150))
		}
		if len(r.j.Wants()) != 1 {
			t.Fatalf("%d wants are waiting, they must coalesce to one", len(r.j.Wants()))
		}
		<-r.j.Wants()
		beat, _ := r.beat()
		// One grant is 100 unless a single attempt needs more; what follows comes in such pieces.
		for i, r := range beat.Requests {
			if most := max(100, r.Least); r.Account != a || r.Amount > most || (i == 0) != (r.Least == 150) {
				t.Fatalf("requests are %+v", beat.Requests)
			}
		}
		if len(beat.Requests) < 2 {
			t.Fatalf("requests are %+v", beat.Requests)
		}
		r.reserve(nil, need(a, 150))
	})

	t.Run("LostAnswerIsAskedAgainBySameID", func(t *testing.T) {
		r := budgeted(t, h, a)
		r.reserve(journal.ErrShortage, need(a, 50))
		first := r.next()
		lost := r.send(first)
		r.reserve(journal.ErrShortage, need(a, 50))
		second, answer := r.beat()
		if second.Sequence <= first.Sequence || len(second.Requests) == 0 || second.Requests[0] != first.Requests[0] {
			t.Fatalf("first asked %+v, then %+v", first, second)
		}
		if answer.Grants[0] != lost.Grants[0] {
			t.Fatal("the grant is another one")
		}
		before := r.sums(a)
		r.take(first, lost) // late, and twice
		r.take(second, answer)
		if r.sums(a) != before {
			t.Fatal("a replay changed something")
		}
		r.reserve(nil, need(a, 50))
	})

	t.Run("ReplayDoesNotExtend", func(t *testing.T) {
		r := budgeted(t, h, a)
		r.reserve(journal.ErrShortage, need(a, 50))
		first := r.next()
		answer := r.send(first)
		r.clock.advance(life / 2)
		r.beat()
		r.take(first, answer)
		r.clock.advance(life / 2)
		r.reserve(journal.ErrShortage, need(a, 50))
	})

	t.Run("ClockSetBackDoesNotExtend", func(t *testing.T) {
		r := budgeted(t, h, a)
		r.reserve(journal.ErrShortage, need(a, 50))
		first := r.next()
		answer := r.send(first)
		second := r.next() // it asks once more
		again := r.send(second)
		again.Now -= (life / 2).Microseconds()
		r.take(first, answer)
		r.take(second, again)
		r.clock.advance(life)
		r.reserve(journal.ErrShortage, need(a, 50))
	})

	t.Run("RoundTripCounts", func(t *testing.T) {
		r := budgeted(t, h, a)
		r.reserve(journal.ErrShortage, need(a, 50))
		beat := r.next()
		sent := r.clock.Now()
		answer := r.send(beat) // at once, and the answer takes nearly a life
		r.clock.advance(life - time.Microsecond)
		if err := r.j.Take(t.Context(), beat, answer, sent); err != nil {
			t.Fatal(err)
		}
		r.settle(r.reserve(nil, need(a, 1)), journal.NotSent(), nil)
		r.clock.advance(time.Microsecond)
		r.reserve(journal.ErrShortage, need(a, 1))
	})

	t.Run("ReportsUntilReceipted", func(t *testing.T) {
		r := newRig(t, h)
		r.budget(a, 1000, 100, true)
		r.budget(account("soft"), 10, 0, false)
		r.beat()
		r.fund(a, 50)
		r.settle(r.reserve(nil, need(a, 50), soft(account("soft"), 50)), journal.Used(20), nil)
		for range 2 { // the first is lost
			beat, err := r.j.Next(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			if len(beat.Reports) != 1 || beat.Reports[0].Consumed != 20 || len(beat.Meters) != 1 || beat.Meters[0].Consumed != 20 {
				t.Fatalf("reports are %+v, meters %+v", beat.Reports, beat.Meters)
			}
		}
		r.beat()
		if beat, _ := r.beat(); len(beat.Reports) != 0 || len(beat.Meters) != 0 {
			t.Fatalf("what was receipted is said again: %+v %+v", beat.Reports, beat.Meters)
		}
		// Between the heartbeat and its answer more is used: that is still to be said.
		beat := r.next()
		r.settle(r.reserve(nil, need(a, 10)), journal.Used(10), nil)
		r.take(beat, r.send(beat))
		if beat, _ = r.beat(); len(beat.Reports) != 1 || beat.Reports[0].Consumed != 30 {
			t.Fatalf("reports are %+v", beat.Reports)
		}
		// The same of a grant that the heartbeat itself speaks of.
		r.settle(r.reserve(nil, need(a, 5)), journal.Used(5), nil)
		beat = r.next()
		r.settle(r.reserve(nil, need(a, 5)), journal.Used(5), nil)
		r.take(beat, r.send(beat))
		r.beat()
		var told amount.MicroUSD
		for _, g := range r.bank.grants {
			told += g.Consumed
		}
		if told != 40 {
			t.Fatalf("the authority was told of %d, want 40", told)
		}
	})

	t.Run("NoMoreThanWasAskedFor", func(t *testing.T) {
		r := budgeted(t, h, a)
		r.reserve(journal.ErrShortage, need(a, 50))
		beat := r.next()
		answer := r.send(beat)
		more := *answer
		more.Grants = slices.Clone(answer.Grants)
		more.Grants[0].Amount = beat.Requests[0].Amount + 1
		if err := r.j.Take(t.Context(), beat, &more, r.clock.Now()); !errors.Is(err, journal.ErrInvalid) {
			t.Fatalf("more than was asked for is taken: %v", err)
		}
		r.reserve(journal.ErrShortage, need(a, 50))
		r.take(beat, answer)
		r.reserve(nil, need(a, 50))
	})

	t.Run("ClosesWhatIsPastItsDeadline", func(t *testing.T) {
		r := budgeted(t, h, a)
		r.fund(a, 50)
		held := r.reserve(nil, need(a, 10))
		r.clock.advance(life)
		r.reserve(journal.ErrShortage, need(a, 1))
		if beat, _ := r.beat(); len(beat.Reports) != 0 {
			t.Fatalf("a grant was ended while something is reserved from it: %+v", beat.Reports)
		}
		r.settle(held, journal.Used(4), nil)
		beat, _ := r.beat()
		if len(beat.Reports) != 1 || beat.Reports[0].Ending != escrow.Closed || beat.Reports[0].Consumed != 4 || beat.Reports[0].Uncertain != 0 {
			t.Fatalf("reports are %+v", beat.Reports)
		}
	})

	t.Run("NothingOutlivesItsGrant", func(t *testing.T) {
		r := budgeted(t, h, a)
		r.fund(a, 50)
		free, known, more := r.reserve(nil, need(a, 0)), r.reserve(nil, need(a, 0)), r.reserve(nil, need(a, 0))
		was := r.load(&journal.Plan{Everything: true}).Grants
		r.clock.advance(life)
		r.beat()
		r.beat()
		for _, g := range r.load(&journal.Plan{Everything: true}).Grants {
			if slices.ContainsFunc(was, func(old journal.Grant) bool { return old.ID == g.ID }) {
				t.Fatalf("a grant is left of which nothing is held: %+v", g)
			}
		}
		r.settle(free, journal.Unknown(0), nil)
		r.settle(known, journal.Used(0), nil)
		r.settle(more, journal.Used(7), nil)
		r.reserve(journal.ErrPoisoned, need(a, 0))
	})

	t.Run("ReceiptedEndingIsDropped", func(t *testing.T) {
		r := budgeted(t, h, a)
		r.fund(a, 50)
		r.crash()
		for range 2 { // not before the receipt
			if n := len(r.load(&journal.Plan{Everything: true}).Grants); n != 1 {
				t.Fatalf("%d grants are left of one", n)
			}
			if _, err := r.j.Next(t.Context(), false); err != nil {
				t.Fatal(err)
			}
		}
		r.beat()
		if l := r.load(&journal.Plan{Everything: true}); len(l.Grants) != 0 {
			t.Fatalf("grants are left: %+v", l.Grants)
		}
	})

	t.Run("EndedByAnotherHandIsNotUsed", func(t *testing.T) {
		r := budgeted(t, h, a)
		r.fund(a, 50)
		held := r.reserve(nil, need(a, 50))
		r.bank.mu.Lock()
		for _, g := range r.bank.grants {
			g.Ending = escrow.Burned // an operator
		}
		r.bank.defs[0].Limit = 0
		r.bank.mu.Unlock()
		r.settle(r.reserve(nil, need(a, 1)), journal.Used(1), nil)
		r.beat()
		r.reserve(journal.ErrShortage, need(a, 1))
		r.settle(held, journal.Used(5), nil)
		r.expect(a, 0, 6, 0, 0)
		r.beat()
		for _, g := range r.load(&journal.Plan{Everything: true}).Grants {
			if g.Ending != escrow.Open {
				t.Fatalf("a grant that ended long ago is kept: %+v", g)
			}
		}
	})

	t.Run("EndedByAnotherHandIsStillReported", func(t *testing.T) {
		r := budgeted(t, h, a)
		r.fund(a, 50)
		held := r.reserve(nil, need(a, 50))
		r.settle(r.reserve(nil, need(a, 1)), journal.Used(1), nil)
		beat := r.next()
		r.settle(held, journal.Used(5), nil)
		answer := r.send(beat)
		for i := range answer.Receipts {
			answer.Receipts[i].Ending = escrow.Burned
		}
		r.take(beat, answer)
		beat, _ = r.beat()
		if i := slices.IndexFunc(beat.Reports, func(r escrow.Report) bool { return r.Consumed == 6 }); i < 0 {
			t.Fatalf("what was used last is not reported: %+v", beat.Reports)
		}
	})

	t.Run("LeavingStrandsNothing", func(t *testing.T) {
		r := budgeted(t, h, a)
		r.fund(a, 50)
		r.settle(r.reserve(nil, need(a, 50)), journal.Used(7), nil)
		onItsWay := r.reserve(nil, need(a, 20))
		r.reserve(journal.ErrShortage, need(a, 500))
		if _, err := r.j.Next(t.Context(), false); err != nil { // asked, and never answered
			t.Fatal(err)
		}
		bye, err := r.j.Next(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		if !bye.Bye || len(bye.Requests) != 0 {
			t.Fatalf("the goodbye is %+v", bye)
		}
		r.reserve(journal.ErrClosed, need(a, 1))
		r.take(bye, r.send(bye))
		if !r.j.Said() {
			t.Fatal("something is left to say")
		}
		r.settle(onItsWay, journal.Used(1), journal.ErrEnded)
		if left := r.bank.left(a); left != 1000-7-20 {
			t.Fatalf("the authority has %d left, want all but what was used and what is not known", left)
		}
		r.crash()
		if b := r.j.Burnt(); b.Grants != 0 || b.Reservations != 0 {
			t.Fatalf("%s after a goodbye", b)
		}
	})

	t.Run("AskedForAndNotAnsweredIsBurned", func(t *testing.T) {
		r := budgeted(t, h, a)
		r.reserve(journal.ErrShortage, need(a, 50))
		lost := r.next()
		r.send(lost)
		r.crash()
		beat, _ := r.beat()
		if len(beat.Reports) != 1 || beat.Reports[0].Grant != lost.Requests[0].ID || beat.Reports[0].Ending != escrow.Burned {
			t.Fatalf("reports are %+v", beat.Reports)
		}
	})

	t.Run("DenialIsToldAndForgotten", func(t *testing.T) {
		r := newRig(t, h)
		r.budget(a, 30, 100, true)
		r.beat()
		r.reserve(journal.ErrShortage, need(a, 50))
		r.beat()
		err := r.j.Reserve(t.Context(), journal.Reservation{ID: journal.NewID(), Needs: []journal.Need{need(a, 50)}})
		short, ok := err.(*journal.Shortage)
		if !ok || !short.Spent() || short.Lacks[0].Left != 30 {
			t.Fatalf("the shortage is %#v", err)
		}
		r.bank.mu.Lock()
		r.bank.defs[0].Limit = 100
		r.bank.mu.Unlock()
		r.beat()
		r.reserve(nil, need(a, 50))
	})

	t.Run("SpentForManyIsNotSpentForFew", func(t *testing.T) {
		r := newRig(t, h)
		r.budget(a, 30, 100, true)
		r.beat()
		r.reserve(journal.ErrShortage, need(a, 50))
		r.beat()
		err := r.j.Reserve(t.Context(), journal.Reservation{ID: journal.NewID(), Needs: []journal.Need{need(a, 20)}})
		if short, ok := err.(*journal.Shortage); !ok || short.Spent() || short.Lacks[0].Left != 30 {
			t.Fatalf("the shortage is %#v", err)
		}
		r.beat()
		r.reserve(nil, need(a, 20))
	})

	t.Run("DeniedInDoubtIsNotAskedAgain", func(t *testing.T) {
		r := newRig(t, h)
		doubt := &doubtful{Store: r.store}
		r.store = doubt
		r.open()
		r.budget(a, 30, 100, true)
		r.beat()
		r.reserve(journal.ErrShortage, need(a, 50))
		denied := r.next()
		answer := r.send(denied)
		doubt.on = true
		if err := r.j.Take(t.Context(), denied, answer, r.clock.Now()); !errors.Is(err, journal.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		doubt.on = false
		r.bank.mu.Lock()
		r.bank.defs[0].Limit = 1000
		r.bank.mu.Unlock()
		for range 3 {
			r.beat()
			r.reserve(nil, need(a, 0))
		}
		var out amount.MicroUSD
		for _, g := range r.bank.grants {
			out += g.Amount
		}
		if known := r.sums(a).Amount; known != out {
			t.Fatalf("the authority has granted %d, and the journal knows of %d", out, known)
		}
	})

	t.Run("ReceiptsAreBounded", func(t *testing.T) {
		r := newRig(t, h) // it keeps 8
		r.budget(account("soft"), 10, 0, false)
		r.beat()
		var ids []journal.ID
		for range 20 {
			id := r.reserve(nil, soft(account("soft"), 5))
			r.settle(id, journal.Used(1), nil)
			ids = append(ids, id)
		}
		open := r.reserve(nil, soft(account("soft"), 5))
		if n := len(r.load(&journal.Plan{Reservations: ids}).Records); n != 20 {
			t.Fatalf("%d of 20 are left before anybody was told of them", n)
		}
		r.beat()
		if n := len(r.load(&journal.Plan{Reservations: append(ids, open)}).Records); n != 9 {
			t.Fatalf("%d are left, want the last 8 and the one that is on its way", n)
		}
		r.settle(ids[19], journal.Used(1), nil)
		r.settle(ids[0], journal.Used(1), journal.ErrNotFound)
		r.expect(account("soft"), 5, 20, 0, 0)
	})

	t.Run("DemandGoesOnInTheNextWindow", func(t *testing.T) {
		r := budgeted(t, h, a)
		r.fund(a, 50)
		r.settle(r.reserve(nil, need(a, 50)), journal.Used(50), nil)
		next := a
		next.Window.Start, next.Window.End = a.Window.End, a.Window.End+1_000_000
		r.bank.mu.Lock()
		r.bank.defs[0].Account = next
		r.bank.mu.Unlock()
		for len(r.j.Wants()) > 0 {
			<-r.j.Wants()
		}
		r.beat()
		if len(r.j.Wants()) != 1 {
			t.Fatal("nobody asks for credit of the new window")
		}
		if beat, _ := r.beat(); len(beat.Requests) == 0 || beat.Requests[0].Account != next {
			t.Fatalf("requests are %+v", beat.Requests)
		}
		r.reserve(nil, need(next, 50))
	})

	t.Run("NothingIsForgottenBeforeItIsTold", func(t *testing.T) {
		r := newRig(t, h) // it keeps 8
		r.budget(account("soft"), 10, 0, false)
		beat := r.next()
		var ids []journal.ID
		for range 20 {
			ids = append(ids, r.reserve(nil, soft(account("soft"), 5)))
			r.settle(ids[len(ids)-1], journal.Used(1), nil)
		}
		r.take(beat, r.send(beat))
		r.settle(ids[0], journal.Used(1), nil)
	})

	t.Run("HotNodeGetsItsShare", func(t *testing.T) {
		store := h.New(t)
		hot := &rig{t: t, h: h, store: store, clock: newClock()}
		hot.bank = newBank(hot.clock)
		hot.open()
		cold := &rig{t: t, h: h, store: h.New(t), clock: hot.clock, bank: hot.bank}
		cold.open()
		hot.budget(a, 100_000, 500, true)
		served, asked := map[*rig]int{}, map[*rig]int{}
		for range 20 {
			hot.beat()
			cold.beat()
			for range 2 {
				for i := range 20 {
					r := hot
					if i == 0 {
						r = cold
					}
					asked[r]++
					id := journal.NewID()
					reservation := journal.Reservation{ID: id, Needs: []journal.Need{need(a, 50)}}
					err := r.j.Reserve(t.Context(), reservation)
					if err != nil && len(r.j.Wants()) > 0 { // as the syncer does
						<-r.j.Wants()
						r.beat()
						err = r.j.Reserve(t.Context(), reservation)
					}
					if err == nil {
						served[r]++
						r.settle(id, journal.Used(50), nil)
					}
				}
				hot.clock.advance(renew / 2)
			}
		}
		if served[hot]*100 < asked[hot]*95 {
			t.Fatalf("the hot node served %d of %d, with %d of the budget left", served[hot], asked[hot], hot.bank.left(a))
		}
		idle := func(r *rig) (free amount.MicroUSD) {
			for _, g := range r.load(&journal.Plan{Everything: true}).Grants {
				if g.Ending == escrow.Open && !g.Asked {
					free += g.Free()
				}
			}
			return free
		}
		if n := idle(cold); n > 4*500 {
			t.Fatalf("%d are stranded on the cold node", n)
		}
	})
}

// doubtful is a store whose commits happen and are not confirmed.
type doubtful struct {
	journal.Store
	on bool
}

func (d *doubtful) Step(ctx context.Context, plan *journal.Plan, decide func(*journal.Loaded) (*journal.Changes, error)) error {
	err := d.Store.Step(ctx, plan, decide)
	if err == nil && d.on {
		return journal.ErrUnknownOutcome
	}
	return err
}
