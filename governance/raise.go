package governance

import (
	"fmt"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/keys"
)

// raising makes an open permit's bound larger.
type raising struct {
	id        PermitID
	owner     Nonce
	terms     *terms
	set       *constraintSet  // the limits in force; a captured constraint that is no longer there has none
	principal *keys.Principal // whose limits they are
	credit    []journal.Need  // what the permit reserved in a node's journal
	to        Bound

	reached Bound // what is reserved now
	err     error
}

// raise reserves the difference in the captured windows, under the limits in
// force, or nothing. It is absolute and monotone: a bound that is already
// reached is a no-op.
//
// Source: internal/docs/guarantees.md "The invariant".
func (s *sheet) raise(o *raising) {
	i := s.permit(o.id)
	if i < 0 {
		o.err = s.absent(o.id, o.terms)
		return
	}
	rec := &s.loaded.Permits[i]
	switch {
	case rec.Owner != o.owner:
		o.err = ErrConflict
		return
	case rec.State != StateOpen:
		o.err = &TerminalError{ID: rec.ID, State: rec.State}
		return
	}
	if o.err = s.till.closed(); o.err != nil {
		return
	}
	if o.err = s.fresh(o.principal, o.set.rules); o.err != nil {
		return
	}
	more := Bound{
		Tokens: max(0, o.to.Tokens-amount.Tokens(rec.Tokens)),
		Cost:   max(0, o.to.Cost-amount.MicroUSD(rec.Cost)),
	}
	if more.Tokens == 0 && more.Cost == 0 {
		o.reached = rec.bound()
		return
	}
	if rec.Flags&(FlagFree|FlagUnpriced) != 0 && more.Cost > 0 {
		o.err = invalid("bound.cost", "must be zero: the permit was admitted without one, as free or unpriced")
		return
	}
	segments, err := decodeSegments(rec.Segments, len(o.terms.holds))
	if err != nil {
		o.err = err
		return
	}
	if len(segments)+len(o.terms.holds) > maxSegmentsPerPermit {
		o.err = invalid("bound", "was raised too often; raise it in larger steps")
		return
	}
	var binding []Verdict
	for j := range o.terms.holds {
		h := &o.terms.holds[j]
		w, err := s.captured(h)
		if err != nil {
			o.err = err
			return
		}
		c := o.limitOf(h)
		want := o.amount(h.kind, more)
		if want == 0 {
			continue
		}
		v, err := w.judge(c, want, s.now)
		if err != nil {
			o.err = err
			return
		}
		if v.Reason != 0 {
			binding = append(binding, v)
		}
	}
	if len(binding) > 0 {
		r := refuse(binding)
		if r.Reason == ReasonQuota { // the next window is not one that this permit captured
			r.Retryable, r.RetryAfter = false, 0
		}
		o.err = r
		return
	}
	if more.Cost > 0 {
		if o.err = s.till.raise(rec, o.set, o.credit, rec.Cost+int64(more.Cost)); o.err != nil {
			return
		}
	}
	for j := range o.terms.holds {
		h := &o.terms.holds[j]
		want := o.amount(h.kind, more)
		if want == 0 {
			continue
		}
		w, _ := s.captured(h)
		c := o.limitOf(h)
		if h.kind.isRate() {
			seq, v, err := w.Bucket.Raise(s.now, c.rate(), want)
			if err != nil || !v.OK {
				panic(fmt.Sprintf("governance: a bucket refused what it had accepted: %v", err))
			}
			segments = append(segments, segment{j, seq, want})
		} else {
			account, err := w.Account.Reserve(c.ceiling(), want)
			if err != nil {
				panic(fmt.Sprintf("governance: an account refused what it had accepted: %v", err))
			}
			w.Account = account
		}
		w.dirty = true
	}
	rec.Tokens += int64(more.Tokens)
	rec.Cost += int64(more.Cost)
	rec.Segments = appendSegments(nil, segments)
	s.ended = append(s.ended, i)
	s.notice(o.terms, o.set)
	o.reached = rec.bound()
}

// amount is what the raise asks of a constraint; requests and slots do not grow.
func (o *raising) amount(k Kind, more Bound) int64 {
	if k == KindRequestRate || k == KindConcurrency {
		return 0
	}
	return need(k, more)
}

// limitOf returns the limit in force for a captured constraint. One that was
// deleted since is unlimited.
func (o *raising) limitOf(h *hold) *Constraint {
	if o.set != nil {
		if c := o.set.find(h.constraint); c != nil {
			return c
		}
	}
	return &Constraint{ID: h.constraint, Kind: h.kind, Limit: 1<<63 - 1}
}
