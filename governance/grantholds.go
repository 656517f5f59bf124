package governance

import (
	"context"
	"errors"
	"fmt"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/quota"
)

// resolveGrant is Resolve for a grant or a meter.
func (g *Governor) resolveGrant(ctx context.Context, rec *Record, t *terms, e Evidence) (*Hold, error) {
	if e.Outcome.Tokens.Value != 0 {
		return nil, invalid("outcome.tokens", "must be zero: a grant is money")
	}
	task := &grantResolution{id: rec.ID, terms: t, evidence: e.Outcome, note: Note{Actor: e.Actor, Reason: e.Reason}}
	if err := g.alone(ctx, task); err != nil {
		return nil, err
	}
	h := task.record.hold(t)
	return &h, nil
}

// grantResolution is an operator's finding about a grant.
type grantResolution struct {
	id       PermitID
	terms    *terms
	evidence Outcome
	note     Note

	record Record
	err    error
}

func (o *grantResolution) plan(p *planner) {
	p.holds(o.terms)
	p.permits = append(p.permits, o.id)
	p.node = o.terms.grant.node
}
func (o *grantResolution) decide(s *sheet)     { o.record, o.err = s.resolveGrant(o) }
func (o *grantResolution) fail(err error)      { o.err = err }
func (o *grantResolution) failed() error       { return o.err }
func (o *grantResolution) subject() string     { return "" }
func (o *grantResolution) patient() bool       { return true }
func (o *grantResolution) replayable() bool    { return true }
func (o *grantResolution) abandoned(*Governor) {}

func (s *sheet) resolveGrant(o *grantResolution) (Record, error) {
	i := s.permit(o.id)
	if i < 0 {
		return Record{}, s.absent(o.id, o.terms)
	}
	rec := s.loaded.Permits[i]
	if rec.State == StateResolved {
		if rec.Resolution != o.evidence {
			return rec, ErrConflict
		}
		return rec, nil
	}
	held, err := rec.held()
	if err != nil {
		return rec, err
	}
	w, err := s.captured(&o.terms.holds[0])
	if err != nil {
		return rec, err
	}
	before := rec.describeGrant(held)
	account := w.Account
	switch {
	case held.Ending == escrow.Open:
		until, err := s.spendable(o.terms.grant)
		if err != nil {
			return rec, err
		}
		if until > s.now {
			return rec, &SpendableError{rec.ID, until}
		}
		var d escrow.Delta
		if held, d, err = held.Burn(); err == nil {
			account, err = d.Add(account)
		}
		if err != nil {
			return rec, grantError(rec.ID, err)
		}
	case held.Uncertain == held.Resolved:
		return rec, &TerminalError{ID: rec.ID, State: rec.State}
	}
	used := amount.MicroUSD(o.evidence.Cost.Value) - held.Consumed - held.Found
	if used < 0 {
		return rec, invalid("outcome.cost", fmt.Sprintf("must be at least %d, which the node reported as consumed", held.Consumed+held.Found))
	}
	held, d, err := held.Resolve(held.Uncertain-held.Resolved, used)
	if err == nil {
		account, err = d.Add(account)
	}
	if err != nil {
		return rec, grantError(rec.ID, err)
	}
	w.Account, w.dirty = account, true
	rec.put(held, s.now)
	rec.State, rec.EndedAt, rec.Resolution = StateResolved, s.now, o.evidence
	s.turned(&s.loaded.Permits[i], &rec, o.terms)
	s.loaded.Permits[i] = rec
	s.ended = append(s.ended, i)
	note := o.note
	note.At, note.Action, note.Permit = s.now, "resolve", rec.ID
	note.Before, note.After = before, rec.describeGrant(held)
	s.notes = append(s.notes, note)
	return rec, nil
}

// spendable is until when a node may spend from an open grant. A meter's boot may report until it
// is over, or has gone; in a window that has ended nothing is spent any more.
func (s *sheet) spendable(g *grantTerms) (int64, error) {
	if !g.meter {
		return g.expires, nil
	}
	var node escrow.Node
	if data := s.loaded.Node.Data; len(data) > 0 {
		if err := node.UnmarshalBinary(data); err != nil {
			return 0, fmt.Errorf("%w: the row of node %s cannot be read", ErrCorrupt, g.node)
		}
	}
	if node.Boot != g.boot || node.Bye {
		return 0, nil
	}
	return g.account.Window.End, nil
}

// grantError translates what escrow says of a grant and its account.
func grantError(id PermitID, err error) error {
	if errors.Is(err, quota.ErrUnderflow) {
		return fmt.Errorf("%w: grant %s is not in its account", ErrCorrupt, id)
	}
	return invalid("outcome.cost", "is more than its account can count")
}

// describeGrant is what a note says of a grant.
func (rec *Record) describeGrant(h escrow.Held) string {
	return fmt.Sprintf(`{"state":%q,"flags":%d,"granted_microusd":%d,"consumed_microusd":%d,"uncertain_microusd":%d,"observed_microusd":%d,"resolution_microusd":%d}`,
		rec.State, rec.Flags, rec.Cost, h.Consumed, h.Uncertain, h.Observed, rec.Resolution.Cost.Value)
}

// retire ends meters that are older than the horizon and hold nothing, in windows that ended
// before it: nothing else ends a meter, and what is open is never forgotten.
func (g *Governor) retire(ctx context.Context, horizon int64) error {
	q := PermitQuery{Limit: 1000, States: []State{StateOpen}}
	for {
		list, err := g.store.Permits(ctx, q)
		if err != nil {
			return err
		}
		for i := range list {
			rec := &list[i]
			if q.After = rec.ID; !rec.ID.older(horizon) {
				return nil
			}
			if rec.Flags&FlagMeter == 0 {
				continue
			}
			t, err := decodeTerms(rec.Terms)
			if err != nil {
				return err
			}
			if t.grant.account.Window.End > horizon {
				continue
			}
			if err := g.alone(ctx, &retiring{id: rec.ID, terms: t}); err != nil {
				return err
			}
		}
		if len(list) < q.Limit {
			return nil
		}
	}
}

// retiring ends one meter.
type retiring struct {
	id    PermitID
	terms *terms
	err   error
}

func (o *retiring) plan(p *planner) {
	p.holds(o.terms)
	p.permits = append(p.permits, o.id)
}
func (o *retiring) decide(s *sheet)     { o.err = s.retire(o) }
func (o *retiring) fail(err error)      { o.err = err }
func (o *retiring) failed() error       { return o.err }
func (o *retiring) subject() string     { return "" }
func (o *retiring) patient() bool       { return true }
func (o *retiring) replayable() bool    { return true }
func (o *retiring) abandoned(*Governor) {}

func (s *sheet) retire(o *retiring) error {
	i := s.permit(o.id)
	if i < 0 || s.loaded.Permits[i].State != StateOpen {
		return nil
	}
	held, err := s.loaded.Permits[i].held()
	if err != nil || held.Pending > 0 {
		return err
	}
	held.Ending = escrow.Closed
	before := s.loaded.Permits[i]
	s.loaded.Permits[i].put(held, s.now)
	s.ended = append(s.ended, i)
	s.turned(&before, &s.loaded.Permits[i], o.terms)
	return nil
}
