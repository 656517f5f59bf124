package governance

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/keys"
)

// Options tune a Governor. Nil and zero fields are the defaults.
type Options struct {
	// Lanes is how many transactions may be on their way at once. One is best when
	// load is concentrated; two, by team, help when it is spread. Default 1, at most 16.
	Lanes int
	// BatchLimit is how many calls one transaction carries at most. Default 256.
	BatchLimit int
	// QueueLimit is how many admissions may wait. Beyond it a caller whose team has
	// its fair share waiting is refused with ReasonQueueFull. Default 4096.
	QueueLimit int
	// StepTimeout bounds one transaction, from connection to commit. Default 5 s.
	StepTimeout time.Duration
	// BacklogLimit is how many outcomes that could not be recorded are kept for
	// another try. Beyond it the reservation stays open, for an operator. Default 4096.
	BacklogLimit int
	// RenewEvery is how often concurrency slots are renewed. Default 20 s, less than 60 s.
	RenewEvery time.Duration
	// Journal is what a node reserves the money of policies' budgets in: opened by this process on
	// the backend's own Journal. The profile node needs it, and no other can have one. The
	// caller closes it, after the Syncer of Ledger and the Governor.
	Journal *journal.Journal
	// Beside makes a Governor for a tool that looks at a node's file beside its owner, without
	// Journal. It lists, resolves, verifies and prunes; it admits nothing (ErrNotReady), and what
	// it resolves stays reserved in the journal until the owner's next opening.
	Beside bool
	// Evict is called with the id of a key whose cached principal is out of date.
	Evict func(keyID string)
	// Logger receives what no caller is told. Default slog.Default().
	Logger *slog.Logger
	// Now stamps ids and paces the background; it decides nothing. Default time.Now.
	Now func() time.Time
}

func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	set := func(n *int, fallback, most int, field string) error {
		if *n == 0 {
			*n = fallback
		}
		if *n < 1 || *n > most {
			return invalid(field, fmt.Sprintf("must be between 1 and %d, or 0 for the default", most))
		}
		return nil
	}
	err := errors.Join(
		set(&out.Lanes, 1, 16, "options.lanes"),
		set(&out.BatchLimit, 256, 4096, "options.batch_limit"),
		set(&out.QueueLimit, 4096, 1<<20, "options.queue_limit"),
		set(&out.BacklogLimit, 4096, 1<<20, "options.backlog_limit"),
	)
	if out.StepTimeout == 0 {
		out.StepTimeout = 5 * time.Second
	}
	if out.RenewEvery == 0 {
		out.RenewEvery = slotLife / 3
	}
	if out.StepTimeout < time.Millisecond || out.StepTimeout > time.Minute {
		err = errors.Join(err, invalid("options.step_timeout", "must be between 1 ms and 1 minute"))
	}
	if out.RenewEvery < 0 || out.RenewEvery >= slotLife {
		err = errors.Join(err, invalid("options.renew_every", "must be positive and below 60 s"))
	}
	if out.Logger == nil {
		out.Logger = slog.Default()
	}
	if out.Now == nil {
		out.Now = time.Now
	}
	return out, err
}

// Governor admits and settles. Create it with New; one per process and database
// is enough.
//
// Concurrency: safe for concurrent use.
type Governor struct {
	store   Store
	keys    keys.Store
	options Options
	lanes   []*lane
	seed    maphash.Seed
	sets    sets
	slots   slotKeeper
	backlog backlog
	reload  reloader

	rulebook rulebook
	tiers    tierBook
	credit   *creditor // nil: not a node

	stop     chan struct{}
	closed   sync.Once
	spawning sync.Mutex
	work     sync.WaitGroup
}

// New returns a Governor over an opened backend. It does no I/O.
//
// Errors: ErrInvalid.
func New(b Backend, o *Options) (*Governor, error) {
	options, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if b == nil || b.Backend().Store == nil || b.Backend().Keys == nil {
		return nil, invalid("backend", "must have a store and keys")
	}
	stores := b.Backend()
	g := &Governor{store: stores.Store, keys: stores.Keys, options: options, seed: maphash.MakeSeed(), stop: make(chan struct{})}
	for range options.Lanes {
		g.lanes = append(g.lanes, &lane{g: g, queues: map[string]*queue{}})
	}
	if stores.Profile == 0 {
		stores.Profile = policy.Local
	}
	if g.credit, err = credited(stores, &options); err != nil {
		return nil, err
	}
	if g.credit != nil {
		g.credit.tiers = &g.tiers
	}
	g.rulebook.store, g.rulebook.profile = stores.Policies, stores.Profile
	g.slots.init(g)
	g.backlog.init(g)
	return g, nil
}

// Close stops the background work after one last try to record outcomes that are
// still waiting, within the context. Open permits stay open and can be listed
// with Holds. Calls after Close return ErrClosed.
//
// Errors: *SettleError for the first outcome that could not be recorded; the
// context's error when the background work did not end in time.
func (g *Governor) Close(ctx context.Context) error {
	var err error
	g.closed.Do(func() {
		g.spawning.Lock()
		close(g.stop)
		g.spawning.Unlock()
		ended := make(chan struct{})
		go func() { g.work.Wait(); close(ended) }()
		select {
		case <-ended:
			err = g.backlog.flush(ctx)
		case <-ctx.Done():
			err = ctx.Err()
		}
	})
	return err
}

// spawn runs background work, which Close waits for; none once the Governor is closed.
func (g *Governor) spawn(work func()) bool {
	g.spawning.Lock()
	defer g.spawning.Unlock()
	if g.isClosed() {
		return false
	}
	g.work.Go(work)
	return true
}

func (g *Governor) isClosed() bool {
	select {
	case <-g.stop:
		return true
	default:
		return false
	}
}

// lane returns the lane of a subject.
func (g *Governor) lane(subject string) *lane {
	if len(g.lanes) == 1 {
		return g.lanes[0]
	}
	return g.lanes[maphash.String(g.seed, subject)%uint64(len(g.lanes))]
}

func (g *Governor) run(ctx context.Context, t task) error {
	if g.isClosed() {
		return ErrClosed
	}
	if err := g.lane(t.subject()).run(ctx, t); err != nil {
		return err
	}
	return t.failed()
}

// Admit reserves the worst-case tokens and cost of one provider attempt against
// every constraint that applies to r.Principal, or reserves nothing.
//
// Units: r.Bound.Cost is microUSD, rounded up; r.Bound.Tokens is provider tokens.
// Time: windows and buckets use the store's clock, read after the locks are held.
// Concurrency: linearizable across all processes that share the store.
// Retry: with the same r.ID a repeated call never reserves twice: it returns
// ErrInFlight while the first permit is open, ErrTerminal after it ended.
// Errors: *Refusal (nothing reserved), ErrInvalid, ErrConflict (r.ID used with other
// terms), ErrInFlight, ErrTerminal, ErrPruned, ErrStale, ErrUnavailable and ErrNotReady (nothing
// reserved), ErrUnknownOutcome (perhaps reserved; the Governor goes on to cancel it,
// since nobody received the permit), ErrClosed, and the context's error: the permit,
// if there was one, is cancelled.
//
// Source: ADR-046 "Global admission and accounting".
func (g *Governor) Admit(ctx context.Context, r Request) (*Permit, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	var fingerprint Fingerprint
	if !r.ID.IsZero() {
		fingerprint = r.fingerprint()
	}
	now, err := g.rulesOf(ctx, &r)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		a := g.admission(&r, now)
		if refusal := r.permitted(a.set); refusal != nil {
			others := false
			if now, others, err = g.rulebook.again(ctx, g, now); err != nil {
				return nil, err
			}
			if !others || try >= reloads {
				return nil, refusal
			}
			continue
		}
		a.fingerprint = fingerprint
		err := g.run(ctx, a)
		switch {
		case err == nil && ctx.Err() != nil:
			a.abandoned(g)
			return nil, ctx.Err()
		case err == nil:
			return g.permit(a), nil
		case errors.Is(err, ErrUnknownOutcome):
			a.abandoned(g)
			return nil, err
		case !errors.Is(err, ErrStale) || try == reloads:
			return nil, err
		}
		if now, err = g.refresh(ctx, &r, now, err); err != nil {
			return nil, err
		}
	}
}

// reloads is how often a call is decided at most while edits overtake it.
const reloads = 4

// upToDate calls f with the principal and what applies to it, and with what is in force
// by then for as long as f finds that stale.
func (g *Governor) upToDate(ctx context.Context, p *keys.Principal, f func(*keys.Principal, *constraintSet) error) error {
	now, err := g.rulebook.latest(ctx, g)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		err := f(p, g.sets.of(p, now))
		switch {
		case err == nil, !errors.Is(err, ErrStale), try == reloads:
			return err
		case errors.Is(err, errRules):
			now, err = g.rulebook.after(ctx, g, now)
		default:
			p, err = g.reload.principal(ctx, g, p)
		}
		if err != nil {
			return err
		}
	}
}

// rulesOf returns the rules that a request was selected by.
func (g *Governor) rulesOf(ctx context.Context, r *Request) (*rules, error) {
	if r.Route != nil {
		return r.Route.rules, nil
	}
	return g.rulebook.latest(ctx, g)
}

// refresh replaces what was stale by what is in force now. The request may go on only
// if what routing selected for it is the same.
func (g *Governor) refresh(ctx context.Context, r *Request, now *rules, stale error) (*rules, error) {
	var err error
	switch {
	case errors.Is(stale, errRules):
		if now, err = g.rulebook.after(ctx, g, now); err != nil {
			return nil, err
		}
	case errors.Is(stale, errRoute):
	default:
		if err := g.refreshPrincipal(ctx, r); err != nil {
			return nil, err
		}
	}
	if r.Route == nil {
		return now, nil
	}
	route, err := g.routeBy(ctx, now, r.Principal, r.Route.Asked)
	if err != nil {
		return nil, err
	}
	if r.Model != route.Model && r.Model != route.Required && r.Model != r.Route.Asked {
		return nil, ErrStale
	}
	r.Route = route
	return now, nil
}

func (g *Governor) refreshPrincipal(ctx context.Context, r *Request) error {
	old := r.Principal
	p, err := g.reload.principal(ctx, g, old)
	if err != nil {
		return err
	}
	if p.Team.Guardrail != old.Team.Guardrail || !p.AllowsRegion(r.Region) {
		return ErrStale
	}
	r.Principal = p
	return nil
}

// admission prepares a request for a step.
func (g *Governor) admission(r *Request, now *rules) *admission {
	a := &admission{request: r, set: g.sets.of(r.Principal, now), tiers: &g.tiers, id: r.ID, slot: g.slots.ticket()}
	var random [32]byte
	_, _ = rand.Read(random[:])
	copy(a.owner[:], random[:16])
	if a.minted = r.ID.IsZero(); a.minted {
		copy(a.id[:], random[16:])
	}
	return a
}

func (a *admission) plan(p *planner) {
	p.set(a.set)
	if !a.minted {
		p.permits = append(p.permits, a.id)
		p.reserved(a.id)
	}
}
func (a *admission) decide(s *sheet)  { s.admit(a) }
func (a *admission) fail(err error)   { a.err = err }
func (a *admission) failed() error    { return a.err }
func (a *admission) subject() string  { return a.request.Principal.TeamID }
func (a *admission) patient() bool    { return false }
func (a *admission) replayable() bool { return false } // nobody would know of the first

// abandoned cancels a permit that nobody received.
func (a *admission) abandoned(g *Governor) {
	if a.err != nil && !errors.Is(a.err, ErrUnknownOutcome) {
		return
	}
	t := a.terms
	if t == nil {
		return // never decided
	}
	g.backlog.add(&settlement{
		id: a.id, owner: a.owner, terms: t, ending: g.slots.orphan(t, a.at), outcome: NotSent(), team: t.teamID, orphan: true,
	})
}

// sets caches the constraints of principals by key, so that identities are hashed
// once per revision.
type sets struct {
	mu    sync.RWMutex
	byKey map[string]*constraintSet
}

const maxSets = 100_000

func (s *sets) of(p *keys.Principal, now *rules) *constraintSet {
	revision := p.Revision()
	s.mu.RLock()
	set := s.byKey[p.KeyID]
	s.mu.RUnlock()
	if set != nil && set.revision == revision && set.rules == now {
		return set
	}
	set = constraintsOf(p, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey == nil || len(s.byKey) >= maxSets {
		s.byKey = map[string]*constraintSet{}
	}
	s.byKey[p.KeyID] = set
	return set
}

// reloader fetches principals that an edit made stale, once for all who wait.
type reloader struct {
	mu    sync.Mutex
	calls map[reloadKey]*reloadCall
}

// reloadKey includes the secret: a retired token must not live on through its key.
type reloadKey struct {
	keyID  string
	secret keys.Hash
}

type reloadCall struct {
	done      chan struct{}
	principal *keys.Principal
	err       error
}

func (l *reloader) principal(ctx context.Context, g *Governor, old *keys.Principal) (*keys.Principal, error) {
	if g.options.Evict != nil {
		g.options.Evict(old.KeyID)
	}
	secret, _ := old.SecretHash()
	key := reloadKey{old.KeyID, secret}
	l.mu.Lock()
	call := l.calls[key]
	if call == nil {
		call = &reloadCall{done: make(chan struct{})}
		if l.calls == nil {
			l.calls = map[reloadKey]*reloadCall{}
		}
		l.calls[key] = call
		started := g.spawn(func() {
			ctx, cancel := g.stepContext(ctx)
			defer cancel()
			p, err := g.keys.Reload(ctx, *old)
			call.principal, call.err = &p, keyError(err)
			l.mu.Lock()
			delete(l.calls, key)
			l.mu.Unlock()
			close(call.done)
		})
		if !started {
			delete(l.calls, key)
			l.mu.Unlock()
			return nil, ErrClosed
		}
	}
	l.mu.Unlock()
	select {
	case <-call.done:
		return call.principal, call.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// keyError translates what the key store says into what Admit returns.
func keyError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, keys.ErrUnknown), errors.Is(err, keys.ErrRevoked), errors.Is(err, keys.ErrExpired):
		return &Refusal{Reason: ReasonUnauthenticated}
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// randomIncarnation is never zero: zero says that a permit has no slot.
func randomIncarnation() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:]) | 1
}
