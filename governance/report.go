package governance

import (
	"context"
	"slices"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

// UsageQuery says whose usage is wanted.
type UsageQuery struct {
	Principal *keys.Principal
}

// UsageReport is how full every constraint of a principal is.
type UsageReport struct {
	Verdicts []Verdict
	Now      int64 // µs since the Unix epoch, the store's clock
}

// Usage returns how full every constraint of the principal is.
//
// Of a policy's budget a node says what it has itself: see Verdict.Node.
//
// Time: the store's clock; windows of a node's budgets are the authority's. Concurrency: a
// consistent read without locks.
// Errors: ErrInvalid, ErrUnavailable, ErrNotReady, ErrCorrupt, ErrClosed.
func (g *Governor) Usage(ctx context.Context, q UsageQuery) (UsageReport, error) {
	if q.Principal == nil {
		return UsageReport{}, invalid("principal", "is missing; resolve the caller's key first")
	}
	seen, err := g.look(ctx, q.Principal, Bound{})
	if err != nil {
		return UsageReport{}, err
	}
	return UsageReport{Verdicts: seen.verdicts, Now: seen.sheet.now}, nil
}

// Explanation is the answer to a dry run.
type Explanation struct {
	Admitted bool     // whether the request would be admitted now
	Refusal  *Refusal // why not
	Verdicts []Verdict
	Now      int64 // µs since the Unix epoch, the store's clock
}

// Explain decides like Admit and reserves nothing. It returns every constraint
// with its limit, what is consumed, uncertain, reserved and granted, and when the
// request would fit.
//
// Errors: ErrInvalid, ErrStale, ErrUnavailable, ErrNotReady, ErrCorrupt, ErrClosed. A refusal is
// not an error here.
//
// Source: internal/docs/guarantees.md "All or none".
func (g *Governor) Explain(ctx context.Context, r Request) (*Explanation, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	e := &Explanation{}
	seen, err := g.look(ctx, r.Principal, r.Bound)
	if err != nil {
		return nil, err
	}
	if e.Refusal = r.permitted(seen.set); e.Refusal != nil {
		return e, nil
	}
	verdicts := seen.verdicts
	e.Now, e.Verdicts = seen.sheet.now, verdicts
	if err := seen.sheet.till.closed(); err != nil {
		return nil, err
	}
	err = seen.sheet.fresh(r.Principal, seen.set.rules)
	if err == nil {
		err = seen.sheet.routed(&admission{request: &r, set: seen.set})
	}
	switch err := err.(type) {
	case nil:
	case *Refusal:
		e.Refusal = err
		return e, nil
	default:
		return nil, err
	}
	var binding []Verdict
	for i := range verdicts {
		if v := &verdicts[i]; v.Reason != 0 && (!r.Bound.Free || v.Constraint.Kind != KindMoney || v.Node) {
			binding = append(binding, *v)
		}
	}
	if len(binding) > 0 {
		e.Refusal = refuse(binding)
	}
	if e.Refusal == nil {
		if err := seen.sheet.till.poisoned(seen.set, r.Bound); err != nil {
			return nil, err
		}
	}
	e.Admitted = e.Refusal == nil
	return e, nil
}

// looked is what a look without locks has seen.
type looked struct {
	set      *constraintSet
	sheet    *sheet
	verdicts []Verdict
}

// look judges a bound against every constraint of the principal, without locks, by the
// policies in force at that moment.
func (g *Governor) look(ctx context.Context, p *keys.Principal, b Bound) (*looked, error) {
	if g.isClosed() {
		return nil, ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, g.options.StepTimeout)
	defer cancel()
	now, err := g.rulebook.latest(ctx, g)
	for try := 1; err == nil; try++ {
		set := g.sets.of(p, now)
		s, err := g.view(ctx, set, &Plan{Keys: []string{p.KeyID}, Policies: now != nil})
		if err != nil {
			return nil, err
		}
		if now.marked() == s.loaded.Policies || try == reloads {
			return g.judged(set, s, b)
		}
		if now, err = g.rulebook.after(ctx, g, now); err != nil {
			return nil, err
		}
	}
	return nil, err
}

// view opens a sheet on a principal's constraints without locks. Nothing of it can be written.
func (g *Governor) view(ctx context.Context, set *constraintSet, plan *Plan) (*sheet, error) {
	p := planner{said: g.credit.now()}
	p.credit(set)
	plan.Constraints, plan.Journal = set.ids, p.journal
	loaded, err := g.store.View(ctx, plan)
	if err != nil {
		return nil, err
	}
	s := newSheet(plan, loaded)
	s.till, err = g.credit.open(loaded, p.said)
	return s, err
}

func (g *Governor) judged(set *constraintSet, s *sheet, b Bound) (*looked, error) {
	verdicts := make([]Verdict, 0, len(set.list))
	for i := range set.list {
		c := &set.list[i]
		w, err := s.enter(i, c)
		if err != nil {
			return nil, err
		}
		v, err := w.ask(c, b, s.now)
		if err != nil {
			return nil, err
		}
		if len(c.thresholds) > 0 {
			v.Tier = w.tier(c)
		}
		verdicts = append(verdicts, v)
	}
	budgets, err := s.till.judged(set, b)
	if err != nil {
		return nil, err
	}
	verdicts = append(verdicts, budgets...)
	slices.SortStableFunc(verdicts, func(a, b Verdict) int {
		if a.Constraint.Scope != b.Constraint.Scope {
			return int(a.Constraint.Scope) - int(b.Constraint.Scope)
		}
		if a.Constraint.Kind != b.Constraint.Kind {
			return int(a.Constraint.Kind) - int(b.Constraint.Kind)
		}
		return int(a.Constraint.Calendar.Period) - int(b.Constraint.Calendar.Period)
	})
	return &looked{set, s, verdicts}, nil
}

// Hold is a permit that still holds something, with who, what and how much.
type Hold struct {
	ID       PermitID
	State    State
	Flags    Flags
	KeyID    string
	TeamID   string
	User     string
	Model    string
	At       int64 // µs since the Unix epoch, when admitted
	EndedAt  int64 // µs; zero while open
	Bound    Bound
	Observed Bound // what was seen of an uncertain attempt; never charged by itself
	Accounts []AccountKey
	Price    []byte
	Grant    *GrantHold // not nil: a grant or a meter of a node; Bound.Cost is what was granted
}

// GrantHold is what a node holds by a grant, or says by a meter.
//
// Units: money is microUSD.
type GrantHold struct {
	Node       string
	Boot       escrow.BootID
	BootNumber int64
	Meter      bool
	Account    escrow.Account
	Consumed   amount.MicroUSD // as it was reported
	Uncertain  amount.MicroUSD // as it was reported, and what a crash made uncertain
	Pending    amount.MicroUSD // of a meter
	ExpiresAt  int64           // µs; the node spends nothing after that; zero for a meter
	Burned     bool            // taken by a crash: all that is not known to be consumed is uncertain
}

// HoldQuery selects holds. Zero fields select all of them.
type HoldQuery struct {
	After PermitID // continue behind this id
	Limit int      // at most so many, default 100, at most 1000
	Team  string
	Key   string
	Open  bool // only open permits, not the uncertain and frozen ones
}

// Holds lists permits that are open, uncertain or invalid, oldest first, and grants of
// nodes that are open, burned or uncertain. A page
// that is shorter than the limit is the last one.
//
// Errors: ErrInvalid, ErrUnavailable, ErrCorrupt.
func (g *Governor) Holds(ctx context.Context, q HoldQuery) ([]Hold, error) {
	if q.Limit == 0 {
		q.Limit = 100
	}
	if q.Limit < 1 || q.Limit > 1000 {
		return nil, invalid("limit", "must be between 1 and 1000")
	}
	query := PermitQuery{After: q.After, Limit: 1000, States: []State{StateOpen}}
	if !q.Open {
		query.Flags = FlagTokensUncertain | FlagCostUncertain | FlagInvalid
	}
	var holds []Hold
	for {
		records, err := g.store.Permits(ctx, query)
		if err != nil {
			return nil, err
		}
		for i := range records {
			rec := &records[i]
			query.After = rec.ID
			t, err := decodeTerms(rec.Terms)
			if err != nil {
				return nil, err
			}
			if (q.Team != "" && t.teamID != q.Team) || (q.Key != "" && t.keyID != q.Key) || rec.final() {
				continue
			}
			h := rec.hold(t)
			if g := h.Grant; g != nil && g.Meter && rec.State == StateOpen && g.Pending == 0 {
				continue // it counts, and holds nothing
			}
			holds = append(holds, h)
			if len(holds) == q.Limit {
				return holds, nil
			}
		}
		if len(records) < query.Limit {
			return holds, nil
		}
	}
}

func (rec *Record) hold(t *terms) Hold {
	h := Hold{
		ID: rec.ID, State: rec.State, Flags: rec.Flags, KeyID: t.keyID, TeamID: t.teamID, User: t.user, Model: t.model,
		At: rec.At, EndedAt: rec.EndedAt, Bound: rec.bound(), Price: t.price,
	}
	if rec.Outcome.Tokens.Certainty == Uncertain {
		h.Observed.Tokens = amount.Tokens(rec.Outcome.Tokens.Value)
	}
	if rec.Outcome.Cost.Certainty == Uncertain {
		h.Observed.Cost = amount.MicroUSD(rec.Outcome.Cost.Value)
	}
	if g := t.grant; g != nil {
		if held, err := rec.held(); err == nil {
			h.Observed.Cost = held.Observed
			h.Grant = &GrantHold{
				Node: g.node, Boot: g.boot, BootNumber: g.number, Meter: g.meter, Account: g.account,
				Consumed: held.Consumed, Uncertain: held.Uncertain, Pending: held.Pending, ExpiresAt: g.expires, Burned: held.Ending == escrow.Burned,
			}
		}
	}
	for i := range t.holds {
		if t.holds[i].kind.isAccount() {
			h.Accounts = append(h.Accounts, t.holds[i].account())
		}
	}
	return h
}

// ResetsAt is the end of the window, in µs since the Unix epoch; false for a
// constraint without a calendar.
func (v *Verdict) ResetsAt() (micros int64, ok bool) {
	if v.Window == (quota.Window{}) {
		return 0, false
	}
	return v.Window.End, true
}
