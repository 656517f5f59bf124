package escrow

import (
	"crypto/sha256"
	"fmt"
	"slices"
)

// Node is what an authority remembers of a node's boots. The zero value is a node that never
// spoke.
type Node struct {
	Boot       BootID // that spoke last
	BootNumber int64
	Sequence   int64    // of the last heartbeat that was taken
	Digest     [32]byte // of that heartbeat
	Bye        bool     // that was the boot's last
	Earlier    []Opening
}

// Opening is one boot of a node and its number.
type Opening struct {
	Boot   BootID
	Number int64
}

// maxEarlier is how many boots before the last are remembered, to tell a process that was
// replaced from a journal that was restored.
const maxEarlier = 8

// Digest tells heartbeats apart: equal ones have equal digests.
func (h *Heartbeat) Digest() [32]byte { return sha256.Sum256(h.AppendJSON(nil)) }

// Next is what to remember when the heartbeat was taken. Replay says that it is the last one
// again: it was taken before, and its answer was lost.
//
// Numbers may be left out: who gives up a heartbeat sends another one with a higher number.
// A lower one that arrives later is ErrStale, for ever.
//
// Errors: ErrStale, ErrRegressed, *Fenced, *Error.
func (n Node) Next(h *Heartbeat) (next Node, replay bool, err error) {
	switch {
	case h.BootNumber < n.BootNumber:
		if slices.Contains(n.Earlier, Opening{h.Boot, h.BootNumber}) {
			return n, false, &Fenced{Replaced, n.BootNumber}
		}
		return n, false, &Fenced{Restored, n.BootNumber}
	case h.BootNumber > n.BootNumber:
		return n.open(h)
	case h.Boot != n.Boot:
		return n, false, &Fenced{Cloned, n.BootNumber}
	case h.Answered > n.Sequence:
		return n, false, fmt.Errorf("%w: heartbeat %d of %s was answered, and %d is the last that is known", ErrRegressed, h.Answered, h.Node, n.Sequence)
	case h.Sequence < n.Sequence:
		return n, false, ErrStale
	}
	digest := h.Digest()
	if h.Sequence == n.Sequence {
		if digest != n.Digest {
			return n, false, refuse("sequence", "was used for another heartbeat")
		}
		return n, true, nil
	}
	if n.Bye && !h.Bye { // whose answer is lost says goodbye again
		return n, false, refuse("sequence", "comes after the boot's last heartbeat")
	}
	next = n
	next.Sequence, next.Digest, next.Bye = h.Sequence, digest, h.Bye
	return next, false, nil
}

// open follows the first heartbeat of a boot.
func (n Node) open(h *Heartbeat) (Node, bool, error) {
	used := func(o Opening) bool { return o.Boot == h.Boot }
	switch {
	case h.Answered > 0:
		return n, false, fmt.Errorf("%w: heartbeat %d of boot %d of %s was answered, and nothing of that boot is known", ErrRegressed, h.Answered, h.BootNumber, h.Node)
	case n.BootNumber > 0 && n.Boot == h.Boot, slices.ContainsFunc(n.Earlier, used):
		return n, false, refuse("boot", "was used with another number")
	}
	next := Node{Boot: h.Boot, BootNumber: h.BootNumber, Sequence: h.Sequence, Digest: h.Digest(), Bye: h.Bye}
	if n.BootNumber > 0 {
		next.Earlier = append(next.Earlier, Opening{n.Boot, n.BootNumber})
	}
	next.Earlier = append(next.Earlier, n.Earlier...)
	next.Earlier = next.Earlier[:min(len(next.Earlier), maxEarlier)]
	return next, false, nil
}
