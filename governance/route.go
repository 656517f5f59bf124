package governance

import (
	"context"
	"fmt"
	"sync"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

// Route is what the policies make of the model that a caller asked for: which one to
// use in its place, as the caller's budgets fill. It captures the rules that it was
// made by; give it to Admit in Request.Route, beside the model that was chosen.
type Route struct {
	Asked string
	policy.Choice

	rules *rules
}

// Route says which model to use for the one that was asked for. Admission checks under
// its locks that no strict tier has replaced the model meanwhile; a tier that is not
// strict may be noticed one call late.
//
// Errors: *Refusal (the key, or a rule that cannot be enforced), ErrInvalid, ErrUnavailable, ErrCorrupt, ErrClosed.
//
// Source: ADR-046 "Global admission and accounting", design "Quotas and budgets".
func (g *Governor) Route(ctx context.Context, p *keys.Principal, model string) (*Route, error) {
	if p == nil {
		return nil, invalid("principal", "is missing; resolve the caller's key first")
	}
	if err := validName("model", model); err != nil {
		return nil, err
	}
	if g.isClosed() {
		return nil, ErrClosed
	}
	now, err := g.rulebook.latest(ctx, g)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		refusal := now.gated(p)
		if refusal == nil {
			break
		}
		others := false
		if now, others, err = g.rulebook.again(ctx, g, now); err != nil {
			return nil, err
		}
		if !others || try == reloads {
			return nil, refusal
		}
	}
	return g.routeBy(ctx, now, p, model)
}

// routeBy is Route under given rules.
func (g *Governor) routeBy(ctx context.Context, now *rules, p *keys.Principal, model string) (*Route, error) {
	set := g.sets.of(p, now)
	r := &Route{Asked: model, Choice: policy.Choice{Model: model, Required: model}, rules: now}
	if !set.routed {
		return r, nil
	}
	tiers, err := g.tiersOf(ctx, set)
	if err != nil {
		return nil, err
	}
	r.Choice = policy.Substitute(policy.RoutesOf(set.matches, func(budget *policy.Match) policy.Percent {
		if c := set.budget(budget); c != nil {
			return tiers[c.ID]
		}
		return 0
	}), model)
	return r, nil
}

// tierBook remembers which tier a budget was last seen in, so that routing needs no
// look at the store. What is out of date is corrected by the next admission.
type tierBook struct{ seen sync.Map } // ConstraintID to tierSeen

type tierSeen struct {
	window quota.Window
	tier   policy.Percent
}

func (b *tierBook) note(id ConstraintID, w quota.Window, tier policy.Percent) {
	next := tierSeen{w, tier}
	if old, ok := b.seen.Load(id); ok && old.(tierSeen) == next {
		return
	}
	b.seen.Store(id, next)
}

// latched is the tier that was noted in the window; zero where none was.
func (b *tierBook) latched(id ConstraintID, w quota.Window) policy.Percent {
	if seen, ok := b.seen.Load(id); ok && seen.(tierSeen).window == w {
		return seen.(tierSeen).tier
	}
	return 0
}

// tiersOf returns the tier of each budget that routing follows.
func (g *Governor) tiersOf(ctx context.Context, set *constraintSet) (map[ConstraintID]policy.Percent, error) {
	out := map[ConstraintID]policy.Percent{}
	said := g.credit.now()
	for i := range set.budgets { // the authority says which window it is
		c := &set.budgets[i]
		b := said.budgets[c.ID]
		out[c.ID] = policy.Latch(g.tiers.latched(c.ID, b.account.Window), b.latch)
	}
	now := g.options.Now().UnixMicro()
	for i := range set.list {
		c := &set.list[i]
		if c.budget == nil || len(c.thresholds) == 0 {
			continue
		}
		if seen, ok := g.tiers.seen.Load(c.ID); ok {
			if s := seen.(tierSeen); now >= s.window.Start && now < s.window.End {
				out[c.ID] = s.tier
				continue
			}
		}
		return g.readTiers(ctx, set)
	}
	return out, nil
}

// readTiers asks the store.
func (g *Governor) readTiers(ctx context.Context, set *constraintSet) (map[ConstraintID]policy.Percent, error) {
	ctx, cancel := context.WithTimeout(ctx, g.options.StepTimeout)
	defer cancel()
	plan := &Plan{Constraints: set.ids}
	loaded, err := g.store.View(ctx, plan)
	if err != nil {
		return nil, err
	}
	s := newSheet(plan, loaded)
	out := map[ConstraintID]policy.Percent{}
	for i := range set.list {
		c := &set.list[i]
		if c.budget == nil || len(c.thresholds) == 0 {
			continue
		}
		w, err := s.enter(i, c)
		if err != nil {
			return nil, err
		}
		out[c.ID] = w.tier(c)
		g.tiers.note(c.ID, w.window, out[c.ID])
	}
	return out, nil
}

// tier is the threshold that the cell's budget has reached in its window.
func (w *cell) tier(c *Constraint) policy.Percent {
	return c.budget.Tier(w.Account, c.thresholds, w.Latch)
}

// routed refuses a model that a strict tier has replaced by now. It goes by the same
// cells as the admission itself.
func (s *sheet) routed(a *admission) error {
	if !a.set.routed {
		return nil
	}
	tiers := map[ConstraintID]policy.Percent{}
	for i := range a.set.budgets {
		c := &a.set.budgets[i]
		tiers[c.ID] = s.till.tier(c)
		if a.tiers != nil {
			a.tiers.note(c.ID, s.till.said.budgets[c.ID].account.Window, tiers[c.ID])
		}
	}
	for i := range a.set.list {
		c := &a.set.list[i]
		if c.budget == nil || len(c.thresholds) == 0 {
			continue
		}
		position, ok := s.near(c.ID, i)
		if !ok {
			return fmt.Errorf("%w: constraint %s is not in the plan", ErrCorrupt, c.ID)
		}
		w, err := s.enter(position, c)
		if err != nil {
			return err
		}
		tiers[c.ID] = w.tier(c)
		if a.tiers != nil {
			a.tiers.note(c.ID, w.window, tiers[c.ID])
		}
	}
	choice := policy.Substitute(policy.RoutesOf(a.set.matches, func(budget *policy.Match) policy.Percent {
		if c := a.set.budget(budget); c != nil {
			return tiers[c.ID]
		}
		return 0
	}), a.request.Model)
	switch {
	case choice.Required == a.request.Model:
		return nil
	case a.request.Route != nil:
		return errRoute // selected before the tier was reached
	}
	return &Refusal{Reason: ReasonModel}
}
