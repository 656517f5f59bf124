package governancepg

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tallystick-go/tallystick/governance"
)

// sender runs statements in one round trip of a transaction.
type sender func(context.Context, *pgx.Batch) error

// entries reads which batches reserved in an account, up to the first gap.
func (l *load) entries(rows pgx.Rows) error {
	for rows.Next() {
		var number int64
		var id pgtype.UUID
		if err := rows.Scan(&number, &id); err != nil {
			return err
		}
		if number == l.plan.Entries.After+int64(len(l.listed))+1 {
			l.listed = append(l.listed, id.Bytes)
		}
	}
	return rows.Err()
}

// finish reads what depends on the first answers: the clock where no state came with it,
// permits that were kept when their partition was emptied, terms, and the permits of
// entries. An ordinary step needs none of it.
func (l *load) finish(ctx context.Context, send sender) error {
	if l.now == 0 {
		var b pgx.Batch
		l.queueClock(&b)
		if err := send(ctx, &b); err != nil {
			return err
		}
	}
	if err := l.keptPermits(ctx, send); err != nil {
		return err
	}
	if l.plan.Entries == nil && (l.plan.NoTerms || len(l.plan.Permits) == 0) {
		return nil
	}
	l.batch = map[governance.BatchID]*batchRow{}
	for _, id := range l.listed {
		l.batch[id] = nil
	}
	for i := range l.loaded.Permits {
		if l.loaded.Permits[i].State != 0 {
			l.batch[l.loaded.Permits[i].Batch] = nil
		}
	}
	if err := l.s.readBatches(ctx, l.batch, send); err != nil {
		return err
	}
	if l.plan.Entries != nil {
		if err := l.entryPermits(ctx, send); err != nil {
			return err
		}
	}
	return errorsOf(attachTerms(l.loaded.Permits, l.batch), attachTerms(l.loaded.Entries, l.batch))
}

// keptPermits looks for permits that are older than the horizon and not in the ring.
func (l *load) keptPermits(ctx context.Context, send sender) error {
	var missing []governance.PermitID
	for i, id := range l.plan.Permits {
		if l.loaded.Permits[i].State == 0 && older(id, l.loaded.Horizon) {
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	l.kept = map[governance.PermitID]struct{}{}
	var b pgx.Batch
	l.s.queueKept(&b, missing, func(rec governance.Record) {
		if i, ok := searchPermit(l.plan.Permits, rec.ID); ok {
			l.loaded.Permits[i], l.kept[rec.ID] = rec, struct{}{}
		}
	})
	return send(ctx, &b)
}

func (s *Store) queueKept(b *pgx.Batch, ids []governance.PermitID, each func(governance.Record)) {
	b.Queue(s.q.kept, uuids(ids)).Query(func(rows pgx.Rows) error { return scanPermits(rows, each) })
}

// entryPermits reads the permits of the entries that were listed, and ends before the
// first entry whose batch or permits are not all there. Permits that the plan names
// anyway are answered there, not twice.
func (l *load) entryPermits(ctx context.Context, send sender) error {
	there := map[governance.PermitID]governance.Record{}
	keep := func(rec governance.Record) { there[rec.ID] = rec }
	var wanted []governance.PermitID
	for _, id := range l.listed {
		if row := l.batch[id]; row != nil {
			for _, id := range row.permits {
				if i, named := searchPermit(l.plan.Permits, id); !named {
					wanted = append(wanted, id)
				} else if l.loaded.Permits[i].State != 0 {
					keep(l.loaded.Permits[i])
				}
			}
		}
	}
	var b pgx.Batch
	for slot, ids := range bySlot(wanted) {
		b.Queue(l.s.q.permits[slot], ids).Query(func(rows pgx.Rows) error { return scanPermits(rows, keep) })
	}
	if b.Len() > 0 {
		if err := send(ctx, &b); err != nil {
			return err
		}
	}
	var missing []governance.PermitID
	for _, id := range wanted {
		if _, ok := there[id]; !ok && older(id, l.loaded.Horizon) {
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 {
		var b pgx.Batch
		l.s.queueKept(&b, missing, keep)
		if err := send(ctx, &b); err != nil {
			return err
		}
	}
	for _, id := range l.listed {
		entry, whole := entryOf(l.batch[id], there)
		if !whole {
			return nil
		}
		l.loaded.EntriesRead++
		for i := range entry {
			if _, named := searchPermit(l.plan.Permits, entry[i].ID); named {
				continue
			}
			entry[i].Entry = l.loaded.EntriesRead
			l.loaded.Entries = append(l.loaded.Entries, entry[i])
		}
	}
	return nil
}

// entryOf is a batch's permits as they are now; false when one of them is gone.
func entryOf(row *batchRow, there map[governance.PermitID]governance.Record) ([]governance.Record, bool) {
	if row == nil {
		return nil, false
	}
	entry := make([]governance.Record, 0, len(row.permits))
	for _, id := range row.permits {
		rec, ok := there[id]
		if !ok {
			return nil, false
		}
		entry = append(entry, rec)
	}
	return entry, true
}

// readBatches fills the map's rows, from the ring and from what was kept. Those that
// are nowhere stay nil.
func (s *Store) readBatches(ctx context.Context, batches map[governance.BatchID]*batchRow, send sender) error {
	if len(batches) == 0 {
		return nil
	}
	read := func(rows pgx.Rows) error {
		for rows.Next() {
			var id pgtype.UUID
			var row batchRow
			var permits []byte
			if err := rows.Scan(&id, &row.terms, &permits); err != nil {
				return err
			}
			row.permits = permitIDs(permits)
			batches[id.Bytes] = &row
		}
		return rows.Err()
	}
	missing := func() (ids []governance.BatchID) {
		for id, row := range batches {
			if row == nil {
				ids = append(ids, id)
			}
		}
		return ids
	}
	var b pgx.Batch
	for slot, list := range bySlot(missing()) {
		b.Queue(s.q.batchTerms[slot], list).Query(read)
	}
	if b.Len() > 0 {
		if err := send(ctx, &b); err != nil {
			return err
		}
	}
	ids := missing()
	if len(ids) == 0 {
		return nil
	}
	var again pgx.Batch
	again.Queue(s.q.keptBatches, uuids(ids)).Query(read)
	return send(ctx, &again)
}

// permitIDs are the ids that a batch row lists.
func permitIDs(p []byte) (ids []governance.PermitID) {
	for ; len(p) >= 16; p = p[16:] {
		ids = append(ids, governance.PermitID(p[:16]))
	}
	return ids
}

// older reports whether an id is older than the horizon.
func older(id governance.PermitID, horizon int64) bool { return id.UnixMilli()*1000 < horizon }
