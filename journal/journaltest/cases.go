package journaltest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/quota"
)

func testStep(t *testing.T, h Harness) {
	extreme := journal.Grant{
		ID: escrow.GrantID{0: 1, 15: 255}, Boot: 7, Amount: math.MaxInt64, Consumed: 1, Uncertain: 2, Reserved: 3, Observed: math.MaxInt64,
		Ending: escrow.Burned, Version: math.MaxInt64, Acked: math.MaxInt64 - 1,
		Account: escrow.Account{Policy: "it's \x00 \"odd\" ✓", Rule: "R", Subject: policy.Subject{Team: "Team", User: "usér"}, Period: quota.Week, Window: quota.Window{Start: -5, End: math.MaxInt64}},
	}
	meter := journal.Grant{ID: escrow.GrantID{2}, Boot: 7, Meter: true, Version: 1, Reserved: 10, Account: extreme.Account}
	meter.Account.Rule = "r" // another one
	asked := journal.Grant{ID: escrow.GrantID{3}, Boot: 7, Asked: true, Amount: 9, Version: 1, Acked: 1, Account: extreme.Account}
	open := journal.Record{ID: journal.ID{1}, Fingerprint: [16]byte{1, 2}, State: journal.Reserved, Portions: []journal.Portion{{Need: 0, Grant: meter.ID, Amount: 10}, {Need: 3, Grant: extreme.ID, Amount: 3}}}
	done := journal.Record{ID: journal.ID{2}, Fingerprint: [16]byte{3}, State: journal.Settled, Cost: math.MaxInt64, Number: 4, Portions: []journal.Portion{{Grant: extreme.ID, Amount: math.MaxInt64}}}
	meta := journal.Meta{Boot: escrow.BootID{9}, Number: 7, Node: "node-1", Namespace: policy.Namespace{8}, Ended: 4, Acked: 3, Forgotten: 2, Poison: journal.Poison{Reservation: journal.ID{5}, Used: 6, Bound: 5}}

	fill := func(t *testing.T) journal.Store {
		s := h.New(t)
		err := s.Step(t.Context(), &journal.Plan{}, func(l *journal.Loaded) (*journal.Changes, error) {
			if !reflect.DeepEqual(l, &journal.Loaded{}) {
				t.Errorf("an empty journal is loaded as %+v", l)
			}
			return &journal.Changes{Meta: &meta, Grants: []journal.Grant{extreme, meter, asked}, Made: []journal.Record{open, done}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	view := func(t *testing.T, s journal.Store, plan *journal.Plan, grants, records int) *journal.Loaded {
		t.Helper()
		l, err := s.View(t.Context(), plan)
		if err != nil || len(l.Grants) != grants || len(l.Records) != records || l.Meta != meta {
			t.Fatalf("%+v is loaded as %+v, %v", plan, l, err)
		}
		for _, g := range l.Grants {
			if g != extreme && g != meter && g != asked {
				t.Fatalf("a grant came back as %+v", g)
			}
		}
		for _, r := range l.Records {
			if !reflect.DeepEqual(r, open) && !reflect.DeepEqual(r, done) {
				t.Fatalf("a record came back as %+v", r)
			}
		}
		return l
	}

	t.Run("LoadsWhatWasWritten", func(t *testing.T) {
		s := fill(t)
		for _, s := range []journal.Store{s, h.Reopen(t, s)} {
			view(t, s, &journal.Plan{}, 0, 0)
			view(t, s, &journal.Plan{Everything: true}, 3, 0)
			view(t, s, &journal.Plan{OnTheirWay: true}, 2, 1)
			view(t, s, &journal.Plan{Reservations: []journal.ID{{1}, {2}, {7}}}, 2, 2)
			view(t, s, &journal.Plan{Everything: true, OnTheirWay: true, Reservations: []journal.ID{{1}}, Accounts: []escrow.Account{meter.Account}}, 3, 1)
			if l := view(t, s, &journal.Plan{Accounts: []escrow.Account{extreme.Account, meter.Account}}, 2, 0); slices.Contains(l.Grants, extreme) {
				t.Fatal("what has ended is not wanted by an account")
			}
		}
	})

	t.Run("ChangesAndForgets", func(t *testing.T) {
		s := fill(t)
		err := s.Step(t.Context(), &journal.Plan{Everything: true, Reservations: []journal.ID{{1}}}, func(*journal.Loaded) (*journal.Changes, error) {
			r := open
			r.State, r.Number, r.Cost = journal.Uncertain, 5, 1
			g := meter
			g.Reserved, g.Uncertain, g.Observed, g.Version = 0, 10, 1, 2
			return &journal.Changes{Grants: []journal.Grant{g}, Dropped: []escrow.GrantID{extreme.ID}, Changed: []journal.Record{r}, Forget: 4,
				Notes: []journal.Note{{Actor: "a", Action: "release", Reason: "r", Poison: meta.Poison}}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.View(t.Context(), &journal.Plan{Everything: true, Reservations: []journal.ID{{1}, {2}}})
		if err != nil || len(l.Grants) != 2 || len(l.Records) != 1 || l.Records[0].State != journal.Uncertain || l.Records[0].Number != 5 || l.Records[0].Cost != 1 || !reflect.DeepEqual(l.Records[0].Portions, open.Portions) {
			t.Fatalf("left is %+v, %v", l, err)
		}
	})

	t.Run("ErrorWritesNothing", func(t *testing.T) {
		s := fill(t)
		own := errors.New("no")
		err := s.Step(t.Context(), &journal.Plan{Everything: true}, func(*journal.Loaded) (*journal.Changes, error) {
			return &journal.Changes{Dropped: []escrow.GrantID{extreme.ID}}, own
		})
		if !errors.Is(err, own) {
			t.Fatalf("the error is %v", err)
		}
		view(t, s, &journal.Plan{Everything: true}, 3, 0)
	})

	t.Run("MadeTwiceIsAnError", func(t *testing.T) {
		s := fill(t)
		err := s.Step(t.Context(), &journal.Plan{}, func(*journal.Loaded) (*journal.Changes, error) {
			return &journal.Changes{Made: []journal.Record{{ID: journal.ID{9}, State: journal.Reserved}, open}}, nil
		})
		if !errors.Is(err, journal.ErrCorrupt) {
			t.Fatalf("the error is %v", err)
		}
		view(t, s, &journal.Plan{Reservations: []journal.ID{{9}}}, 0, 0)
	})
}

func testOpen(t *testing.T, h Harness) {
	a, s := account("hard"), account("soft")

	t.Run("BurnsWhatWasOpen", func(t *testing.T) {
		r := newRig(t, h)
		r.budget(a, 1000, 100, true)
		r.budget(s, 10, 0, false)
		r.beat()
		r.fund(a, 60)
		amount := r.sums(a).Amount
		r.settle(r.reserve(nil, need(a, 30), soft(s, 30)), journal.Used(20), nil)
		held := r.reserve(nil, need(a, 40), soft(s, 40))
		open := len(r.load(&journal.Plan{Everything: true}).Grants)
		r.crash()
		if b := r.j.Burnt(); b.Number != 2 || b.Grants != open || b.Reservations != 1 {
			t.Fatal(b)
		}
		r.expect(a, 0, 20, amount-20, 0)
		r.expect(s, 0, 20, 40, 0)
		r.reserve(journal.ErrShortage, need(a, 1))
		r.settle(held, journal.Used(1), journal.ErrEnded)
		r.beat()
		if left := r.bank.left(a); left != 1000-amount {
			t.Fatalf("the authority has %d left of what was burned", left)
		}
	})

	t.Run("FencesTheFirst", func(t *testing.T) {
		r := newRig(t, h)
		r.budget(s, 10, 0, false)
		r.beat()
		held := r.reserve(nil, soft(s, 1))
		first := r.j
		r.crash()
		r.j, first = first, r.j
		r.settle(held, journal.NotSent(), journal.ErrFenced)
		r.reserve(journal.ErrFenced, soft(s, 1))
		if _, err := r.j.Next(t.Context(), false); !errors.Is(err, journal.ErrFenced) {
			t.Fatalf("Next says %v", err)
		}
		if err := r.j.Release(t.Context(), "op", "why"); !errors.Is(err, journal.ErrFenced) {
			t.Fatalf("Release says %v", err)
		}
		r.j = first
		r.reserve(nil, soft(s, 1))
	})

	t.Run("NumberRisesAndBootIsFresh", func(t *testing.T) {
		r := newRig(t, h)
		boots := map[escrow.BootID]bool{r.j.Boot(): true}
		for i := range 5 {
			r.crash()
			if boots[r.j.Boot()] || r.j.Burnt().Number != int64(i)+2 {
				t.Fatalf("opening %d is %s, number %d", i, r.j.Boot(), r.j.Burnt().Number)
			}
			boots[r.j.Boot()] = true
		}
	})

	t.Run("IsOneNodesAndOneAuthoritys", func(t *testing.T) {
		r := newRig(t, h)
		r.beat()
		beat := r.next()
		other := r.send(beat)
		other.Mark.Namespace = policy.Namespace{7}
		r.take(beat, other)
		r.crash()
		beat, err := r.j.Next(t.Context(), false)
		if err != nil || beat.Node != "node-1" || beat.Validate() != nil {
			t.Fatal(beat, err, beat.Validate())
		}
		other.Mark.Namespace = policy.Namespace{6}
		if err := r.j.Take(t.Context(), beat, other, r.clock.Now()); !errors.Is(err, escrow.ErrIncompatible) {
			t.Fatalf("the grants of another authority: %v", err)
		}
		if _, err := journal.Open(t.Context(), r.store, &journal.Options{Node: "node-2"}); !errors.Is(err, journal.ErrInvalid) {
			t.Fatalf("another node opens it: %v", err)
		}
		if _, err := journal.Open(t.Context(), r.store, &journal.Options{Node: "no name"}); !errors.Is(err, journal.ErrInvalid) {
			t.Fatal(err)
		}
	})

	t.Run("ReadmittedIsLaterThanWhatWasHeard", func(t *testing.T) {
		r := newRig(t, h)
		for _, bad := range []error{
			journal.Readmit(t.Context(), r.store, 0, "op", "why"), journal.Readmit(t.Context(), r.store, 1<<62+1, "op", "why"),
			journal.Readmit(t.Context(), r.store, 7, "", "why"), journal.Readmit(t.Context(), r.store, 7, "op", ""),
		} {
			if !errors.Is(bad, journal.ErrInvalid) {
				t.Fatal(bad)
			}
		}
		for range 2 {
			if err := journal.Readmit(t.Context(), r.store, 41, "op", "started anew"); err != nil {
				t.Fatal(err)
			}
		}
		if err := journal.Readmit(t.Context(), r.store, 12, "op", "below"); err != nil {
			t.Fatal(err)
		}
		r.crash()
		if r.j.Burnt().Number != 42 {
			t.Fatalf("the next opening is %d", r.j.Burnt().Number)
		}
		r.budget(s, 10, 0, false)
		r.beat()
		r.reserve(nil, soft(s, 1))
		if err := journal.Readmit(t.Context(), r.store, 100, "op", "why"); !errors.Is(err, journal.ErrInvalid) {
			t.Fatalf("a journal that holds something: %v", err)
		}
	})

	t.Run("AuthorityFences", func(t *testing.T) {
		r := newRig(t, h)
		r.budget(s, 10, 0, false)
		r.beat()
		held := r.reserve(nil, soft(s, 1))
		if err := r.j.Fence(t.Context(), &escrow.Fenced{Reason: escrow.Cloned, BootNumber: 1}); err != nil {
			t.Fatal(err)
		}
		r.reserve(journal.ErrFenced, soft(s, 1))
		r.settle(held, journal.Used(1), nil)
	})
}

func testReserve(t *testing.T, h Harness) {
	a, b, s := account("a"), account("b"), account("soft")

	t.Run("AllOrNothing", func(t *testing.T) {
		r := newRig(t, h)
		r.budget(a, 1000, 100, true)
		r.budget(b, 1000, 100, true)
		r.beat()
		r.fund(a, 50)
		err := r.j.Reserve(t.Context(), journal.Reservation{ID: journal.NewID(), Needs: []journal.Need{need(a, 10), soft(s, 10), need(b, 10)}})
		var short *journal.Shortage
		if !errors.As(err, &short) || len(short.Lacks) != 1 || short.Lacks[0] != (journal.Lack{Account: b, Need: 10}) || short.RetryAfter <= 0 {
			t.Fatalf("the error is %#v", err)
		}
		r.expect(a, 0, 0, 0, 0)
		r.expect(s, 0, 0, 0, 0)
		r.fund(b, 10)
		r.reserve(nil, need(a, 10), soft(s, 10), need(b, 10))
		r.expect(a, 10, 0, 0, 0)
		r.expect(s, 10, 0, 0, 0)
	})

	t.Run("SplitsOverGrants", func(t *testing.T) {
		r := newRig(t, h)
		r.budget(a, 1000, 10, true)
		r.beat()
		r.fund(a, 30)
		first := r.sums(a).Amount
		r.fund(a, first+30)
		total := r.sums(a).Amount
		id := r.reserve(nil, need(a, total))
		r.reserve(journal.ErrShortage, need(a, 1))
		r.settle(id, journal.Used(first+1), nil)
		r.expect(a, 0, first+1, 0, 0)
		r.reserve(nil, need(a, total-first-1))
	})

	t.Run("ReplayIsOnce", func(t *testing.T) {
		r := newRig(t, h)
		r.beat()
		one := journal.Reservation{ID: journal.NewID(), Needs: []journal.Need{soft(s, 10)}}
		for range 3 {
			if err := r.j.Reserve(t.Context(), one); err != nil {
				t.Fatal(err)
			}
		}
		r.expect(s, 10, 0, 0, 0)
		other := one
		other.Needs = []journal.Need{soft(s, 11)}
		if err := r.j.Reserve(t.Context(), other); !errors.Is(err, journal.ErrConflict) {
			t.Fatalf("other needs: %v", err)
		}
		r.settle(one.ID, journal.Used(1), nil)
		if err := r.j.Reserve(t.Context(), one); !errors.Is(err, journal.ErrEnded) {
			t.Fatalf("after its end: %v", err)
		}
		r.expect(s, 0, 1, 0, 0)
	})

	t.Run("InvalidChangesNothing", func(t *testing.T) {
		r := newRig(t, h)
		for _, bad := range []journal.Reservation{
			{}, {ID: journal.NewID(), Needs: []journal.Need{need(a, -1)}}, {ID: journal.NewID(), Needs: []journal.Need{{Amount: 1}}},
			{ID: journal.NewID(), Needs: []journal.Need{soft(s, 1), soft(s, 1)}},
		} {
			if err := r.j.Reserve(t.Context(), bad); !errors.Is(err, journal.ErrInvalid) {
				t.Fatalf("%+v: %v", bad, err)
			}
		}
		r.settle(journal.NewID(), journal.Used(-1), journal.ErrInvalid)
		r.settle(journal.NewID(), journal.Outcome{State: journal.Burned}, journal.ErrInvalid)
		r.settle(journal.NewID(), journal.Used(1), journal.ErrNotFound)
		if l := r.load(&journal.Plan{Everything: true, OnTheirWay: true}); len(l.Grants)+len(l.Records) != 0 {
			t.Fatalf("left is %+v", l)
		}
	})

	t.Run("NothingIsDeniedWithoutCredit", func(t *testing.T) {
		r := budgeted(t, h, a)
		r.reserve(journal.ErrShortage, need(a, 0)) // even what is cheap
		r.beat()
		r.settle(r.reserve(nil, need(a, 0)), journal.Used(0), nil)
	})

	t.Run("PastItsDeadlineNothing", func(t *testing.T) {
		r := newRig(t, h)
		r.budget(a, 10_000, 100, true)
		r.beat()
		r.fund(a, 50)
		old := r.sums(a).Amount
		r.clock.advance(life / 2)
		r.fund(a, old+1)
		r.clock.advance(life / 2) // the first has ended, the second goes on
		fresh := r.sums(a).Amount - old
		r.reserve(journal.ErrShortage, need(a, fresh+1))
		r.reserve(nil, need(a, fresh))
		r.clock.advance(life)
		r.reserve(journal.ErrShortage, need(a, 1))
	})

	t.Run("ManyNeverTakeMoreThanThereIs", func(t *testing.T) {
		r := newRig(t, h)
		r.budget(a, 777, 777, true)
		r.beat()
		r.fund(a, 777)
		var wg sync.WaitGroup
		var mu sync.Mutex
		got := map[journal.ID]bool{}
		for range 16 {
			wg.Go(func() {
				for range 60 {
					id := journal.NewID()
					err := r.j.Reserve(t.Context(), journal.Reservation{ID: id, Needs: []journal.Need{need(a, 1), soft(s, 1)}})
					switch {
					case err == nil:
						mu.Lock()
						got[id] = true
						mu.Unlock()
					case !errors.Is(err, journal.ErrShortage):
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if len(got) != 777 {
			t.Fatalf("%d of 777 were reserved", len(got))
		}
		r.expect(a, 777, 0, 0, 0)
		i := 0
		for id := range got {
			i++
			o := []journal.Outcome{journal.Used(1), journal.NotSent(), journal.Unknown(1)}[i%3]
			wg.Go(func() {
				if err := r.j.Settle(t.Context(), id, o); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		r.expect(a, 0, 259, 259, 259)
		r.expect(s, 0, 259, 259, 259)
	})

	t.Run("WhoLeftHoldsNothing", func(t *testing.T) {
		r := newRig(t, h)
		var wg sync.WaitGroup
		for i := range 64 {
			ctx, leave := context.WithCancel(t.Context())
			if i%2 == 0 {
				wg.Go(leave)
			} else {
				defer leave()
			}
			wg.Go(func() {
				id := journal.NewID()
				err := r.j.Reserve(ctx, journal.Reservation{ID: id, Needs: []journal.Need{soft(s, 1)}})
				if err == nil {
					err = r.j.Settle(ctx, id, journal.Used(1))
				}
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if _, err := r.j.Next(t.Context(), true); err != nil { // whatever is left is given back first
			t.Fatal(err)
		}
		if got := r.sums(s); got.Reserved != 0 || got.Uncertain != 0 {
			t.Fatalf("held is %+v", got)
		}
	})
}

func testSettle(t *testing.T, h Harness) {
	a, s := account("a"), account("soft")
	funded := func(t *testing.T) *rig {
		r := budgeted(t, h, a)
		r.fund(a, 100)
		return r
	}

	t.Run("KnownReleasesTheRest", func(t *testing.T) {
		r := funded(t)
		id := r.reserve(nil, need(a, 60), soft(s, 60))
		r.settle(id, journal.Used(25), nil)
		r.expect(a, 0, 25, 0, 0)
		r.expect(s, 0, 25, 0, 0)
		r.settle(id, journal.Used(25), nil)
		for _, other := range []journal.Outcome{journal.Used(24), journal.NotSent(), journal.Unknown(25), {}} {
			r.settle(id, other, journal.ErrConflict)
		}
		r.expect(a, 0, 25, 0, 0)
	})

	t.Run("UnknownKeepsTheBound", func(t *testing.T) {
		r := funded(t)
		id := r.reserve(nil, need(a, 60))
		r.settle(id, journal.Outcome{}, nil)
		r.settle(id, journal.Unknown(0), nil) // the same
		other := r.reserve(nil, need(a, 10))
		r.settle(other, journal.Unknown(4), nil)
		r.expect(a, 0, 0, 70, 4)
	})

	t.Run("UnsentReturnsAll", func(t *testing.T) {
		r := funded(t)
		r.settle(r.reserve(nil, need(a, 60), soft(s, 60)), journal.NotSent(), nil)
		r.expect(a, 0, 0, 0, 0)
		r.expect(s, 0, 0, 0, 0)
	})

	t.Run("CancelledContextDoesNotRelease", func(t *testing.T) {
		r := funded(t)
		gone, leave := context.WithCancel(t.Context())
		leave()
		id := r.reserve(nil, need(a, 60))
		if err := r.j.Settle(gone, id, journal.Unknown(0)); err != nil {
			t.Fatal(err)
		}
		r.expect(a, 0, 0, 60, 0)
	})

	t.Run("OverrunPoisonsUntilReleased", func(t *testing.T) {
		r := funded(t)
		held := r.reserve(nil, need(a, 5))
		id := r.reserve(nil, need(a, 10))
		r.settle(id, journal.Used(5000), nil)
		r.expect(a, 5, 5000, 0, 0)
		var poisoned *journal.PoisonedError
		if err := r.j.Reserve(t.Context(), journal.Reservation{ID: journal.NewID(), Needs: []journal.Need{soft(s, 1)}}); !errors.As(err, &poisoned) || poisoned.Poison != (journal.Poison{Reservation: id, Used: 5000, Bound: 10}) {
			t.Fatalf("the error is %v", err)
		}
		r.settle(held, journal.Used(1), nil)
		r.beat() // the authority is told of all of it
		r.crash()
		r.reserve(journal.ErrPoisoned, soft(s, 1))
		for _, bad := range [][2]string{{"", "why"}, {"op", ""}} {
			if err := r.j.Release(t.Context(), bad[0], bad[1]); !errors.Is(err, journal.ErrInvalid) {
				t.Fatalf("Release says %v", err)
			}
		}
		for range 2 {
			if err := r.j.Release(t.Context(), "op", "looked at it"); err != nil {
				t.Fatal(err)
			}
		}
		r.reserve(nil, soft(s, 1))
		if r.bank.bound(a) < 5001 {
			t.Fatalf("the authority was told of %d", r.bank.bound(a))
		}
	})

	t.Run("ImpossibleCostChangesNothing", func(t *testing.T) {
		r := funded(t)
		first := r.reserve(nil, soft(s, 1))
		r.settle(first, journal.Used(math.MaxInt64-1), nil)
		if err := r.j.Release(t.Context(), "op", "why"); err != nil {
			t.Fatal(err)
		}
		r.reserve(journal.ErrInvalid, soft(s, 2))
		r.expect(s, 0, math.MaxInt64-1, 0, 0)
		id := r.reserve(nil, soft(s, 1))
		r.settle(id, journal.Used(2), journal.ErrInvalid)
		r.settle(id, journal.Used(0), nil)
	})
}

// books compares every grant with itself: what was granted is accounted for, to the last.
func (r *rig) books() error {
	list, err := journal.Audit(r.load(&journal.Plan{Everything: true, OnTheirWay: true}))
	if err != nil || len(list) > 0 {
		return errors.Join(err, fmt.Errorf("reservations and grants differ: %v", list))
	}
	for _, g := range r.load(&journal.Plan{Everything: true}).Grants {
		if err := g.Validate(); err != nil {
			return err
		}
		if !g.Meter && !g.Asked && g.Overrun() == 0 && g.Amount != amount.MicroUSD(0)+g.Reserved+g.Consumed+g.Uncertain+g.Free() {
			return fmt.Errorf("grant %+v does not add up", g)
		}
	}
	return nil
}
