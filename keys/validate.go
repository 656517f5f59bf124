package keys

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"
)

// What a team or key may hold at most. Listings return all of it, so each is a
// bound on the size of a page too.
const (
	MaxIDBytes        = 128
	MaxNameBytes      = 256
	MaxOwnerBytes     = 256
	MaxGuardrailBytes = 256
	MaxMetadataBytes  = 4096 // of the JSON object
	MaxListEntries    = 256
	MaxEntryBytes     = 256
	MaxListBytes      = 16 << 10 // of the JSON array
	MaxGrace          = 365 * 24 * time.Hour
)

// maxMicros is the end of the year 9999, the last instant RFC 3339 can write.
const maxMicros int64 = 253402300799999999

func validID(field, id string) error {
	if id == "" {
		return refuse(field, "must not be empty")
	}
	if len(id) > MaxIDBytes {
		return refuse(field, fmt.Sprintf("must be at most %d bytes", MaxIDBytes))
	}
	for i := range len(id) {
		c := id[i]
		switch {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z':
		case i > 0 && (c == '.' || c == '_' || c == ':' || c == '-'):
		default:
			return refuse(field, "must be letters, digits and . _ : - and begin with a letter or digit")
		}
	}
	return nil
}

func validText(field, s string, limit int) error {
	if len(s) > limit {
		return refuse(field, fmt.Sprintf("must be at most %d bytes", limit))
	}
	if !utf8.ValidString(s) {
		return refuse(field, "must be UTF-8")
	}
	for _, r := range s {
		// U+FFFD is what decoders put for a broken character: two different
		// broken texts would become the same one.
		if r == utf8.RuneError || r == '\u2028' || r == '\u2029' ||
			unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return refuse(field, "must not contain control or replacement characters")
		}
	}
	return nil
}

func validList(field string, list []string) error {
	if len(list) > MaxListEntries {
		return refuse(field, fmt.Sprintf("must have at most %d entries", MaxListEntries))
	}
	seen := make(map[string]bool, len(list))
	for _, entry := range list {
		if entry == "" {
			return refuse(field, "must not contain an empty entry")
		}
		if err := validText(field, entry, MaxEntryBytes); err != nil {
			return err
		}
		if seen[entry] {
			return refuse(field, "must not name an entry twice")
		}
		seen[entry] = true
	}
	if encoded, err := json.Marshal(list); err != nil || len(encoded) > MaxListBytes {
		return refuse(field, fmt.Sprintf("must be at most %d bytes as JSON", MaxListBytes))
	}
	return nil
}

func validMetadata(field string, metadata map[string]string) error {
	if len(metadata) == 0 {
		return nil
	}
	if encoded, err := json.Marshal(metadata); err != nil || len(encoded) > MaxMetadataBytes {
		return refuse(field, fmt.Sprintf("must be at most %d bytes as JSON", MaxMetadataBytes))
	}
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		if name == "" {
			return refuse(field, "must not contain an empty name")
		}
		if err := validText(field, name, MaxMetadataBytes); err != nil {
			return err
		}
		if err := validText(field, metadata[name], MaxMetadataBytes); err != nil {
			return err
		}
	}
	return nil
}

func validDefaultMaxTokens(n *int64) error {
	if n != nil && *n < 1 {
		return refuse("default_max_tokens", "must be at least 1, or absent")
	}
	return nil
}

func validExpiry(at *time.Time) error {
	if at == nil {
		return nil
	}
	// The year first: UnixMicro of a time far outside wraps around.
	if y := at.UTC().Year(); y < 1970 || y > 9999 || at.UnixMicro() <= 0 {
		return refuse("expires_at", "must lie between the years 1970 and 9999")
	}
	return nil
}

func validRevision(revision int64, required bool) error {
	if revision < 0 || required && revision == 0 {
		return refuse("if_revision", "must be the revision that the edit is based on")
	}
	return nil
}

// micro is t as every store keeps it: UTC, whole microseconds, rounded down.
func micro(t time.Time) time.Time { return time.UnixMicro(t.UnixMicro()).UTC() }

func microPtr(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	at := micro(*t)
	return &at
}
