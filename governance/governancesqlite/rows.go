package governancesqlite

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
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

// permitRow is where permitColumns are scanned to.
type permitRow struct {
	index                                                      int64
	id, batch, terms, owner, fingerprint                       sql.RawBytes
	segments, outcome, resolution                              sql.RawBytes
	termsIndex, at, ended, state, flags, version, tokens, cost int64

	// Permits of one batch share their terms, and mostly follow one another.
	last struct {
		batch governance.BatchID
		index int64
		terms []byte
	}
}

// eachPermit reads permits and where each was wanted.
func eachPermit(tx *sqlitetx.Tx, query string, visit func(i int64, rec *governance.Record), args ...any) error {
	var r permitRow
	targets := []any{
		&r.index, &r.id, &r.batch, &r.termsIndex, &r.terms, &r.owner, &r.fingerprint, &r.at, &r.ended, &r.state, &r.flags, &r.version,
		&r.tokens, &r.cost, &r.segments, &r.outcome, &r.resolution,
	}
	return each(tx, query, targets, func() error {
		rec, err := r.record()
		if err != nil {
			return fmt.Errorf("%w: %w", corrupt("governance_permits"), err)
		}
		visit(r.index, &rec)
		return nil
	}, args...)
}

func (r *permitRow) record() (governance.Record, error) {
	rec := governance.Record{
		TermsIndex: int(r.termsIndex), At: r.at, EndedAt: r.ended, State: governance.State(r.state), Flags: governance.Flags(r.flags),
		Version: int32(r.version), Tokens: r.tokens, Cost: r.cost, Segments: bytes.Clone(r.segments),
	}
	copy(rec.ID[:], r.id)
	copy(rec.Batch[:], r.batch)
	copy(rec.Owner[:], r.owner)
	copy(rec.Fingerprint[:], r.fingerprint)
	if r.state < 1 || r.state > int64(governance.StateResolved) || r.flags>>16 != 0 || r.version < 1 || r.version > math.MaxInt32 {
		return rec, governance.ErrCorrupt
	}
	if err := rec.Outcome.UnmarshalBinary(r.outcome); err != nil {
		return rec, err
	}
	if err := rec.Resolution.UnmarshalBinary(r.resolution); err != nil {
		return rec, err
	}
	if r.last.terms == nil || r.last.batch != rec.Batch || r.last.index != r.termsIndex {
		terms, err := termsAt(r.terms, r.termsIndex)
		if err != nil {
			return rec, err
		}
		r.last.batch, r.last.index, r.last.terms = rec.Batch, r.termsIndex, terms
	}
	rec.Terms = r.last.terms
	return rec, nil
}

// appendTerms writes texts, each after its length.
func appendTerms(dst []byte, list [][]byte) []byte {
	for _, terms := range list {
		dst = binary.AppendUvarint(dst, uint64(len(terms)))
		dst = append(dst, terms...)
	}
	return dst
}

// termsAt returns a copy of the index-th text that appendTerms wrote.
func termsAt(p []byte, index int64) ([]byte, error) {
	for ; ; index-- {
		size, n := binary.Uvarint(p)
		if n <= 0 || size > uint64(len(p)-n) || index < 0 {
			return nil, governance.ErrCorrupt
		}
		if index == 0 {
			return append(make([]byte, 0, size), p[n:n+int(size)]...), nil
		}
		p = p[n+int(size):]
	}
}
