package escrow

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/tallystick-go/tallystick/governance/policy"
)

// decoder reads JSON that is known to be valid, from left to right, member by member of
// exactly the names that are expected: nothing is unknown, missing, there twice or null.
type decoder struct {
	data []byte
	at   int
}

// decode reads exactly one value.
func decode(data []byte, most int, read func(*decoder) error) error {
	switch {
	case len(data) > most:
		return refuse("", fmt.Sprintf("must be at most %d bytes", most))
	case !utf8.Valid(data):
		return refuse("", "must be UTF-8")
	case !json.Valid(data):
		return refuse("", "must be one JSON value")
	}
	return read(&decoder{data: data})
}

// peek is the first byte of the next token.
func (d *decoder) peek() byte {
	for d.at < len(d.data) {
		switch c := d.data[d.at]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
			d.at++
		default:
			return c
		}
	}
	return 0
}

// raw is the next value as it stands.
func (d *decoder) raw() []byte {
	d.peek()
	start, depth := d.at, 0
	for d.at < len(d.data) {
		switch d.data[d.at] {
		case '"':
			d.skipText()
		case '{', '[':
			depth++
			d.at++
		case '}', ']':
			if depth == 0 {
				return d.data[start:d.at] // a number or word that ends with its object
			}
			depth--
			d.at++
		case ' ', '\t', '\r', '\n', ',', ':':
			if depth == 0 {
				return d.data[start:d.at]
			}
			d.at++
			continue
		default:
			d.at++
			continue
		}
		if depth == 0 {
			break
		}
	}
	return d.data[start:d.at]
}

func (d *decoder) skipText() {
	for d.at++; d.data[d.at] != '"'; d.at++ {
		if d.data[d.at] == '\\' {
			d.at++
		}
	}
	d.at++
}

// field is a member that an object must have, unless it is optional.
type field struct {
	name     string
	read     func(*decoder) error
	optional bool
}

func (d *decoder) object(fields ...field) error {
	if d.peek() != '{' {
		return refuse("", "must be an object")
	}
	var seen uint32
	for d.at++; d.peek() != '}'; {
		name, err := d.text()
		if err != nil {
			return err
		}
		i := 0
		for i < len(fields) && fields[i].name != name {
			i++
		}
		switch {
		case i == len(fields):
			return refuse(policy.Member("", name), "is not known")
		case seen&(1<<i) != 0:
			return refuse(name, "must not stand here twice")
		}
		seen |= 1 << i
		if err := fields[i].read(d); err != nil {
			return within(name, err)
		}
	}
	d.at++
	for i := range fields {
		if seen&(1<<i) == 0 && !fields[i].optional {
			return refuse(fields[i].name, "is missing")
		}
	}
	return nil
}

// text reads a text.
func (d *decoder) text() (string, error) {
	if d.peek() != '"' {
		return "", refuse("", "must be a text")
	}
	start := d.at
	d.skipText()
	inner := d.data[start+1 : d.at-1]
	for _, c := range inner {
		if c == '\\' {
			var s string
			if err := json.Unmarshal(d.data[start:d.at], &s); err != nil {
				return "", refuse("", "must be a text")
			}
			return s, nil
		}
	}
	return string(inner), nil
}

// entries is a reader of a list that may be empty and must be there.
func entries[T any](name string, to *[]T, most int, read func(*decoder, *T) error) field {
	return field{name: name, read: func(d *decoder) error {
		if d.peek() != '[' {
			return refuse("", "must be a list")
		}
		for d.at++; d.peek() != ']'; {
			if len(*to) == most {
				return refuse("", fmt.Sprintf("must have at most %d entries", most))
			}
			var entry T
			if err := read(d, &entry); err != nil {
				return within(index("", len(*to)), err)
			}
			*to = append(*to, entry)
		}
		d.at++
		return nil
	}}
}

// text is a member that is a text, which must not be empty.
func text(name string, to *string) field {
	return field{name: name, read: func(d *decoder) error {
		s, err := d.text()
		if err == nil && s == "" {
			err = refuse("", "must not be empty")
		}
		*to = s
		return err
	}}
}

func optionalText(name string, to *string) field {
	f := text(name, to)
	f.optional = true
	return f
}

// parsed is a member that is a text which says something else.
func parsed(name string, to interface{ UnmarshalText([]byte) error }, why string) field {
	return field{name: name, read: func(d *decoder) error {
		s, err := d.text()
		if err != nil {
			return err
		}
		if to.UnmarshalText([]byte(s)) != nil {
			return refuse("", why)
		}
		return nil
	}}
}

// number is a member that is a whole number, written as one: 1.0, 1e3 and -0 are not.
func number[T ~int32 | ~int64](name string, to *T) field {
	return field{name: name, read: func(d *decoder) error {
		if c := d.peek(); c != '-' && (c < '0' || c > '9') {
			return refuse("", "must be a whole number")
		}
		raw := string(d.raw())
		n, err := strconv.ParseInt(raw, 10, 64)
		switch {
		case err != nil || strconv.FormatInt(n, 10) != raw:
			return refuse("", "must be a whole number of 64 bits, without a fraction or an exponent")
		case int64(T(n)) != n:
			return refuse("", "must not be so large")
		}
		*to = T(n)
		return nil
	}}
}

func flag(name string, to *bool) field {
	return field{name: name, read: func(d *decoder) error {
		switch raw := string(d.raw()); raw {
		case "true", "false":
			*to = raw == "true"
			return nil
		}
		return refuse("", "must be true or false")
	}}
}
