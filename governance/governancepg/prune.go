package governancepg

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

const (
	// prunePage is how many rows one transaction looks at.
	prunePage = 500
	// emptyWait is how long the emptying of a partition waits for those who use it, and
	// how long others at most wait behind it.
	emptyWait = 200 * time.Millisecond
	// pruneAttempts is how often a partition is begun anew when another Prune was at work.
	pruneAttempts = 10
)

// apart divides permits into those of the ring and those that were kept.
func (l *load) apart(list []governance.Record) (ring, kept []governance.Record) {
	if len(l.kept) == 0 {
		return list, nil
	}
	for i := range list {
		if _, ok := l.kept[list[i].ID]; ok {
			kept = append(kept, list[i])
		} else {
			ring = append(ring, list[i])
		}
	}
	return ring, kept
}

func (s *Store) writeCheckpoint(b *pgx.Batch, c *governance.Checkpoint) {
	data := c.Data
	if data == nil {
		data = []byte{}
	}
	b.Queue(s.q.checkpointPut, pgUUID(c.Account.Constraint), c.Account.WindowStart, data)
	if c.Trim != (governance.Trim{}) {
		b.Queue(s.q.trim, pgUUID(c.Account.Constraint), c.Account.WindowStart, c.Trim.After, c.Trim.Through)
	}
}

// Forget implements governance.Store. The horizon is where a partition of the ring
// ends; the edit barrier waits for those who read an older one.
func (s *Store) Forget(ctx context.Context, before int64) (governance.Memory, error) {
	const member = slotMillis * 1000
	if before = before / member * member; before > 0 {
		_, err := s.pool.Exec(ctx, s.q.raise, before)
		if err == nil {
			err = pgtx.Barrier(ctx, s.pool, s.schema, 0)
		}
		if err != nil {
			return governance.Memory{}, fmt.Errorf("%w: the horizon is not confirmed: %w", governance.ErrUnavailable, pgtx.Scrub(err))
		}
	}
	m, _, err := s.memory(ctx)
	return m, translate(err)
}

// memory reads the horizon and what was removed, and how often Prune was at work.
func (s *Store) memory(ctx context.Context) (m governance.Memory, prunes int64, err error) {
	t := &m.Total
	err = s.pool.QueryRow(ctx, s.q.memory).Scan(&m.Horizon, &t.Permits, &t.Tokens, &t.Cost, &prunes)
	return m, prunes, pgtx.Scrub(err)
}

// Prune implements governance.Store. A partition in which everything is older than the
// horizon is emptied at once, after what must stay was moved out of it; one that holds
// younger permits too is cleared row by row.
func (s *Store) Prune(ctx context.Context, judge governance.Judge) (governance.Swept, error) {
	m, prunes, err := s.memory(ctx)
	if err != nil {
		return governance.Swept{}, translate(err)
	}
	w := &sweep{s: s, judge: judge, bound: leastID(m.Horizon), prunes: prunes, done: governance.Swept{Total: m.Total}}
	if m.Horizon <= 0 {
		return w.done, nil
	}
	if err := w.clearKept(ctx); err != nil {
		return w.done, translate(err)
	}
	var busy error
	for slot := range slots {
		err := w.member(ctx, slot)
		if pgtx.Classify(err) == pgtx.LockTimeout { // the others can be done
			busy = err
			continue
		}
		if err != nil {
			return w.done, translate(err)
		}
	}
	if err := w.clearKeptBatches(ctx); err != nil {
		return w.done, translate(err)
	}
	return w.done, translate(busy)
}

// leastID is the least id that is not older than an instant.
func leastID(us int64) governance.PermitID {
	var id governance.PermitID
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64((us+999)/1000)<<16)
	copy(id[:6], ms[:6])
	return id
}

// sweep is one run of Prune.
type sweep struct {
	s      *Store
	judge  governance.Judge
	bound  governance.PermitID
	prunes int64 // how often anybody moved or removed permits, as far as is known
	done   governance.Swept
}

// errOthers: another Prune was at work; what was read before proves nothing any more.
var errOthers = errors.New("another prune was at work")

// write runs one transaction that moves or removes permits. fn says what it removed.
func (w *sweep) write(ctx context.Context, o pgtx.Options, truncations int64, fn func(context.Context, *pgtx.Tx) (governance.Pruned, error)) error {
	var removed, total governance.Pruned
	var prunes int64
	o.PinPlans = true
	err := pgtx.Retry(ctx, w.s.pool, o, func(ctx context.Context, tx *pgtx.Tx) (err error) {
		if removed, err = fn(ctx, tx); err != nil {
			return err
		}
		err = tx.QueryRow(ctx, w.s.q.swept, removed.Permits, removed.Tokens, removed.Cost, truncations).Scan(&total.Permits, &total.Tokens, &total.Cost, &prunes)
		if err == nil && prunes != w.prunes+1 {
			return errOthers
		}
		return err
	})
	if err != nil {
		return err
	}
	w.prunes = prunes
	w.done.Removed, w.done.Total = w.done.Removed.Add(removed), total
	return nil
}

// bounds are a transaction's, apart from how long it waits for locks.
func (s *Store) bounds() pgtx.Options {
	o := s.stepping
	o.Barrier = 0
	return o
}

// page is some permits that were judged.
type page struct {
	last governance.PermitID
	n    int
	keep []governance.PermitID
	gone map[governance.PermitID]governance.Pruned
}

// judged reads the next permits behind an id and asks the judge.
func (w *sweep) judged(ctx context.Context, sql string, after governance.PermitID) (p page, err error) {
	var list []governance.Record
	err = w.s.readRing(ctx, func(ctx context.Context, tx *pgtx.Tx) error {
		list = nil
		var b pgx.Batch
		b.Queue(sql, pgUUID(after), pgUUID(w.bound), int64(prunePage)).Query(func(rows pgx.Rows) error {
			return scanPermits(rows, func(rec governance.Record) { list = append(list, rec) })
		})
		if err := tx.Send(ctx, &b); err != nil {
			return err
		}
		batches := map[governance.BatchID]*batchRow{}
		for i := range list {
			batches[list[i].Batch] = nil
		}
		if err := w.s.readBatches(ctx, batches, tx.Send); err != nil {
			return err
		}
		return attachTerms(list, batches)
	})
	if err != nil {
		return p, err
	}
	p.last, p.n, p.gone = after, len(list), map[governance.PermitID]governance.Pruned{}
	for i := range list {
		rec := &list[i]
		p.last = rec.ID
		if rec.State != governance.StateOpen {
			if of, ok := w.judge(rec); ok {
				p.gone[rec.ID] = of
				continue
			}
		}
		p.keep = append(p.keep, rec.ID)
	}
	return p, nil
}

// drop removes the permits of a page that may go.
func (w *sweep) drop(ctx context.Context, sql string, p page) error {
	if len(p.gone) == 0 {
		return nil
	}
	ids := make([]governance.PermitID, 0, len(p.gone))
	for id := range p.gone {
		ids = append(ids, id)
	}
	return w.write(ctx, w.s.bounds(), 0, func(ctx context.Context, tx *pgtx.Tx) (removed governance.Pruned, err error) {
		rows, err := tx.Query(ctx, sql, uuids(ids))
		if err != nil {
			return removed, err
		}
		defer rows.Close()
		for rows.Next() {
			var id pgtype.UUID
			if err := rows.Scan(&id); err != nil {
				return removed, err
			}
			removed = removed.Add(p.gone[id.Bytes])
		}
		return removed, rows.Err()
	})
}

// clearKept removes what was kept and has ended since.
func (w *sweep) clearKept(ctx context.Context) error {
	return w.again(ctx, func() error {
		kept := int64(0)
		for after := (governance.PermitID{}); ; {
			p, err := w.judged(ctx, w.s.q.keptScan, after)
			if err == nil {
				err = w.drop(ctx, w.s.q.keptDrop, p)
			}
			if err != nil {
				return err
			}
			if kept += int64(len(p.keep)); p.n < prunePage {
				w.done.Kept += kept
				return nil
			}
			after = p.last
		}
	})
}

// again repeats work that another Prune got into.
func (w *sweep) again(ctx context.Context, work func() error) error {
	for i := 1; ; i++ {
		err := work()
		if !errors.Is(err, errOthers) {
			return err
		}
		if i == pruneAttempts {
			return fmt.Errorf("%w: another Prune is at work", governance.ErrUnavailable)
		}
		var failed error
		if _, w.prunes, failed = w.s.memory(ctx); failed != nil {
			return failed
		}
	}
}
