package governance

import (
	"context"
	"errors"
	"sync"

	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/keys"
)

// Permit is the right to make one provider attempt. Whoever holds it must end it
// with Settle or Cancel, in every case; Do does that by itself.
//
// Concurrency: safe for concurrent use.
type Permit struct {
	g         *Governor
	id        PermitID
	at        int64 // µs, when admitted
	owner     Nonce
	terms     *terms
	set       *constraintSet // what applied at admission
	principal *keys.Principal
	credit    []journal.Need // what it reserved in a node's journal

	mu    sync.Mutex
	bound Bound
	slots map[ConstraintID]uint64 // incarnations of slots that were lost and had again; zero: not had; replaced, never changed
}

func (g *Governor) permit(a *admission) *Permit {
	p := &Permit{g: g, id: a.id, at: a.at, owner: a.owner, terms: a.terms, set: a.set, principal: a.request.Principal, credit: a.credit, bound: a.request.Bound}
	if p.terms.incarnation != 0 {
		g.slots.track(p)
	}
	return p
}

// ID returns the permit's id.
func (p *Permit) ID() PermitID { return p.id }

// Price returns the price row that was captured at admission. It must not be changed.
func (p *Permit) Price() []byte { return p.terms.price }

// Model returns the model that was admitted.
func (p *Permit) Model() string { return p.terms.model }

// Bound returns what is reserved now.
func (p *Permit) Bound() Bound {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bound
}

// Settle records how the attempt ended, exactly once. What is known and complete
// releases only the proven unused; what is unknown keeps the bound as uncertain;
// more than the bound is an overrun, recorded in full; what is impossible freezes
// the accounts. It uses what the permit captured, whatever was edited since.
//
// Retry: an exact repetition is a no-op. When the store fails, the Governor goes
// on trying by itself until it is closed.
// Errors: *SettleError (wraps ErrUnavailable or ErrUnknownOutcome), ErrInvalid,
// ErrConflict (another outcome was recorded), ErrTerminal (an operator resolved it).
//
// Source: ADR-046 "Global admission and accounting", design "Settlement".
func (p *Permit) Settle(ctx context.Context, o Outcome) error {
	if err := o.validate(); err != nil {
		return err
	}
	slots, ending := p.g.slots.forget(p)
	task := &settlement{id: p.id, owner: p.owner, terms: p.terms, set: p.noticed(), slots: slots, outcome: o, team: p.terms.teamID}
	err := p.g.run(ctx, task)
	if err == nil || task.hopeless(err) {
		p.g.slots.over(ctx, task, ending)
		return err
	}
	p.g.backlog.add(&settlement{id: task.id, owner: task.owner, terms: task.terms, set: task.set, slots: slots, ending: ending, outcome: o, team: task.team})
	return &SettleError{ID: task.id, Err: err}
}

// noticed is what names the thresholds of the permit's accounts, by the rules that were read last: it may be the last to
// come to its window. Whether they are in force the step compares.
func (p *Permit) noticed() *constraintSet {
	now := p.g.rulebook.now.Load()
	if now == nil || p.set == nil || p.set.rules == now {
		return p.set
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return constraintsOf(p.principal, now) // not kept: the principal may be an older one
}

// Cancel returns everything: it is Settle with NotSent, for an attempt that
// provably used nothing.
func (p *Permit) Cancel(ctx context.Context) error { return p.Settle(ctx, NotSent()) }

// Raise makes the bound larger, in the windows captured at admission and under
// the limits in force now. It is absolute and monotone: a bound that was reached
// already is a no-op. It is refused once the key is revoked or expired.
//
// Retry: safe with the same bound.
// Errors: *Refusal (nothing changed), ErrInvalid, ErrTerminal, ErrStale, ErrNotReady,
// ErrUnavailable, ErrUnknownOutcome (repeat it).
//
// Source: design "Settlement".
func (p *Permit) Raise(ctx context.Context, to Bound) error {
	if err := to.validate(); err != nil {
		return err
	}
	p.mu.Lock()
	principal := p.principal
	p.mu.Unlock()
	return p.g.upToDate(ctx, principal, func(current *keys.Principal, set *constraintSet) error {
		task := &raising{id: p.id, owner: p.owner, terms: p.terms, set: set, principal: current, credit: p.credit, to: to}
		if err := p.g.run(ctx, task); err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.bound.Tokens = max(p.bound.Tokens, task.reached.Tokens)
		p.bound.Cost = max(p.bound.Cost, task.reached.Cost)
		p.principal = current
		return nil
	})
}

// Renew keeps the permit's concurrency slot for another 60 s. The Governor does
// so by itself for as long as it runs; a caller needs it only to learn whether
// the slot is still there.
//
// Errors: ErrNoSlot (the work may go on without), ErrUnavailable, ErrUnknownOutcome.
func (p *Permit) Renew(ctx context.Context) error {
	if p.terms.incarnation == 0 {
		return nil
	}
	if err := p.g.slots.renewAll(ctx, p.terms); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, incarnation := range p.slots {
		if incarnation == 0 {
			return ErrNoSlot
		}
	}
	return nil
}

func (o *settlement) plan(p *planner) {
	p.holds(o.terms)
	p.policies = p.policies || o.set != nil && o.set.tiered
	p.permits = append(p.permits, o.id)
	p.reserved(o.id)
}
func (o *settlement) decide(s *sheet)     { s.settle(o) }
func (o *settlement) fail(err error)      { o.err = err }
func (o *settlement) failed() error       { return o.err }
func (o *settlement) subject() string     { return o.team }
func (o *settlement) patient() bool       { return true }
func (o *settlement) replayable() bool    { return true }
func (o *settlement) abandoned(*Governor) {} // it was recorded, which is what was asked

// hopeless reports whether trying again cannot help.
func (o *settlement) hopeless(err error) bool {
	return errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrConflict) || errors.Is(err, ErrTerminal)
}

func (o *raising) plan(p *planner) {
	p.holds(o.terms)
	p.permits = append(p.permits, o.id)
	p.reserved(o.id, o.credit...)
	p.keys = append(p.keys, o.principal.KeyID)
	p.policies = p.policies || o.set.rules != nil
}
func (o *raising) decide(s *sheet)     { s.raise(o) }
func (o *raising) fail(err error)      { o.err = err }
func (o *raising) failed() error       { return o.err }
func (o *raising) subject() string     { return o.terms.teamID }
func (o *raising) patient() bool       { return false }
func (o *raising) replayable() bool    { return true }
func (o *raising) abandoned(*Governor) {} // the larger bound is settled with the permit
