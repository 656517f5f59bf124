package customstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/quota"
)

// storedCell is a cell as it is kept: the state in the core's own encoding.
type storedCell struct {
	End     int64
	Kind    governance.Kind
	Account quota.Account
	Entries int64
	State   []byte
}

// cellKey sorts like governance.AccountKey.Compare: the sign bit is turned, so that
// windows before 1970 come first.
func cellKey(k governance.AccountKey) []byte {
	return binary.BigEndian.AppendUint64(k.Constraint[:], uint64(k.WindowStart)^1<<63)
}

func entryKey(k governance.AccountKey, number int64) []byte {
	return binary.BigEndian.AppendUint64(cellKey(k), uint64(number))
}

func readCell(tx *bbolt.Tx, key governance.AccountKey, into *governance.Cell) error {
	v := tx.Bucket(cells).Get(cellKey(key))
	if v == nil {
		return nil
	}
	return decodeCell(key, v, into)
}

func decodeCell(key governance.AccountKey, v []byte, into *governance.Cell) error {
	var s storedCell
	if err := json.Unmarshal(v, &s); err != nil {
		return fmt.Errorf("%w: a cell cannot be read", governance.ErrCorrupt)
	}
	*into = governance.Cell{Key: key, End: s.End, Kind: s.Kind, Account: s.Account, Entries: s.Entries}
	return into.UnmarshalState(s.State)
}

func writeCell(tx *bbolt.Tx, c *governance.Cell) error {
	state, err := c.AppendState(nil)
	if err != nil {
		return err
	}
	return put(tx, cells, cellKey(c.Key), storedCell{End: c.End, Kind: c.Kind, Account: c.Account, Entries: c.Entries, State: state})
}

// Accounts implements governance.Store.
func (s *Store) Accounts(ctx context.Context, q governance.AccountQuery) (list []governance.Cell, err error) {
	after := cellKey(q.After)
	err = s.scan(ctx, cells, after, func(tx *bbolt.Tx, k, v []byte) (bool, error) {
		key := governance.AccountKey{WindowStart: int64(binary.BigEndian.Uint64(k[16:]) ^ 1<<63)}
		copy(key.Constraint[:], k)
		var c governance.Cell
		if err := decodeCell(key, v, &c); err != nil {
			return false, err
		}
		if q.Matches(&c) {
			var w storedWindow
			if err := read(tx, windows, key.Constraint[:], &w); err != nil && !errors.Is(err, errAbsent) {
				return false, err
			}
			if w.Label != nil {
				c.Label = *w.Label
			}
			list = append(list, c)
		}
		return len(list) < q.Limit, nil
	})
	return list, err
}

// Permits implements governance.Store.
func (s *Store) Permits(ctx context.Context, q governance.PermitQuery) (list []governance.Record, err error) {
	err = s.scan(ctx, permits, q.After[:], func(_ *bbolt.Tx, _, v []byte) (bool, error) {
		var rec governance.Record
		if err := json.Unmarshal(v, &rec); err != nil {
			return false, fmt.Errorf("%w: a permit cannot be read", governance.ErrCorrupt)
		}
		if q.Matches(&rec) {
			list = append(list, rec)
		}
		return len(list) < q.Limit, nil
	})
	return list, err
}

// Notes implements governance.Store.
func (s *Store) Notes(ctx context.Context, q governance.NoteQuery) (list []governance.Note, err error) {
	err = s.scan(ctx, notes, binary.BigEndian.AppendUint64(nil, uint64(q.After)), func(_ *bbolt.Tx, _, v []byte) (bool, error) {
		var n governance.Note
		if err := json.Unmarshal(v, &n); err != nil {
			return false, fmt.Errorf("%w: a note cannot be read", governance.ErrCorrupt)
		}
		list = append(list, n)
		return len(list) < q.Limit, nil
	})
	return list, err
}

// scan walks a bucket behind a key, in order, until each says no.
func (s *Store) scan(ctx context.Context, bucket, after []byte, each func(tx *bbolt.Tx, k, v []byte) (bool, error)) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", governance.ErrUnavailable, err)
	}
	err := s.file.View(func(tx *bbolt.Tx) error {
		cursor := tx.Bucket(bucket).Cursor()
		k, v := cursor.Seek(after)
		if bytes.Equal(k, after) {
			k, v = cursor.Next()
		}
		for ; k != nil; k, v = cursor.Next() {
			more, err := each(tx, k, v)
			if err != nil {
				return err
			}
			if !more {
				return errNothing
			}
		}
		return nil
	})
	if errors.Is(err, errNothing) {
		return nil
	}
	return translate(err)
}
