package governance

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/keys"
)

// maxIDAhead is how far a caller's permit id may lie ahead of the store's clock.
const maxIDAhead = 5 * time.Minute

// idLife is how old a caller's permit id may be, whether or not anything was
// pruned: the ring of permits must never meet an id of its previous round.
const idLife = 30 * 24 * time.Hour

// admission is one request on its way through a step.
type admission struct {
	request     *Request
	set         *constraintSet
	tiers       *tierBook // where routing looks
	owner       Nonce
	id          PermitID // random bits only until stamped, when minted
	minted      bool
	fingerprint Fingerprint
	slot        slotTicket

	at     int64 // when admitted, if err is nil
	terms  *terms
	credit []journal.Need // what it reserved in a node's journal
	err    error
}

// admit decides one admission on the sheet: all constraints reserve, or nothing
// changes. An error that is not about this request alone is a panic: the whole
// step is then discarded.
func (s *sheet) admit(a *admission) {
	if a.err = s.identity(a); a.err != nil {
		return
	}
	if a.err = s.till.closed(); a.err != nil {
		return
	}
	if a.err = s.fresh(a.request.Principal, a.set.rules); a.err != nil {
		return
	}
	if a.err = s.routed(a); a.err != nil {
		return
	}
	bound := a.request.Bound
	claim := s.till.claim(a.set, bound)
	var binding []Verdict
	for i := range a.set.list {
		c := &a.set.list[i]
		if bound.Free && c.Kind == KindMoney {
			continue
		}
		w, err := s.locked(c, i)
		if err != nil {
			a.err = err
			return
		}
		v, err := w.ask(c, bound, s.now)
		if err != nil {
			a.err = err
			return
		}
		if v.Reason != 0 {
			binding = append(binding, v)
		}
	}
	if len(binding)+len(claim.binding) > 0 {
		short, err := s.till.short(claim)
		if a.err = err; err == nil {
			a.err = refuse(append(binding, short...))
			s.observe(a.set)
		}
		return
	}
	if a.err = s.till.reserve(a.id, claim); a.err != nil {
		return
	}
	s.reserve(a, claim.needs)
}

// identity answers a request whose id is already known, before anything else is
// looked at.
func (s *sheet) identity(a *admission) error {
	if a.minted {
		a.id.stamp(s.loaded.stamp())
		return nil
	}
	at := a.id.UnixMilli() * 1000
	switch {
	case at > s.now+maxIDAhead.Microseconds():
		return invalid("id", "lies more than 5 minutes ahead of the store's clock")
	case at < max(s.loaded.Horizon, s.now-idLife.Microseconds()):
		if i := s.permit(a.id); i >= 0 { // older than what is remembered, and kept
			return answer(&s.loaded.Permits[i], a)
		}
		return ErrPruned
	}
	for i := range s.made {
		if s.made[i].ID == a.id {
			return answer(&s.made[i], a)
		}
	}
	if i := s.permit(a.id); i >= 0 {
		return answer(&s.loaded.Permits[i], a)
	}
	return nil
}

// answer says what became of an id. Terms are compared first: a caller with other
// terms learns nothing of the permit's state.
func answer(rec *Record, a *admission) error {
	switch {
	case rec.Fingerprint != a.fingerprint:
		return ErrConflict
	case rec.State == StateOpen:
		return ErrInFlight
	}
	return &TerminalError{ID: rec.ID, State: rec.State}
}

// fresh compares the definitions that the caller was resolved with, and the policies
// that apply, to those in force.
func (s *sheet) fresh(p *keys.Principal, r *rules) error {
	if r.marked() != s.loaded.Policies {
		return errRules
	}
	err := s.definition(p.KeyID).Check(p, s.now)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, keys.ErrStale):
		return ErrStale
	}
	return &Refusal{Reason: ReasonUnauthenticated}
}

// locked returns the constraint's current cell, unless another transaction holds it.
func (s *sheet) locked(c *Constraint, guess int) (*cell, error) {
	i, ok := s.near(c.ID, guess)
	if !ok {
		return nil, fmt.Errorf("%w: constraint %s is not in the plan", ErrCorrupt, c.ID)
	}
	if !s.current[i].locked {
		return nil, ErrUnavailable
	}
	return s.enter(i, c)
}

// need is what a request asks of a constraint of the kind.
func need(k Kind, b Bound) int64 {
	switch k {
	case KindTokenRate, KindTokenQuota:
		return int64(b.Tokens)
	case KindMoney:
		return int64(b.Cost)
	}
	return 1
}

// ask judges what a bound asks of a constraint. A cost that nothing bounds has room in no
// account of money, be it a meter: what it may count is not known.
func (w *cell) ask(c *Constraint, b Bound, now int64) (Verdict, error) {
	v, err := w.judge(c, need(c.Kind, b), now)
	if b.Unpriced && c.Kind == KindMoney {
		v.Reason, v.RetryAfter = ReasonUnpriced, 0
	}
	return v, err
}

// judge is the one place where a constraint says yes or no. It changes nothing.
func (w *cell) judge(c *Constraint, need, now int64) (Verdict, error) {
	v := Verdict{Constraint: c, Limit: c.Limit, Need: need}
	switch c.Kind {
	case KindRequestRate, KindTokenRate:
		r, err := w.Bucket.Peek(now, c.rate(), need)
		if err != nil {
			return v, err
		}
		v.Reserved, v.RetryAfter = r.Debt, r.RetryAfter
		switch {
		case r.Never:
			v.Reason = ReasonNeverFits
		case !r.OK:
			v.Reason = ReasonRate
		}
	case KindTokenQuota, KindMoney:
		a := &w.Account
		v.Window = w.window
		v.Consumed, v.Uncertain, v.Reserved, v.Granted, v.Frozen = a.Consumed, a.Uncertain, a.Reserved, a.Granted, a.Frozen
		r := a.Check(c.ceiling(), need)
		switch {
		case r.Frozen:
			v.Reason = ReasonFrozen
		case r.Never:
			v.Reason = ReasonNeverFits
		case r.Pending:
			v.Reason, v.RetryAfter = ReasonReserved, reservedWait
		case !r.OK && c.Kind == KindMoney:
			v.Reason = ReasonMoney
		case !r.OK:
			v.Reason, v.RetryAfter = ReasonQuota, micros(w.window.End-now)
		}
	case KindConcurrency:
		used := w.Slots.used(now)
		v.Reserved = used
		switch {
		case need > c.Limit:
			v.Reason = ReasonNeverFits
		case used+need > c.Limit:
			v.Reason, v.RetryAfter = ReasonConcurrency, micros(w.Slots.freeBy(now, used+need-c.Limit)-now)
		}
	}
	return v, nil
}

func micros(n int64) time.Duration {
	return time.Duration(min(n, int64(1<<63-1)/1000)) * time.Microsecond
}

// reserve takes what judge found to fit. It cannot fail; if it does, the code is
// wrong and nothing of the step may be written.
func (s *sheet) reserve(a *admission, credit []journal.Need) {
	index, t := s.share(a)
	var space [4]segment
	segments, j := space[:0], 0
	for i := range t.holds {
		h := &t.holds[i]
		for a.set.list[j].ID != h.constraint { // both are in the order of the ids
			j++
		}
		c := &a.set.list[j]
		position, _ := s.near(h.constraint, j)
		w := &s.current[position]
		amount := need(h.kind, a.request.Bound)
		switch h.kind {
		case KindRequestRate, KindTokenRate:
			seq, v, err := w.Bucket.Admit(s.now, c.rate(), amount)
			if err != nil || !v.OK {
				panic(fmt.Sprintf("governance: a bucket refused what it had accepted: %v", err))
			}
			segments = append(segments, segment{i, seq, amount})
		case KindTokenQuota, KindMoney:
			account, err := w.Account.Reserve(c.ceiling(), amount)
			if err != nil {
				panic(fmt.Sprintf("governance: an account refused what it had accepted: %v", err))
			}
			w.Account, w.entry = account, true
		case KindConcurrency:
			w.Slots.acquire(a.slot.at(s.now), s.now)
		}
		w.dirty = true
	}
	s.made = append(s.made, Record{
		ID: a.id, Batch: s.plan.Batch, TermsIndex: index, Owner: a.owner, Fingerprint: a.fingerprint,
		At: s.now, State: StateOpen, Version: 1,
		Tokens: int64(a.request.Bound.Tokens), Cost: int64(a.request.Bound.Cost),
		Segments: appendSegments(make([]byte, 0, 1+16*len(segments)), segments), Flags: a.request.Bound.flags(),
	})
	if a.credit = credit; len(credit) > 0 {
		s.made[len(s.made)-1].Flags |= FlagJournal
	}
	a.at, a.terms = s.now, t
}

// share returns the terms that the request captures, stored once for all equal
// requests of the batch.
func (s *sheet) share(a *admission) (int, *terms) {
	for i := range s.terms {
		if s.terms[i].suit(a, s.now) {
			return i, s.terms[i].terms
		}
	}
	// Most requests of a key ask for what the last one did.
	h := a.set.recent.Load()
	if h == nil || !h.suit(a, s.now) || !s.inside(a.set, h.terms) {
		h = s.capture(a)
		a.set.recent.Store(h)
	}
	s.terms = append(s.terms, h)
	return len(s.terms) - 1, h.terms
}

// suit reports whether the terms are what the request captures, their windows apart.
func (h *sharedTerms) suit(a *admission, now int64) bool {
	r, t := a.request, h.terms
	return h.set == a.set && h.incarnation == a.slot.at(now) && h.free == r.Bound.Free &&
		t.model == r.Model && t.region == r.Region && t.guardrail == r.Guardrail && bytes.Equal(t.price, r.Price)
}

// inside reports whether the terms' windows are the ones that the sheet is in.
func (s *sheet) inside(set *constraintSet, t *terms) bool {
	j := 0
	for i := range t.holds {
		for set.ids[j] != t.holds[i].constraint {
			j++
		}
		if position, _ := s.near(set.ids[j], j); s.current[position].window != t.holds[i].window {
			return false
		}
	}
	return true
}

// capture makes the terms of a request.
func (s *sheet) capture(a *admission) *sharedTerms {
	p, r := a.request.Principal, a.request
	t := &terms{
		keyID: p.KeyID, teamID: p.TeamID, user: p.User, model: r.Model, region: r.Region, guardrail: r.Guardrail,
		price: bytes.Clone(r.Price), holds: make([]hold, 0, len(a.set.list)),
	}
	h := &sharedTerms{set: a.set, incarnation: a.slot.at(s.now), free: r.Bound.Free, terms: t}
	for i := range a.set.list {
		c := &a.set.list[i]
		if h.free && c.Kind == KindMoney {
			continue
		}
		position, _ := s.near(c.ID, i)
		t.holds = append(t.holds, hold{constraint: c.ID, kind: c.Kind, window: s.current[position].window})
		if c.Kind == KindConcurrency {
			t.incarnation = h.incarnation
		}
	}
	h.encoded = t.append(make([]byte, 0, 256))
	return h
}
