package customstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/tallystick-go/tallystick/governance"
)

// What belongs to forgetting: checkpoints, the horizon, and the removal of permits in
// transactions of bounded size.

// memoryKey is the one key of the bucket meta.
var memoryKey = []byte("memory")

const (
	prunePage = 200 // permits that one transaction judges
	wholeID   = 16
)

func readMemory(tx *bbolt.Tx) (m governance.Memory, err error) {
	if err = read(tx, meta, memoryKey, &m); errors.Is(err, errAbsent) {
		err = nil
	}
	return m, err
}

func writeCheckpoint(tx *bbolt.Tx, c *governance.Checkpoint) error {
	if err := tx.Bucket(checkpoints).Put(cellKey(c.Account), c.Data); err != nil {
		return err
	}
	for n := c.Trim.After + 1; n <= c.Trim.Through; n++ {
		if err := tx.Bucket(entries).Delete(entryKey(c.Account, n)); err != nil {
			return err
		}
	}
	return nil
}

// Forget implements governance.Store. The one writer is the barrier.
func (s *Store) Forget(ctx context.Context, before int64) (m governance.Memory, err error) {
	if err := ctx.Err(); err != nil {
		return m, fmt.Errorf("%w: %w", governance.ErrUnavailable, err)
	}
	err = s.file.Update(func(tx *bbolt.Tx) error {
		if m, err = readMemory(tx); err != nil {
			return err
		}
		m.Horizon = max(m.Horizon, before)
		return put(tx, meta, memoryKey, m)
	})
	return m, translate(err)
}

// Prune implements governance.Store.
func (s *Store) Prune(ctx context.Context, judge governance.Judge) (done governance.Swept, err error) {
	after := make([]byte, wholeID)
	for after != nil {
		if err := ctx.Err(); err != nil {
			return done, fmt.Errorf("%w: %w", governance.ErrUnavailable, err)
		}
		var page governance.Swept
		var next []byte
		err := s.file.Update(func(tx *bbolt.Tx) error {
			m, err := readMemory(tx)
			if err != nil {
				return err
			}
			if page, next, err = prune(tx, judge, m.Horizon, after); err != nil {
				return err
			}
			m.Total = m.Total.Add(page.Removed)
			page.Total = m.Total
			return put(tx, meta, memoryKey, m)
		})
		if err != nil {
			return done, translate(err)
		}
		after = next
		done.Removed, done.Kept, done.Total = done.Removed.Add(page.Removed), done.Kept+page.Kept, page.Total
	}
	return done, nil
}

// prune judges some permits behind an id; next is where to go on, nil at the end.
func prune(tx *bbolt.Tx, judge governance.Judge, horizon int64, after []byte) (page governance.Swept, next []byte, err error) {
	var gone []governance.Record
	cursor := tx.Bucket(permits).Cursor()
	seen := 0
	for k, v := cursor.Seek(after); k != nil; k, v = cursor.Next() {
		if bytes.Equal(k, after) {
			continue
		}
		if governance.PermitID(k).UnixMilli()*1000 >= horizon {
			break
		}
		var rec governance.Record
		if err := json.Unmarshal(v, &rec); err != nil {
			return page, nil, fmt.Errorf("%w: a permit cannot be read", governance.ErrCorrupt)
		}
		var of governance.Pruned
		may := rec.State != governance.StateOpen
		if may {
			of, may = judge(&rec)
		}
		if may {
			page.Removed, gone = page.Removed.Add(of), append(gone, rec)
		} else {
			page.Kept++
		}
		if seen++; seen == prunePage {
			next = bytes.Clone(k)
			break
		}
	}
	for i := range gone {
		if err := tx.Bucket(permits).Delete(gone[i].ID[:]); err != nil {
			return page, nil, err
		}
	}
	for i := range gone {
		if err := dropBatch(tx, gone[i].Batch); err != nil {
			return page, nil, err
		}
	}
	return page, next, nil
}

// dropBatch removes a batch of which no permit is left.
func dropBatch(tx *bbolt.Tx, id governance.BatchID) error {
	for ids := tx.Bucket(batches).Get(id[:]); len(ids) > 0; ids = ids[wholeID:] {
		if tx.Bucket(permits).Get(ids[:wholeID]) != nil {
			return nil
		}
	}
	return tx.Bucket(batches).Delete(id[:])
}
