package eventlogpg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

// Claim implements eventlog.Store.
func (s *Store) Claim(ctx context.Context, c eventlog.Claim) (eventlog.Checkpoint, error) {
	if err := c.Validate(); err != nil {
		return eventlog.Checkpoint{}, err
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	out := eventlog.Checkpoint{Consumer: c.Consumer, Producer: c.Producer, Owner: c.Owner}
	err := s.write(ctx, pgtx.Options{}, func(ctx context.Context, tx *pgtx.Tx) error {
		var v eventlog.View
		var cursor string
		var bound, seen int64
		var b pgx.Batch
		b.Queue(s.sql.keepLog).Exec(func(pgconn.CommandTag) error { return nil })
		b.Queue(s.sql.view).QueryRow(func(row pgx.Row) (err error) {
			v, _, _, err = scanView(row)
			return err
		})
		b.Queue(s.sql.claim, c.Consumer, string(c.Producer), string(c.Owner), c.From.String()).QueryRow(func(row pgx.Row) error {
			return row.Scan(&out.Generation, &cursor, &bound, &seen)
		})
		if err := tx.Send(ctx, &b); err != nil {
			return err
		}
		if out.Generation == 1 {
			if err := c.From.Fit(v, false); err != nil {
				return err
			}
		}
		at, err := eventlog.ParseCursor(cursor)
		out.Cursor, out.Bound, out.SeenAt, out.Behind = at.Bring(v.Origin), uint64(bound), instant(seen), v.Head-at.Through()
		return err
	})
	if err != nil {
		return eventlog.Checkpoint{}, err
	}
	return out, nil
}

// Save implements eventlog.Store.
func (s *Store) Save(ctx context.Context, c eventlog.Checkpoint) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return coreError(pgtx.ScrubConnect(err))
	}
	defer conn.Release()
	tag, err := conn.Exec(ctx, s.sql.save, saveArgs(c)...) // it commits by itself
	err = pgtx.ScrubStatement(err)
	s.leaveStandby(ctx, conn, err)
	return coreError(owned(tag, err))
}

// SaveTx is Save in the caller's transaction: what the caller writes there and how far the consumer came are one, so that
// the events of a page take effect exactly once.
//
// Errors: eventlog.ErrTaken, after which the transaction must be rolled back; ErrUnavailable.
//
// Source: ADR-020 "Checkpoints".
func (s *Store) SaveTx(ctx context.Context, tx pgx.Tx, c eventlog.Checkpoint) error {
	tag, err := tx.Exec(ctx, s.sql.save, saveArgs(c)...)
	return coreError(owned(tag, err))
}

func saveArgs(c eventlog.Checkpoint) []any {
	return []any{c.Consumer, string(c.Producer), c.Generation, c.Cursor.String(), c.Left, int64(c.Bound)}
}

func owned(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.RowsAffected() != 1 {
		return eventlog.ErrTaken
	}
	return err
}

// Drop implements eventlog.Store.
func (s *Store) Drop(ctx context.Context, c eventlog.Checkpoint) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return s.write(ctx, pgtx.Options{}, func(ctx context.Context, tx *pgtx.Tx) error {
		if c.Generation == 0 {
			_, err := tx.Exec(ctx, s.sql.dropAny, c.Consumer, string(c.Producer))
			return err
		}
		tag, err := tx.Exec(ctx, s.sql.drop, c.Consumer, string(c.Producer), c.Generation)
		return owned(tag, err)
	})
}

// Checkpoints implements eventlog.Store.
func (s *Store) Checkpoints(ctx context.Context, consumer string) ([]eventlog.Checkpoint, error) {
	var b pgx.Batch
	var out []eventlog.Checkpoint
	all(b.Queue(s.sql.consumers, consumer), &out, func(row pgx.Row) (eventlog.Checkpoint, error) {
		var c eventlog.Checkpoint
		var producer, owner, cursor string
		var bound, seen, now, head int64
		if err := row.Scan(&c.Consumer, &producer, &owner, &c.Generation, &c.Left, &bound, &seen, &cursor, &now, &head); err != nil {
			return c, err
		}
		c.Producer, c.Owner, c.Bound = eventlog.Producer(producer), eventlog.Producer(owner), uint64(bound)
		c.SeenAt, c.Idle = instant(seen), time.Duration(now-seen)*time.Microsecond
		at, err := eventlog.ParseCursor(cursor)
		c.Cursor, c.Behind = at, max(0, head-at.Through())
		return c, err
	})
	return out, s.read(ctx, &b)
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
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return s.write(ctx, pgtx.Options{}, func(ctx context.Context, tx *pgtx.Tx) error {
		_, err := tx.Exec(ctx, s.sql.setAside, a.Consumer, string(a.Runner), a.Event.ID, a.Event.Position, max(1, a.Attempts), a.Declined, a.Reason, string(event))
		return err
	})
}

// ListAside implements eventlog.Store.
func (s *Store) ListAside(ctx context.Context, q eventlog.AsideQuery) ([]eventlog.Aside, error) {
	q, err := q.Prepare()
	if err != nil {
		return nil, err
	}
	var b pgx.Batch
	var out []eventlog.Aside
	all(b.Queue(s.sql.asides, q.Consumer, q.After, string(q.AfterRunner), int64(q.Limit)), &out, func(row pgx.Row) (eventlog.Aside, error) {
		a := eventlog.Aside{Consumer: q.Consumer}
		var runner, event string
		var at int64
		if err := row.Scan(&runner, &at, &a.Attempts, &a.Declined, &a.Reason, &event); err != nil {
			return a, err
		}
		a.Runner, a.At = eventlog.Producer(runner), instant(at)
		return a, a.Event.UnmarshalJSON([]byte(event))
	})
	return out, s.read(ctx, &b)
}

// TakeBack implements eventlog.Store.
func (s *Store) TakeBack(ctx context.Context, consumer string, runner eventlog.Producer, id string) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return s.write(ctx, pgtx.Options{}, func(ctx context.Context, tx *pgtx.Tx) error {
		tag, err := tx.Exec(ctx, s.sql.takeBack, consumer, string(runner), id)
		if err == nil && tag.RowsAffected() == 0 {
			return eventlog.ErrNotFound
		}
		return err
	})
}
