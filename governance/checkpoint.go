package governance

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// Checkpoint replaces what a store keeps of the entries of one account. Data means
// nothing to a store, which loads it as it was written.
//
// Source: internal/docs/guarantees.md "The books".
type Checkpoint struct {
	Account AccountKey
	Data    []byte
	Trim    Trim
}

// Trim names entries that nobody will read again: those behind After, up to
// Through. A store must remove them in the same transaction. Zero: none.
type Trim struct{ After, Through int64 }

// fold is what the entries of an account up to one of them add up to: the permits
// that can no longer change are in the sums, the others are named.
type fold struct {
	through            int64
	permits            int64 // in the sums
	consumed, observed int64
	pending            []PermitID // sorted by bytes
}

// checkpoint is what is known of an account's entries without reading them. An
// audit begins behind latest; one that is to check latest itself begins behind
// floor. Entries up to floor may have been trimmed, and permits up to there pruned.
type checkpoint struct {
	latest, floor fold
	trimmed       int64
}

// maxPending bounds what one checkpoint names. An account with more permits that may
// still change is not folded any further until some of them have ended.
const maxPending = 16384

const checkpointVersion = 1

func (c *checkpoint) append(dst []byte) []byte {
	dst = append(dst, checkpointVersion)
	dst = c.latest.append(dst)
	dst = c.floor.append(dst)
	return binary.AppendUvarint(dst, uint64(c.trimmed))
}

func (f *fold) append(dst []byte) []byte {
	for _, n := range [...]int64{f.through, f.permits, f.consumed, f.observed, int64(len(f.pending))} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	for i := range f.pending {
		dst = append(dst, f.pending[i][:]...)
	}
	return dst
}

// decodeCheckpoint reads what append wrote; nothing is the zero checkpoint.
// Errors: ErrCorrupt.
func decodeCheckpoint(p []byte) (checkpoint, error) {
	if len(p) == 0 {
		return checkpoint{}, nil
	}
	r := reader{p: p}
	if r.byte() != checkpointVersion {
		return checkpoint{}, ErrCorrupt
	}
	c := checkpoint{latest: r.fold(), floor: r.fold()}
	c.trimmed = r.count()
	if r.bad || len(r.p) > 0 || c.floor.through > c.latest.through || c.trimmed > c.floor.through {
		return checkpoint{}, ErrCorrupt
	}
	return c, nil
}

func (r *reader) fold() fold {
	f := fold{through: r.count(), permits: r.count(), consumed: r.count(), observed: r.count()}
	n := r.count()
	if r.bad || n > maxPending || n > int64(len(r.p)/16) {
		r.bad = true
		return fold{}
	}
	if n > 0 {
		f.pending = make([]PermitID, n)
	}
	for i := range f.pending {
		copy(f.pending[i][:], r.bytes(16))
		if i > 0 && comparePermits(f.pending[i-1], f.pending[i]) >= 0 {
			r.bad = true
		}
	}
	return f
}

// count reads a number that is not negative.
func (r *reader) count() int64 {
	u := r.uvarint()
	if u > 1<<63-1 {
		r.bad = true
		return 0
	}
	return int64(u)
}

func comparePermits(a, b PermitID) int { return bytes.Compare(a[:], b[:]) }

// names reports whether a permit is pending.
func (f *fold) names(id PermitID) bool {
	_, ok := slices.BinarySearchFunc(f.pending, id, comparePermits)
	return ok
}

// tally is the sums as an audit adds them up.
func (f *fold) tally() (t tally) {
	t.permits, t.sum.Consumed, t.sum.Observed = f.permits, f.consumed, f.observed
	return t
}
