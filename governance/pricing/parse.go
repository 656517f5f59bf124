package pricing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/shopspring/decimal"
)

const (
	// DefaultMaxBytes bounds a price file; a full public catalogue has some 2 MB.
	DefaultMaxBytes = 16 << 20

	maxEntries = 100_000
	maxFields  = 500 // of one entry
	maxDepth   = 8
	maxDigits  = 40 // characters of a number
)

// entry is one model of the file as it was written.
type entry struct {
	name   string
	fields []field
	twice  string // a name that occurs more than once
}

type field struct {
	name  string
	value any // json.Number, string, bool, nil, []field for an object, []any
}

// readEntries reads a whole price file. A file that is not exactly one JSON
// object of objects is refused; what is wrong within an entry is judged later.
func readEntries(r io.Reader, maxBytes int64) ([]entry, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%w: cannot be read: %w", ErrCatalogue, err)
	}
	if int64(len(data)) > maxBytes {
		return nil, fmt.Errorf("%w: more than %d bytes (Options.MaxBytes)", ErrCatalogue, maxBytes)
	}
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("%w: not UTF-8", ErrCatalogue)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	value, twice, err := readValue(d, 0)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: at byte %d: %w", ErrCatalogue, d.InputOffset(), err)
	case twice != "":
		return nil, fmt.Errorf("%w: model %q occurs twice", ErrCatalogue, twice)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: something follows the object at byte %d", ErrCatalogue, d.InputOffset())
	}
	models, ok := value.([]field)
	if !ok || len(models) == 0 || len(models) > maxEntries {
		return nil, fmt.Errorf("%w: not an object of 1 to %d models", ErrCatalogue, maxEntries)
	}
	entries := make([]entry, len(models))
	for i, m := range models {
		o, ok := m.value.(object)
		if !ok {
			return nil, fmt.Errorf("%w: model %q is not an object", ErrCatalogue, m.name)
		}
		entries[i] = entry{m.name, o.fields, o.twice}
	}
	return entries, nil
}

// object is an object below the top level.
type object struct {
	fields []field
	twice  string
}

// readValue reads one value. encoding/json would let the last of two equal
// names win; here the name is kept.
func readValue(d *json.Decoder, depth int) (value any, twice string, err error) {
	token, err := d.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, "", err
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return token, "", nil
	}
	if depth > maxDepth {
		return nil, "", fmt.Errorf("nested deeper than %d", maxDepth)
	}
	var fields []field
	var list []any
	seen := map[string]bool{}
	for d.More() {
		name := ""
		if delim == '{' {
			token, err := d.Token()
			if err != nil {
				return nil, "", err
			}
			name, _ = token.(string)
			if seen[name] {
				twice = name
			}
			seen[name] = true
		}
		v, again, err := readValue(d, depth+1)
		if err != nil {
			return nil, "", err
		}
		if delim == '{' {
			if fs, ok := v.([]field); ok {
				v = object{fs, again}
			}
			fields = append(fields, field{name, v})
		} else {
			list = append(list, v)
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, "", err
	}
	if delim == '{' {
		return fields, twice, nil
	}
	return list, "", nil
}

// number is an exact decimal: coefficient × 10^-places.
type number struct {
	coefficient uint64
	places      int
}

var errNumber = errors.New("not a number")

// parseNumber reads a JSON number exactly: never through a float.
func parseNumber(v any) (number, error) {
	literal, ok := v.(json.Number)
	if !ok {
		return number{}, errNumber
	}
	if len(literal) > maxDigits {
		return number{}, fmt.Errorf("longer than %d characters", maxDigits)
	}
	d, err := decimal.NewFromString(literal.String())
	if err != nil {
		return number{}, errNumber
	}
	if d.IsNegative() {
		return number{}, errors.New("negative")
	}
	if d.IsZero() {
		return number{}, nil
	}
	if d.Exponent() < -2*maxScale || d.Exponent() > maxScale {
		return number{}, errors.New("out of range")
	}
	c, places := d.Coefficient(), -int(d.Exponent())
	if !c.IsUint64() {
		return number{}, errors.New("too many digits")
	}
	n := number{c.Uint64(), places}
	for n.places > 0 && n.coefficient%10 == 0 {
		n.coefficient, n.places = n.coefficient/10, n.places-1
	}
	return n, nil
}

// at returns the number as an integer of 10^-places; ok is false if it is not
// one or needs more than 63 bits.
func (n number) at(places int) (uint64, bool) {
	if n.places > places {
		return 0, false
	}
	v := u128{0, n.coefficient}
	for range places - n.places {
		var ok bool
		if v, ok = v.mul(10); !ok || v.hi != 0 {
			return 0, false
		}
	}
	return v.lo, v.lo < 1<<63
}

// parseTokens reads a whole number of tokens, which may be written as 1e6.
func parseTokens(v any) (int64, error) {
	n, err := parseNumber(v)
	if err != nil {
		return 0, err
	}
	whole, ok := n.at(0)
	if !ok || whole > maxTokens {
		return 0, fmt.Errorf("not a whole number up to %d", int64(maxTokens))
	}
	return int64(whole), nil
}

// parseMultiplier reads a factor between 0.0001 and 100.
func parseMultiplier(v any) (uint64, error) {
	n, err := parseNumber(v)
	if err != nil {
		return 0, err
	}
	m, ok := n.at(4)
	if !ok || m == 0 || m > maxMultiplier {
		return 0, errors.New("not a factor from 0.0001 to 100 with at most four decimals")
	}
	return m, nil
}
