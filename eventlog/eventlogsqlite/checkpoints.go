package eventlogsqlite

import (
	"context"
	"errors"
	"time"

	"github.com/tallystick-go/tallystick/eventlog"
)

// Claim implements eventlog.Store.
func (s *Store) Claim(ctx context.Context, c eventlog.Claim) (out eventlog.Checkpoint, err error) {
	if err := c.Validate(); err != nil {
		return out, err
	}
	err = s.write(ctx, func(t tx) error {
		v, err := view(t)
		if err != nil {
			return err
		}
		out = eventlog.Checkpoint{Consumer: c.Consumer, Producer: c.Producer, Owner: c.Owner}
		var cursor string
		var bound, seen int64
		err = one(t, selectConsumer, []any{c.Consumer, string(c.Producer)}, new(string), &out.Generation, new(bool), &bound, &seen, &cursor)
		switch {
		case c.Seen != nil && (errors.Is(err, errNone) || err == nil && (out.Generation != c.Seen.Generation || seen != c.Seen.SeenAt.UnixMicro())):
			return eventlog.ErrTaken
		case errors.Is(err, errNone):
			if err := c.From.Fit(v, false); err != nil {
				return err
			}
			cursor, err = c.From.String(), one(t, nextGeneration, nil, &out.Generation)
		default:
			out.Generation++
		}
		if err != nil {
			return err
		}
		at, err := eventlog.ParseCursor(cursor)
		if err != nil {
			return err
		}
		if c.Owner == c.Producer {
			bound = 0
		}
		out.Bound, out.Closed = boundOf(bound)
		if out.Cursor, out.Skipped = at.Bring(v.Origin).Past(v); out.Skipped > 0 {
			cursor = out.Cursor.String()
		}
		out.SeenAt, out.Behind = instant(t.now()), v.Head-out.Cursor.Through()
		_, err = t.exec(upsertConsumer, c.Consumer, string(c.Producer), string(c.Owner), out.Generation, bound, out.SeenAt.UnixMicro(), cursor)
		return err
	})
	if err != nil {
		return eventlog.Checkpoint{}, err
	}
	return out, nil
}

// Save implements eventlog.Store.
func (s *Store) Save(ctx context.Context, c eventlog.Checkpoint) error {
	return s.write(ctx, func(t tx) error { return save(t, c) })
}

func save(t tx, c eventlog.Checkpoint) error {
	bound := int64(c.Bound)
	if c.Closed {
		bound = closed
	}
	n, err := t.exec(saveConsumer, c.Consumer, string(c.Producer), c.Generation, c.Cursor.String(), c.Left, bound, t.now())
	if err == nil && n != 1 {
		return eventlog.ErrTaken
	}
	return err
}

// closed stands in the place of a bound. A version that does not know it adopts such a checkpoint once more, and drops it.
const closed = -1

func boundOf(column int64) (bound uint64, is bool) {
	if column == closed {
		return 0, true
	}
	return uint64(column), false
}

// Drop implements eventlog.Store.
func (s *Store) Drop(ctx context.Context, c eventlog.Checkpoint) error {
	return s.write(ctx, func(t tx) error {
		if _, err := t.exec(keepGeneration, c.Consumer, string(c.Producer), c.Generation); err != nil {
			return err
		}
		n, err := t.exec(dropConsumer, c.Consumer, string(c.Producer), c.Generation)
		if err == nil && n != 1 && c.Generation != 0 {
			return eventlog.ErrTaken
		}
		return err
	})
}

// Checkpoints implements eventlog.Store.
func (s *Store) Checkpoints(ctx context.Context, consumer string) (out []eventlog.Checkpoint, err error) {
	err = s.read(ctx, func(t tx) error {
		v, err := view(t)
		if err != nil {
			return err
		}
		return t.each(listConsumers, func(scan func(...any) error) error {
			var c eventlog.Checkpoint
			var producer, owner, cursor string
			var bound, seen int64
			if err := scan(&c.Consumer, &producer, &owner, &c.Generation, &c.Left, &bound, &seen, &cursor); err != nil {
				return err
			}
			at, err := eventlog.ParseCursor(cursor)
			c.Producer, c.Owner, c.Cursor = eventlog.Producer(producer), eventlog.Producer(owner), at
			c.Bound, c.Closed = boundOf(bound)
			c.SeenAt, c.Idle, c.Behind = instant(seen), time.Duration(v.Now-seen)*time.Microsecond, max(0, v.Head-at.Through())
			out = append(out, c)
			return err
		}, consumer)
	})
	return out, err
}

// SetAside implements eventlog.Store.
func (s *Store) SetAside(ctx context.Context, a eventlog.Aside) error {
	a, err := a.Prepare()
	if err != nil {
		return err
	}
	event, err := a.Event.MarshalJSON()
	if err != nil {
		return err
	}
	return s.write(ctx, func(t tx) error {
		_, err := t.exec(upsertAside, a.Consumer, string(a.Runner), a.Event.ID, a.Event.Position, t.now(), max(1, a.Attempts), a.Declined, a.Reason, string(event))
		return err
	})
}

// ListAside implements eventlog.Store.
func (s *Store) ListAside(ctx context.Context, q eventlog.AsideQuery) (out []eventlog.Aside, err error) {
	if q, err = q.Prepare(); err != nil {
		return nil, err
	}
	err = s.read(ctx, func(t tx) error {
		return t.each(listAsides, func(scan func(...any) error) error {
			a := eventlog.Aside{Consumer: q.Consumer}
			var runner, event string
			var at int64
			if err := scan(&runner, &at, &a.Attempts, &a.Declined, &a.Reason, &a.Last, &event); err != nil {
				return err
			}
			a.Runner, a.At = eventlog.Producer(runner), instant(at)
			err := a.Event.UnmarshalJSON([]byte(event))
			out = append(out, a)
			return err
		}, q.Consumer, q.After, string(q.AfterRunner), q.Limit)
	})
	return out, err
}

// TakeBack implements eventlog.Store.
func (s *Store) TakeBack(ctx context.Context, consumer string, runner eventlog.Producer, id string) error {
	return s.write(ctx, func(t tx) error {
		n, err := t.exec(deleteAside, consumer, string(runner), id)
		if err == nil && n == 0 {
			return eventlog.ErrNotFound
		}
		return err
	})
}
