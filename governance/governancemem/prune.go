package governancemem

import (
	"context"
	"fmt"
	"slices"

	"github.com/tallystick-go/tallystick/governance"
)

// trim forgets entries that nobody will read again.
func (d *data) trim(key governance.AccountKey, t governance.Trim) {
	list := d.entries[key]
	n := min(max(t.Through-d.trimmed[key], 0), int64(len(list)))
	d.entries[key] = slices.Clone(list[n:])
	d.trimmed[key] += n
}

// Forget implements governance.Store. The mutex is the barrier.
func (s *Store) Forget(ctx context.Context, before int64) (governance.Memory, error) {
	if err := ctx.Err(); err != nil {
		return governance.Memory{}, fmt.Errorf("%w: %w", governance.ErrUnavailable, err)
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.d.memory.Horizon = max(s.d.memory.Horizon, before)
	return s.d.memory, nil
}

// Prune implements governance.Store, in one transaction: there is no other way in
// which memory could be left half done.
func (s *Store) Prune(ctx context.Context, judge governance.Judge) (governance.Swept, error) {
	if err := ctx.Err(); err != nil {
		return governance.Swept{}, fmt.Errorf("%w: %w", governance.ErrUnavailable, err)
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	d := s.d
	var done governance.Swept
	for id, rec := range d.permits {
		if id.UnixMilli()*1000 >= d.memory.Horizon {
			continue
		}
		var of governance.Pruned
		gone := rec.State != governance.StateOpen
		if gone {
			of, gone = judge(rec)
		}
		if !gone {
			done.Kept++
			continue
		}
		delete(d.permits, id)
		if d.batches[rec.Batch]--; d.batches[rec.Batch] <= 0 {
			delete(d.batches, rec.Batch)
		}
		done.Removed = done.Removed.Add(of)
	}
	d.memory.Total = d.memory.Total.Add(done.Removed)
	done.Total = d.memory.Total
	return done, nil
}
