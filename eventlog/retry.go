package eventlog

import (
	"context"
	"errors"
)

// Retry handles again, here, what a subscription set aside: at most limit of it (0: DefaultPage), in order, each once. It goes on
// behind where the last Retry of this process ended, and begins anew at the end, so that none is kept waiting by one that
// always fails. What succeeds is taken back, and what fails stays, with its first reason and the last. Of a projection or local view it is what this
// process set aside, since the state that lacks it is here. It returns how many succeeded.
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
	r.mu.Lock()
	begun := r.retried
	r.mu.Unlock()
	q := begun
	q.Consumer = r.sub.name
	for round := begun.After == 0; ; { // from the beginning
		list, err := r.log.store.ListAside(ctx, q)
		switch {
		case err != nil || len(list) == 0 && round:
			return done, err
		case len(list) == 0:
			round, q.After, q.AfterRunner = true, 0, ""
			continue
		}
		for _, a := range list {
			q.After, q.AfterRunner = a.Event.Position, a.Runner
			if round && begun.After > 0 && q.behind(begun) {
				return done, nil
			}
			if r.sub.kind != KindEffect && a.Runner != r.log.producer {
				continue
			}
			if limit--; limit < 0 {
				return done, nil
			}
			r.mu.Lock()
			r.retried = q
			r.mu.Unlock()
			succeeded, err := r.again(ctx, a)
			if err != nil {
				return done, err
			}
			if succeeded {
				done++
			}
		}
	}
}

// behind reports whether q goes on from a later event than other.
func (q AsideQuery) behind(other AsideQuery) bool {
	if q.After != other.After {
		return q.After > other.After
	}
	return q.AfterRunner > other.AfterRunner
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
