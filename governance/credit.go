package governance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/quota"
)

// follower is a policy.Store whose documents are an authority's.
type follower interface {
	policy.Store
	Follow(ctx context.Context, mark policy.Mark, set *policy.Set) error
}

// creditor is what a Governor of a node has of its authority: the journal of what was
// granted, and how the budgets stood by the last answer.
//
// Source: ADR-045 "What a node decides".
type creditor struct {
	journal  *journal.Journal
	policies follower
	said     atomic.Pointer[said]
	tiers    *tierBook

	taking sync.Mutex
	last   int64 // number of the heartbeat whose answer was taken last
}

// said is how the budgets stood by one answer. It is never changed.
type said struct {
	budgets map[ConstraintID]saidBudget
	told    map[escrow.GrantID]toldMeter
}

// saidBudget is one budget in the window that the authority is in: no clock of the node has a
// say in that.
type saidBudget struct {
	account escrow.Account
	fleet   quota.Account // what all nodes and gateways have used of it
	latch   policy.Percent
}

// toldMeter is what the authority had heard of a meter when it answered.
type toldMeter struct {
	account escrow.Account
	used    amount.MicroUSD
}

// now is the last answer; empty before the first.
func (c *creditor) now() *said {
	if c == nil {
		return nil
	}
	if now := c.said.Load(); now != nil {
		return now
	}
	return &said{}
}

// credited finds out how a Governor on the stores comes by the money of policies' budgets. It
// is nil where those are accounts of the stores themselves.
//
// Errors: ErrInvalid.
func credited(s Stores, o *Options) (*creditor, error) {
	switch j := o.Journal; {
	case s.Profile != policy.Node && (j != nil || o.Beside):
		return nil, invalid("options.journal", "belongs to the profile node; the profile "+s.Profile.String()+" has the accounts themselves")
	case s.Profile != policy.Node:
		return nil, nil
	case o.Beside && j != nil:
		return nil, invalid("options.beside", "is for who does not own the journal: give one of the two")
	case o.Beside:
		return nil, nil
	case j == nil:
		return nil, invalid("options.journal", "is missing: the profile node spends what is in its journal; open it with journal.Open")
	case s.Journal == nil:
		return nil, invalid("options.journal", "needs a backend that keeps one: what a node counts is decided in one transaction")
	case !j.On(s.Journal):
		return nil, invalid("options.journal", "must have been opened on the backend's own Journal")
	}
	policies, ok := s.Policies.(follower)
	if !ok {
		return nil, invalid("backend", "must have policies that follow an authority's: see policy.NewFollower")
	}
	return &creditor{journal: o.Journal, policies: policies}, nil
}

// Ledger is what an escrow.Syncer carries heartbeats for: the node's journal, and with each
// answer the policies that are in force. It is nil without Options.Journal.
//
// Take brings an answer into the journal, and then puts its documents in force; it returns when
// every admission by older ones has ended (policy.ErrUnconfirmed: they are in force, and one may
// still be under way). An answer of another authority, or of one whose history went back, changes
// nothing. A journal has one Governor: who decides must hear the answers.
//
// Source: ADR-045 "What a node decides".
func (g *Governor) Ledger() escrow.Ledger {
	if g.credit == nil {
		return nil
	}
	return &ledger{g.credit.journal, g.credit}
}

type ledger struct {
	*journal.Journal
	credit *creditor
}

// Take implements escrow.Ledger.
func (l *ledger) Take(ctx context.Context, h *escrow.Heartbeat, a *escrow.Answer, sent time.Time) error {
	c := l.credit
	c.taking.Lock()
	defer c.taking.Unlock()
	switch {
	case h == nil || a == nil || h.Boot != l.Boot():
		return l.Journal.Take(ctx, h, a, sent) // which says what is wrong
	case h.Sequence <= c.last:
		return nil // a later one was answered
	}
	now, err := c.policies.Mark(ctx)
	if err != nil {
		return err
	}
	switch err := now.Precedes(a.Mark); {
	case err != nil && now.Namespace != a.Mark.Namespace:
		return fmt.Errorf("%w: %w", escrow.ErrIncompatible, err)
	case err != nil:
		return fmt.Errorf("%w: %w", escrow.ErrRegressed, err)
	}
	if err := l.Journal.Take(ctx, h, a, sent); err != nil {
		return err
	}
	// First where the accounts are, then the rules that need them.
	c.said.Store(c.now().heard(h, a))
	if err := c.policies.Follow(ctx, a.Mark, a.Documents); err != nil {
		return err // a repetition follows once more
	}
	c.last = h.Sequence
	return nil
}

// heard is how things stand by an answer that follows this one.
func (s *said) heard(h *escrow.Heartbeat, a *escrow.Answer) *said {
	next := &said{budgets: make(map[ConstraintID]saidBudget, len(a.Definitions)), told: map[escrow.GrantID]toldMeter{}}
	current := make(map[escrow.Account]bool, len(a.Definitions))
	for i := range a.Definitions {
		d, b := &a.Definitions[i], escrow.Budget{}
		if i < len(a.Budgets) {
			b = a.Budgets[i]
		}
		current[d.Account] = true
		next.budgets[constraintOf(&d.Account).ID] = saidBudget{d.Account, quota.Account{
			Consumed: int64(b.Consumed), Uncertain: int64(b.Uncertain), Reserved: int64(b.Reserved), Granted: int64(b.Granted), Frozen: b.Frozen,
		}, b.Latch}
	}
	for id, m := range s.told {
		if current[m.account] {
			next.told[id] = m
		}
	}
	for i := range h.Meters {
		if m := &h.Meters[i]; current[m.Account] {
			next.told[m.ID] = toldMeter{m.Account, m.Consumed + m.Uncertain}
		}
	}
	return next
}

// notReady says why a node must not spend.
func notReady(why error) error { return fmt.Errorf("%w: %w", ErrNotReady, why) }

var errUnheard = fmt.Errorf("%w: it has not heard its authority yet", ErrNotReady)

// Ready reports whether admissions are decided: nil, or what is in the way. A node is not ready
// before its authority has answered once, after another opening has taken its journal over or the
// authority has refused it, once it is leaving, and while an overrun waits for an operator. An
// authority that is away is no reason: what was granted is good until its deadline.
//
// Errors: ErrNotReady (with *journal.PoisonedError, journal.ErrFenced or journal.ErrClosed where
// one of them is why), ErrUnavailable, ErrCorrupt, ErrClosed.
//
// Source: ADR-045 "Failure and operational boundaries".
func (g *Governor) Ready(ctx context.Context) error {
	if g.isClosed() {
		return ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, g.options.StepTimeout)
	defer cancel()
	plan := &Plan{}
	if g.credit != nil {
		plan.Journal = &journal.Plan{}
	}
	loaded, err := g.store.View(ctx, plan)
	if err != nil || g.credit == nil {
		return err
	}
	t, err := g.credit.open(loaded, g.credit.now())
	if err != nil {
		return err
	}
	if err := t.closed(); err != nil {
		return err
	}
	if poison := t.book.Poison(); poison != (journal.Poison{}) {
		return notReady(&journal.PoisonedError{Poison: poison})
	}
	_, err = g.rulebook.latest(ctx, g)
	return err
}

// open opens the journal's book in a transaction; nil where no node is.
//
// Errors: ErrCorrupt.
func (c *creditor) open(loaded *Loaded, s *said) (*till, error) {
	if c == nil {
		return nil, nil
	}
	t := &till{credit: c, said: s}
	if loaded.Journal == nil {
		return t, nil // no task of the step has to do with it
	}
	var err error
	if t.book, err = c.journal.Book(loaded.Journal); errors.Is(err, journal.ErrFenced) {
		t.book, t.fenced, err = nil, err, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return t, nil
}

// done tells the journal what its book has decided.
func (t *till) done() {
	if t != nil && t.book != nil {
		t.credit.journal.Done(t.book)
	}
}
