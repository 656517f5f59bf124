package governance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/policy"
)

// AuthorityOptions tune an Authority. Nil and zero fields are the defaults.
type AuthorityOptions struct {
	// GrantTTL is how long a node may spend from a grant, within the window that it is of.
	// Default 15 min, at least 1 s, at most 24 h.
	GrantTTL time.Duration
	// StepTimeout bounds one transaction, from connection to commit. Default 5 s.
	StepTimeout time.Duration
	// Logger receives what no caller is told. Default slog.Default().
	Logger *slog.Logger
	// Now stamps ids of transactions; it decides nothing. Default time.Now.
	Now func() time.Time
}

func (o *AuthorityOptions) withDefaults() (AuthorityOptions, error) {
	var out AuthorityOptions
	if o != nil {
		out = *o
	}
	if out.GrantTTL == 0 {
		out.GrantTTL = 15 * time.Minute
	}
	if out.StepTimeout == 0 {
		out.StepTimeout = 5 * time.Second
	}
	if out.Logger == nil {
		out.Logger = slog.Default()
	}
	if out.Now == nil {
		out.Now = time.Now
	}
	var err error
	if out.GrantTTL < time.Second || out.GrantTTL > 24*time.Hour {
		err = invalid("options.grant_ttl", "must be between 1 s and 24 h, or 0 for the default")
	}
	if out.StepTimeout < time.Millisecond || out.StepTimeout > time.Minute {
		err = errors.Join(err, invalid("options.step_timeout", "must be between 1 ms and 1 minute"))
	}
	return out, err
}

// Authority grants the money of policies' budgets to nodes, out of the accounts that a
// Governor on the same backend reserves in: what is granted is not there for reservations,
// and the other way round. Create it with NewAuthority.
//
// Concurrency: safe for concurrent use, and beside any number of Authorities and Governors
// on the same database.
//
// Source: ADR-045 "Accounts, windows and reports".
type Authority struct {
	store    Store
	nodes    escrow.NodeStore
	policies policy.Store
	options  AuthorityOptions
	law      atomic.Pointer[law]
	reading  sync.Mutex
}

var _ escrow.Authority = (*Authority)(nil)

// NewAuthority returns an Authority over an opened backend, which must keep policies
// and nodes. It does no I/O.
//
// Errors: ErrInvalid.
func NewAuthority(b Backend, o *AuthorityOptions) (*Authority, error) {
	options, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if b == nil || b.Backend().Store == nil {
		return nil, invalid("backend", "must have a store")
	}
	stores := b.Backend()
	if stores.Policies == nil || stores.Nodes == nil {
		return nil, invalid("backend", "must keep policies and nodes: an authority grants the former's budgets to the latter")
	}
	return &Authority{store: stores.Store, nodes: stores.Nodes, policies: stores.Policies, options: options}, nil
}

// law is the budgets of one generation of policies. It is never changed.
type law struct {
	mark  policy.Mark
	set   *policy.Set
	list  []Constraint // in the order of escrow.Definitions
	ids   []ConstraintID
	order []int // of list, by id
}

// lawOf lists the budgets that nodes are granted or meter.
func lawOf(s policy.Snapshot, now int64) (*law, error) {
	definitions, err := escrow.Definitions(s.Set, now)
	if err != nil {
		return nil, fmt.Errorf("%w: the budgets have no windows: %w", ErrUnavailable, err)
	}
	l := &law{mark: s.Mark, set: s.Set}
	for i := range definitions {
		d := &definitions[i]
		c := constraintOf(&d.Account)
		matches := s.Set.Match(d.Account.Subject.Team, d.Account.Subject.User)
		for j := range matches {
			if m := &matches[j]; m.Policy == c.Policy && m.Rule.Name == c.Rule && m.Rule.Budget != nil {
				c.budget, c.thresholds, c.Calendar = m.Rule.Budget, m.Thresholds, m.Rule.Budget.Calendar
			}
		}
		if c.budget == nil {
			return nil, fmt.Errorf("%w: budget %s of policy %s is defined by no rule", ErrCorrupt, c.Rule, c.Policy)
		}
		c.Limit, c.Soft = int64(d.Limit), !d.Hard
		l.list, l.order = append(l.list, *c), append(l.order, i)
	}
	slices.SortFunc(l.order, func(a, b int) int { return bytes.Compare(l.list[a].ID[:], l.list[b].ID[:]) })
	for _, i := range l.order {
		l.ids = append(l.ids, l.list[i].ID)
	}
	return l, nil
}

// find returns the budget in force with the id, or nil.
func (l *law) find(id ConstraintID) *Constraint {
	if i, ok := slices.BinarySearchFunc(l.ids, id, func(a, b ConstraintID) int { return bytes.Compare(a[:], b[:]) }); ok {
		return &l.list[l.order[i]]
	}
	return nil
}

// inForce returns the budgets that were read last, or reads them if those are old.
func (a *Authority) inForce(ctx context.Context, old *law) (*law, error) {
	if now := a.law.Load(); now != nil && now != old {
		return now, nil
	}
	a.reading.Lock()
	defer a.reading.Unlock()
	now := a.law.Load()
	if now != nil && now != old {
		return now, nil
	}
	snapshot, err := a.policies.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: the policies cannot be read: %w", escrow.ErrUnavailable, err)
	}
	if now != nil && now.mark == snapshot.Mark {
		return now, nil
	}
	if now != nil && now.mark.Namespace != snapshot.Namespace {
		return nil, fmt.Errorf("%w: the policies are those of another authority than at the start; restart on the right database", escrow.ErrUnavailable)
	}
	now, err = lawOf(snapshot, a.options.Now().UnixMicro())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", escrow.ErrUnavailable, err)
	}
	a.law.Store(now)
	return now, nil
}

// errMoved says that others changed what a plan was made by: make another one.
var errMoved = errors.New("governance: the plan of a heartbeat is out of date")

// Beat takes a heartbeat, all of it or none, and answers it.
//
// Time: the store's clock, read when all accounts of the heartbeat were locked. Windows are
// those that the accounts are in.
// Concurrency: heartbeats of one node are taken one after another, by whichever Authority;
// issuance never takes what is consumed, uncertain, reserved and granted of a hard budget
// above the limit in force.
// Retry: as it was, until it is answered; nothing happens twice, and what was granted
// is granted again with the same id, amount and expiry.
// Errors: those of escrow.Authority.
//
// Source: ADR-045 "Accounts, windows and reports".
func (a *Authority) Beat(ctx context.Context, h *escrow.Heartbeat) (*escrow.Answer, error) {
	if h == nil {
		return nil, &escrow.Error{Why: "there is no heartbeat"}
	}
	if err := h.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.options.StepTimeout)
	defer cancel()
	answer, err := a.take(ctx, h)
	if errors.Is(err, ErrUnknownOutcome) {
		// Its commit was sent and the answer lost. A repetition finds what the first time
		// did, or does it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.options.StepTimeout)
		defer cancel()
		answer, err = a.take(ctx, h)
	}
	return answer, beatError(err)
}

// beatError translates what a step ended with into what escrow.Authority returns.
func beatError(err error) error {
	var bad *escrow.Error
	var fenced *escrow.Fenced
	switch {
	case err == nil, errors.As(err, &bad), errors.As(err, &fenced):
		return err
	}
	for _, own := range [...]error{escrow.ErrStale, escrow.ErrIncompatible, escrow.ErrRegressed, escrow.ErrUnavailable} {
		if errors.Is(err, own) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", escrow.ErrUnavailable, err)
}

// take decides a heartbeat until nobody interferes.
func (a *Authority) take(ctx context.Context, h *escrow.Heartbeat) (*escrow.Answer, error) {
	var old *law
	for try := 1; ; try++ {
		law, err := a.inForce(ctx, old)
		if err != nil {
			return nil, err
		}
		b := &beat{heartbeat: h, law: law, ttl: a.options.GrantTTL}
		if b.seen, err = a.look(ctx, b); err != nil {
			return nil, err
		}
		if err = b.plan(); err == nil {
			err = a.step(ctx, b)
		}
		old = nil
		switch {
		case err == nil:
			return b.answer, nil
		case try == attempts*reloads || ctx.Err() != nil:
			return nil, err
		case errors.Is(err, errRules):
			old = law
		case errors.Is(err, errMoved), errors.Is(err, ErrRetry):
		default:
			return nil, err
		}
	}
}

// look reads, without locks, how all budgets stand, and which accounts the heartbeat is about.
func (a *Authority) look(ctx context.Context, b *beat) (*Loaded, error) {
	b.names()
	return a.store.View(ctx, &Plan{Constraints: b.law.ids, Permits: b.permits})
}

// step runs the heartbeat in one transaction of the store.
func (a *Authority) step(ctx context.Context, b *beat) (err error) {
	plan := &Plan{
		Batch: BatchID(NewPermitID(a.options.Now())), Constraints: b.constraints, Accounts: b.accounts, Permits: b.permits,
		Policies: true, Node: b.heartbeat.Node,
	}
	defer func() {
		if r := recover(); r != nil {
			a.options.Logger.Error("governance: the store panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: the store panicked", ErrUnknownOutcome)
		}
	}()
	var refused error
	err = a.store.Step(ctx, plan, func(loaded *Loaded) (changes *Changes) {
		defer func() {
			if r := recover(); r != nil {
				a.options.Logger.Error("governance: a decision panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
				refused, changes = fmt.Errorf("%w: a decision failed", ErrPoison), nil
			}
		}()
		(*PermitID)(&plan.Batch).stamp(loaded.stamp())
		s := newSheet(plan, loaded)
		if refused = s.beat(b); refused != nil {
			return nil
		}
		return s.finish()
	})
	if refused != nil {
		return refused
	}
	return err
}
