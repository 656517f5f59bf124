package governance

import (
	"context"
	"encoding/json"
	"fmt"
)

// Evidence is an operator's finding about a permit.
type Evidence struct {
	ID      PermitID
	Outcome Outcome // Used(...) or NotSent()
	Actor   string  // who decided; recorded
	Reason  string  // why; recorded
}

// Resolve closes a permit that is open or uncertain with what an operator found
// out. What its accounts held is corrected and the finding is recorded with its
// reason.
//
// Of a grant the finding is what its node used of it in all, never less than it
// reported as consumed, and no tokens. An open grant is refused for as long as its node may
// spend from it; what the node reports afterwards is late and changes nothing.
//
// Retry: the same finding again is a no-op.
// Errors: ErrInvalid, ErrNotFound, ErrConflict (resolved otherwise), ErrTerminal
// (nothing is held any more), *SpendableError, ErrUnavailable, ErrUnknownOutcome.
//
// Source: internal/docs/guarantees.md "Nothing is refunded by accident".
func (g *Governor) Resolve(ctx context.Context, e Evidence) (*Hold, error) {
	if err := validOperator(e.Actor, e.Reason); err != nil {
		return nil, err
	}
	if err := e.Outcome.validate(); err != nil {
		return nil, err
	}
	if !e.Outcome.Unsent && (e.Outcome.Tokens.Certainty != Known || e.Outcome.Cost.Certainty != Known) {
		return nil, invalid("outcome", "must be known in tokens and cost, or not sent")
	}
	rec, t, err := g.find(ctx, e.ID)
	if err != nil {
		return nil, err
	}
	if t.grant != nil {
		return g.resolveGrant(ctx, rec, t, e)
	}
	task := &resolution{id: rec.ID, terms: t, evidence: e.Outcome, note: Note{Actor: e.Actor, Reason: e.Reason}}
	if err := g.run(ctx, task); err != nil {
		return nil, err
	}
	h := task.record.hold(t)
	return &h, nil
}

// find loads one permit by its id.
func (g *Governor) find(ctx context.Context, id PermitID) (*Record, *terms, error) {
	if !id.Valid() {
		return nil, nil, invalid("id", "must be a version 7 UUID")
	}
	loaded, err := g.store.View(ctx, &Plan{Permits: []PermitID{id}})
	if err != nil {
		return nil, nil, err
	}
	if loaded.Permits[0].State == 0 {
		if id.older(loaded.Horizon) {
			return nil, nil, ErrPruned
		}
		return nil, nil, ErrNotFound
	}
	t, err := decodeTerms(loaded.Permits[0].Terms)
	if err != nil {
		return nil, nil, err
	}
	return &loaded.Permits[0], t, nil
}

func validOperator(actor, reason string) error {
	if actor == "" {
		return invalid("actor", "is missing: say who decides")
	}
	if reason == "" {
		return invalid("reason", "is missing: say why, it is recorded")
	}
	if err := validName("actor", actor); err != nil {
		return err
	}
	return validName("reason", reason)
}

// Release asks to let a frozen account admit again.
type Release struct {
	Account AccountKey
	Actor   string
	Reason  string
	// Reconcile sets the account to what its permits add up to, where that differs. Without
	// it an account that differs is not released.
	Reconcile bool
}

// Unfreeze lets an account admit again that was frozen by an impossible report, once it
// was recomputed from its permits as Verify does. Permits that reported it keep their
// bounds and stay listed until they are resolved. What the account counted is in the note.
//
// Retry: safe. Errors: ErrInvalid, ErrNotFound, *UnbalancedError, ErrUnavailable,
// ErrUnknownOutcome, ErrCorrupt, ErrClosed.
//
// Source: ADR-046 "Global admission and accounting"; design "Holds and audit".
func (g *Governor) Unfreeze(ctx context.Context, r Release) error {
	if err := validOperator(r.Actor, r.Reason); err != nil {
		return err
	}
	if g.isClosed() {
		return ErrClosed
	}
	note := Note{Actor: r.Actor, Reason: r.Reason}
	a := &audit{account: r.Account, release: &unfreezing{account: r.Account, note: note}}
	if r.Reconcile {
		a.reconcile = &note
	}
	a, err := g.audit(ctx, a)
	if err == nil && a.difference != nil {
		return &UnbalancedError{*a.difference}
	}
	return err
}

// Note records what an operator did to something else than permits and accounts, such as
// an edit of policies. n.Number and n.At are the store's; n.Permit and n.Account must be zero; n.Before and n.After are JSON or empty.
//
// Retry: a repeated call is a second note. Errors: ErrInvalid, ErrUnavailable,
// ErrUnknownOutcome, ErrClosed.
func (g *Governor) Note(ctx context.Context, n Note) error {
	if err := validOperator(n.Actor, n.Reason); err != nil {
		return err
	}
	if n.Action == "" {
		return invalid("action", "is missing: say what was done")
	}
	if err := validName("action", n.Action); err != nil {
		return err
	}
	if !n.Permit.IsZero() || n.Account != (AccountKey{}) { // its event would be in a stream that rows keep in order which nobody has locked
		return invalid("note", "must be about neither a permit nor an account: those are noted by what changes them")
	}
	for _, f := range [...]struct{ name, value string }{{"before", n.Before}, {"after", n.After}} {
		if f.value != "" && (len(f.value) > maxNoteBytes || !json.Valid([]byte(f.value))) {
			return invalid(f.name, fmt.Sprintf("must be JSON of at most %d bytes", maxNoteBytes))
		}
	}
	return g.alone(ctx, &noting{note: n})
}

const maxNoteBytes = 4096

// FrozenAccounts lists frozen accounts in the order of their keys, with what they
// count (Cell.Label). q.Frozen is implied; the limit is 1 to 1000.
//
// Errors: ErrInvalid, ErrUnavailable, ErrCorrupt.
func (g *Governor) FrozenAccounts(ctx context.Context, q AccountQuery) ([]Cell, error) {
	if q.Limit < 1 || q.Limit > 1000 {
		return nil, invalid("limit", "must be between 1 and 1000")
	}
	q.Frozen = true
	return g.store.Accounts(ctx, q)
}

// Notes lists what operators did and why, oldest first; the limit is 1 to 1000.
//
// Errors: ErrInvalid, ErrUnavailable, ErrCorrupt.
//
// Source: design "Holds and audit".
func (g *Governor) Notes(ctx context.Context, q NoteQuery) ([]Note, error) {
	if q.Limit < 1 || q.Limit > 1000 {
		return nil, invalid("limit", "must be between 1 and 1000")
	}
	return g.store.Notes(ctx, q)
}

// alone runs a task in a transaction of its own: an audit adds up what was
// loaded, which must be loaded for it.
func (g *Governor) alone(ctx context.Context, t task) error {
	if g.isClosed() {
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := g.stepContext(ctx)
	defer cancel()
	g.transact(ctx, []task{t})
	return t.failed()
}

func (o *resolution) plan(p *planner) {
	p.holds(o.terms)
	p.permits = append(p.permits, o.id)
	p.reserved(o.id)
}
func (o *resolution) decide(s *sheet)     { s.resolve(o) }
func (o *resolution) fail(err error)      { o.err = err }
func (o *resolution) failed() error       { return o.err }
func (o *resolution) subject() string     { return o.terms.teamID }
func (o *resolution) patient() bool       { return true }
func (o *resolution) replayable() bool    { return true }
func (o *resolution) abandoned(*Governor) {}
