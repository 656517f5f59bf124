package eventlog

import (
	"context"
	"errors"
	"time"
)

// Adopt says which checkpoints count as left.
type Adopt struct {
	// Idle is for how long, by the store's clock, a checkpoint was not touched; 0: 1 min. It must be several times
	// the Beat of every process. Of a process that said that it leaves it is not asked.
	Idle time.Duration
	// Held is asked before every event: where it says no, adoption ends, for another to go on. It is the lease's; nil is always.
	Held func() bool
}

// Adopted is what was dealt with.
type Adopted struct {
	Producers int // whose effects were looked after
	Events    int
	Closed    int // checkpoints that were closed: of their producers nothing is left
}

// Adopt deals with what dead processes left of this log's effects: each event that a producer had not dealt with
// is handled here, at least once. Call it now and then where a lease is held, so that one process does it. It returns when
// nothing is left for now.
//
// A process that was only slow is left alone if it moves before its turn comes; else it finds its checkpoint taken, takes it back and goes on
// from where adoption came. What both deal with meanwhile is told apart by the event's id. A checkpoint is closed once no transaction is open that its
// producer could have begun. What a closed one's producer appends all the same, because it was stopped and had not noticed yet,
// is looked for (a second reading of the log, by who adopts) and handled here too, for as long as the closed checkpoint is remembered: Prune forgets
// it when it was not touched since Prune.Before. The one event that is nobody's is therefore of a process that was stopped for longer than
// events are kept, between its registration and its commit, and died without looking at the log again.
//
// Errors: the context's, those of the store.
//
// Source: ADR-020 "Adoption".
func (l *Log) Adopt(ctx context.Context, a Adopt) (Adopted, error) {
	if a.Idle <= 0 {
		a.Idle = time.Minute
	}
	if a.Held == nil {
		a.Held = func() bool { return true }
	}
	l.adopting.Lock()
	defer l.adopting.Unlock()
	var out Adopted
	var errs []error
	for _, r := range l.runners {
		if r.sub.kind != KindEffect {
			continue
		}
		err := r.adoptAll(ctx, a, &out)
		if errors.Is(err, errNotHeld) {
			break // what is dealt with of a page comes again
		}
		if errs = append(errs, err); ctx.Err() != nil || errors.Is(err, ErrUnavailable) {
			break
		}
	}
	return out, errors.Join(errs...)
}

func (r *runner) adoptAll(ctx context.Context, a Adopt, out *Adopted) error {
	// First: what is closed behind it was handled, and would be handled again.
	swept, err := r.sweep(ctx, a.Held, out)
	if err != nil {
		return err
	}
	list, err := r.log.store.Checkpoints(ctx, r.sub.name)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range list {
		if c.Producer == Unknown || c.Producer == r.log.producer || c.Closed || !c.Left && c.Idle < a.Idle {
			continue
		}
		err := r.adopt(ctx, c, a.Held, swept, out)
		switch {
		case err == nil || errors.Is(err, ErrTaken): // it lives, or another adopts it
		case ctx.Err() != nil || errors.Is(err, errNotHeld) || errors.Is(err, ErrUnavailable):
			return err
		default: // what is wrong with one must not keep the others waiting
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (r *runner) adopt(ctx context.Context, seen Checkpoint, held func() bool, mayClose bool, out *Adopted) error {
	store := r.log.store
	if !held() {
		return errNotHeld
	}
	head, err := store.Head(ctx)
	if err != nil {
		return err
	}
	c, err := store.Claim(ctx, Claim{Consumer: seen.Consumer, Producer: seen.Producer, Owner: r.log.producer, Seen: &seen})
	if err != nil {
		return err
	}
	out.Producers++
	if c.Bound == 0 { // what it can still bring is in transactions that have begun by now
		c.Bound = max(1, head.Open().Next)
	}
	for more := true; more; {
		page, err := store.Read(ctx, Read{Cursor: c.Cursor, Registered: true})
		if err != nil {
			return err
		}
		n, err := r.handleOf(ctx, c.Producer, page.Events, c, held)
		r.adopted(n, out)
		if err != nil {
			return err
		}
		c.Cursor, more = page.Next, page.More
		c.Left = true // who adopts stays nobody's keeper: the next may go on at once
		if !more && mayClose && held() && (c.Cursor.Open().Empty() || c.Cursor.Open().Oldest() >= c.Bound) {
			c.Closed = true
			out.Closed++
		}
		if err := store.Save(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) adopted(n int, out *Adopted) {
	out.Events += n
	r.note(func(s *SubscriptionStatus) { s.Adopted += int64(n) })
}

// beginSweep has the checkpoint of sweep, which is the effect's for no producer in particular.
func (r *runner) beginSweep(ctx context.Context) error {
	if r.swept.Generation > 0 {
		return nil
	}
	from := r.swept.Cursor
	if from.IsZero() {
		var err error
		if from, err = r.log.store.Head(ctx); err != nil {
			return err
		}
	}
	c, err := r.claimOwn(ctx, Claim{Consumer: r.sub.name, Owner: r.log.producer, From: from})
	if err == nil {
		r.swept = c
	}
	return err
}

// sweep handles what producers appended whose checkpoint is closed, and reports whether it has come to the end. All adopters share
// its cursor.
//
// An event that it passes by is dealt with elsewhere: the checkpoints are listed after the event was seen, and whoever deals
// with the producer of an open one then, or claims it later, has still to read the event or has handled it. But for one: another adopter,
// which may have read already and be about to close. Where there is one, sweep waits until its checkpoint is taken or closed.
func (r *runner) sweep(ctx context.Context, held func() bool, out *Adopted) (atEnd bool, err error) {
	if err := r.beginSweep(ctx); err != nil {
		return false, err
	}
	store := r.log.store
	for {
		page, err := store.Read(ctx, Read{Cursor: r.swept.Cursor, Registered: true})
		if errors.Is(err, ErrPruned) || errors.Is(err, ErrResync) && store.Regressed() == nil {
			r.swept.Generation = 0 // claiming makes it fit to go on
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if len(page.Events) > 0 {
			closed, alone, err := r.closed(ctx)
			if err != nil || !alone {
				return false, err
			}
			if err := r.sweepPage(ctx, page.Events, closed, held, out); err != nil {
				return false, r.unlessTaken(err)
			}
		}
		r.swept.Cursor = page.Next
		if len(page.Events) > 0 || time.Since(r.sweptAt) >= r.log.o.Beat {
			if err := store.Save(ctx, r.swept); err != nil {
				return false, r.unlessTaken(err)
			}
			r.sweptAt = time.Now()
		}
		if !page.More {
			return true, nil
		}
	}
}

// unlessTaken has the sweep claim its checkpoint again: another has swept since, or it was dropped.
func (r *runner) unlessTaken(err error) error {
	r.swept.Generation = 0
	if errors.Is(err, ErrTaken) {
		return nil
	}
	return err
}

// closed lists the checkpoints that are, by producer, and says whether nobody else adopts.
func (r *runner) closed(ctx context.Context) (closed map[Producer]Checkpoint, alone bool, err error) {
	list, err := r.log.store.Checkpoints(ctx, r.sub.name)
	if err != nil {
		return nil, false, err
	}
	closed = map[Producer]Checkpoint{}
	for _, c := range list {
		switch {
		case c.Closed:
			closed[c.Producer] = c
		case c.Producer != Unknown && c.Owner != c.Producer && c.Owner != r.log.producer:
			return nil, false, nil
		}
	}
	return closed, true, nil
}

// sweepPage handles the events of closed checkpoints' producers, under the sweep's own.
func (r *runner) sweepPage(ctx context.Context, events []Recorded, closed map[Producer]Checkpoint, held func() bool, out *Adopted) error {
	touched := map[Producer]bool{}
	for _, e := range events {
		if _, is := closed[e.Producer]; !is {
			continue
		}
		n, err := r.handleOf(ctx, e.Producer, []Recorded{e}, r.swept, held)
		r.adopted(n, out)
		if err != nil {
			return err
		}
		touched[e.Producer] = true
	}
	for p := range touched { // it lives, though it does not say so: it is remembered for longer
		if err := r.log.store.Save(ctx, closed[p]); err != nil && !errors.Is(err, ErrTaken) {
			return err
		}
	}
	return nil
}
