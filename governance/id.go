package governance

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"
)

// ConstraintID names one limit on one subject for ever. It is a hash of
// (scope, subject, kind, policy, rule, period) and of nothing that an edit can
// change, so counters survive edits, rotation, deletion and re-adding.
//
// Source: internal/docs/architecture.md "State".
type ConstraintID [16]byte

// PermitID names one provider attempt. It is a version 7 UUID: its first 48 bits
// are milliseconds since the Unix epoch, so that permits can be kept in a ring
// by time and pruned without touching younger ones.
//
// Source: internal/docs/architecture.md "State".
type PermitID [16]byte

// BatchID names one committed transaction of admissions. A store inserts it under
// a unique constraint, so that an attempt whose commit was not acknowledged can
// be proved to have happened, or be made impossible by a tombstone of that id.
type BatchID [16]byte

// Nonce is the proof of ownership of a permit. It is minted for each Admit call
// and never leaves the Governor that made it.
type Nonce [16]byte

// Fingerprint is a digest of the terms that a caller asked for.
type Fingerprint [16]byte

// NewPermitID returns a fresh id for the given instant.
func NewPermitID(at time.Time) PermitID {
	var id PermitID
	_, _ = rand.Read(id[:])
	id.stamp(at.UnixMilli())
	return id
}

// stamp writes the time, version and variant into an id whose other bits are random.
func (id *PermitID) stamp(unixMilli int64) {
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(unixMilli)<<16)
	copy(id[:6], ms[:6])
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
}

// ParsePermitID reads the canonical lower-case text form of an id.
// Errors: ErrInvalid.
func ParsePermitID(s string) (PermitID, error) {
	id, err := parseUUID(s)
	if err != nil {
		return PermitID{}, invalid("id", "must be a version 7 UUID in its canonical text form")
	}
	if p := PermitID(id); !p.Valid() {
		return PermitID{}, invalid("id", "must be a version 7 UUID")
	}
	return PermitID(id), nil
}

// Valid reports whether id has the version and variant of a time-ordered UUID.
func (id PermitID) Valid() bool { return id[6]>>4 == 7 && id[8]>>6 == 2 }

// IsZero reports whether no id was given.
func (id PermitID) IsZero() bool { return id == PermitID{} }

// UnixMilli returns the instant inside the id in milliseconds since the Unix epoch.
func (id PermitID) UnixMilli() int64 {
	return int64(binary.BigEndian.Uint64(id[:8]) >> 16)
}

// older reports whether the id is older than the instant, in µs.
func (id PermitID) older(than int64) bool { return id.UnixMilli()*1000 < than }

func (id PermitID) String() string     { return formatUUID(id) }
func (id BatchID) String() string      { return formatUUID(id) }
func (id ConstraintID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText writes the canonical text form; nothing for the zero id.
func (id PermitID) MarshalText() ([]byte, error) {
	if id.IsZero() {
		return nil, nil
	}
	return []byte(id.String()), nil
}

// UnmarshalText reads what MarshalText wrote. Errors: ErrInvalid.
func (id *PermitID) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*id = PermitID{}
		return nil
	}
	parsed, err := ParsePermitID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// MarshalText writes the id in lower-case hexadecimal.
func (id ConstraintID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads 32 lower-case hexadecimal digits. Errors: ErrInvalid.
func (id *ConstraintID) UnmarshalText(text []byte) error {
	parsed, err := ParseConstraintID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// ParseConstraintID reads 32 lower-case hexadecimal digits. Errors: ErrInvalid.
func ParseConstraintID(s string) (ConstraintID, error) {
	var id ConstraintID
	if len(s) != 32 {
		return id, invalid("constraint", "must be 32 hexadecimal digits")
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil || id.String() != s {
		return ConstraintID{}, invalid("constraint", "must be 32 lower-case hexadecimal digits")
	}
	return id, nil
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

func parseUUID(s string) (b [16]byte, err error) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return b, fmt.Errorf("%w: not a UUID", ErrInvalid)
	}
	digits := s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	if _, err := hex.Decode(b[:], []byte(digits)); err != nil || formatUUID(b) != s {
		return [16]byte{}, fmt.Errorf("%w: not a UUID", ErrInvalid)
	}
	return b, nil
}
