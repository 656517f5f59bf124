package governance

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
)

// till is a node's journal in one step: what the policies' budgets are reserved in, beside the
// cells, by the same decision.
//
// Source: ADR-045 "Local journal".
type till struct {
	credit *creditor
	said   *said
	book   *journal.Book // nil: no task needs it, or fenced
	fenced error
}

// closed is why nothing is admitted any more, be it of what no budget limits. Nil where no node is.
func (t *till) closed() error {
	switch {
	case t == nil:
		return nil
	case t.fenced != nil:
		return notReady(t.fenced)
	case t.book == nil:
		return fmt.Errorf("%w: the journal is not in the plan", ErrCorrupt)
	case t.book.Refused() != nil:
		return notReady(t.book.Refused())
	}
	return nil
}

// claim is what a request asks of the budgets that a node has no accounts of.
type claim struct {
	needs   []journal.Need
	of      []*Constraint // whose needs they are
	binding []Verdict     // of budgets that no credit could cover
}

// claim lists the needs of a bound. Every hard budget needs a grant that is good, also for an attempt
// that costs nothing or is free: past its deadline even that is refused. What is free is in no meter.
func (t *till) claim(set *constraintSet, b Bound) (c claim) {
	if t == nil {
		return c
	}
	for i := range set.budgets {
		budget := &set.budgets[i]
		if b.Free && budget.Soft {
			continue
		}
		said, known := t.said.budgets[budget.ID]
		switch {
		case b.Unpriced:
			c.binding = append(c.binding, t.verdict(budget, b, ReasonUnpriced))
		case !known: // the answer that defines it is on its way
			c.binding = append(c.binding, t.verdict(budget, b, ReasonCredit))
		case budget.Soft && said.fleet.Frozen: // of a hard one, grants are good until they end
			c.binding = append(c.binding, t.verdict(budget, b, ReasonFrozen))
		case !budget.Soft && int64(b.Cost) > budget.Limit:
			c.binding = append(c.binding, t.verdict(budget, b, ReasonNeverFits))
		default:
			c.needs, c.of = append(c.needs, journal.Need{Account: said.account, Amount: b.Cost, Soft: budget.Soft}), append(c.of, budget)
		}
	}
	return c
}

// verdict is how a budget stands on this node.
func (t *till) verdict(c *Constraint, b Bound, reason Reason) Verdict {
	v := Verdict{Constraint: c, Limit: c.Limit, Need: int64(b.Cost), Node: true, Reason: reason}
	said, known := t.said.budgets[c.ID]
	if known {
		v.Window, v.Frozen = said.account.Window, said.fleet.Frozen
	}
	if known && t.book != nil {
		s := t.book.Standing(said.account)
		v.Held, v.Reserved, v.Consumed, v.Uncertain = int64(s.Free), int64(s.Reserved), int64(s.Consumed), int64(s.Uncertain)
	}
	if len(c.thresholds) > 0 {
		v.Tier = t.tier(c)
	}
	if reason == ReasonCredit {
		v.RetryAfter = creditWait
	}
	return v
}

// judged are the verdicts of all budgets of a set on a bound, in their order.
func (t *till) judged(set *constraintSet, b Bound) ([]Verdict, error) {
	if t == nil {
		return nil, nil
	}
	binding, err := t.short(t.claim(set, b))
	if err != nil {
		return nil, err
	}
	for i := range set.budgets {
		c := &set.budgets[i]
		if !slices.ContainsFunc(binding, func(v Verdict) bool { return v.Constraint.ID == c.ID }) {
			binding = append(binding, t.verdict(c, b, 0))
		}
	}
	return binding, nil
}

// reserve takes the needs of an admission, or nothing: the last thing that may refuse it. What
// is short is asked for in the background.
func (t *till) reserve(id PermitID, c claim) error {
	if len(c.needs) == 0 {
		return nil
	}
	return t.refusal(t.book.Reserve(journal.Reservation{ID: journal.ID(id), Needs: c.needs}), c)
}

// short are the verdicts of the budgets that have no room, where the request is refused for
// other reasons: nobody is asked for the rest.
func (t *till) short(c claim) ([]Verdict, error) {
	if len(c.needs) == 0 || t.book == nil {
		return c.binding, nil
	}
	list, err := t.lacks(t.book.Lacks(c.needs), c)
	return slices.Concat(c.binding, list), err
}

// refusal turns what the journal refused into what Admit and Raise return.
func (t *till) refusal(err error, c claim) error {
	verdicts, err := t.lacks(err, c)
	if err != nil || len(verdicts) == 0 {
		return err
	}
	return refuse(verdicts)
}

// lacks turns a *journal.Shortage into verdicts. Any other error is the answer itself.
func (t *till) lacks(err error, c claim) ([]Verdict, error) {
	var short *journal.Shortage
	var field *journal.FieldError
	switch {
	case err == nil:
		return nil, nil
	case errors.As(err, &short):
	case errors.As(err, &field):
		return nil, invalid("bound.cost", field.Field+" "+field.Why)
	case errors.Is(err, journal.ErrConflict), errors.Is(err, journal.ErrEnded):
		return nil, fmt.Errorf("%w: %w", ErrConflict, err)
	case errors.Is(err, journal.ErrNotFound):
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	default:
		return nil, notReady(err)
	}
	t.credit.journal.Explain(short)
	var list []Verdict
	for i := range short.Lacks {
		l := &short.Lacks[i]
		budget := c.budget(&l.Account)
		reason := ReasonCredit
		switch l.Denied {
		case escrow.Spent:
			reason = ReasonMoney
		case escrow.Frozen:
			reason = ReasonFrozen
		}
		v := t.verdict(budget, Bound{Cost: l.Need}, reason)
		v.Held, v.Frozen, v.Window = int64(l.Free), reason == ReasonFrozen, l.Account.Window
		list = append(list, v)
	}
	return list, nil
}

// budget is the one that is in force for an account; one that was deleted has no limit here.
func (c *claim) budget(a *escrow.Account) *Constraint {
	id := constraintOf(a)
	for _, budget := range c.of {
		if budget.ID == id.ID {
			return budget
		}
	}
	id.Limit = 1<<63 - 1
	return id
}

// raise takes what is missing to a cost, in the accounts that the permit reserved in.
func (t *till) raise(rec *Record, set *constraintSet, credit []journal.Need, to int64) error {
	if t == nil || rec.Flags&FlagJournal == 0 {
		return nil
	}
	c := claim{needs: slices.Clone(credit)}
	for i := range c.needs {
		c.needs[i].Amount = amount.MicroUSD(to)
	}
	if set != nil {
		for i := range set.budgets {
			c.of = append(c.of, &set.budgets[i])
		}
	}
	err := t.refusal(t.book.Raise(journal.Reservation{ID: journal.ID(rec.ID), Needs: c.needs}), c)
	var refused *Refusal
	if errors.As(err, &refused) && refused.Reason == ReasonCredit && !t.current(c.needs) {
		refused.Retryable, refused.RetryAfter = false, 0 // nobody asks for more in a window that is over
	}
	return err
}

// current reports whether the accounts of hard needs are of the windows that go on.
func (t *till) current(needs []journal.Need) bool {
	for i := range needs {
		said, known := t.said.budgets[constraintOf(&needs[i].Account).ID]
		if !needs[i].Soft && (!known || said.account != needs[i].Account) {
			return false
		}
	}
	return true
}

// poisoned is why a request that would reserve in the journal is not admitted before an operator has
// looked at an overrun; nil where nothing is in the way.
func (t *till) poisoned(set *constraintSet, b Bound) error {
	if t == nil || t.book == nil || t.book.Poison() == (journal.Poison{}) || len(t.claim(set, b).needs) == 0 {
		return nil
	}
	return notReady(&journal.PoisonedError{Poison: t.book.Poison()})
}

// discharge ends what a permit holds in the journal, before anything of its cells is changed. What
// another opening has burned is charged in full there: the permit ends without it.
func (t *till) discharge(rec *Record, o Outcome) error {
	if t == nil || t.book == nil || rec.Flags&FlagJournal == 0 {
		return nil
	}
	err := t.book.Settle(journal.ID(rec.ID), inJournal(rec, o))
	var field *journal.FieldError
	switch {
	case err == nil, errors.Is(err, journal.ErrEnded), errors.Is(err, journal.ErrNotFound):
		return nil
	case errors.As(err, &field):
		return invalid("outcome.cost", field.Why)
	}
	return fmt.Errorf("%w: permit %s: %w", ErrCorrupt, rec.ID, err)
}

// inJournal is what an outcome says of the money.
func inJournal(rec *Record, o Outcome) journal.Outcome {
	switch {
	case o.Unsent:
		return journal.NotSent()
	case rec.Flags&FlagFree != 0: // nothing of it is counted in money
		return journal.Used(0)
	case o.Cost.Certainty == Known:
		return journal.Used(amount.MicroUSD(o.Cost.Value))
	case o.Cost.Certainty == Uncertain:
		return journal.Unknown(amount.MicroUSD(o.Cost.Value))
	}
	return journal.Unknown(0)
}

// tier is the threshold that a budget has reached: what the authority said, and of a meter also
// by what this node has used that it had not heard of. Within a window it never falls.
func (t *till) tier(c *Constraint) policy.Percent {
	said, known := t.said.budgets[c.ID]
	if !known {
		return 0
	}
	latch := policy.Latch(t.credit.tiers.latched(c.ID, said.account.Window), said.latch)
	if !c.Soft || t.book == nil {
		return latch
	}
	fleet := said.fleet
	if id, used := t.book.Metered(said.account); used > t.said.told[id].used {
		sum, err := amount.Sum(fleet.Consumed, fleet.Uncertain, int64(used-t.said.told[id].used))
		if err != nil {
			sum = 1<<63 - 1
		}
		fleet.Consumed, fleet.Uncertain = sum, 0
	}
	return c.budget.Tier(fleet, c.thresholds, latch)
}

// changes are what the journal has to write; nil for nothing.
func (t *till) changes() *journal.Changes {
	if t == nil || t.book == nil {
		return nil
	}
	if ch := t.book.Changes(); !ch.Empty() {
		return ch
	}
	return nil
}

// credit names the journal's rows that admissions of a principal need. There is a plan even where
// no budget applies: a node that was fenced admits nothing.
func (p *planner) credit(s *constraintSet) {
	if p.said == nil {
		return
	}
	p.journaled()
	for i := range s.budgets {
		if b, known := p.said.budgets[s.budgets[i].ID]; known && !slices.Contains(p.journal.Accounts, b.account) {
			p.journal.Accounts = append(p.journal.Accounts, b.account)
		}
	}
}

// reserved names what a permit may hold in the journal.
func (p *planner) reserved(id PermitID, credit ...journal.Need) {
	if p.said == nil {
		return
	}
	p.journaled()
	if !slices.Contains(p.journal.Reservations, journal.ID(id)) {
		p.journal.Reservations = append(p.journal.Reservations, journal.ID(id))
	}
	for i := range credit {
		if a := credit[i].Account; !slices.Contains(p.journal.Accounts, a) {
			p.journal.Accounts = append(p.journal.Accounts, a)
		}
	}
}

func (p *planner) journaled() {
	if p.journal == nil {
		p.journal = &journal.Plan{}
	}
}
