package governancetest

import (
	"errors"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
)

func renewCases() []scenario {
	return []scenario{
		{name: "KeepsTheSlot", run: renewKeeps},
		{name: "ExpiryFreesSlotsAndNothingElse", also: "ReplayL6SlotsOfADeadProcess", run: renewExpiry},
		{name: "LostSlotIsHadAgainUnderTheLimit", run: renewAgain},
		{name: "LostSlotGoesOnWithout", run: renewWithout},
		{name: "LostSlotIsNotHadAboveALoweredLimit", run: renewLowered},
		{name: "SettleAfterExpiryDecrementsNothing", run: renewSettleLate},
		{name: "OwnSlotsThatExpiredAreNotReturned", run: renewOwnExpired},
		{name: "SettleReleasesTheSlotHadAgain", run: renewSettleAgain},
		{name: "WithoutConcurrencyIsANoOp", run: renewNone},
		{name: "GovernorsDoNotShareSlots", run: renewTwo},
		{name: "ConcurrencyIsNeverExceeded", run: renewRace},
		{name: "PrimitiveG18ExpiryIsDerivedFromTime", run: renewDerived},
	}
}

// slotted makes a caller whose team has n slots.
func (e *env) slotted(n int64) *caller {
	e.Helper()
	e.team("team-1", keys.Limits{Concurrency: keys.Limit(n), TokensPerDay: keys.Limit(1000)})
	return e.caller("team-1", keys.Limits{})
}

func (e *env) slots(c *caller) int64 {
	e.Helper()
	return e.verdict(c, governance.ScopeTeam, "concurrency").Reserved
}

func renewKeeps(e *env) {
	c := e.slotted(2)
	p := e.admit(c, tokens(1))
	for range 5 {
		e.advance(40 * time.Second)
		e.ok(p.Renew(e.ctx))
		e.equal("slots", e.slots(c), int64(1))
	}
	e.settle(p, governance.Used(1, 0))
	e.equal("slots", e.slots(c), int64(0))
}

func renewExpiry(e *env) {
	c := e.slotted(2)
	dead := e.governor(e.b, nil)
	for range 2 {
		_, err := dead.Admit(e.ctx, request(c, tokens(100)))
		e.ok(err)
	}
	r := e.refused(c, tokens(1), governance.ReasonConcurrency)
	e.advance(r.RetryAfter)
	e.admit(c, tokens(1))
	e.admit(c, tokens(1))
	e.refused(c, tokens(1), governance.ReasonConcurrency)
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 0, 202) // tokens are not slots
	holds, err := e.g.Holds(e.ctx, governance.HoldQuery{})
	e.ok(err)
	e.equal("holds", len(holds), 4)
}

func renewAgain(e *env) {
	c := e.slotted(2)
	p, q := e.admit(c, tokens(1)), e.admit(c, tokens(1))
	e.advance(2 * time.Minute) // this process was asleep
	e.equal("slots", e.slots(c), int64(0))
	e.ok(p.Renew(e.ctx))
	e.equal("slots", e.slots(c), int64(2)) // renewed once per row for all its permits
	e.ok(q.Renew(e.ctx))
	e.equal("slots", e.slots(c), int64(2))
}

func renewWithout(e *env) {
	c := e.slotted(2)
	asleep := e.governor(e.b, nil)
	p, err := asleep.Admit(e.ctx, request(c, tokens(1)))
	e.ok(err)
	q, err := asleep.Admit(e.ctx, request(c, tokens(1)))
	e.ok(err)
	e.advance(2 * time.Minute)
	e.admit(c, tokens(1)) // others took a slot meanwhile
	first, second := p.Renew(e.ctx), q.Renew(e.ctx)
	if errors.Is(first, governance.ErrNoSlot) == errors.Is(second, governance.ErrNoSlot) {
		e.Fatalf("two permits, one slot left: %v and %v", first, second)
	}
	e.equal("slots", e.slots(c), int64(2))
	for _, permit := range []*governance.Permit{p, q} {
		e.settle(permit, governance.Used(1, 0))
	}
	e.equal("slots", e.slots(c), int64(1)) // the other's
}

func renewLowered(e *env) {
	c := e.slotted(2)
	p := e.admit(c, tokens(1))
	e.advance(2 * time.Minute)
	e.limitTeam("team-1", keys.LimitsChange{Concurrency: keys.Set(keys.Limit(0))})
	e.is(p.Renew(e.ctx), governance.ErrNoSlot)
	e.equal("slots", e.slots(c), int64(0))
	e.settle(p, governance.Used(1, 0)) // the work went on without
	e.equal("slots", e.slots(c), int64(0))
}

func renewSettleLate(e *env) {
	c := e.slotted(1)
	asleep := e.governor(e.b, nil)
	p, err := asleep.Admit(e.ctx, request(c, tokens(1)))
	e.ok(err)
	e.advance(2 * time.Minute)
	e.admit(c, tokens(1))
	e.settle(p, governance.Used(1, 0))
	e.equal("slots", e.slots(c), int64(1))
	e.refused(c, tokens(1), governance.ReasonConcurrency)
}

// renewOwnExpired: a Governor's older permit must not give back the slot of its newer one.
func renewOwnExpired(e *env) {
	c := e.slotted(1)
	p := e.admit(c, tokens(1))
	e.advance(2 * time.Minute)
	q := e.admit(c, tokens(1))
	e.settle(p, governance.Used(1, 0))
	e.equal("slots", e.slots(c), int64(1))
	e.refused(c, tokens(1), governance.ReasonConcurrency)
	e.settle(q, governance.Used(1, 0))
	e.equal("slots", e.slots(c), int64(0))
}

func renewSettleAgain(e *env) {
	c := e.slotted(3)
	p := e.admit(c, tokens(1))
	e.advance(2 * time.Minute)
	e.ok(p.Renew(e.ctx))
	q := e.admit(c, tokens(1))
	e.equal("slots", e.slots(c), int64(2))
	e.settle(p, governance.Used(1, 0))
	e.equal("slots", e.slots(c), int64(1))
	e.settle(q, governance.Used(1, 0))
	e.equal("slots", e.slots(c), int64(0))
}

func renewNone(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(1000)})
	c := e.caller("team-1", keys.Limits{})
	p := e.admit(c, tokens(1))
	before := e.snapshot()
	e.ok(p.Renew(e.ctx))
	e.unchanged(before)
}

func renewTwo(e *env) {
	c := e.slotted(4)
	other := e.governor(e.b, nil)
	p, err := other.Admit(e.ctx, request(c, tokens(1)))
	e.ok(err)
	mine := e.admit(c, tokens(1))
	e.advance(45 * time.Second)
	e.ok(mine.Renew(e.ctx))
	e.advance(30 * time.Second) // the other one did not renew
	e.equal("slots", e.slots(c), int64(1))
	e.settle(p, governance.Used(1, 0))
	e.equal("slots", e.slots(c), int64(1))
	e.ok(mine.Cancel(e.ctx))
	e.equal("slots", e.slots(c), int64(0))
}

func renewRace(e *env) {
	c := e.slotted(7)
	other := e.governor(e.b, nil)
	for range 5 {
		out := e.spend(40, c, tokens(1), e.g, other)
		e.wantAdmitted(out, 7)
		for _, p := range out.permits {
			e.ok(p.Cancel(e.ctx))
		}
		e.equal("slots", e.slots(c), int64(0))
	}
}

func renewDerived(e *env) {
	c := e.slotted(1)
	asleep := e.governor(e.b, nil)
	p, err := asleep.Admit(e.ctx, request(c, tokens(1)))
	e.ok(err)
	e.advance(59 * time.Second)
	e.equal("slots", e.slots(c), int64(1))
	e.advance(2 * time.Second)
	e.equal("slots", e.slots(c), int64(0)) // nothing had to sweep
	x, err := e.g.Explain(e.ctx, request(c, tokens(1)))
	e.ok(err)
	e.equal("admitted", x.Admitted, true)
	e.ok(p.Cancel(e.ctx))
}
