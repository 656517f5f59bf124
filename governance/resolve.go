package governance

import (
	"fmt"

	"github.com/tallystick-go/tallystick/quota"
)

// resolution is an operator's decision about a permit that is open or uncertain.
type resolution struct {
	id       PermitID
	terms    *terms
	evidence Outcome
	note     Note

	record Record
	err    error
}

// resolve closes what a permit still holds. Tokens and money are corrected;
// rates are not, since their time has passed.
//
// Source: internal/docs/guarantees.md "Nothing is refunded by accident".
func (s *sheet) resolve(o *resolution) {
	i := s.permit(o.id)
	if i < 0 {
		o.err = s.absent(o.id, o.terms)
		return
	}
	rec := &s.loaded.Permits[i]
	before := *rec
	switch {
	case rec.State == StateResolved:
		if rec.Resolution != o.evidence {
			o.err = ErrConflict
		}
		o.record = *rec
		return
	case rec.State == StateOpen:
		o.err = s.end(rec, o.terms, nil, StateResolved, o.evidence)
		rec.Flags &^= FlagTokensUncertain | FlagCostUncertain
	case rec.State == StateSettled && rec.Flags&(FlagTokensUncertain|FlagCostUncertain) != 0:
		o.err = s.correct(rec, o.terms, o.evidence)
	default:
		o.err = &TerminalError{ID: rec.ID, State: rec.State}
	}
	if o.err != nil {
		return
	}
	rec.Resolution = o.evidence
	s.ended = append(s.ended, i)
	s.turned(&before, rec, o.terms)
	note := o.note
	note.At, note.Action, note.Permit = s.now, "resolve", rec.ID
	note.Before, note.After = before.describe(), rec.describe()
	s.notes = append(s.notes, note)
	o.record = *rec
}

// correct moves uncertain amounts of a settled permit to consumed.
func (s *sheet) correct(rec *Record, t *terms, evidence Outcome) error {
	cells := make([]*cell, len(t.holds))
	for i := range t.holds {
		if !t.holds[i].kind.isAccount() {
			continue
		}
		var err error
		if cells[i], err = s.captured(&t.holds[i]); err != nil {
			return err
		}
	}
	for i := range t.holds {
		var err error
		w := cells[i]
		switch h := &t.holds[i]; {
		case h.kind == KindTokenQuota && rec.Flags&FlagTokensUncertain != 0:
			w.Account, err = w.Account.Resolve(rec.Tokens, evidence.Tokens.Value)
		case h.kind == KindMoney && rec.Flags&FlagCostUncertain != 0:
			w.Account, err = w.Account.Resolve(rec.Cost, evidence.Cost.Value)
		default:
			continue
		}
		if err != nil {
			panic(fmt.Sprintf("governance: permit %s cannot be resolved: %v", rec.ID, err))
		}
		w.dirty = true
	}
	rec.Flags &^= FlagTokensUncertain | FlagCostUncertain
	rec.State, rec.EndedAt = StateResolved, s.now
	return nil
}

// describe is what a note says of a permit.
func (rec *Record) describe() string {
	return fmt.Sprintf(`{"state":%q,"flags":%d,"tokens":%d,"cost_microusd":%d,"outcome":{"tokens":%d,"cost_microusd":%d},"resolution":{"tokens":%d,"cost_microusd":%d}}`,
		rec.State, rec.Flags, rec.Tokens, rec.Cost, rec.Outcome.Tokens.Value, rec.Outcome.Cost.Value,
		rec.Resolution.Tokens.Value, rec.Resolution.Cost.Value)
}

// unfreezing lets an account admit again.
type unfreezing struct {
	account AccountKey
	note    Note

	cell Cell
	err  error
}

func (s *sheet) unfreeze(o *unfreezing) {
	i, ok := s.position(o.account.Constraint)
	if !ok || !s.current[i].locked {
		o.err = ErrUnavailable
		return
	}
	w := &s.current[i]
	if w.window.Start != o.account.WindowStart {
		w = nil
		for j := range s.older {
			if s.older[j].Key == o.account {
				w = &s.older[j]
			}
		}
	}
	if w == nil || !w.Kind.isAccount() {
		o.err = ErrNotFound
		return
	}
	if w.Account.Frozen {
		note := o.note
		note.At, note.Action, note.Account = s.now, "unfreeze", o.account
		note.Before = describeAccount(w.Account)
		w.Account, w.dirty = w.Account.Unfreeze(), true
		note.After = describeAccount(w.Account)
		s.notes = append(s.notes, note)
	}
	o.cell = *w.Cell
}

// describeAccount is what a note says of an account.
func describeAccount(a quota.Account) string {
	return fmt.Sprintf(`{"frozen":%t,"consumed":%d,"uncertain":%d,"reserved":%d,"granted":%d,"observed":%d}`,
		a.Frozen, a.Consumed, a.Uncertain, a.Reserved, a.Granted, a.Observed)
}
