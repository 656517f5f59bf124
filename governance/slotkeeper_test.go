package governance

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

// room are limits of concurrency alone.
func room(n int64) keys.Limits { return keys.Limits{Concurrency: keys.Limit(n)} }

// inUse counts the slots that are taken in all constraints now.
func (r *rig) inUse() (n int64) {
	r.shelf.with(func() {
		for key := range r.shelf.cells {
			c := r.shelf.cell(key)
			n += c.Slots.used(r.shelf.clock)
		}
	})
	return n
}

// renew is what the keeper does every RenewEvery.
func (r *rig) renew() {
	r.Helper()
	r.ok(r.g.slots.renewAll(r.ctx, nil))
}

func (r *rig) wantSlots(n int64) {
	r.Helper()
	if have := r.inUse(); have != n {
		r.Fatalf("%d slots are in use, want %d", have, n)
	}
}

func TestSlotsAreHeldWhileTheirPermitLives(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", room(2), keys.Limits{})
	a, b := r.admit(p, small), r.admit(p, small)
	_, err := r.g.Admit(r.ctx, Request{Principal: p, Bound: small})
	refusal := r.refused(err, ReasonConcurrency)
	if refusal.RetryAfter != slotLife || refusal.Verdict.Reserved != 2 || !refusal.Retryable {
		t.Fatalf("refusal %+v", refusal)
	}
	for range 10 { // far beyond the life of a slot that is not renewed
		r.shelf.advance(20 * time.Second)
		r.renew()
	}
	r.wantSlots(2)
	r.ok(a.Renew(r.ctx))
	r.ok(a.Settle(r.ctx, Used(1, 1)))
	r.wantSlots(1)
	c := r.admit(p, small)
	r.ok(b.Cancel(r.ctx))
	r.ok(c.Settle(r.ctx, Unknown())) // a slot is free again whatever is known
	r.wantSlots(0)
	if n := len(r.g.slots.groups); n != 0 {
		t.Fatalf("%d groups are left", n)
	}
}

// One transaction renews the slots of many permits and many rows.
func TestRenewalIsShared(t *testing.T) {
	r := newRig(t, &Options{BatchLimit: 8})
	for i := range 16 {
		p := r.caller("red", fmt.Sprint("k", i), keys.Limits{}, room(5))
		r.admit(p, small)
		r.admit(p, small)
	}
	before := r.shelf.steps
	r.renew()
	if n := r.shelf.steps - before; n != 2 {
		t.Fatalf("%d transactions renewed 16 rows in batches of 8", n)
	}
}

func TestTheGovernorRenewsByItself(t *testing.T) {
	r := newRig(t, &Options{RenewEvery: time.Millisecond})
	p := r.caller("red", "k", room(1), keys.Limits{})
	permit := r.admit(p, small)
	expires := func() (at int64) {
		r.shelf.with(func() {
			for key := range r.shelf.cells {
				at = r.shelf.cell(key).Slots.Holders[0].Expires
			}
		})
		return at
	}
	first := expires()
	r.shelf.advance(time.Second)
	r.until("the slot is renewed", func() bool { return expires() > first })
	r.ok(permit.Cancel(r.ctx))
}

// A Governor that is gone frees its slots when they expire, never its tokens or money.
func TestSlotsOfTheDeadAreFreed(t *testing.T) {
	r := newRig(t, nil)
	limits := room(1)
	limits.TokensPerDay = keys.Limit(100)
	p := r.caller("red", "k", limits, keys.Limits{})
	other, err := New(Stores{Store: r.shelf, Keys: r.registry}, &Options{Logger: discard, RenewEvery: 59 * time.Second})
	r.ok(err)
	_, err = other.Admit(r.ctx, Request{Principal: p, Bound: small})
	r.ok(err)
	r.ok(other.Close(r.ctx)) // and never comes back
	r.shelf.advance(slotLife - time.Microsecond)
	_, err = r.g.Admit(r.ctx, Request{Principal: p, Bound: small})
	if refusal := r.refused(err, ReasonConcurrency); refusal.RetryAfter != time.Microsecond {
		t.Fatalf("wait %s", refusal.RetryAfter)
	}
	r.shelf.advance(time.Microsecond)
	r.admit(p, small)
	if r.wantSlots(1); r.reserved() != 6 {
		t.Fatalf("%d tokens are reserved", r.reserved())
	}
}

// freeze stops the Governor for longer than its slots live; another one takes n of them.
func (r *rig) freeze(p *keys.Principal, n int) (others []*Permit) {
	r.Helper()
	r.shelf.advance(slotLife + time.Second)
	other, err := New(Stores{Store: r.shelf, Keys: r.registry}, &Options{Logger: discard})
	r.ok(err)
	r.Cleanup(func() { _ = other.Close(r.ctx) })
	for range n {
		permit, err := other.Admit(r.ctx, Request{Principal: p, Bound: small})
		r.ok(err)
		others = append(others, permit)
	}
	return others
}

// withSlot counts the permits that still have a slot.
func withSlot(permits []*Permit) (n int) {
	for _, p := range permits {
		p.mu.Lock()
		slotless := false
		for _, incarnation := range p.slots {
			slotless = slotless || incarnation == 0
		}
		p.mu.Unlock()
		if !slotless {
			n++
		}
	}
	return n
}

// A resumed Governor takes slots again under the limit; the other permits go on without.
func TestResumedGovernorTakesSlotsAgainUnderTheLimit(t *testing.T) {
	for taken := range 4 {
		r := newRig(t, nil)
		p := r.caller("red", "k", room(3), keys.Limits{})
		permits := []*Permit{r.admit(p, small), r.admit(p, small), r.admit(p, small)}
		others := r.freeze(p, taken)
		r.renew()
		r.wantSlots(3)
		if n := withSlot(permits); n != 3-taken {
			t.Fatalf("%d permits have a slot, %d were left", n, 3-taken)
		}
		lost := 0
		for _, permit := range permits {
			switch err := permit.Renew(r.ctx); {
			case errors.Is(err, ErrNoSlot):
				lost++
			default:
				r.ok(err)
			}
		}
		if lost != taken {
			t.Fatalf("%d permits say that their slot is lost", lost)
		}
		for range 5 { // what was had again is kept
			r.shelf.advance(20 * time.Second)
			r.renew()
			for _, o := range others {
				r.ok(o.g.slots.renewAll(r.ctx, nil))
			}
		}
		r.wantSlots(3)
		for _, permit := range permits { // and given back once, by those who have it
			r.ok(permit.Settle(r.ctx, Used(1, 1)))
		}
		r.wantSlots(int64(taken))
	}
}

// A settlement after the loss takes nothing from those who came since.
func TestSettlementAfterTheLossTakesNothingFromOthers(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", room(2), keys.Limits{})
	a, b := r.admit(p, small), r.admit(p, small)
	r.freeze(p, 2)
	r.ok(a.Settle(r.ctx, Used(1, 1))) // before the loss was noticed
	r.wantSlots(2)
	r.renew()
	r.ok(b.Settle(r.ctx, Used(1, 1))) // and after
	r.wantSlots(2)
	_, err := r.g.Admit(r.ctx, Request{Principal: p, Bound: small})
	r.refused(err, ReasonConcurrency)
}

// New permits of a resumed Governor do not lend their name to slots that it lost.
func TestResumedGovernorUsesAnotherIncarnation(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", room(3), keys.Limits{})
	old := []*Permit{r.admit(p, small), r.admit(p, small)}
	r.freeze(p, 0)
	fresh := r.admit(p, small) // before the loss was noticed
	if fresh.terms.incarnation == old[0].terms.incarnation {
		t.Fatal("the incarnation came back to life")
	}
	r.wantSlots(1)
	r.renew()
	r.wantSlots(3)
	r.ok(old[0].Settle(r.ctx, Used(1, 1)))
	r.ok(old[1].Settle(r.ctx, Used(1, 1)))
	r.wantSlots(1) // the fresh one's
	r.renew()
	r.wantSlots(1)
	r.ok(fresh.Settle(r.ctx, Used(1, 1)))
	r.wantSlots(0)
}

// The incarnation is used for as long as it is renewed, and no longer.
func TestIncarnationLivesWithItsRenewals(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", room(100), keys.Limits{})
	first := r.admit(p, small)
	for range 5 {
		r.shelf.advance(50 * time.Second)
		r.renew()
		if r.admit(p, small).terms.incarnation != first.terms.incarnation {
			t.Fatal("the incarnation changed though it was renewed")
		}
	}
	r.wantSlots(6)
	r.shelf.advance(61 * time.Second)
	if r.admit(p, small).terms.incarnation == first.terms.incarnation {
		t.Fatal("the incarnation outlived its slots")
	}
}

// Slots are had again under the limit that is in force then, not the one that was
// in force when the permits were admitted; a key that was revoked takes none.
func TestSlotsAreHadAgainUnderTheLimitInForce(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", room(3), keys.Limits{})
	permits := []*Permit{r.admit(p, small), r.admit(p, small), r.admit(p, small)}
	r.edit(p, func(_ *keys.Key, team *keys.Team) { team.Limits = room(1) })
	r.freeze(p, 0)
	r.renew()
	if r.wantSlots(1); withSlot(permits) != 1 {
		t.Fatalf("%d permits have a slot", withSlot(permits))
	}

	r = newRig(t, nil)
	p = r.caller("red", "k", room(3), keys.Limits{})
	permits = []*Permit{r.admit(p, small), r.admit(p, small)}
	r.edit(p, func(key *keys.Key, _ *keys.Team) { now := r.shelf.time(); key.RevokedAt = &now })
	r.freeze(p, 0)
	r.renew()
	if r.wantSlots(0); withSlot(permits) != 0 {
		t.Fatalf("%d permits of a revoked key have a slot", withSlot(permits))
	}
	r.ok(permits[0].Settle(r.ctx, Used(1, 1))) // what it used still counts
}

// Slots that were had again for permits that ended meanwhile are given back.
func TestSurplusIsGivenBack(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", room(5), keys.Limits{})
	permits := []*Permit{r.admit(p, small), r.admit(p, small), r.admit(p, small)}
	r.freeze(p, 0)
	settling := 0
	r.shelf.answer = func(_ *Plan, ch *Changes) error {
		if settling++; settling == 1 { // the slots were just had again: two permits end before that is known
			r.g.slots.forget(permits[0])
			r.g.slots.forget(permits[1])
		}
		return nil
	}
	r.renew()
	r.wantSlots(1)
	if withSlot(permits[2:]) != 1 {
		t.Fatal("the permit that goes on has no slot")
	}
}

// What could not be given back is owed until the next renewal.
func TestSurplusThatCannotBeGivenBackIsOwed(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", room(5), keys.Limits{})
	permits := []*Permit{r.admit(p, small), r.admit(p, small)}
	r.freeze(p, 0)
	n := 0
	r.shelf.enter = func(*Plan) error {
		switch n++; n {
		case 2: // between the loss and the new slots
			r.g.slots.forget(permits[0])
		case 3: // the surplus
			return ErrUnavailable
		}
		return nil
	}
	r.renew()
	r.wantSlots(2)
	r.renew()
	r.wantSlots(1)
}

// An operator who resolves a permit knows only of what it captured; the owner gives
// back what it had again.
func TestResolvedPermitGivesItsSlotBack(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", room(2), keys.Limits{})
	permit, stays := r.admit(p, small), r.admit(p, small)
	r.freeze(p, 0)
	r.renew()
	r.wantSlots(2)
	_, err := r.g.Resolve(r.ctx, Evidence{ID: permit.ID(), Outcome: Used(1, 1), Actor: "op", Reason: "why"})
	r.ok(err)
	for range 2 { // once, however often it is said
		r.is(permit.Settle(r.ctx, Used(1, 1)), ErrTerminal)
		r.wantSlots(1)
	}
	r.ok(stays.Settle(r.ctx, Used(1, 1)))
	r.wantSlots(0)
}

// A renewal that fails changes nothing; the next one helps.
func TestRenewalThatFails(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", room(2), keys.Limits{})
	permit := r.admit(p, small)
	up := r.down()
	r.is(permit.Renew(r.ctx), ErrUnavailable)
	r.shelf.advance(30 * time.Second)
	up()
	r.ok(permit.Renew(r.ctx))
	r.shelf.advance(59 * time.Second)
	r.wantSlots(1)
	free := r.admit(r.caller("blue", "k2", keys.Limits{}, keys.Limits{}), small)
	r.ok(free.Renew(r.ctx)) // no slot, nothing to renew
	if t := r.g.slots.ticket(); t.until == math.MaxInt64 {
		r.Fatal("the incarnation does not end")
	}
}

// The wait that is told is until enough slots are free, not until some are.
func TestSlotsFreeBy(t *testing.T) {
	s := Slots{Holders: []SlotHolder{{1, 2, 300}, {2, 1, 100}, {3, 5, 200}, {4, 9, 40}}}
	for n, want := range map[int64]int64{1: 100, 2: 200, 6: 200, 7: 300, 8: 300} {
		if have := s.freeBy(50, n); have != want {
			t.Errorf("%d slots are free by %d, want %d", n, have, want)
		}
	}
	if n := s.used(50); n != 8 {
		t.Errorf("%d are used", n)
	}
}

// The permit of a lost answer has a slot that nobody renews. When it is cancelled at
// last, that takes nothing from those who came since.
func TestLateCancelOfAnOrphanTakesNoSlotFromOthers(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", room(1), keys.Limits{})
	lostOnce := true
	r.shelf.answer = func(_ *Plan, ch *Changes) error {
		if lostOnce && ch.Batch != nil {
			lostOnce = false
			return ErrUnknownOutcome
		}
		return nil
	}
	down := true
	r.shelf.enter = func(plan *Plan) error {
		if down && len(plan.Permits) > 0 {
			return ErrUnavailable
		}
		return nil
	}
	_, err := r.g.Admit(r.ctx, Request{Principal: p, Bound: small})
	r.is(err, ErrUnknownOutcome)
	r.wantSlots(1)
	r.shelf.advance(slotLife + time.Second)
	live := r.admit(p, small)
	r.wantSlots(1)
	r.shelf.with(func() { down = false })
	r.until("the orphan is cancelled", func() bool { return r.g.backlog.length() == 0 })
	r.wantSlots(1)
	r.ok(live.Settle(r.ctx, Used(1, 1)))
	r.wantSlots(0)
}

// The same for an outcome that could not be recorded for long, while the slots of
// other limits were renewed.
func TestLateOutcomeTakesNoSlotFromOthers(t *testing.T) {
	r := newRig(t, nil)
	p, other := r.caller("red", "k", room(1), keys.Limits{}), r.caller("blue", "l", room(1), keys.Limits{})
	r.admit(other, small)
	permit := r.admit(p, small)
	down := true
	r.shelf.enter = func(plan *Plan) error {
		if down && len(plan.Permits) > 0 {
			return ErrUnavailable
		}
		return nil
	}
	r.is(permit.Settle(r.ctx, Used(1, 1)), ErrUnavailable)
	for range 4 {
		r.shelf.advance(slotLife / 3)
		r.renew()
	}
	r.wantSlots(1) // the other's
	live := r.admit(p, small)
	r.wantSlots(2)
	r.shelf.with(func() { down = false })
	r.until("the outcome is recorded", func() bool { return r.g.backlog.length() == 0 })
	r.wantSlots(2)
	r.ok(live.Settle(r.ctx, Used(1, 1)))
	r.wantSlots(1)
}

// The same when the owner's outcome comes late.
// A permit that an operator ended takes no slot again, though its owner has not heard of it.
func TestResolvedPermitRegainsNothing(t *testing.T) {
	for name, frozen := range map[string]bool{"the last of its incarnation": false, "expired": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			p := r.caller("red", "k", room(2), keys.Limits{})
			permit := r.admit(p, small)
			var stays *Permit
			if frozen {
				stays = r.admit(p, small)
				r.freeze(p, 0)
			}
			_, err := r.g.Resolve(r.ctx, Evidence{ID: permit.ID(), Outcome: Used(1, 1), Actor: "op", Reason: "why"})
			r.ok(err)
			r.renew()
			r.is(permit.Renew(r.ctx), ErrNoSlot)
			if frozen {
				r.wantSlots(1)
				r.ok(stays.Renew(r.ctx))
				r.ok(stays.Settle(r.ctx, Used(1, 1)))
			}
			r.wantSlots(0)
			r.is(permit.Settle(r.ctx, Used(1, 1)), ErrTerminal)
			r.wantSlots(0)
			if n := len(r.g.slots.groups); n != 0 {
				t.Fatalf("%d groups are left", n)
			}
		})
	}
}

func TestResolvedPermitGivesItsSlotBackLate(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", room(2), keys.Limits{})
	permit, stays := r.admit(p, small), r.admit(p, small)
	r.freeze(p, 0)
	r.renew()
	up := r.deaf()
	r.unsettled(permit.Settle(r.ctx, Used(1, 1)), permit.ID())
	_, err := r.g.Resolve(r.ctx, Evidence{ID: permit.ID(), Outcome: Used(1, 1), Actor: "op", Reason: "why"})
	r.ok(err)
	up()
	r.until("the outcome is dropped and its slot free", func() bool { return r.g.backlog.length() == 0 && r.inUse() == 1 })
	r.ok(stays.Settle(r.ctx, Used(1, 1)))
	r.wantSlots(0)
	if n := len(r.g.slots.groups); n != 0 {
		t.Fatalf("%d groups are left", n)
	}
}
