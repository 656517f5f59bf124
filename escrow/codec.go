package escrow

import (
	"encoding/binary"
	"math"

	"github.com/tallystick-go/tallystick/governance/amount"
)

// What is stored is compact, and has one encoding of each value, so that equal rows have equal
// bytes. The first byte is the version.
const (
	heldVersion = 1
	nodeVersion = 1
)

const meterFlag = 1 << 4 // beside the ending

// AppendBinary encodes what UnmarshalBinary reads. Errors: *Error for what no history leads to.
func (h Held) AppendBinary(dst []byte) ([]byte, error) {
	if err := h.Validate(); err != nil {
		return dst, err
	}
	flags := byte(h.Ending)
	if h.Meter {
		flags |= meterFlag
	}
	dst = append(dst, heldVersion, flags)
	for _, n := range h.sums() {
		dst = binary.AppendUvarint(dst, uint64(*n))
	}
	return dst, nil
}

func (h *Held) sums() [7]*amount.MicroUSD {
	return [...]*amount.MicroUSD{&h.Amount, &h.Consumed, &h.Uncertain, &h.Observed, &h.Pending, &h.Resolved, &h.Found}
}

// UnmarshalBinary decodes what AppendBinary wrote. Errors: ErrCorrupt.
func (h *Held) UnmarshalBinary(p []byte) error {
	r := reader{p: p}
	version, flags := r.byte(), r.byte()
	next := Held{Ending: Ending(flags &^ meterFlag), Meter: flags&meterFlag != 0}
	for _, n := range next.sums() {
		*n = amount.MicroUSD(r.number())
	}
	if !r.ended() || version != heldVersion || next.Validate() != nil {
		return ErrCorrupt
	}
	*h = next
	return nil
}

// Validate refuses what no history leads to. Errors: *Error.
func (n Node) Validate() error {
	if n.Boot.IsZero() || n.BootNumber < 1 || n.Sequence < 1 || len(n.Earlier) > maxEarlier {
		return refuse("", "must be a boot with a number and a heartbeat")
	}
	above := n.BootNumber
	for i := range n.Earlier {
		if o := &n.Earlier[i]; o.Boot.IsZero() || o.Number < 1 || o.Number >= above {
			return refuse(index("earlier", i), "must be a boot with a lower number")
		}
		above = n.Earlier[i].Number
	}
	return nil
}

// AppendBinary encodes what UnmarshalBinary reads. Errors: *Error for what no history leads to.
func (n Node) AppendBinary(dst []byte) ([]byte, error) {
	if err := n.Validate(); err != nil {
		return dst, err
	}
	dst = append(dst, nodeVersion)
	if n.Bye {
		dst = append(dst, 1)
	} else {
		dst = append(dst, 0)
	}
	dst = append(dst, n.Boot[:]...)
	dst = binary.AppendUvarint(dst, uint64(n.BootNumber))
	dst = binary.AppendUvarint(dst, uint64(n.Sequence))
	dst = append(dst, n.Digest[:]...)
	dst = append(dst, byte(len(n.Earlier)))
	for _, o := range n.Earlier {
		dst = append(dst, o.Boot[:]...)
		dst = binary.AppendUvarint(dst, uint64(o.Number))
	}
	return dst, nil
}

// UnmarshalBinary decodes what AppendBinary wrote. Errors: ErrCorrupt.
func (n *Node) UnmarshalBinary(p []byte) error {
	r := reader{p: p}
	version, bye := r.byte(), r.byte()
	next := Node{Bye: bye == 1}
	copy(next.Boot[:], r.bytes(16))
	next.BootNumber, next.Sequence = r.number(), r.number()
	copy(next.Digest[:], r.bytes(32))
	for i := int(r.byte()); i > 0 && !r.bad; i-- {
		var o Opening
		copy(o.Boot[:], r.bytes(16))
		o.Number = r.number()
		next.Earlier = append(next.Earlier, o)
	}
	if !r.ended() || version != nodeVersion || bye > 1 || next.Validate() != nil {
		return ErrCorrupt
	}
	*n = next
	return nil
}

// reader takes bytes from the front of p; after a failure it returns zeros and stays bad.
type reader struct {
	p   []byte
	bad bool
}

func (r *reader) bytes(n int) []byte {
	if r.bad || n > len(r.p) {
		r.bad = true
		return nil
	}
	out := r.p[:n]
	r.p = r.p[n:]
	return out
}

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// number reads a number that is not negative, in its shortest form.
func (r *reader) number() int64 {
	v, n := binary.Uvarint(r.p)
	if r.bad || n <= 0 || (n > 1 && r.p[n-1] == 0) || v > math.MaxInt64 {
		r.bad = true
		return 0
	}
	r.p = r.p[n:]
	return int64(v)
}

func (r *reader) ended() bool { return !r.bad && len(r.p) == 0 }
