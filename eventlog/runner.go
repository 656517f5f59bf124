package eventlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// runner runs one subscription.
type runner struct {
	log  *Log
	sub  Subscription
	wake chan struct{}

	claimed    bool       // under log.registering: the checkpoint is this process's, and run may use it
	checkpoint Checkpoint // an effect's; written by register before run, then by run alone until it leaves
	saved      time.Time  // when it was last written to the store

	swept   Checkpoint // under log.adopting; see sweep
	sweptAt time.Time  // when it was last saved

	mu      sync.Mutex
	tailer  *Tailer
	status  SubscriptionStatus
	retried AsideQuery // behind which Retry goes on
}

// claim takes this process's own checkpoint, or makes it.
func (r *runner) claim(ctx context.Context, from Cursor) error {
	c, err := r.claimOwn(ctx, Claim{Consumer: r.sub.name, Producer: r.log.producer, Owner: r.log.producer, From: from})
	if err == nil {
		r.checkpoint = c
	}
	return err
}

// claimOwn claims what is to go on whatever became of the log. Where the checkpoint was lost, and From is of a history that is no more or
// was overtaken by retention, it begins with all that is left: what was dealt with comes again.
func (r *runner) claimOwn(ctx context.Context, c Claim) (Checkpoint, error) {
	store := r.log.store
	got, err := store.Claim(ctx, c)
	if errors.Is(err, ErrPruned) || errors.Is(err, ErrResync) && store.Regressed() == nil {
		if c.From, err = beginning(ctx, store); err == nil {
			got, err = store.Claim(ctx, c)
		}
	}
	if err == nil && got.Skipped > 0 {
		r.note(func(s *SubscriptionStatus) { s.Skipped += got.Skipped })
	}
	return got, err
}

// beginning is the cursor that delivers all that retention has left.
func beginning(ctx context.Context, store Store) (Cursor, error) {
	c, err := store.At(ctx, 0)
	var gone *PrunedError
	if errors.As(err, &gone) {
		return store.At(ctx, gone.Pruned)
	}
	return c, err
}

// run follows the log until ctx ends.
func (r *runner) run(ctx context.Context) error {
	from, err := r.begin(ctx)
	if err != nil {
		return err
	}
	effect := r.sub.kind == KindEffect
	o := TailOptions{From: from, Poll: r.log.o.Poll, Wake: r.wake, Registered: effect}
	if effect {
		o.Beat = r.log.o.Beat
	}
	t, err := NewTailer(r.log.store, o)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.tailer = t
	r.mu.Unlock()
	if effect {
		defer r.leave(ctx)
	}
	for {
		page, err := t.Next(ctx)
		if err == nil {
			var own int
			if own, err = r.handle(ctx, page.Events); err != nil && !errors.Is(err, ErrTaken) {
				return err
			}
			if effect && err == nil {
				err = r.advance(ctx, page.Next, own > 0)
			}
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		again, err := r.resync(ctx, err)
		if err != nil {
			return err
		}
		t.Seek(again)
	}
}

// begin says where the subscription starts, and tries until the store answers.
func (r *runner) begin(ctx context.Context) (Cursor, error) {
	var from Cursor
	err := r.insist(ctx, func() (err error) {
		if err = r.log.register(ctx); err != nil {
			return err
		}
		switch {
		case r.sub.view.From != nil:
			from, err = r.sub.view.From(withoutAppending(ctx))
		case r.sub.kind == KindEffect:
			from = r.checkpoint.Cursor
		case r.sub.kind == KindLocalView:
			from = r.log.start
		}
		return err
	})
	return from, err
}

// insist repeats what fails for want of the store.
func (r *runner) insist(ctx context.Context, do func() error) error {
	pause := r.log.o.Pause
	for {
		err := do()
		if err == nil || !passing(err) && !errors.Is(err, ErrUnknownOutcome) {
			return err
		}
		r.note(func(s *SubscriptionStatus) { s.Err = err.Error() })
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, longestPause)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// resync finds the cursor to go on from, or says that there is none, and tries until the store answers: a database that
// is another than it was has just been away. An effect's cursor is in the database, and went the same way as the events.
func (r *runner) resync(ctx context.Context, why error) (Cursor, error) {
	history := errors.Is(why, ErrResync) || errors.Is(why, ErrPruned)
	switch {
	case errors.Is(why, ErrHistoryRegressed) && r.log.store.Regressed() != nil: // and nobody has accepted it
		return Cursor{}, why
	case r.sub.kind == KindEffect && (history || errors.Is(why, ErrTaken)):
		r.note(func(s *SubscriptionStatus) { s.Resyncs++; s.Err = why.Error() })
		err := r.insist(ctx, func() error { return r.claim(ctx, r.checkpoint.Cursor) })
		return r.checkpoint.Cursor, err
	case history && r.sub.view.Resync != nil:
		r.note(func(s *SubscriptionStatus) { s.Resyncs++; s.Err = why.Error() })
		var at Cursor
		err := r.insist(ctx, func() (err error) {
			at, err = r.sub.view.Resync(withoutAppending(ctx), why)
			return err
		})
		return at, err
	}
	return Cursor{}, why
}

// advance notes how far an effect came, and writes it where events of this process were among it, or where
// nothing was written for a while.
func (r *runner) advance(ctx context.Context, next Cursor, own bool) error {
	r.checkpoint.Cursor = next
	if !own && time.Since(r.saved) < r.log.o.Beat {
		return nil
	}
	err := r.insist(ctx, func() error { return r.save(ctx, r.checkpoint) })
	if err == nil {
		r.saved = time.Now()
	}
	return err
}

// save waits for a while for one that is on its way when ctx ends: given up, it could land behind what leave says, and unsay it.
func (r *runner) save(ctx context.Context, c Checkpoint) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	within, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(patience, cancel) })()
	return r.log.store.Save(within, c)
}

// leave says that nobody is here any more, so that adoption need not wait. Where it cannot be said, it waits. What is
// appended from now on registers anew: it is dealt with by a later Run, or adopted.
func (r *runner) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	r.log.registering.Lock()
	defer r.log.registering.Unlock()
	r.log.registered.Store(false) // who appends from now on waits, and registers anew
	c := r.checkpoint
	c.Left = true
	_ = r.log.store.Save(ctx, c)
	r.claimed = false
}

// handle deals with the events that are the subscription's, and says how many those are: done, or set aside. With
// an error they are not dealt with; ErrTaken says that another does so.
func (r *runner) handle(ctx context.Context, events []Recorded) (mine int, err error) {
	if r.sub.kind == KindEffect {
		return r.handleOf(ctx, r.log.producer, events, r.checkpoint, nil)
	}
	for _, e := range events {
		if r.sub.kind != KindProjection && e.Producer != r.log.producer {
			continue
		}
		if err := r.deliver(ctx, e); err != nil {
			return mine, err
		}
		mine++
	}
	return mine, nil
}

// errNotHeld says that whoever adopted may do so no longer.
var errNotHeld = errors.New("eventlog: the lease is not held")

// handleOf deals with a producer's events of a page under a checkpoint, and says by time that it lives, however long one takes. held is
// asked before each; nil: always.
//
// Errors: the context's, ErrTaken, errNotHeld, those of setting aside.
func (r *runner) handleOf(ctx context.Context, of Producer, events []Recorded, c Checkpoint, held func() bool) (n int, err error) {
	var alive *pulse
	for _, e := range events {
		if e.Producer != of {
			continue
		}
		if held != nil && !held() {
			return n, errNotHeld
		}
		if alive == nil {
			alive = r.beat(ctx, c)
			defer alive.end()
		}
		if alive.taken.Load() {
			return n, ErrTaken
		}
		if err := r.deliver(ctx, e); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// deliver tries an event as often as it is worth, and then sets it aside, so that those behind it are not kept.
func (r *runner) deliver(ctx context.Context, e Recorded) error {
	pause := r.log.o.Pause
	for attempt := 1; ; attempt++ {
		err := r.attempt(ctx, e)
		if err == nil {
			r.note(func(s *SubscriptionStatus) { s.Handled++ })
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		declined := errors.Is(err, ErrDeclined)
		if declined || errors.Is(err, ErrPoison) || attempt >= r.log.o.Attempts {
			return r.setAside(ctx, e, err, declined, attempt)
		}
		r.note(func(s *SubscriptionStatus) { s.Err = err.Error() })
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, longestPause)
	}
}

func (r *runner) attempt(ctx context.Context, e Recorded) (err error) {
	defer func() {
		if p := recover(); p != nil { // an event that makes a handler panic must not take the process with it, again and again
			err = fmt.Errorf("%w: the handler panicked with a value of type %T", ErrPoison, p) // the value may be anything, also a secret
		}
	}()
	up, err := r.log.o.Upcasters.Apply(e)
	if err != nil {
		return err
	}
	return r.sub.handle(ctx, up, r.log)
}

func (r *runner) setAside(ctx context.Context, e Recorded, why error, declined bool, attempts int) error {
	a := Aside{Consumer: r.sub.name, Runner: r.runnerOf(e), Event: e, Reason: why.Error(), Declined: declined, Attempts: int64(attempts)}
	if err := r.insist(ctx, func() error { return r.log.store.SetAside(ctx, a) }); err != nil {
		return err
	}
	r.note(func(s *SubscriptionStatus) { s.Aside++; s.Err = why.Error() })
	return nil
}

// runnerOf is under whose name an event is set aside: an effect's is the producer's whoever runs it, a view's is this process's.
func (r *runner) runnerOf(e Recorded) Producer {
	if r.sub.kind == KindEffect && e.Producer != Unknown {
		return e.Producer
	}
	return r.log.producer
}

func (r *runner) note(change func(*SubscriptionStatus)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.status)
}

// SubscriptionStatus is what a subscription has done in this process.
type SubscriptionStatus struct {
	Name    string
	Kind    Kind
	Lag     Lag
	Handled int64
	Aside   int64 // set aside, declined ones included
	Resyncs int64
	Adopted int64  // events handled for dead producers
	Skipped int64  // positions that retention had passed before they were delivered
	Err     string // the last thing that went wrong
}

// Status is what the process's subscriptions have done, and whether history was seen to go back.
type Status struct {
	Producer      Producer
	Subscriptions []SubscriptionStatus
	Regressed     *ResyncError
}

// Status says how the subscriptions stand. It asks nothing of the store.
func (l *Log) Status() Status {
	s := Status{Producer: l.producer, Regressed: l.store.Regressed()}
	for _, r := range l.runners {
		r.mu.Lock()
		one := r.status
		if r.tailer != nil {
			one.Lag = r.tailer.Lag()
		}
		r.mu.Unlock()
		s.Subscriptions = append(s.Subscriptions, one)
	}
	return s
}
