package governance

import (
	"maps"
	"math"
	"slices"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/quota"
)

// What the model says of each kind of task, which it then has done.

func (b *books) admit(o *admission, asked *asking) expected {
	if !o.minted {
		at := o.id.UnixMilli() * 1000
		switch old := b.permits[o.id]; {
		case at > b.now+5*60*1_000_000:
			return no("invalid")
		case old == nil && (at < b.now-30*24*3600*1_000_000 || at < b.horizon):
			return no("pruned")
		case old == nil:
		case old.asked == nil || *old.asked != *asked:
			return no("conflict")
		case old.state == StateOpen:
			return no("in flight")
		default:
			return no("terminal " + old.state.String())
		}
	}
	p, bound := o.request.Principal, o.request.Bound
	if what := b.inForce(p); what != "" {
		return no(what)
	}
	var list []Constraint
	for _, c := range constraintsOf(p, nil).list {
		if !bound.Free || c.Kind != KindMoney {
			list = append(list, c)
		}
	}
	var reasons []Reason
	var waits []int64
	for i := range list {
		if b.taken[list[i].ID] {
			return no("unavailable")
		}
		if bound.Unpriced && list[i].Kind == KindMoney {
			reasons, waits = append(reasons, ReasonUnpriced), append(waits, 0)
		} else if r, wait := b.judge(list[i].ID, list[i].Kind, b.window(&list[i]), list[i].Limit, needs(list[i].Kind, bound)); r != 0 {
			reasons, waits = append(reasons, r), append(waits, wait)
		}
	}
	if len(reasons) > 0 {
		return verdict(reasons, waits)
	}
	made := &paper{
		owner: o.owner, asked: asked, principal: p, flags: bound.flags(),
		tokens: int64(bound.Tokens), cost: int64(bound.Cost), state: StateOpen, incarnation: o.slot.incarnation,
	}
	if o.minted {
		made.asked = nil
	}
	for i := range list {
		c := &list[i]
		w := b.window(c)
		at := place{id: c.ID, kind: c.Kind, window: w.Start}
		b.windows[c.ID] = w
		switch c.Kind {
		case KindRequestRate, KindTokenRate:
			n := needs(c.Kind, bound)
			seq, _, err := b.bucket(c.ID).Admit(b.now, most(c.Limit), n)
			if err != nil {
				panic(err)
			}
			at.pieces = []piece{{seq, n}}
		case KindConcurrency:
			b.take(c.ID, o.slot.incarnation)
		}
		made.where = append(made.where, at)
	}
	made.id = o.id // minted: whatever it is
	b.permits[made.id] = made
	return expected{what: "ok", changed: true}
}

func (b *books) take(id ConstraintID, incarnation uint64) {
	m := b.slots[id]
	if m == nil {
		m = map[uint64]share{}
		b.slots[id] = m
	}
	maps.DeleteFunc(m, func(_ uint64, s share) bool { return s.expires <= b.now })
	m[incarnation] = share{m[incarnation].count + 1, b.now + 60_000_000}
}

func (b *books) give(id ConstraintID, incarnation uint64) bool {
	s, ok := b.slots[id][incarnation]
	if !ok {
		return false
	}
	if s.count--; s.count == 0 {
		delete(b.slots[id], incarnation)
	} else {
		b.slots[id][incarnation] = s
	}
	return true
}

func (b *books) anyTaken(where []place, accountsOnly bool) bool {
	return slices.ContainsFunc(where, func(w place) bool {
		return b.taken[w.id] && (!accountsOnly || w.kind == KindTokenQuota || w.kind == KindMoney)
	})
}

func (b *books) settle(o *settlement) expected {
	p := b.permits[o.id]
	outcome := o.outcome
	outcome.Tokens.Value, outcome.Cost.Value = seen(outcome.Tokens), seen(outcome.Cost)
	switch {
	case p == nil:
		return no("not found")
	case p.owner != o.owner:
		return no("conflict")
	case p.state == StateResolved:
		return no("terminal resolved")
	case p.state != StateOpen && p.outcome == outcome:
		return no("ok")
	case p.state != StateOpen:
		return no("conflict")
	case b.anyTaken(p.where, false):
		return no("unavailable")
	}
	b.end(p, outcome)
	p.outcome = outcome
	if p.state = StateSettled; outcome.Unsent {
		p.state = StateCancelled
	}
	return expected{what: "ok", changed: true}
}

// counts reports whether an account of the kind holds anything of the permit.
func (p *paper) counts(k Kind) bool {
	return slices.ContainsFunc(p.where, func(w place) bool { return w.kind == k })
}

// end gives rates and slots back, and freezes.
func (b *books) end(p *paper, o Outcome) {
	if !o.Unsent {
		p.tokensOpen = o.Tokens.Certainty != Known && p.counts(KindTokenQuota)
		p.costOpen = o.Cost.Certainty != Known && p.counts(KindMoney)
	}
	for _, w := range p.where {
		switch w.kind {
		case KindRequestRate, KindTokenRate:
			keep := int64(1)
			if w.kind == KindTokenRate {
				if keep = p.tokens; o.Tokens.Certainty == Known {
					keep = o.Tokens.Value
				}
			}
			if o.Unsent {
				keep = 0
			}
			for _, part := range w.pieces {
				stays := min(part.amount, keep)
				keep -= stays
				if _, err := b.bucket(w.id).Return(part.seq, part.amount, stays); err != nil {
					panic(err)
				}
			}
			if err := b.bucket(w.id).Overrun(b.now, keep); err != nil {
				panic(err)
			}
		case KindTokenQuota:
			if o.Tokens.Certainty == Impossible {
				b.frozen[AccountKey{w.id, w.window}] = true
			}
		case KindMoney:
			if o.Cost.Certainty == Impossible {
				b.frozen[AccountKey{w.id, w.window}] = true
			}
		case KindConcurrency:
			b.give(w.id, p.incarnation)
		}
	}
}

func (b *books) raise(o *raising) expected {
	p := b.permits[o.id]
	switch {
	case p == nil:
		return no("not found")
	case p.owner != o.owner:
		return no("conflict")
	case p.state != StateOpen:
		return no("terminal " + p.state.String())
	}
	if what := b.inForce(o.principal); what != "" {
		return no(what)
	}
	more := Bound{Tokens: max(0, o.to.Tokens-amount.Tokens(p.tokens)), Cost: max(0, o.to.Cost-amount.MicroUSD(p.cost))}
	switch {
	case more == (Bound{}):
		return no("ok")
	case p.flags != 0 && more.Cost > 0:
		return no("invalid")
	case b.anyTaken(p.where, false):
		return no("unavailable")
	}
	limits := map[ConstraintID]int64{}
	for _, c := range constraintsOf(o.principal, nil).list {
		limits[c.ID] = c.Limit
	}
	limitOf := func(id ConstraintID) int64 {
		if limit, ok := limits[id]; ok {
			return limit
		}
		return math.MaxInt64
	}
	grows := func(k Kind) int64 {
		if k == KindRequestRate || k == KindConcurrency {
			return 0
		}
		return needs(k, more)
	}
	var reasons []Reason
	var waits []int64
	for _, w := range p.where {
		if n := grows(w.kind); n > 0 {
			if r, wait := b.judge(w.id, w.kind, quota.Window{Start: w.window, End: b.now}, limitOf(w.id), n); r != 0 {
				reasons, waits = append(reasons, r), append(waits, wait)
			}
		}
	}
	if len(reasons) > 0 {
		a := verdict(reasons, waits)
		if slices.Min(reasons) == ReasonQuota {
			a.retry = 0
		}
		return a
	}
	for i := range p.where {
		w := &p.where[i]
		if n := grows(w.kind); n > 0 && w.kind == KindTokenRate {
			seq, _, err := b.bucket(w.id).Raise(b.now, most(limitOf(w.id)), n)
			if err != nil {
				panic(err)
			}
			w.pieces = append(w.pieces, piece{seq, n})
		}
	}
	p.tokens += int64(more.Tokens)
	p.cost += int64(more.Cost)
	return expected{what: "ok", changed: true}
}

func (b *books) resolve(o *resolution) expected {
	p := b.permits[o.id]
	switch {
	case p == nil:
		return no("not found")
	case p.state == StateResolved && p.resolution == o.evidence:
		return no("ok")
	case p.state == StateResolved:
		return no("conflict")
	case p.state == StateOpen:
		if b.anyTaken(p.where, false) {
			return no("unavailable")
		}
		b.end(p, o.evidence)
	case p.state == StateSettled && (p.tokensOpen || p.costOpen):
		if b.anyTaken(p.where, true) {
			return no("unavailable")
		}
	default:
		return no("terminal " + p.state.String())
	}
	p.state, p.resolution, p.tokensOpen, p.costOpen = StateResolved, o.evidence, false, false
	return expected{what: "ok", changed: true}
}

func (b *books) unfreeze(o *unfreezing, exists bool) expected {
	switch {
	case b.taken[o.account.Constraint]:
		return no("unavailable")
	case !exists:
		return no("not found")
	}
	changed := b.frozen[o.account]
	delete(b.frozen, o.account)
	return expected{what: "ok", changed: changed}
}

func (b *books) renew(o *renewal) expected {
	switch s, ok := b.slots[o.constraint][o.incarnation]; {
	case b.taken[o.constraint]:
		return no("unavailable")
	case !ok || s.expires <= b.now:
		return no("lost")
	default:
		s.expires = b.now + 60_000_000
		b.slots[o.constraint][o.incarnation] = s
		return expected{what: "ok", changed: true}
	}
}

func (b *books) regain(o *regaining) (expected, int64) {
	if what := b.inForce(o.principal); what != "" {
		return no(what), 0
	}
	if b.taken[o.constraint] {
		return no("unavailable"), 0
	}
	c := o.set.find(o.constraint)
	if c == nil {
		return no("ok"), 0
	}
	held := max(0, min(o.wanted, c.Limit-b.inUse(o.constraint)))
	for range held {
		b.take(o.constraint, o.incarnation)
	}
	return expected{what: "ok", changed: held > 0}, held
}
