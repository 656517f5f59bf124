package pricing

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// rowVersion is the first byte of an encoded row. Fields are only ever added,
// as extensions at the end that older readers pass over.
const rowVersion = 1

// mayPass marks extensions that a reader may pass over: without them it knows
// less, but nothing wrong.
const mayPass = 0x80

// MarshalBinary returns the row in a compact, versioned form of at most 512
// bytes. Equal rows give equal bytes.
//
// Errors: ErrNoPrice for the zero Row.
func (r Row) MarshalBinary() ([]byte, error) { return r.AppendBinary(nil) }

// AppendBinary is MarshalBinary into b, without an allocation if b has room.
//
// Errors: ErrNoPrice for the zero Row.
func (r Row) AppendBinary(b []byte) ([]byte, error) {
	if r.t == nil {
		return b, fmt.Errorf("%w: the zero Row cannot be encoded", ErrNoPrice)
	}
	return append(b, r.t.enc...), nil
}

// UnmarshalBinary reads what MarshalBinary wrote, in this or a later version of
// the library. On an error r is left alone.
//
// Errors: ErrRow.
func (r *Row) UnmarshalBinary(b []byte) error {
	t, err := decodeTable(b)
	if err != nil {
		return err
	}
	r.t = t
	return nil
}

func (t *table) encode() ([]byte, error) {
	b := []byte{rowVersion}
	b = binary.AppendUvarint(b, t.flags)
	b = binary.AppendUvarint(b, t.unpriced)
	b = appendString(b, t.model)
	for _, n := range [...]int64{t.window, t.maxInput, t.maxOutput} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	b = append(b, byte(t.scale), byte(len(t.steps)))
	last := int64(0)
	for _, s := range t.steps {
		b = binary.AppendUvarint(b, uint64(s-last))
		last = s
	}
	b = binary.AppendUvarint(b, uint64(len(t.cells)))
	for _, c := range t.cells {
		b = append(b, byte(c.tier)<<4|c.step, byte(c.class))
		b = binary.AppendUvarint(b, c.price)
	}
	for _, n := range [...]uint64{t.region, t.fast, t.pinned} {
		b = binary.AppendUvarint(b, n)
	}
	b = append(b, byte(len(t.geos)))
	for _, g := range t.geos {
		b = binary.AppendUvarint(appendString(b, g.name), g.multiplier)
	}
	if !t.searches {
		b = append(b, 0)
	} else {
		b = append(b, 1)
		for _, f := range t.search {
			b = binary.AppendUvarint(b, f)
		}
	}
	if len(b) > maxRow {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrRow, len(b), maxRow)
	}
	return b, nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// reader takes values off the front; after the first mistake all are zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) byte(max int) int {
	if len(r.b) == 0 || int(r.b[0]) > max {
		r.bad, r.b = true, nil
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return int(c)
}

// uint takes a number in its shortest form, no larger than max.
func (r *reader) uint(max uint64) uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > max || size > 1 && r.b[size-1] == 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) string(max int) string {
	n := int(r.uint(uint64(max)))
	if n > len(r.b) {
		r.bad, r.b = true, nil
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func decodeTable(b []byte) (*table, error) {
	if len(b) == 0 || len(b) > maxRow {
		return nil, fmt.Errorf("%w: %d bytes", ErrRow, len(b))
	}
	if b[0] != rowVersion {
		return nil, fmt.Errorf("%w: version %d, this library reads %d", ErrRow, b[0], rowVersion)
	}
	r := reader{b: b[1:]}
	t := &table{flags: r.uint(flagsKnown), unpriced: r.uint(mediaIn | mediaOut), model: r.string(maxName)}
	t.window, t.maxInput, t.maxOutput = int64(r.uint(maxTokens)), int64(r.uint(maxTokens)), int64(r.uint(maxTokens))
	t.scale = r.byte(maxScale)
	last := int64(0)
	for range r.byte(maxSteps) {
		step := int64(r.uint(maxTokens))
		r.bad = r.bad || step == 0
		last += step
		t.steps = append(t.steps, last)
	}
	r.cells(t)
	t.region, t.fast, t.pinned = r.uint(maxMultiplier), r.uint(maxMultiplier), r.uint(maxMultiplier)
	for range r.byte(maxGeos) {
		g := geo{r.string(maxName), r.uint(maxMultiplier)}
		r.bad = r.bad || g.multiplier == 0 || len(t.geos) > 0 && t.geos[len(t.geos)-1].name >= g.name
		t.geos = append(t.geos, g)
	}
	if t.searches = r.byte(1) == 1; t.searches {
		for i := range t.search {
			t.search[i] = r.uint(1<<63 - 1)
		}
	}
	for len(r.b) > 0 && !r.bad { // extensions of later versions
		tag := r.byte(255)
		r.string(maxRow)
		r.bad = r.bad || tag < mayPass
	}
	if r.bad || last > maxTokens || t.scale < minScale || validName(t.model) != nil {
		return nil, fmt.Errorf("%w: %d bytes that are cut or changed", ErrRow, len(b))
	}
	t.enc = slices.Clone(b)
	t.derive()
	return t, nil
}

func (r *reader) cells(t *table) {
	n := int(r.uint(maxRow))
	t.cells = make([]cell, 0, min(n, len(r.b)/3))
	last := -1
	for range n {
		where, c := r.byte(int(tiers-1)<<4|maxSteps), cell{}
		c.tier, c.step, c.class = tier(where>>4), uint8(where&0xf), class(r.byte(int(classes-1)))
		c.price = r.uint(1<<63 - 1)
		if r.bad || int(c.step) > len(t.steps) || int(c.key()) <= last {
			r.bad, r.b = true, nil
			return
		}
		last = int(c.key())
		t.cells = append(t.cells, c)
	}
}
