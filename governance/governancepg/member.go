package governancepg

import (
	"bytes"
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

// member clears one partition of permits and the one of batches beside it.
func (w *sweep) member(ctx context.Context, slot int) error {
	return w.again(ctx, func() error {
		empty, old, err := w.look(slot, func(sql string) pgx.Row { return w.s.pool.QueryRow(ctx, sql) })
		switch {
		case err != nil || empty:
			return err
		case old:
			return w.empty(ctx, slot)
		}
		return w.thin(ctx, slot)
	})
}

// look tells whether a partition is empty, and whether everything in it is older than
// the horizon.
func (w *sweep) look(slot int, query func(string) pgx.Row) (empty, old bool, err error) {
	var permit, batch pgtype.UUID
	if err := query(w.s.q.newest[slot]).Scan(&permit, &batch); err != nil {
		return false, false, pgtx.Scrub(err)
	}
	before := func(id pgtype.UUID) bool { return !id.Valid || bytes.Compare(id.Bytes[:], w.bound[:]) < 0 }
	return !permit.Valid && !batch.Valid, before(permit) && before(batch), nil
}

// empty moves out what must stay, then truncates both partitions. What is left by then
// has ended and cannot change, and no older ids come any more; whether another Prune
// was at work meanwhile is compared under the locks.
func (w *sweep) empty(ctx context.Context, slot int) error {
	var removed governance.Pruned
	kept := int64(0)
	for after, more := (governance.PermitID{}), true; more; {
		p, err := w.judged(ctx, w.s.q.scan[slot], after)
		if err != nil {
			return err
		}
		after, more = p.last, p.n == prunePage
		for _, of := range p.gone {
			removed = removed.Add(of)
		}
		if len(p.keep) == 0 {
			continue
		}
		kept += int64(len(p.keep))
		err = w.write(ctx, w.s.bounds(), 0, func(ctx context.Context, tx *pgtx.Tx) (governance.Pruned, error) {
			_, err := tx.Exec(ctx, w.s.q.move[slot], uuids(p.keep))
			return governance.Pruned{}, err
		})
		if err != nil {
			return err
		}
	}
	err := w.eachBatch(ctx, w.s.q.batchScan[slot], slot, func(needed, _ []governance.BatchID) error {
		if len(needed) == 0 {
			return nil
		}
		_, err := w.s.pool.Exec(ctx, w.s.q.batchKeep[slot], uuids(needed))
		return pgtx.Scrub(err)
	})
	if err != nil {
		return err
	}
	o := w.s.bounds()
	o.Lock = emptyWait
	err = w.write(ctx, o, 1, func(ctx context.Context, tx *pgtx.Tx) (governance.Pruned, error) {
		if _, err := tx.Exec(ctx, w.s.q.lockMember[slot]); err != nil {
			return removed, err
		}
		_, old, err := w.look(slot, func(sql string) pgx.Row { return tx.QueryRow(ctx, sql) })
		if err != nil {
			return removed, err
		}
		if !old { // somebody came into it
			return removed, errOthers
		}
		_, err = tx.Exec(ctx, w.s.q.truncate[slot])
		return removed, err
	})
	if err == nil {
		w.done.Kept += kept
	}
	return err
}

// thin removes old permits of a partition that holds younger ones too, and then the
// batches of which nothing is left.
func (w *sweep) thin(ctx context.Context, slot int) error {
	kept := int64(0)
	for after, more := (governance.PermitID{}), true; more; {
		p, err := w.judged(ctx, w.s.q.scan[slot], after)
		if err == nil {
			err = w.drop(ctx, w.s.q.drop[slot], p)
		}
		if err != nil {
			return err
		}
		after, more = p.last, p.n == prunePage
		kept += int64(len(p.keep))
	}
	err := w.eachBatch(ctx, w.s.q.batchScan[slot], -1, func(_, spent []governance.BatchID) error {
		if len(spent) == 0 {
			return nil
		}
		_, err := w.s.pool.Exec(ctx, w.s.q.batchDrop[slot], uuids(spent))
		return pgtx.Scrub(err)
	})
	if err == nil {
		w.done.Kept += kept
	}
	return err
}

// clearKeptBatches removes kept batches of which no permit is left.
func (w *sweep) clearKeptBatches(ctx context.Context) error {
	return w.eachBatch(ctx, w.s.q.keptBatchScan, -1, func(_, spent []governance.BatchID) error {
		if len(spent) == 0 {
			return nil
		}
		_, err := w.s.pool.Exec(ctx, w.s.q.keptBatchDrop, uuids(spent))
		return pgtx.Scrub(err)
	})
}

// eachBatch tells, page by page, of which old batches a permit is still somewhere, and
// of which none is. What is in the partition leaving is not counted: it is about to go.
func (w *sweep) eachBatch(ctx context.Context, sql string, leaving int, each func(needed, spent []governance.BatchID) error) error {
	for after, more := (governance.BatchID{}), true; more; {
		var needed, spent []governance.BatchID
		next, n := after, 0
		err := w.s.readRing(ctx, func(ctx context.Context, tx *pgtx.Tx) error {
			needed, spent = nil, nil
			rows, err := w.batchPage(ctx, tx, sql, after)
			if err != nil {
				return err
			}
			there, err := w.present(ctx, tx, rows, leaving)
			if err != nil {
				return err
			}
			next, n = after, len(rows)
			for _, row := range rows {
				next = row.id
				if row.any(there) {
					needed = append(needed, row.id)
				} else {
					spent = append(spent, row.id)
				}
			}
			return nil
		})
		if err == nil {
			err = each(needed, spent)
		}
		if err != nil {
			return err
		}
		after, more = next, n == prunePage
	}
	return nil
}

// listedBatch is a batch and the permits that it lists.
type listedBatch struct {
	id      governance.BatchID
	permits []governance.PermitID
}

func (b *listedBatch) any(there map[governance.PermitID]bool) bool {
	for _, id := range b.permits {
		if there[id] {
			return true
		}
	}
	return false
}

func (w *sweep) batchPage(ctx context.Context, tx *pgtx.Tx, sql string, after governance.BatchID) (list []listedBatch, err error) {
	rows, err := tx.Query(ctx, sql, pgUUID(after), pgUUID(w.bound), int64(prunePage))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id pgtype.UUID
		var permits []byte
		if err := rows.Scan(&id, &permits); err != nil {
			return nil, err
		}
		list = append(list, listedBatch{id.Bytes, permitIDs(permits)})
	}
	return list, rows.Err()
}

// present tells which of the batches' permits are somewhere, apart from one partition.
func (w *sweep) present(ctx context.Context, tx *pgtx.Tx, list []listedBatch, leaving int) (map[governance.PermitID]bool, error) {
	there := map[governance.PermitID]bool{}
	var ids []governance.PermitID
	for i := range list {
		ids = append(ids, list[i].permits...)
	}
	if len(ids) == 0 {
		return there, nil
	}
	read := func(rows pgx.Rows) error {
		for rows.Next() {
			var id pgtype.UUID
			if err := rows.Scan(&id); err != nil {
				return err
			}
			there[id.Bytes] = true
		}
		return rows.Err()
	}
	var b pgx.Batch
	for slot, part := range bySlot(ids) {
		if slot != leaving {
			b.Queue(w.s.q.there[slot], part).Query(read)
		}
	}
	b.Queue(w.s.q.keptThere, uuids(ids)).Query(read)
	return there, tx.Send(ctx, &b)
}
