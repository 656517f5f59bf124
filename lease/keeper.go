package lease

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// The defaults of a Keeper.
const (
	DefaultTTL      = 15 * time.Second
	DefaultRenew    = 5 * time.Second
	DefaultDeadline = 10 * time.Second
)

// KeeperOptions tune a Keeper. Nil and zero fields are the defaults.
type KeeperOptions struct {
	// Label is a part of the minted identity that people recognise, such as a pod's name.
	Label string
	// TTL is how long a tenure lasts without renewal, by the store's clock: how long everybody waits when
	// this process dies as a holder. Default 15 s. Use the same everywhere; Status tells where it is not so.
	TTL time.Duration
	// Renew is the time between two renewals, and at most between two attempts to acquire. Default a third of TTL.
	Renew time.Duration
	// Deadline is when this process gives a lease up by itself, counted from when the last renewal that
	// was confirmed had been sent. It must be below TTL, by more than clocks can drift apart meanwhile and
	// work needs to stop, and at least twice Renew. Default two thirds of TTL.
	Deadline time.Duration
	// OneMachine allows a store that cannot be shared: all who compete run on this machine. Without it
	// such a store is refused, since replicas on several machines would each be granted every lease.
	OneMachine bool
	// Logger receives who holds what, and what goes wrong: the first failure and then ever fewer. Default slog.Default().
	Logger *slog.Logger
	// Clock is by which trust is counted. Default SinceBoot.
	Clock func() time.Duration
}

func (o *KeeperOptions) withDefaults() (KeeperOptions, error) {
	var out KeeperOptions
	if o != nil {
		out = *o
	}
	if out.TTL == 0 {
		out.TTL = DefaultTTL
	}
	if out.Renew == 0 {
		out.Renew = out.TTL / 3
	}
	if out.Deadline == 0 {
		out.Deadline = out.TTL * 2 / 3
	}
	if out.Logger == nil {
		out.Logger = slog.Default()
	}
	if out.Clock == nil {
		out.Clock = SinceBoot
	}
	switch {
	case out.TTL < shortestTTL || out.TTL > longestTTL:
		return out, refuse("options.ttl", "must be between 50 ms and 24 h")
	case out.Deadline >= out.TTL:
		return out, refuse("options.deadline", "must be below the TTL: who gives up later works beside a successor")
	case out.Renew < time.Millisecond || out.Deadline < 2*out.Renew:
		return out, refuse("options.renew", "must be at least 1 ms and at most half the deadline: one renewal may fail")
	}
	return out, nil
}

// Keeper acquires leases, renews them, and knows at any moment whether to believe in them. Make one per
// process, for all its names.
//
// Time: trust ends by Clock, whatever has become of a call that is on its way.
// Concurrency: safe for concurrent use; for each name one call is on its way at a time.
//
// Source: ADR-020 "Management is leased; serving is not".
type Keeper struct {
	leaser  Leaser
	options KeeperOptions
	holder  string
	ctx     context.Context // of everything that runs here
	stop    context.CancelFunc
	left    chan struct{} // closed when every loop has ended
	armed   chan struct{} // receives when a trust has begun

	mu      sync.Mutex
	seats   map[string]*seat
	order   []*seat
	leaving context.Context // ended by Close
	depart  context.CancelFunc
	notes   []func() // what to log when mu is free
}

// NewKeeper starts to compete for the names, at once. Close it to hand over.
//
// Errors: *FieldError; ErrNotShared for a store of one machine, unless options allow that.
func NewKeeper(l Leaser, names []string, o *KeeperOptions) (*Keeper, error) {
	options, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, refuse("leaser", "is missing")
	}
	if !l.Shared() && !options.OneMachine {
		return nil, ErrNotShared
	}
	k := &Keeper{leaser: l, options: options, holder: NewHolder(options.Label), left: make(chan struct{}), armed: make(chan struct{}, 1), seats: map[string]*seat{}}
	if len(names) == 0 {
		return nil, refuse("names", "is empty")
	}
	for _, name := range names {
		if err := (Claim{Name: name, Holder: k.holder, TTL: options.TTL}).Validate(); err != nil {
			return nil, err
		}
		if k.seats[name] != nil {
			return nil, refuse("names", "names one twice")
		}
		s := &seat{k: k, kick: make(chan struct{}, 1), changed: make(chan struct{})}
		s.post = post{name: name, pace: pace{options.TTL, options.Renew, options.Deadline, jitter}, due: options.Clock()}
		k.seats[name] = s
		k.order = append(k.order, s)
	}
	k.ctx, k.stop = context.WithCancel(context.Background())
	k.leaving, k.depart = context.WithCancel(k.ctx)
	var loops sync.WaitGroup
	for _, s := range k.order {
		loops.Go(s.tend)
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		k.watch()
	}()
	go func() {
		loops.Wait()
		k.stop() // the watch, which had to go on until here
		<-watched
		close(k.left)
	}()
	return k, nil
}

// jitter takes up to a tenth away.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/10+1) }

// Holder is this keeper's identity, as rows show it.
func (k *Keeper) Holder() string { return k.holder }

// Held reports whether this process has the lease at this moment, and which. Ask it in every cycle, and fence
// with what it returns. Close does not wait for work that asked Held: use Do for work.
func (k *Keeper) Held(name string) (Lease, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.seats[name]
	if s == nil || k.leaving.Err() != nil || !s.holds(k.options.Clock()) {
		return Lease{}, false
	}
	return s.held, true
}

// Do runs one cycle of work if this process has the lease. The context that work gets ends when the
// lease is lost or given up, or the keeper is closed; context.Cause says why. The lease is handed over, or
// acquired anew after it was lost, when the work has returned. Destructive writes of the work must be fenced
// with the lease that it gets: a context says nothing to a process that is stopped.
//
// Errors: ErrNotHeld and ErrClosed, work was not run; *FieldError for a name that is not the keeper's; work's own.
func (k *Keeper) Do(ctx context.Context, name string, work func(ctx context.Context, held Lease) error) error {
	s, held, tenure, err := k.enter(name)
	if err != nil {
		return err
	}
	defer s.exit()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(tenure, func() { cancel(context.Cause(tenure)) })()
	return work(ctx, held)
}

func (k *Keeper) enter(name string) (*seat, Lease, context.Context, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.seats[name]
	switch {
	case s == nil:
		return nil, Lease{}, nil, refuse("name", "is not among this keeper's")
	case k.leaving.Err() != nil:
		return nil, Lease{}, nil, ErrClosed
	case !s.holds(k.options.Clock()):
		return nil, Lease{}, nil, ErrNotHeld
	}
	s.work++
	return s, s.held, s.tenure, nil
}

// Await waits until this process has the lease, and returns it.
//
// Errors: ErrClosed, *FieldError, the context's.
func (k *Keeper) Await(ctx context.Context, name string) (Lease, error) {
	for {
		k.mu.Lock()
		s := k.seats[name]
		if s == nil {
			k.mu.Unlock()
			return Lease{}, refuse("name", "is not among this keeper's")
		}
		held, is, changed, leaving := s.held, s.holds(k.options.Clock()), s.changed, k.leaving
		k.mu.Unlock()
		switch {
		case leaving.Err() != nil:
			return Lease{}, ErrClosed
		case is:
			return held, nil
		}
		select {
		case <-changed:
		case <-leaving.Done():
		case <-ctx.Done():
			return Lease{}, ctx.Err()
		}
	}
}

// Close ends all work by its context, waits until it has returned, and hands the leases over, so that a
// successor need not wait for the tenure to end. Until then they are renewed. When ctx ends first, leases whose work
// still runs are not released: they lapse by the store's clock.
//
// Retry: safe.
// Errors: *BusyError; otherwise what releasing ended with, which the next holder waits a tenure for.
func (k *Keeper) Close(ctx context.Context) error {
	k.mu.Lock()
	if k.leaving.Err() == nil {
		k.depart()
		for _, s := range k.order {
			s.over(ErrClosed)
			s.announce()
		}
	}
	k.mu.Unlock()
	select {
	case <-k.left:
	case <-ctx.Done():
		k.stop()
		return k.unfinished(ctx.Err())
	}
	return k.unfinished(nil)
}

// unfinished says what was not handed over.
func (k *Keeper) unfinished(cause error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	busy := &BusyError{Cause: cause}
	for _, s := range k.order {
		switch {
		case s.work > 0:
			busy.Names = append(busy.Names, s.name)
		case (s.holding || s.doubt) && s.err != nil:
			errs = append(errs, s.err)
		case s.holding || s.doubt:
			errs = append(errs, cause)
		}
	}
	if len(busy.Names) > 0 {
		errs = append(errs, busy)
	}
	if len(errs) == 0 && cause != nil { // a call was on its way
		errs = append(errs, cause)
	}
	return errors.Join(errs...)
}
