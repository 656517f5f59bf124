package governance

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"
)

// slotLife is how long a Governor's slots stay taken after its last sign of life.
const slotLife = 60 * time.Second

// Slots is the state of a concurrency limit: per Governor incarnation a count and
// one expiry. An incarnation that did not renew in time frees its slots; never
// its tokens or money.
//
// Source: internal/docs/guarantees.md "Concurrency".
type Slots struct {
	Holders []SlotHolder // sorted by incarnation
}

// SlotHolder is one Governor's share.
type SlotHolder struct {
	Incarnation uint64
	Count       int64
	Expires     int64 // µs since the Unix epoch, the store's clock
}

// Clone returns a copy that shares no memory.
func (s Slots) Clone() Slots { return Slots{Holders: slices.Clone(s.Holders)} }

// used counts the slots that are taken at the instant.
func (s *Slots) used(now int64) (n int64) {
	for _, h := range s.Holders {
		if h.Expires > now {
			n += h.Count
		}
	}
	return n
}

// freeBy returns when at least n slots that are taken now are free at the latest.
func (s *Slots) freeBy(now, n int64) int64 {
	holders := slices.Clone(s.Holders)
	slices.SortFunc(holders, func(a, b SlotHolder) int { return cmp.Compare(a.Expires, b.Expires) })
	for _, h := range holders {
		if h.Expires > now {
			if n -= h.Count; n <= 0 {
				return h.Expires
			}
		}
	}
	return now
}

func (s *Slots) index(incarnation uint64) (int, bool) {
	return slices.BinarySearchFunc(s.Holders, incarnation, func(h SlotHolder, want uint64) int {
		switch {
		case h.Incarnation < want:
			return -1
		case h.Incarnation > want:
			return 1
		}
		return 0
	})
}

// acquire takes one slot for the incarnation and renews all it has.
func (s *Slots) acquire(incarnation uint64, now int64) {
	s.Holders = slices.DeleteFunc(s.Holders, func(h SlotHolder) bool { return h.Expires <= now })
	i, ok := s.index(incarnation)
	if !ok {
		s.Holders = slices.Insert(s.Holders, i, SlotHolder{Incarnation: incarnation})
	}
	s.Holders[i].Count++
	s.Holders[i].Expires = now + slotLife.Microseconds()
}

// renew extends the incarnation's slots; false when they expired.
func (s *Slots) renew(incarnation uint64, now int64) bool {
	i, ok := s.index(incarnation)
	if !ok || s.Holders[i].Expires <= now {
		return false
	}
	s.Holders[i].Expires = now + slotLife.Microseconds()
	return true
}

// release gives one slot back. An incarnation that is gone has none to give.
func (s *Slots) release(incarnation uint64) bool {
	i, ok := s.index(incarnation)
	if !ok || incarnation == 0 {
		return false
	}
	if s.Holders[i].Count--; s.Holders[i].Count <= 0 {
		s.Holders = slices.Delete(s.Holders, i, i+1)
	}
	return true
}

// AppendBinary writes the state.
func (s Slots) AppendBinary(dst []byte) []byte {
	dst = append(dst, 1)
	dst = binary.AppendUvarint(dst, uint64(len(s.Holders)))
	for _, h := range s.Holders {
		dst = binary.BigEndian.AppendUint64(dst, h.Incarnation)
		dst = binary.AppendUvarint(dst, uint64(h.Count))
		dst = binary.AppendUvarint(dst, uint64(h.Expires))
	}
	return dst
}

// What no limit reaches; sums of so many stay far from the end of the numbers.
const (
	maxSlotHolders       = 100_000
	maxSlotsOfOne  int64 = 1 << 40
)

// UnmarshalBinary reads what AppendBinary wrote; no bytes are no slots.
// Errors: ErrCorrupt.
func (s *Slots) UnmarshalBinary(p []byte) error {
	*s = Slots{}
	if len(p) == 0 {
		return nil
	}
	r := reader{p: p}
	version, n := r.byte(), r.uvarint()
	if r.bad || version != 1 || n > maxSlotHolders || n > uint64(len(r.p)/10+1) {
		return ErrCorrupt
	}
	holders := make([]SlotHolder, n)
	for i := range holders {
		h := SlotHolder{Incarnation: r.uint64(), Count: int64(r.uvarint()), Expires: int64(r.uvarint())}
		if h.Incarnation == 0 || h.Count <= 0 || h.Count > maxSlotsOfOne || h.Expires < 0 || (i > 0 && holders[i-1].Incarnation >= h.Incarnation) {
			return ErrCorrupt
		}
		holders[i] = h
	}
	if r.bad || len(r.p) > 0 {
		return ErrCorrupt
	}
	if n > 0 {
		s.Holders = holders
	}
	return nil
}
