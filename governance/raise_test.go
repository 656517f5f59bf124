package governance

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

// accounts adds up an account kind over all windows.
func (r *rig) accounts(kind Kind) (a quota.Account) {
	r.shelf.with(func() {
		for _, c := range r.shelf.cells {
			if c.kind == kind {
				a.Consumed += c.account.Consumed
				a.Reserved += c.account.Reserved
				a.Uncertain += c.account.Uncertain
			}
		}
	})
	return a
}

func TestRaiseIsAbsoluteAndMonotone(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", keys.Limits{TokensPerDay: keys.Limit(100), CostPerDay: keys.Cost(50)}, keys.Limits{})
	permit := r.admit(p, Bound{Tokens: 10, Cost: 10})
	for _, step := range []struct{ to, want Bound }{
		{Bound{Tokens: 30, Cost: 10}, Bound{Tokens: 30, Cost: 10}},
		{Bound{Tokens: 30, Cost: 10}, Bound{Tokens: 30, Cost: 10}},
		{Bound{Tokens: 5, Cost: 20}, Bound{Tokens: 30, Cost: 20}},
		{Bound{}, Bound{Tokens: 30, Cost: 20}},
		{Bound{Tokens: 100, Cost: 50}, Bound{Tokens: 100, Cost: 50}},
	} {
		r.ok(permit.Raise(r.ctx, step.to))
		if permit.Bound() != step.want || r.accounts(KindTokenQuota).Reserved != int64(step.want.Tokens) || r.accounts(KindMoney).Reserved != int64(step.want.Cost) {
			t.Fatalf("raised to %+v: bound %+v", step.to, permit.Bound())
		}
	}
	refusal := r.refused(permit.Raise(r.ctx, Bound{Tokens: 101, Cost: 50}), ReasonReserved)
	if refusal.Verdict.Need != 1 || permit.Bound().Tokens != 100 {
		t.Fatalf("refusal %+v", refusal)
	}
	r.ok(permit.Settle(r.ctx, Used(100, 50)))
	r.is(permit.Raise(r.ctx, Bound{Tokens: 200}), ErrTerminal)
	r.verify()
}

// All or none: when one constraint has no room, none of them grows.
func TestRaiseThatIsRefusedChangesNothing(t *testing.T) {
	r := newRig(t, nil)
	limits := plenty()
	limits.CostPerDay = keys.Cost(10)
	p := r.caller("red", "k", limits, plenty())
	permit := r.admit(p, Bound{Tokens: 10, Cost: 10})
	_, cells, permits := r.shelf.copyOf()
	refusal := r.refused(permit.Raise(r.ctx, Bound{Tokens: 20, Cost: 11}), ReasonReserved)
	if refusal.Verdict.Constraint.Kind != KindMoney {
		t.Fatalf("refusal %+v", refusal)
	}
	_, after, permitsAfter := r.shelf.copyOf()
	for key, c := range cells {
		if after[key] != c {
			t.Fatalf("cell %v changed", key)
		}
	}
	if permits[permit.ID()].Version != permitsAfter[permit.ID()].Version {
		t.Fatal("the permit changed")
	}
}

// A raise after midnight goes to the window that the permit captured, and a wait for
// the next window is not promised.
func TestRaiseGoesToTheCapturedWindow(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", keys.Limits{TokensPerDay: keys.Limit(100)}, keys.Limits{})
	permit := r.admit(p, Bound{Tokens: 10})
	spent := r.admit(p, Bound{Tokens: 50})
	r.ok(spent.Settle(r.ctx, Used(50, 0)))
	r.shelf.advance(24 * time.Hour)
	r.admit(p, Bound{Tokens: 100}) // the new day is full
	r.ok(permit.Raise(r.ctx, Bound{Tokens: 50}))
	refusal := r.refused(permit.Raise(r.ctx, Bound{Tokens: 101}), ReasonQuota)
	if refusal.Retryable || refusal.RetryAfter != 0 || refusal.Verdict.Window.End > r.shelf.clock {
		t.Fatalf("refusal %+v", refusal)
	}
	r.ok(permit.Settle(r.ctx, Used(50, 0)))
	r.verify()
}

// A limit that was deleted since binds no raise; one that was added binds only new
// permits.
func TestRaiseFollowsEdits(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", keys.Limits{TokensPerDay: keys.Limit(100), TokensPerMinute: keys.Limit(100)}, keys.Limits{})
	permit := r.admit(p, Bound{Tokens: 10})
	r.edit(p, func(_ *keys.Key, team *keys.Team) { team.Limits = keys.Limits{CostPerDay: keys.Cost(0)} })
	r.ok(permit.Raise(r.ctx, Bound{Tokens: 1000, Cost: 1000}))
	r.edit(p, func(key *keys.Key, team *keys.Team) {
		key.Revision, team.Revision = 3, 3
		team.Limits = keys.Limits{TokensPerDay: keys.Limit(1001)}
	})
	r.refused(permit.Raise(r.ctx, Bound{Tokens: 1002}), ReasonReserved)
	r.ok(permit.Raise(r.ctx, Bound{Tokens: 1001}))
	r.ok(permit.Settle(r.ctx, Used(7, 7)))
	if a := r.accounts(KindTokenQuota); a.Consumed != 7 || a.Reserved != 0 {
		t.Fatalf("account %+v", a)
	}
	r.verify()
}

func TestRaiseOfAFreePermit(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", keys.Limits{TokensPerDay: keys.Limit(100), CostPerDay: keys.Cost(0)}, keys.Limits{})
	permit := r.admit(p, Bound{Tokens: 10, Free: true})
	r.ok(permit.Raise(r.ctx, Bound{Tokens: 20, Free: true}))
	r.is(permit.Raise(r.ctx, Bound{Tokens: 30, Cost: 1}), ErrInvalid)
	if b := permit.Bound(); b != (Bound{Tokens: 20, Free: true}) {
		t.Fatalf("bound %+v", b)
	}
}

// A permit that is raised again and again stays readable: the last raise is refused
// rather than stored.
func TestRaiseTooOften(t *testing.T) {
	r := newRig(t, nil)
	limits := keys.Limits{TokensPerMinute: keys.Limit(1e9)}
	p := r.caller("red", "k", limits, limits)
	permit := r.admit(p, Bound{Tokens: 1})
	n := int64(1)
	var err error
	for err == nil {
		if n++; n > 2*maxSegmentsPerPermit {
			t.Fatal("there is no end")
		}
		err = permit.Raise(r.ctx, Bound{Tokens: 1 + permit.Bound().Tokens})
	}
	r.is(err, ErrInvalid)
	if n < 500 {
		t.Fatalf("refused after %d", n)
	}
	r.ok(permit.Settle(r.ctx, Used(1, 0)))
}

// Raises, and everything else about a permit, may come from many goroutines.
func TestRaiseConcurrently(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	permit := r.admit(p, Bound{Tokens: 1, Cost: 1})
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if err := permit.Raise(r.ctx, Bound{Tokens: 2, Cost: 2}); err != nil && !errors.Is(err, ErrTerminal) {
				t.Error(err)
			}
			_, _ = permit.ID(), permit.Bound()
			if i == 20 {
				if err := permit.Settle(r.ctx, Used(1, 1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if r.reserved() != 0 {
		t.Fatalf("%d is reserved", r.reserved())
	}
	r.verify()
}
