package eventlog

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Options adjust a Log. The zero value has no subscriptions.
type Options struct {
	// Label is put before this process's identity, for people to read: a host's or pod's name.
	Label string
	// Subscriptions are run by Run. Names are unique, and the same on every replica.
	Subscriptions []Subscription
	// Upcasters bring old events up before a subscription sees them.
	Upcasters *Upcasters
	// Wake makes subscriptions look at once; eventlogpg's Listen gives one. They poll all the same.
	Wake <-chan struct{}
	// Poll is how often they look by themselves; 0: DefaultPoll.
	Poll time.Duration
	// Beat is how often an effect that has nothing to do says that it lives; 0: 10 s. Adoption waits for several of them.
	Beat time.Duration
	// Attempts is how often an event is tried before it is set aside; 0: 5.
	Attempts int
	// Pause is how long the first repetition waits, doubled with each; 0: 50 ms.
	Pause time.Duration
	// Unshared has each Append in a transaction of its own, rather than together with what waits beside it.
	Unshared bool
}

// Log is one process's use of a store: it appends under one identity and runs subscriptions. It is
// safe for concurrent use.
type Log struct {
	store    Store
	o        Options
	producer Producer
	lane     lane
	runners  []*runner
	hints    hints

	own         bool // has effects or local views
	registering sync.Mutex
	registered  atomic.Bool
	start       Cursor // before this process's first event

	adopting sync.Mutex // one Adopt at a time
	running  atomic.Bool
}

// New makes a log with an identity of its own, minted now. It does no I/O.
//
// Errors: *FieldError.
func New(store Store, o *Options) (*Log, error) {
	l := &Log{store: store}
	if o != nil {
		l.o = *o
	}
	if l.o.Poll <= 0 {
		l.o.Poll = DefaultPoll
	}
	if l.o.Beat <= 0 {
		l.o.Beat = 10 * time.Second
	}
	if l.o.Attempts <= 0 {
		l.o.Attempts = 5
	}
	if l.o.Pause <= 0 {
		l.o.Pause = 50 * time.Millisecond
	}
	var err error
	if l.producer, err = MintProducer(l.o.Label); err != nil {
		return nil, err
	}
	l.lane.store = store
	l.hints.to, _ = store.(Hinter)
	names := map[string]bool{}
	for _, s := range l.o.Subscriptions {
		if err := s.validate(); err != nil {
			return nil, err
		}
		if names[s.name] {
			return nil, refuse("subscription", s.name+" is there twice")
		}
		names[s.name] = true
		l.own = l.own || s.kind != KindProjection
		l.runners = append(l.runners, &runner{log: l, sub: s, wake: make(chan struct{}, 1), status: SubscriptionStatus{Name: s.name, Kind: s.kind}})
	}
	return l, nil
}

// Producer is this process's identity.
func (l *Log) Producer() Producer { return l.producer }

// Append appends, all or nothing, in this process's name. Callers that come while a transaction is on its way share
// the next one, and one that fails does so alone. Nil means that it is there, whatever becomes of this process.
//
// Time: the store's.
// Retry: with the same ids, which the caller then has to bring; see Event.ID.
// Errors: *FieldError, *ConflictError, ErrDuplicate, ErrMayNotAppend, ErrUnavailable: nothing was appended. ErrUnknownOutcome.
//
// Source: ADR-020 "Appending".
func (l *Log) Append(ctx context.Context, appends ...Append) ([]Appended, error) {
	stamped, err := l.Stamp(ctx, appends...)
	if err != nil {
		return nil, err
	}
	if _, err := Plan(stamped); err != nil { // who is refused here spoils no shared transaction
		return nil, err
	}
	var out []Appended
	if l.o.Unshared {
		out, err = l.store.Append(ctx, stamped)
	} else {
		out, err = l.lane.append(ctx, stamped)
	}
	if err == nil || errors.Is(err, ErrUnknownOutcome) {
		l.Wake()
	}
	return out, err
}

// Stamp makes appends ready for a store's AppendTx: it writes this process's identity on them, mints ids that are missing, and
// makes sure that this process's effects will not miss them. Call Wake once the transaction has committed.
//
// Errors: *FieldError, ErrMayNotAppend; those of Store.Head and Store.Claim where there are effects that could not be registered.
func (l *Log) Stamp(ctx context.Context, appends ...Append) ([]Append, error) {
	if err := MayAppend(ctx); err != nil {
		return nil, err
	}
	out, err := l.sign(appends)
	if err != nil {
		return nil, err
	}
	return out, l.register(ctx)
}

// Wake makes subscriptions look, here and, by a hint, elsewhere. Append does so by itself.
func (l *Log) Wake() {
	l.wakeHere()
	l.hints.send()
}

func (l *Log) wakeHere() {
	for _, r := range l.runners {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// register notes, before this process's first event, where its effects and local views begin. Were it later,
// a crash could leave events behind that no checkpoint speaks of, and nobody would adopt them.
func (l *Log) register(ctx context.Context) error {
	if l.registered.Load() || !l.own { // every append and every recorded step comes by here
		return nil
	}
	l.registering.Lock()
	defer l.registering.Unlock()
	if l.registered.Load() {
		return nil
	}
	if l.start.IsZero() {
		head, err := l.store.Head(ctx)
		if err != nil {
			return err
		}
		l.start = head
	}
	for _, r := range l.runners {
		if r.sub.kind == KindEffect && !r.claimed {
			from := l.start
			if r.checkpoint.Generation > 0 { // an earlier Run came so far
				from = r.checkpoint.Cursor
			}
			if err := r.claim(ctx, from); err != nil {
				return err
			}
			r.claimed = true
		}
	}
	l.registered.Store(true)
	return nil
}

// Run runs the subscriptions until ctx ends, and then returns its error, after what each was busy with. A
// subscription that cannot go on ends them all, with its error. One runs at a time; another may follow it, and begins as if the
// process had begun, but for effects, which go on. Events that are appended while none runs are not lost: the next deals with
// what an effect owes them, or adoption does.
//
// Errors: *FieldError while another runs; the context's; ErrHistoryRegressed; ErrResync and ErrPruned where a view does not resynchronize.
func (l *Log) Run(ctx context.Context) error {
	if !l.running.CompareAndSwap(false, true) {
		return refuse("run", "one is under way already")
	}
	defer l.running.Store(false)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	if l.o.Wake != nil {
		wg.Go(func() { l.passOn(ctx) })
	}
	for _, r := range l.runners {
		wg.Go(func() {
			if err := r.run(ctx); err != nil && ctx.Err() == nil {
				cancel(&StoppedError{Subscription: r.sub.name, cause: err})
			}
		})
	}
	<-ctx.Done()
	wg.Wait()
	return context.Cause(ctx)
}

// StoppedError names the subscription that ended Run.
type StoppedError struct {
	Subscription string
	cause        error
}

func (e *StoppedError) Error() string {
	return "eventlog: subscription " + e.Subscription + " cannot go on: " + e.cause.Error()
}

// Unwrap is why.
func (e *StoppedError) Unwrap() error { return e.cause }

func (l *Log) passOn(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-l.o.Wake:
			if !open {
				return
			}
			l.wakeHere()
		}
	}
}

// hints sends at most one hint at a time, and one more for all that came meanwhile.
type hints struct {
	to      Hinter
	mu      sync.Mutex
	busy    bool
	pending bool
}

// patience bounds a hint: it is no data.
const patience = 2 * time.Second

func (h *hints) send() {
	if h.to == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.busy {
		h.pending = true
		return
	}
	h.busy = true
	go h.run()
}

func (h *hints) run() {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_ = h.to.Hint(ctx) // who misses it polls
		cancel()
		h.mu.Lock()
		if !h.pending {
			h.busy = false
			h.mu.Unlock()
			return
		}
		h.pending = false
		h.mu.Unlock()
	}
}
