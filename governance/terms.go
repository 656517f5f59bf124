package governance

import (
	"encoding/binary"
	"slices"

	"github.com/tallystick-go/tallystick/quota"
)

// terms is what a permit captured when it was admitted: all that settlement
// needs, whatever is edited, deleted or reloaded afterwards. Equal terms of one
// batch are stored once.
type terms struct {
	keyID, teamID, user      string
	model, region, guardrail string
	price                    []byte
	incarnation              uint64 // of the Governor, for concurrency slots; zero without one
	holds                    []hold
	grant                    *grantTerms // not nil: of a grant or a meter, which has nothing of the above but one hold
}

// hold is one constraint in which a permit reserved.
type hold struct {
	constraint ConstraintID
	kind       Kind
	window     quota.Window
}

func (h *hold) account() AccountKey { return AccountKey{h.constraint, h.window.Start} }

func (t *terms) hasKind(k Kind) bool {
	for i := range t.holds {
		if t.holds[i].kind == k {
			return true
		}
	}
	return false
}

const termsVersion = 1

// append encodes the terms. They are compact, since they are stored for every batch.
func (t *terms) append(dst []byte) []byte {
	if t.grant != nil {
		return t.grant.append(dst)
	}
	dst = append(dst, termsVersion)
	for _, s := range [...]string{t.keyID, t.teamID, t.user, t.model, t.region, t.guardrail} {
		dst = binary.AppendUvarint(dst, uint64(len(s)))
		dst = append(dst, s...)
	}
	dst = binary.AppendUvarint(dst, uint64(len(t.price)))
	dst = append(dst, t.price...)
	dst = binary.BigEndian.AppendUint64(dst, t.incarnation)
	dst = binary.AppendUvarint(dst, uint64(len(t.holds)))
	for i := range t.holds {
		h := &t.holds[i]
		dst = append(dst, h.constraint[:]...)
		dst = append(dst, byte(h.kind))
		if h.kind.isAccount() {
			dst = binary.AppendVarint(dst, h.window.Start)
			dst = binary.AppendUvarint(dst, uint64(h.window.End-h.window.Start))
		}
	}
	return dst
}

const maxHolds = 64

// decodeTerms reads what append wrote. Errors: ErrCorrupt.
func decodeTerms(p []byte) (*terms, error) {
	r := reader{p: p}
	switch r.byte() {
	case termsVersion:
	case grantTermsVersion:
		return r.grantTerms()
	default:
		return nil, ErrCorrupt
	}
	t := &terms{}
	for _, s := range [...]*string{&t.keyID, &t.teamID, &t.user, &t.model, &t.region, &t.guardrail} {
		*s = string(r.bytes(r.uvarint()))
	}
	t.price = slices.Clone(r.bytes(r.uvarint()))
	t.incarnation = r.uint64()
	n := r.uvarint()
	if r.bad || n > maxHolds || n > uint64(len(r.p)/17) {
		return nil, ErrCorrupt
	}
	t.holds = make([]hold, n)
	for i := range t.holds {
		h := &t.holds[i]
		copy(h.constraint[:], r.bytes(16))
		h.kind = Kind(r.byte())
		h.window = allTime
		if h.kind.isAccount() {
			h.window.Start = r.varint()
			h.window.End = h.window.Start + int64(r.uvarint())
		}
		if h.kind < KindRequestRate || h.kind > KindConcurrency || h.window.End <= h.window.Start {
			return nil, ErrCorrupt
		}
	}
	if r.bad || len(r.p) > 0 {
		return nil, ErrCorrupt
	}
	return t, nil
}

// segment is one piece of a bucket that a permit holds.
type segment struct {
	hold   int // index into terms.holds
	seq    uint64
	amount int64
}

// appendSegments encodes the segments in ascending order of hold and age.
func appendSegments(dst []byte, list []segment) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, s := range list {
		dst = binary.AppendUvarint(dst, uint64(s.hold))
		dst = binary.AppendUvarint(dst, s.seq)
		dst = binary.AppendUvarint(dst, uint64(s.amount))
	}
	return dst
}

const maxSegmentsPerPermit = 1024

// decodeSegments reads what appendSegments wrote. Errors: ErrCorrupt.
func decodeSegments(p []byte, holds int) ([]segment, error) {
	if len(p) == 0 {
		return nil, nil
	}
	r := reader{p: p}
	n := r.uvarint()
	if r.bad || n > maxSegmentsPerPermit || n > uint64(len(r.p)/3) {
		return nil, ErrCorrupt
	}
	list := make([]segment, n)
	for i := range list {
		list[i] = segment{hold: int(r.uvarint()), seq: r.uvarint(), amount: int64(r.uvarint())}
		if list[i].hold < 0 || list[i].hold >= holds || list[i].amount < 0 {
			return nil, ErrCorrupt
		}
	}
	if r.bad || len(r.p) > 0 {
		return nil, ErrCorrupt
	}
	return list, nil
}

// reader takes bytes from the front of p; after a failure it returns zeros and
// stays bad, so that callers check once.
type reader struct {
	p   []byte
	bad bool
}

func (r *reader) bytes(n uint64) []byte {
	if r.bad || n > uint64(len(r.p)) {
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

func (r *reader) uint64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.p)
	if r.bad || n <= 0 || (n > 1 && r.p[n-1] == 0) { // only the shortest form is canonical
		r.bad = true
		return 0
	}
	r.p = r.p[n:]
	return v
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}
