package eventlogpg

import (
	"context"
	"errors"
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
	err := s.write(ctx, func(ctx context.Context, tx *pgtx.Tx) error {
		var v eventlog.View
		var cursor string
		var seen int64
		var made bool
		var b pgx.Batch
		b.Queue(s.sql.keepLog).Exec(func(pgconn.CommandTag) error { return nil })
		b.Queue(s.sql.view).QueryRow(func(row pgx.Row) (err error) {
			v, _, _, err = scanView(row)
			return err
		})
		sql, args := s.sql.claim, []any{c.Consumer, string(c.Producer), string(c.Owner), c.From.String()}
		if c.Seen != nil {
			sql, args = s.sql.claimSeen, []any{c.Consumer, string(c.Producer), string(c.Owner), c.Seen.Generation, c.Seen.SeenAt.UnixMicro()}
		}
		b.Queue(sql, args...).QueryRow(func(row pgx.Row) error {
			var bound int64
			err := row.Scan(&out.Generation, &cursor, &bound, &seen, &made)
			if errors.Is(err, pgx.ErrNoRows) {
				return eventlog.ErrTaken
			}
			out.Bound, out.Closed = boundOf(bound)
			return err
		})
		if err := tx.Send(ctx, &b); err != nil {
			return err
		}
		if made {
			if err := c.From.Fit(v, false); err != nil {
				return err
			}
		}
		at, err := eventlog.ParseCursor(cursor)
		if err != nil {
			return err
		}
		out.Cursor, out.Skipped = at.Bring(v.Origin).Past(v)
		out.SeenAt, out.Behind = instant(seen), v.Head-out.Cursor.Through()
		if out.Skipped > 0 { // once, and retention is not held by what is not there
			_, err = tx.Exec(ctx, s.sql.moveClaimed, c.Consumer, string(c.Producer), out.Generation, out.Cursor.String())
		}
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
	conn, err := s.follow.Acquire(ctx)
	if err != nil {
		return coreError(pgtx.ScrubConnect(err))
	}
	defer conn.Release()
	tag, err := conn.Exec(ctx, s.sql.save, saveArgs(c)...) // it commits by itself
	err = pgtx.ScrubStatement(err)
	leaveStandby(ctx, s.follow, conn, err)
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
	bound := int64(c.Bound)
	if c.Closed {
		bound = closed
	}
	return []any{c.Consumer, string(c.Producer), c.Generation, c.Cursor.String(), c.Left, bound}
}

// closed stands in the place of a bound. A version that does not know it adopts such a checkpoint once more, and drops it.
const closed = -1

func boundOf(column int64) (bound uint64, is bool) {
	if column == closed {
		return 0, true
	}
	return uint64(column), false
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
	return s.write(ctx, func(ctx context.Context, tx *pgtx.Tx) error {
		var b pgx.Batch
		b.Queue(s.sql.lockLog).QueryRow(func(row pgx.Row) error { return row.Scan(nil, nil) })
		b.Queue(s.sql.drop, c.Consumer, string(c.Producer), c.Generation).Exec(func(tag pgconn.CommandTag) error {
			if c.Generation == 0 {
				return nil
			}
			return owned(tag, nil)
		})
		return tx.Send(ctx, &b)
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
		c.Producer, c.Owner = eventlog.Producer(producer), eventlog.Producer(owner)
		c.Bound, c.Closed = boundOf(bound)
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
	return s.write(ctx, func(ctx context.Context, tx *pgtx.Tx) error {
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
		if err := row.Scan(&runner, &at, &a.Attempts, &a.Declined, &a.Reason, &a.Last, &event); err != nil {
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
	return s.write(ctx, func(ctx context.Context, tx *pgtx.Tx) error {
		tag, err := tx.Exec(ctx, s.sql.takeBack, consumer, string(runner), id)
		if err == nil && tag.RowsAffected() == 0 {
			return eventlog.ErrNotFound
		}
		return err
	})
}
