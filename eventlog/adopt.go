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
	Closed    int // checkpoints of which nothing more can come
}

// Adopt deals with what dead processes left of this log's effects: each event that a producer had not dealt with
// is handled here, at least once. Call it now and then where a lease is held, so that one process does it. It returns when
// nothing is left for now.
//
// A process that was only slow finds its checkpoint taken, takes it back and goes on from where adoption came; what
// both deal with meanwhile is told apart by the event's id. A checkpoint is closed once no transaction is open that its producer could
// have begun.
//
// Errors: the context's, ErrTaken where another adopts at the same time, those of the store.
//
// Source: ADR-020 "Adoption".
func (l *Log) Adopt(ctx context.Context, a Adopt) (Adopted, error) {
	if a.Idle <= 0 {
		a.Idle = time.Minute
	}
	if a.Held == nil {
		a.Held = func() bool { return true }
	}
	var out Adopted
	for _, r := range l.runners {
		if r.sub.kind != KindEffect {
			continue
		}
		list, err := l.store.Checkpoints(ctx, r.sub.name)
		if err != nil {
			return out, err
		}
		for _, c := range list {
			if c.Producer == Unknown || c.Producer == l.producer || !c.Left && c.Idle < a.Idle {
				continue
			}
			if err := r.adopt(ctx, c, a.Held, &out); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

func (r *runner) adopt(ctx context.Context, c Checkpoint, held func() bool, out *Adopted) error {
	store := r.log.store
	if !held() {
		return nil
	}
	head, err := store.Head(ctx)
	if err != nil {
		return err
	}
	c, err = store.Claim(ctx, Claim{Consumer: c.Consumer, Producer: c.Producer, Owner: r.log.producer, From: c.Cursor})
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
		for _, e := range page.Events {
			if e.Producer != c.Producer {
				continue
			}
			if !held() {
				return nil // what is dealt with of this page comes again
			}
			if err := r.deliver(ctx, e); err != nil {
				return err
			}
			out.Events++
			r.note(func(s *SubscriptionStatus) { s.Adopted++ })
		}
		c.Cursor, more = page.Next, page.More
		c.Left = true // who adopts stays nobody's keeper: the next may go on at once
		if err := store.Save(ctx, c); err != nil {
			return err
		}
	}
	if !held() || c.Cursor.Open().Oldest() < c.Bound && !c.Cursor.Open().Empty() {
		return nil
	}
	out.Closed++
	if err := store.Drop(ctx, c); !errors.Is(err, ErrTaken) {
		return err
	}
	return nil
}

// Retry handles again, here, what a subscription set aside: at most limit of it (0: DefaultPage), in order, each once. What
// succeeds is taken back, and what fails stays with its new reason. Of a projection or local view it is what this process set
// aside, since the state that lacks it is here. It returns how many succeeded.
//
// Concurrency: a view's handler runs beside Run; it must bear that.
// Errors: ErrNotFound for a name that is no subscription, the context's, those of the store.
func (l *Log) Retry(ctx context.Context, subscription string, limit int) (int, error) {
	for _, r := range l.runners {
		if r.sub.name == subscription {
			return r.retry(ctx, limit)
		}
	}
	return 0, ErrNotFound
}

func (r *runner) retry(ctx context.Context, limit int) (done int, err error) {
	if limit <= 0 {
		limit = DefaultPage
	}
	q := AsideQuery{Consumer: r.sub.name}
	for {
		list, err := r.log.store.ListAside(ctx, q)
		if err != nil || len(list) == 0 {
			return done, err
		}
		for _, a := range list {
			if r.sub.kind != KindEffect && a.Runner != r.log.producer {
				continue
			}
			if limit--; limit < 0 {
				return done, nil
			}
			succeeded, err := r.again(ctx, a)
			if err != nil {
				return done, err
			}
			if succeeded {
				done++
			}
		}
		last := list[len(list)-1]
		q.After, q.AfterRunner = last.Event.Position, last.Runner
	}
}

// again tries once what was set aside.
func (r *runner) again(ctx context.Context, a Aside) (succeeded bool, err error) {
	why := r.attempt(ctx, a.Event)
	switch {
	case why == nil:
		if err := r.log.store.TakeBack(ctx, a.Consumer, a.Runner, a.Event.ID); err != nil && !errors.Is(err, ErrNotFound) {
			return false, err
		}
		return true, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	}
	a.Reason, a.Declined, a.Attempts = why.Error(), errors.Is(why, ErrDeclined), 1
	return false, r.log.store.SetAside(ctx, a)
}
