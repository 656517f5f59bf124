package governancesqlite

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/quota"
)

// corrupt names the table in which a row is not what this package writes.
func corrupt(table string) error {
	return fmt.Errorf("%w: a row of table %s; restore a backup or correct the row", governance.ErrCorrupt, table)
}

// cellRow is where cellColumns are scanned to.
type cellRow struct {
	end, kind, frozen, entries int64
	account                    quota.Account
	state                      sql.RawBytes
}

func (r *cellRow) targets() []any {
	a := &r.account
	return []any{&r.end, &r.kind, &a.Consumed, &a.Uncertain, &a.Reserved, &a.Granted, &a.Observed, &r.frozen, &r.entries, &r.state}
}

// into fills a cell whose key is set.
func (r *cellRow) into(c *governance.Cell) error {
	if r.kind < int64(governance.KindRequestRate) || r.kind > int64(governance.KindConcurrency) || r.entries < 0 || r.frozen>>1 != 0 {
		return corrupt("governance_cells")
	}
	c.End, c.Kind, c.Entries = r.end, governance.Kind(r.kind), r.entries
	c.Account = r.account
	c.Account.Frozen = r.frozen == 1
	if err := c.UnmarshalState(r.state); err != nil {
		return fmt.Errorf("%w: %w", corrupt("governance_cells"), err)
	}
	return nil
}

// permitRow is where permitColumns are scanned to, behind the index of what was wanted.
type permitRow struct {
	index, batch                                               int64
	id, owner, fingerprint                                     sql.RawBytes
	segments, outcome, resolution                              sql.RawBytes
	termsIndex, at, ended, state, flags, version, tokens, cost int64
}

func (r *permitRow) targets() []any {
	return []any{
		&r.index, &r.id, &r.batch, &r.termsIndex, &r.owner, &r.fingerprint, &r.at, &r.ended, &r.state, &r.flags, &r.version,
		&r.tokens, &r.cost, &r.segments, &r.outcome, &r.resolution,
	}
}

// record is what was scanned, all but what its batch adds.
func (r *permitRow) record() (governance.Record, error) {
	rec := governance.Record{
		TermsIndex: int(r.termsIndex), At: r.at, EndedAt: r.ended, State: governance.State(r.state), Flags: governance.Flags(r.flags),
		Version: int32(r.version), Tokens: r.tokens, Cost: r.cost, Segments: bytes.Clone(r.segments),
	}
	copy(rec.ID[:], r.id)
	copy(rec.Owner[:], r.owner)
	copy(rec.Fingerprint[:], r.fingerprint)
	bad := r.state < 1 || r.state > int64(governance.StateResolved) || r.flags>>16 != 0 || r.version < 1 || r.version > math.MaxInt32
	if bad || rec.Outcome.UnmarshalBinary(r.outcome) != nil || rec.Resolution.UnmarshalBinary(r.resolution) != nil {
		return rec, corrupt("governance_permits")
	}
	return rec, nil
}

// batch is one row of governance_batches.
type batch struct {
	id      governance.BatchID
	at      int64
	terms   [][]byte
	permits []governance.Record // as they were admitted
}

// appendTerms writes texts, each after its length.
func appendTerms(dst []byte, list [][]byte) []byte {
	for _, terms := range list {
		dst = binary.AppendUvarint(dst, uint64(len(terms)))
		dst = append(dst, terms...)
	}
	return dst
}

// appendPermit writes what is not alike in all fresh permits of a batch. Of one that
// is not fresh only the id counts.
func appendPermit(dst []byte, rec *governance.Record) []byte {
	dst = append(dst, rec.ID[:]...)
	dst = append(dst, rec.Owner[:]...)
	flags := uint64(rec.Flags) << 1
	if rec.Fingerprint != (governance.Fingerprint{}) {
		flags |= 1
	}
	dst = binary.AppendUvarint(dst, flags)
	if flags&1 != 0 {
		dst = append(dst, rec.Fingerprint[:]...)
	}
	dst = binary.AppendUvarint(dst, uint64(rec.TermsIndex))
	dst = binary.AppendUvarint(dst, uint64(rec.Tokens))
	dst = binary.AppendUvarint(dst, uint64(rec.Cost))
	dst = binary.AppendUvarint(dst, uint64(len(rec.Segments)))
	return append(dst, rec.Segments...)
}

// decode fills a batch from its columns, which it does not keep.
func (b *batch) decode(id, terms, permits []byte) error {
	if copy(b.id[:], id) != len(id) {
		return corrupt("governance_batches")
	}
	r := reader{p: bytes.Clone(terms)}
	for len(r.p) > 0 {
		b.terms = append(b.terms, r.bytes(r.uvarint()))
	}
	q := reader{p: bytes.Clone(permits)}
	for len(q.p) > 0 {
		b.permits = append(b.permits, b.permit(&q))
	}
	if r.bad || q.bad {
		return corrupt("governance_batches")
	}
	return nil
}

// permit reads what appendPermit wrote.
func (b *batch) permit(r *reader) governance.Record {
	rec := governance.Record{Batch: b.id, At: b.at, State: governance.StateOpen, Version: 1}
	copy(rec.ID[:], r.bytes(16))
	copy(rec.Owner[:], r.bytes(16))
	flags := r.uvarint()
	if flags&1 != 0 {
		copy(rec.Fingerprint[:], r.bytes(16))
	}
	rec.Flags = governance.Flags(flags >> 1)
	rec.TermsIndex = int(r.uvarint())
	rec.Tokens, rec.Cost = int64(r.uvarint()), int64(r.uvarint())
	if n := r.uvarint(); n > 0 {
		rec.Segments = r.bytes(n)
	}
	r.bad = r.bad || flags>>17 != 0 || rec.Tokens < 0 || rec.Cost < 0
	return rec
}

// complete adds to a record what its batch knows.
func (b *batch) complete(rec *governance.Record) error {
	if rec.TermsIndex < 0 || rec.TermsIndex >= len(b.terms) {
		return corrupt("governance_batches")
	}
	rec.Batch, rec.Terms = b.id, b.terms[rec.TermsIndex]
	return nil
}

// reader takes values from the front; once bad, it stays so and has nothing left.
type reader struct {
	p   []byte
	bad bool
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.p)) {
		r.p, r.bad = nil, true
		return nil
	}
	out := r.p[:n:n]
	r.p = r.p[n:]
	return out
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.p)
	if n <= 0 {
		r.p, r.bad = nil, true
		return 0
	}
	r.p = r.p[n:]
	return v
}
