package eventlogpg

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

// pruneStep is how many events go in one transaction.
const pruneStep = 2000

// old is a row that retention looks at.
type old struct {
	position, version, at int64
	xid                   uint64
	stream                string
}

// Prune implements eventlog.Store.
func (s *Store) Prune(ctx context.Context, p eventlog.Prune) (eventlog.Pruned, error) {
	if p.Before.IsZero() || p.Limit < 0 {
		return eventlog.Pruned{}, &eventlog.FieldError{Field: "before", Why: "must be given, and limit not negative"}
	}
	var out eventlog.Pruned
	for {
		var gone []old
		step := pruneStep
		if p.Limit > 0 {
			step = min(step, p.Limit-int(out.Events))
		}
		err := pgtx.Retry(ctx, s.pool, pgtx.Options{PinPlans: true}, func(ctx context.Context, tx *pgtx.Tx) (err error) {
			gone, err = s.pruneOnce(ctx, tx, p, step, &out)
			return err
		})
		if err != nil {
			return out, coreError(err)
		}
		out.Events += int64(len(gone))
		if len(gone) < step || p.Limit > 0 && out.Events >= int64(p.Limit) {
			return out, nil
		}
	}
}

// pruneOnce removes some rows. No checkpoint moves or is made meanwhile, and it reads those before it chooses.
func (s *Store) pruneOnce(ctx context.Context, tx *pgtx.Tx, p eventlog.Prune, most int, out *eventlog.Pruned) ([]old, error) {
	kept, err := s.needs(ctx, tx, p.Before)
	if err != nil {
		return nil, err
	}
	out.Through = kept.pruned
	var b pgx.Batch
	var rows []old
	all(b.Queue(s.sql.old, kept.through, texts(kept.running), text(kept.from), text(kept.to), int64(most)), &rows, func(row pgx.Row) (old, error) {
		var o old
		var xid string
		if err := row.Scan(&o.position, &xid, &o.stream, &o.version, &o.at); err != nil {
			return o, err
		}
		var err error
		o.xid, err = strconv.ParseUint(xid, 10, 64)
		return o, err
	})
	next := int64(1) << 62
	b.Queue(s.sql.next, kept.through).QueryRow(func(row pgx.Row) error { return orNone(row.Scan(&next)) })
	if err := tx.Send(ctx, &b); err != nil {
		return nil, err
	}
	before := p.Before.UnixMicro()
	young := slices.IndexFunc(rows, func(o old) bool { return o.at >= before })
	out.HeldBy = ""
	if young < 0 && len(rows) < most && next < before {
		out.HeldBy = kept.slowest
	}
	if young >= 0 {
		rows = rows[:young]
	}
	if len(rows) == 0 {
		return nil, nil
	}
	return rows, s.remove(ctx, tx, rows, out)
}

func orNone(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

func (s *Store) remove(ctx context.Context, tx *pgtx.Tx, rows []old, out *eventlog.Pruned) error {
	last := map[string]int64{}
	positions := make([]int64, len(rows))
	var xid uint64
	for i, o := range rows {
		positions[i], last[o.stream], xid = o.position, max(last[o.stream], o.version), max(xid, o.xid)
	}
	streams := make([]string, 0, len(last))
	for stream := range last {
		streams = append(streams, stream)
	}
	slices.Sort(streams)
	versions := make([]int64, len(streams))
	for i, stream := range streams {
		versions[i] = last[stream]
	}
	out.Through = max(out.Through, positions[len(positions)-1])
	var b pgx.Batch
	b.Queue(s.sql.keepVersions, streams, versions)
	b.Queue(s.sql.deleteOld, positions)
	b.Queue(s.sql.markOld, out.Through, text(xid))
	return tx.Send(ctx, &b)
}

// needs are what the checkpoints have still to deliver.
type needs struct {
	pruned   int64
	through  int64 // rows up to here are delivered
	running  []uint64
	from, to uint64
	slowest  string
}

// needs says what open checkpoints keep, and forgets those that have been closed since before an instant.
func (s *Store) needs(ctx context.Context, tx *pgtx.Tx, before time.Time) (needs, error) {
	n := needs{through: 1<<63 - 1}
	var b pgx.Batch
	b.Queue(s.sql.lockLog).QueryRow(func(row pgx.Row) error { return row.Scan(&n.pruned, nil) })
	b.Queue(s.sql.forget, before.UnixMicro())
	var cursors []named
	all(b.Queue(s.sql.lockConsumers), &cursors, scanNamed)
	if err := tx.Send(ctx, &b); err != nil {
		return n, err
	}
	for _, c := range cursors {
		if c.closed {
			continue
		}
		if c.cursor.Through() < n.through {
			n.through, n.slowest = c.cursor.Through(), c.consumer
		}
		open := c.cursor.Open()
		n.running = append(n.running, open.Running...)
		if open.Max < open.Next {
			if n.to == 0 {
				n.from = open.Max
			}
			n.from, n.to = min(n.from, open.Max), max(n.to, open.Next)
		}
	}
	slices.Sort(n.running)
	n.running = slices.Compact(n.running)
	return n, nil
}

// named is a checkpoint's cursor.
type named struct {
	consumer, producer string
	closed             bool
	cursor             eventlog.Cursor
}

func scanNamed(row pgx.Row) (named, error) {
	var n named
	var cursor string
	var bound int64
	if err := row.Scan(&n.consumer, &n.producer, &bound, &cursor); err != nil {
		return n, err
	}
	_, n.closed = boundOf(bound)
	var err error
	n.cursor, err = eventlog.ParseCursor(cursor)
	return n, err
}

// Repair makes a log fit for this cluster that was restored or replicated from another: rows of transactions that this cluster has not
// had are renumbered, so that every snapshot sees them, the positions go on behind the last, and the log gets a new identity,
// so that cursors from before are refused. Checkpoints go on, from the first event that they had not delivered: some come again. None is
// put behind what retention has removed; what was kept there for it, because it was late, comes first.
// Nobody can append meanwhile. It returns how many rows were renumbered; on a sound log it need not be run, and refuses cursors all the same.
//
// Retry: safe.
// Errors: eventlog.ErrStandby, ErrUnavailable (also where appends did not end within a minute), ErrUnknownOutcome.
//
// Source: ADR-020 "Restores".
func (s *Store) Repair(ctx context.Context) (renumbered int64, err error) {
	err = pgtx.Retry(ctx, s.pool, pgtx.Options{Lock: time.Minute, Statement: time.Hour, Idle: time.Minute}, func(ctx context.Context, tx *pgtx.Tx) error {
		var b pgx.Batch
		var high string
		var pruned int64
		var cursors []named
		b.Queue(s.sql.lockLog).QueryRow(func(row pgx.Row) error { return row.Scan(&pruned, nil) })
		b.Queue(s.sql.lockEvents)
		all(b.Queue(s.sql.lockConsumers), &cursors, scanNamed)
		if err := tx.Send(ctx, &b); err != nil {
			return err
		}
		// In a statement of its own: its snapshot must be later than the lock.
		if err := tx.QueryRow(ctx, s.sql.newest).Scan(nil, nil, &high); err != nil {
			return err
		}
		v := eventlog.View{Head: pruned, Pruned: pruned}
		var low, top *int64
		if err := tx.QueryRow(ctx, s.sql.left, pruned, high).Scan(&low, &top); err != nil {
			return err
		}
		if low != nil { // a range of all that is there counts as still to come
			v.Snapshot = eventlog.Snapshot{Max: uint64(*low), Next: uint64(*top) + 1}
		}
		for _, c := range cursors {
			if err := s.rewind(ctx, tx, c, v); err != nil {
				return err
			}
		}
		tag, err := tx.Exec(ctx, s.sql.renumber, high)
		if err != nil {
			return err
		}
		renumbered = tag.RowsAffected()
		if _, err := tx.Exec(ctx, s.sql.forward); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, s.sql.renewLog)
		return err
	})
	return renumbered, coreError(err)
}

// rewind takes a checkpoint back to before the first row that it had not delivered, by what its
// snapshot says of numbers that are about to change. While the table is locked nothing is open in it. left is the view of what retention
// has kept for those who waited for it.
func (s *Store) rewind(ctx context.Context, tx *pgtx.Tx, c named, left eventlog.View) error {
	open := c.cursor.Open()
	var lowest *int64
	if err := tx.QueryRow(ctx, s.sql.undelivered, c.cursor.Through(), texts(open.Running), text(open.Max), text(open.Next)).Scan(&lowest); err != nil {
		return err
	}
	to := c.cursor.Through()
	if lowest != nil {
		to = min(to, *lowest-1)
	}
	v := eventlog.View{Origin: c.cursor.Origin(), Head: to}
	if to < left.Pruned {
		left.Origin = v.Origin
		v, to = left, left.Pruned
	}
	cursor, err := v.At(to)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, s.sql.moveConsumer, c.consumer, c.producer, cursor.String())
	return err
}
