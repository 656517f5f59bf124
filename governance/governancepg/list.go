package governancepg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

// Permits implements governance.Store. Every partition of the ring is read in the
// order of its ids and the lists are merged.
func (s *Store) Permits(ctx context.Context, q governance.PermitQuery) ([]governance.Record, error) {
	states := make([]int16, len(q.States))
	for i, state := range q.States {
		states[i] = int16(state)
	}
	var list []governance.Record
	err := s.readRing(ctx, func(ctx context.Context, tx *pgtx.Tx) error {
		list = nil
		var b pgx.Batch
		for _, sql := range append(s.q.permitList[:], s.q.keptList) {
			b.Queue(sql, pgUUID(q.After), states, int16(q.Flags), int64(q.Limit)).Query(func(rows pgx.Rows) error {
				return scanPermits(rows, func(rec governance.Record) { list = append(list, rec) })
			})
		}
		if err := tx.Send(ctx, &b); err != nil {
			return err
		}
		slices.SortFunc(list, func(a, b governance.Record) int { return bytes.Compare(a.ID[:], b.ID[:]) })
		list = list[:min(len(list), q.Limit)]
		batches := map[governance.BatchID]*batchRow{}
		for i := range list {
			batches[list[i].Batch] = nil
		}
		if err := s.readBatches(ctx, batches, tx.Send); err != nil {
			return err
		}
		return attachTerms(list, batches)
	})
	return list, translate(err)
}

// Accounts implements governance.Store.
func (s *Store) Accounts(ctx context.Context, q governance.AccountQuery) ([]governance.Cell, error) {
	sql := s.q.listAccounts
	if q.Frozen {
		sql = s.q.listFrozen
	}
	var list []governance.Cell
	err := s.read(ctx, func(ctx context.Context, tx *pgtx.Tx) error {
		list = nil
		kinds := []int16{int16(governance.KindTokenQuota), int16(governance.KindMoney)}
		rows, err := tx.Query(ctx, sql, pgUUID(q.After.Constraint), q.After.WindowStart, int64(q.Limit), kinds)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var label *string
			c, _, err := scanCell(rows, &label)
			if err != nil {
				return err
			}
			if label != nil {
				if c.Label, err = governance.ParseLabel([]byte(*label)); err != nil {
					return err
				}
			}
			list = append(list, c)
		}
		return rows.Err()
	})
	return list, translate(err)
}

// Notes implements governance.Store.
func (s *Store) Notes(ctx context.Context, q governance.NoteQuery) ([]governance.Note, error) {
	var list []governance.Note
	err := s.read(ctx, func(ctx context.Context, tx *pgtx.Tx) error {
		list = nil
		rows, err := tx.Query(ctx, s.q.notes, q.After, int64(q.Limit))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var n governance.Note
			var permit, constraint pgtype.UUID
			var start *int64
			if err := rows.Scan(&n.Number, &n.At, &n.Actor, &n.Action, &permit, &constraint, &start, &n.Reason, &n.Before, &n.After); err != nil {
				return err
			}
			n.Permit, n.Account.Constraint = permit.Bytes, constraint.Bytes
			if start != nil {
				n.Account.WindowStart = *start
			}
			list = append(list, n)
		}
		return rows.Err()
	})
	return list, translate(err)
}

// readRing is read for what looks at the ring. An emptied partition is empty for older
// snapshots too, which do not see what was kept of it: they are taken again.
func (s *Store) readRing(ctx context.Context, fn func(context.Context, *pgtx.Tx) error) error {
	const attempts = slots + 4 // Prune empties each partition once
	for i := 1; ; i++ {
		var before, after int64
		err := s.read(ctx, func(ctx context.Context, tx *pgtx.Tx) error {
			if err := tx.QueryRow(ctx, s.q.truncations).Scan(&before); err != nil {
				return err
			}
			return fn(ctx, tx)
		})
		if err != nil && !errors.Is(err, governance.ErrCorrupt) {
			return err
		}
		if looked := s.pool.QueryRow(ctx, s.q.truncations).Scan(&after); looked != nil {
			return errorsOf(err, pgtx.Scrub(looked))
		}
		if before == after {
			return err
		}
		if i == attempts {
			return fmt.Errorf("%w: partitions are emptied again and again", governance.ErrUnavailable)
		}
	}
}

// read runs a function in one snapshot.
func (s *Store) read(ctx context.Context, fn func(context.Context, *pgtx.Tx) error) error {
	return pgtx.Run(ctx, s.pool, s.reading, fn)
}
