package governance

import (
	"errors"
	"math"
	"slices"

	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

func genLimits(t *rapid.T) (l keys.Limits) {
	limit := func(name string, most int64) *int64 {
		switch rapid.IntRange(0, 9).Draw(t, name+" kind") {
		case 0, 1, 2, 3:
			return nil
		case 4:
			return keys.Limit(1<<63 - 1)
		}
		return keys.Limit(rapid.Int64Range(0, most).Draw(t, name))
	}
	l.RequestsPerMinute, l.TokensPerMinute, l.TokensPerDay = limit("rpm", 6), limit("tpm", 60), limit("tpd", 90)
	l.CostPerDay, l.CostPerMonth = (*amount.MicroUSD)(limit("day", 60)), (*amount.MicroUSD)(limit("month", 120))
	l.Concurrency = limit("concurrency", 4)
	return l
}

func genBound(t *rapid.T) Bound {
	b := Bound{Tokens: amount.Tokens(rapid.Int64Range(0, 30).Draw(t, "tokens")), Cost: amount.MicroUSD(rapid.Int64Range(0, 20).Draw(t, "cost"))}
	switch rapid.IntRange(0, 12).Draw(t, "free") {
	case 0, 1:
		b.Free, b.Cost = true, 0
	case 2:
		b.Unpriced, b.Cost = true, 0
	}
	return b
}

func genOutcome(t *rapid.T) Outcome {
	measure := func(name string, most int64) Measure {
		m := Measure{Certainty: Known, Value: rapid.Int64Range(0, most).Draw(t, name)}
		switch rapid.IntRange(0, 9).Draw(t, name+" certainty") {
		case 0, 1:
			m.Certainty = Uncertain
		case 2:
			m.Certainty = Impossible
		}
		return m
	}
	switch rapid.IntRange(0, 5).Draw(t, "outcome") {
	case 0:
		return NotSent()
	case 1:
		return Unknown()
	}
	return Outcome{Tokens: measure("used tokens", 40), Cost: measure("used cost", 30)}
}

var incarnations = []uint64{11, 12, 13}

// id draws a permit id of the caller's.
func (p *play) id() PermitID {
	switch rapid.IntRange(0, 3).Draw(p.t, "which id") {
	case 0:
		if len(p.permits) > 0 {
			return rapid.SampledFrom(p.permits).Draw(p.t, "permit").id
		}
	case 1:
		if len(p.named) > 0 { // perhaps in this very transaction
			return p.named[len(p.named)-1]
		}
	}
	id := PermitID(p.nonce())
	ago := rapid.SampledFrom([]int64{0, 0, 0, -299, -301, 29 * 86400, 31 * 86400}).Draw(p.t, "seconds ago")
	id.stamp(p.shelf.clock/1000 - ago*1000)
	p.named = append(p.named, id)
	return id
}

func (p *play) admitMove() *move {
	r := &Request{Principal: p.principal(), Model: rapid.SampledFrom([]string{"m", "n"}).Draw(p.t, "model"), Bound: genBound(p.t), Price: []byte("price")}
	a := &admission{request: r, set: p.g.sets.of(r.Principal, nil), owner: p.nonce(), slot: slotTicket{incarnation: rapid.SampledFrom(incarnations).Draw(p.t, "incarnation"), until: math.MaxInt64}}
	if rapid.IntRange(0, 3).Draw(p.t, "own id") == 0 {
		a.id = p.id()
		a.fingerprint = (&Request{Principal: r.Principal, Model: r.Model, Bound: r.Bound, Price: r.Price}).fingerprint()
	} else {
		a.id, a.minted = PermitID(p.nonce()), true
	}
	asked := &asking{key: r.Principal.KeyID, model: r.Model, bound: r.Bound}
	return &move{task: a, what: func() expected { return p.books.admit(a, asked) }, check: func(e expected) {
		if e.what == "ok" {
			made := p.books.permits[a.id]
			p.permits = append(p.permits, made)
			p.terms[made.id] = a.terms
			p.withinLimits(made.where, r.Principal)
		}
		p.checkRefusal(a.err, e)
	}}
}

// withinLimits is the invariant: what adds to reserved leaves no account above the
// limit in force.
func (p *play) withinLimits(where []place, principal *keys.Principal) {
	for _, c := range constraintsOf(principal, nil).list {
		i := slices.IndexFunc(where, func(w place) bool { return w.id == c.ID })
		if i < 0 {
			continue
		}
		switch a := p.books.sum(AccountKey{c.ID, where[i].window}, c.Kind); {
		case c.Kind == KindConcurrency && p.books.inUse(c.ID) > c.Limit:
			p.t.Fatalf("%d slots are in use, the limit is %d", p.books.inUse(c.ID), c.Limit)
		case c.Kind.isAccount() && (a.Frozen || a.Consumed+a.Uncertain+a.Reserved+a.Granted > c.Limit):
			p.t.Fatalf("reserved above the limit of %d: %+v", c.Limit, a)
		}
	}
}

func (p *play) checkRefusal(err error, e expected) {
	var r *Refusal
	if !errors.As(err, &r) || e.binding == 0 {
		return
	}
	if len(r.All) != e.binding || r.RetryAfter.Microseconds() != e.retry || (e.retry > 0) != r.Retryable || r.Verdict.Reason != r.Reason {
		p.t.Fatalf("refusal %+v, the model says %+v", r, e)
	}
}

func (p *play) known() *paper { return rapid.SampledFrom(p.permits).Draw(p.t, "permit") }

// ownerOf is the permit's owner, or somebody else.
func (p *play) ownerOf(pp *paper) Nonce {
	if rapid.IntRange(0, 9).Draw(p.t, "stranger") == 0 {
		return Nonce{1}
	}
	return pp.owner
}

func (p *play) settleMove() *move {
	pp := p.known()
	o := &settlement{id: pp.id, owner: p.ownerOf(pp), terms: p.terms[pp.id], outcome: genOutcome(p.t)}
	if pp.state != StateOpen && rapid.Bool().Draw(p.t, "replay") {
		o.outcome = pp.outcome
	}
	if rapid.IntRange(0, 12).Draw(p.t, "absent") == 0 {
		o.id = PermitID(p.nonce())
		return &move{task: o, what: func() expected {
			if p.books.anyTaken(pp.where, false) {
				return no("unavailable")
			}
			return no("not found")
		}}
	}
	return &move{task: o, what: func() expected { return p.books.settle(o) }}
}

func (p *play) raiseMove() *move {
	pp := p.known()
	principal := pp.principal
	if rapid.IntRange(0, 4).Draw(p.t, "fresh") > 0 {
		principal = p.books.current[principal.KeyID]
	}
	to := Bound{Tokens: amount.Tokens(rapid.Int64Range(0, 60).Draw(p.t, "to tokens")), Cost: amount.MicroUSD(rapid.Int64Range(0, 40).Draw(p.t, "to cost"))}
	o := &raising{id: pp.id, owner: p.ownerOf(pp), terms: p.terms[pp.id], set: p.g.sets.of(principal, nil), principal: principal, to: to}
	var tokens, cost int64
	return &move{task: o, what: func() expected { tokens, cost = pp.tokens, pp.cost; return p.books.raise(o) }, check: func(e expected) {
		grew := slices.DeleteFunc(slices.Clone(pp.where), func(w place) bool {
			return (w.kind != KindTokenQuota || pp.tokens == tokens) && (w.kind != KindMoney || pp.cost == cost)
		})
		p.withinLimits(grew, principal)
		if e.what == "ok" && (int64(o.reached.Tokens) != pp.tokens || int64(o.reached.Cost) != pp.cost) {
			p.t.Fatalf("raised to %+v, the model says %+v", o.reached, pp)
		}
		p.checkRefusal(o.err, e)
	}}
}

func (p *play) resolveMove() *move {
	pp := p.known()
	o := &resolution{id: pp.id, terms: p.terms[pp.id], evidence: NotSent(), note: Note{Actor: "op", Reason: "why"}}
	if rapid.IntRange(0, 3).Draw(p.t, "evidence") > 0 {
		o.evidence = Used(amount.Tokens(rapid.Int64Range(0, 40).Draw(p.t, "found tokens")), amount.MicroUSD(rapid.Int64Range(0, 30).Draw(p.t, "found cost")))
	}
	if pp.state == StateResolved && rapid.Bool().Draw(p.t, "same finding") {
		o.evidence = pp.resolution
	}
	return &move{task: o, what: func() expected { return p.books.resolve(o) }}
}

func (p *play) unfreezeMove() *move {
	pp := p.known()
	if len(pp.where) == 0 {
		return p.settleMove()
	}
	w := rapid.SampledFrom(pp.where).Draw(p.t, "where")
	o := &unfreezing{account: AccountKey{w.id, w.window}, note: Note{Actor: "op", Reason: "why"}}
	return &move{task: o, what: func() expected { return p.books.unfreeze(o, w.kind.isAccount()) }}
}

// slotsMove renews, takes again or gives back slots of one constraint.
func (p *play) slotsMove() *move {
	pp := p.known()
	i := slices.IndexFunc(pp.where, func(w place) bool { return w.kind == KindConcurrency })
	if i < 0 {
		return p.settleMove()
	}
	id, incarnation := pp.where[i].id, rapid.SampledFrom(incarnations).Draw(p.t, "incarnation")
	switch rapid.IntRange(0, 2).Draw(p.t, "slots") {
	case 0:
		o := &renewal{constraint: id, incarnation: incarnation}
		return &move{task: o, what: func() expected { return p.books.renew(o) }, check: func(e expected) {
			if o.lost != (e.what == "lost") {
				p.t.Fatalf("lost: %v, the model says %s", o.lost, e.what)
			}
		}}
	case 1:
		principal := p.principal()
		o := &regaining{constraint: id, incarnation: incarnation, wanted: rapid.Int64Range(0, 4).Draw(p.t, "wanted"), set: p.g.sets.of(principal, nil), principal: principal}
		var held int64
		return &move{task: o, what: func() (e expected) { e, held = p.books.regain(o); return e }, check: func(e expected) {
			if e.what == "ok" && o.held != held {
				p.t.Fatalf("took %d slots again, the model %d", o.held, held)
			}
		}}
	}
	o := &surrender{constraint: id, incarnation: incarnation, count: rapid.Int64Range(0, 3).Draw(p.t, "count")}
	return &move{task: o, what: func() expected {
		if p.books.taken[id] {
			return no("unavailable")
		}
		e := no("ok")
		for range o.count {
			e.changed = p.books.give(id, incarnation) || e.changed
		}
		return e
	}}
}

// A release goes with an audit; here it is a task of its own.
func (o *unfreezing) plan(p *planner) {
	p.constraints = append(p.constraints, o.account.Constraint)
	p.accounts = append(p.accounts, o.account)
}
func (o *unfreezing) decide(s *sheet)     { s.unfreeze(o) }
func (o *unfreezing) fail(err error)      { o.err = err }
func (o *unfreezing) failed() error       { return o.err }
func (o *unfreezing) subject() string     { return "unfreeze" }
func (o *unfreezing) patient() bool       { return true }
func (o *unfreezing) replayable() bool    { return false } // it could undo a later freeze
func (o *unfreezing) abandoned(*Governor) {}
