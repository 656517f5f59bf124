package escrow

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// NewGrantID mints an id for the given instant.
func NewGrantID(at time.Time) GrantID {
	var id GrantID
	_, _ = rand.Read(id[:]) // never fails
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(at.UnixMilli())<<16)
	copy(id[:6], ms[:6])
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

// NewBootID mints the id of one opening of a journal.
func NewBootID() BootID {
	var id BootID
	_, _ = rand.Read(id[:])
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

// Valid reports whether id has the version and variant of a time-ordered UUID.
func (id GrantID) Valid() bool { return id[6]>>4 == 7 && id[8]>>6 == 2 }

// IsZero reports whether there is no id.
func (id GrantID) IsZero() bool { return id == GrantID{} }

// IsZero reports whether there is no id.
func (id BootID) IsZero() bool { return id == BootID{} }

// UnixMilli returns the instant inside the id in milliseconds since the Unix epoch, by the
// clock of the node that minted it.
func (id GrantID) UnixMilli() int64 { return int64(binary.BigEndian.Uint64(id[:8]) >> 16) }

func (id GrantID) String() string { return formatUUID(id) }
func (id BootID) String() string  { return formatUUID(id) }

// MarshalText writes the canonical lower-case form.
func (id GrantID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// MarshalText writes the canonical lower-case form.
func (id BootID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText wrote. Errors: *Error.
func (id *GrantID) UnmarshalText(text []byte) error {
	parsed, err := ParseGrantID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}

// UnmarshalText reads what MarshalText wrote. Errors: *Error.
func (id *BootID) UnmarshalText(text []byte) error {
	parsed, err := ParseBootID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}

// ParseGrantID reads the canonical lower-case form of an id. Errors: *Error.
func ParseGrantID(s string) (GrantID, error) {
	b, ok := parseUUID(s)
	if !ok || !GrantID(b).Valid() {
		return GrantID{}, refuse("", "must be a version 7 UUID in its canonical lower-case form")
	}
	return b, nil
}

// ParseBootID reads the canonical lower-case form of an id. Errors: *Error.
func ParseBootID(s string) (BootID, error) {
	b, ok := parseUUID(s)
	if !ok || BootID(b).IsZero() {
		return BootID{}, refuse("", "must be a UUID in its canonical lower-case form, and not of zeros")
	}
	return b, nil
}

func formatUUID(b [16]byte) string {
	var out [36]byte
	hex.Encode(out[:8], b[:4])
	hex.Encode(out[9:13], b[4:6])
	hex.Encode(out[14:18], b[6:8])
	hex.Encode(out[19:23], b[8:10])
	hex.Encode(out[24:], b[10:])
	out[8], out[13], out[18], out[23] = '-', '-', '-', '-'
	return string(out[:])
}

func parseUUID(s string) (b [16]byte, ok bool) {
	if len(s) != 36 {
		return b, false
	}
	digits := s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	if _, err := hex.Decode(b[:], []byte(digits)); err != nil || formatUUID(b) != s {
		return [16]byte{}, false
	}
	return b, true
}
