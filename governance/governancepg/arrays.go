package governancepg

import (
	"bytes"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tallystick-go/tallystick/governance"
)

func pgUUID[T ~[16]byte](id T) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// nullUUID is NULL for the zero id.
func nullUUID[T ~[16]byte](id T) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: id != T{}} }

func uuids[T ~[16]byte](ids []T) []pgtype.UUID {
	out := make([]pgtype.UUID, len(ids))
	for i, id := range ids {
		out[i] = pgUUID(id)
	}
	return out
}

func accountArrays(keys []governance.AccountKey) ([]pgtype.UUID, []int64) {
	ids, starts := make([]pgtype.UUID, len(keys)), make([]int64, len(keys))
	for i, k := range keys {
		ids[i], starts[i] = pgUUID(k.Constraint), k.WindowStart
	}
	return ids, starts
}

// bySlot divides ids by partition. There is one, or two around the end of a slot.
func bySlot[T ~[16]byte](ids []T) map[int][]pgtype.UUID {
	out := make(map[int][]pgtype.UUID, 1)
	for _, id := range ids {
		slot := slotOf(id)
		out[slot] = append(out[slot], pgUUID(id))
	}
	return out
}

func searchPermit(list []governance.PermitID, id governance.PermitID) (int, bool) {
	return slices.BinarySearchFunc(list, id, func(a, b governance.PermitID) int { return bytes.Compare(a[:], b[:]) })
}

func searchConstraint(list []governance.ConstraintID, id governance.ConstraintID) (int, bool) {
	return slices.BinarySearchFunc(list, id, func(a, b governance.ConstraintID) int { return bytes.Compare(a[:], b[:]) })
}

func searchAccount(list []governance.AccountKey, key governance.AccountKey) (int, bool) {
	return slices.BinarySearchFunc(list, key, governance.AccountKey.Compare)
}

// errorsOf returns the first error.
func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
