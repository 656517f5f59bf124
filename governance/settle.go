package governance

import (
	"fmt"

	"github.com/tallystick-go/tallystick/quota"
)

// settlement ends one permit.
type settlement struct {
	id      PermitID
	owner   Nonce
	terms   *terms
	set     *constraintSet          // what names the thresholds, where that is known
	slots   map[ConstraintID]uint64 // incarnations that differ from the captured one
	outcome Outcome
	ending  []slotGroupKey // slots that the keeper counts as ending until this is recorded
	team    string
	orphan  bool // nobody received the permit

	err error
}

// settle ends an open permit by its outcome, in the windows, segments and prices
// that it captured. An exact replay changes nothing.
func (s *sheet) settle(o *settlement) {
	i := s.permit(o.id)
	if i < 0 {
		o.err = s.absent(o.id, o.terms)
		return
	}
	rec := &s.loaded.Permits[i]
	outcome := o.outcome.clean()
	switch {
	case rec.Owner != o.owner:
		o.err = ErrConflict
		return
	case rec.State == StateResolved:
		o.err = &TerminalError{ID: rec.ID, State: rec.State}
		return
	case rec.State != StateOpen:
		if rec.Outcome != outcome {
			o.err = ErrConflict
		}
		return
	}
	state := StateSettled
	if outcome.Unsent {
		state = StateCancelled
	}
	before := *rec
	if o.err = s.end(rec, o.terms, o.slots, state, outcome); o.err != nil {
		return
	}
	rec.Outcome = outcome
	s.ended = append(s.ended, i)
	s.turned(&before, rec, o.terms)
	s.notice(o.terms, o.set)
}

// notice lets the thresholds of budgets be latched that a settlement or a raise may have
// reached, if the rules that name them are still in force. Otherwise the next admission does.
func (s *sheet) notice(t *terms, set *constraintSet) {
	if set == nil || !set.tiered || set.rules.marked() != s.loaded.Policies {
		return
	}
	for i := range t.holds {
		if c := set.find(t.holds[i].constraint); c != nil && len(c.thresholds) > 0 {
			if w, err := s.captured(&t.holds[i]); err == nil {
				w.limit = c
			}
		}
	}
}

// observe lets the thresholds be latched that a refused request has seen. A settlement may have reached
// them under rules that were not in force, and where nothing fits no admission comes to notice.
func (s *sheet) observe(set *constraintSet) {
	if !set.tiered {
		return
	}
	for i := range set.list {
		c := &set.list[i]
		if len(c.thresholds) == 0 {
			continue
		}
		if position, ok := s.near(c.ID, i); ok && s.current[position].entered {
			w := &s.current[position]
			w.dirty = w.dirty || w.tier(c) > w.Latch
		}
	}
}

// end moves everything that an open permit holds to where the outcome says. On an
// error that is not ErrUnavailable the step must be discarded, since cells may
// have changed; ErrUnavailable comes before any change.
func (s *sheet) end(rec *Record, t *terms, slots map[ConstraintID]uint64, state State, outcome Outcome) error {
	segments, err := decodeSegments(rec.Segments, len(t.holds))
	if err != nil {
		return err
	}
	cells := make([]*cell, len(t.holds))
	for i := range t.holds {
		if cells[i], err = s.captured(&t.holds[i]); err != nil {
			return err
		}
	}
	if err := s.till.discharge(rec, outcome); err != nil {
		return err
	}
	rec.Flags |= outcome.flags(rec, t)
	for i := range t.holds {
		h, w := &t.holds[i], cells[i]
		switch h.kind {
		case KindRequestRate:
			keep := int64(1)
			if outcome.Unsent {
				keep = 0
			}
			err = w.give(segments, i, keep, s.now)
		case KindTokenRate:
			err = w.give(segments, i, outcome.rateTokens(rec), s.now)
		case KindTokenQuota:
			w.Account, err = settleAccount(w.Account, rec.Tokens, outcome.Tokens, outcome.Unsent)
		case KindMoney:
			w.Account, err = settleAccount(w.Account, rec.Cost, outcome.Cost, outcome.Unsent)
		case KindConcurrency:
			incarnation, moved := slots[h.constraint]
			if !moved {
				incarnation = t.incarnation
			}
			if !w.Slots.release(incarnation) {
				continue
			}
		}
		if err != nil {
			panic(fmt.Sprintf("governance: permit %s cannot be ended: %v", rec.ID, err))
		}
		w.dirty = true
	}
	rec.State, rec.EndedAt = state, s.now
	return nil
}

// settleAccount is what an outcome does to one account.
func settleAccount(a quota.Account, reserved int64, used Measure, unsent bool) (quota.Account, error) {
	switch {
	case unsent:
		return a.Cancel(reserved)
	case used.Certainty == Known:
		return a.Settle(reserved, used.Value)
	}
	a, err := a.Hold(reserved, used.Value)
	if err == nil && used.Certainty == Impossible {
		a = a.Freeze()
	}
	return a, err
}

// rateTokens is what a token bucket keeps of a permit: the tokens used when they
// are known, else the whole bound.
func (o Outcome) rateTokens(rec *Record) int64 {
	switch {
	case o.Unsent:
		return 0
	case o.Tokens.Certainty == Known:
		return o.Tokens.Value
	}
	return rec.Tokens
}

// flags tells what an operator should look at. What is not known is uncertain only
// where an account holds it: a rate forgets by itself.
func (o Outcome) flags(rec *Record, t *terms) (f Flags) {
	if o.Unsent {
		return 0
	}
	switch {
	case o.Tokens.Certainty == Known && o.Tokens.Value > rec.Tokens:
		f |= FlagOverrun
	case o.Tokens.Certainty != Known && t.hasKind(KindTokenQuota):
		f |= FlagTokensUncertain
	}
	switch {
	case rec.Flags&(FlagFree|FlagUnpriced) != 0:
	case o.Cost.Certainty == Known && o.Cost.Value > rec.Cost:
		f |= FlagOverrun
	case o.Cost.Certainty != Known && (t.hasKind(KindMoney) || rec.Flags&FlagJournal != 0):
		f |= FlagCostUncertain
	}
	if o.Tokens.Certainty == Impossible || o.Cost.Certainty == Impossible {
		f |= FlagInvalid
	}
	return f
}

// give ends the permit's segments in a bucket: the oldest keep their tokens until
// keep is used up, the rest is returned, and what is above joins as debt.
func (w *cell) give(segments []segment, index int, keep, now int64) error {
	for _, seg := range segments {
		if seg.hold != index {
			continue
		}
		kept := min(seg.amount, keep)
		keep -= kept
		if _, err := w.Bucket.Return(seg.seq, seg.amount, kept); err != nil {
			return err
		}
	}
	if keep > 0 {
		return w.Bucket.Overrun(now, keep)
	}
	return nil
}
