package governancesqlite

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
)

// prunePage is how many permits one transaction judges.
const prunePage = 500

// Forget implements governance.Store. The writer's turn is the barrier: every step
// reads the horizon inside its own.
func (s *Store) Forget(ctx context.Context, before int64) (m governance.Memory, err error) {
	err = s.db.Write(ctx, func(tx *sqlitetx.Tx) (err error) {
		if _, err = tx.Exec(raiseHorizon, before); err != nil {
			return err
		}
		m, err = readMemory(tx)
		return err
	})
	if err == nil {
		return m, nil
	}
	err = coreError(err)
	if sqlitetx.Classify(err) == sqlitetx.UnknownOutcome {
		err = fmt.Errorf("%w: %w", governance.ErrUnavailable, err) // it may have risen: to be repeated
	}
	return governance.Memory{}, err
}

// Prune implements governance.Store, a page of permits in each transaction. Others
// have their turn in between.
func (s *Store) Prune(ctx context.Context, judge governance.Judge) (done governance.Swept, err error) {
	var after governance.PermitID
	for more := true; more; {
		var page governance.Swept
		last := after
		err := s.db.Write(ctx, func(tx *sqlitetx.Tx) (err error) {
			page, last = governance.Swept{}, after
			m, err := readMemory(tx)
			if err != nil {
				return err
			}
			if err := prune(tx, judge, m.Horizon, &last, &page); err != nil {
				return err
			}
			page.Total = m.Total.Add(page.Removed)
			return nil
		})
		if err != nil {
			return done, coreError(err)
		}
		done.Removed, done.Total, done.Kept = done.Removed.Add(page.Removed), page.Total, done.Kept+page.Kept
		more, after = last != after, last
	}
	return done, nil
}

// oldest is the least id that is not older than the horizon.
func oldest(horizon int64) []byte {
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64((horizon+999)/1000)<<16)
	return append(ms[:6:6], make([]byte, 10)...)
}

// prune judges the next permits that are older than the horizon. Those that are as
// they were admitted are open: they stay, unasked.
func prune(tx *sqlitetx.Tx, judge governance.Judge, horizon int64, last *governance.PermitID, page *governance.Swept) error {
	if *last == (governance.PermitID{}) {
		var open int64
		if err := tx.QueryRow(countFresh, oldest(horizon)).Scan(&open); err != nil {
			return err
		}
		page.Kept += open
	}
	a := assembly{tx: tx}
	list, err := a.changed(listOld, last[:], oldest(horizon), prunePage)
	if err != nil || len(list) == 0 {
		return err
	}
	if err := a.complete(list); err != nil {
		return err
	}
	*last = list[len(list)-1].record.ID
	touched := map[int64]bool{}
	for i := range list {
		of, ok := judge(&list[i].record)
		if !ok {
			page.Kept++
			continue
		}
		if _, err := tx.Exec(forgetOne, list[i].record.ID[:]); err != nil {
			return err
		}
		page.Removed = page.Removed.Add(of)
		touched[list[i].batch] = true
	}
	for number := range touched {
		if err := a.dropBatch(number); err != nil {
			return err
		}
	}
	if r := page.Removed; r != (governance.Pruned{}) {
		_, err = tx.Exec(addPruned, r.Permits, r.Tokens, r.Cost)
	}
	return err
}

// dropBatch removes a batch of which no permit is left.
func (a *assembly) dropBatch(number int64) error {
	var ids []byte
	for i := range a.batches[number].permits {
		ids = append(ids, a.batches[number].permits[i].ID[:]...)
	}
	left, err := a.byID(ids)
	if err != nil || len(left) > 0 {
		return err
	}
	_, err = a.tx.Exec(forgetBatch, number)
	return err
}
