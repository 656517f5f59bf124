package keys

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"
)

// Micros is t as stores keep it: microseconds since 1970, nil for none.
func Micros(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	us := t.UnixMicro()
	return &us
}

// FromMicros is the reverse of Micros. Any stored value is a time, even a corrupt
// one: an expiry that cannot be right must not read as no expiry.
func FromMicros(us *int64) *time.Time {
	if us == nil {
		return nil
	}
	t := time.UnixMicro(*us).UTC()
	if *us > maxMicros {
		t = time.UnixMicro(0).UTC()
	}
	return &t
}

// StoredMicros is a stored instant as a [Definition] holds it: 0 for none, and
// never 0 for a stored one.
func StoredMicros(us *int64) int64 {
	switch {
	case us == nil:
		return 0
	case *us <= 0 || *us > maxMicros:
		return -1
	}
	return *us
}

// EncodeList is a list as stores keep it: a JSON array, nil for everything.
func EncodeList(list []string) *string {
	if list == nil {
		return nil
	}
	return encodeJSON(list)
}

// DecodeList is the reverse of EncodeList. It fails rather than to widen a list.
func DecodeList(stored *string) ([]string, error) {
	if stored == nil {
		return nil, nil
	}
	var list []string
	if err := json.Unmarshal([]byte(*stored), &list); err != nil || list == nil {
		return nil, errCorrupt
	}
	return list, nil
}

// EncodeMetadata is metadata as stores keep it: a JSON object, nil for none.
func EncodeMetadata(metadata map[string]string) *string {
	if len(metadata) == 0 {
		return nil
	}
	return encodeJSON(metadata)
}

// DecodeMetadata is the reverse of EncodeMetadata.
func DecodeMetadata(stored *string) (map[string]string, error) {
	if stored == nil {
		return nil, nil
	}
	var metadata map[string]string
	if err := json.Unmarshal([]byte(*stored), &metadata); err != nil {
		return nil, errCorrupt
	}
	return metadata, nil
}

var errCorrupt = errors.New("keys: a stored list or map is not JSON of the right kind")

func encodeJSON(v any) *string {
	data, err := json.Marshal(v)
	if err != nil {
		panic("keys: strings always encode: " + err.Error())
	}
	text := string(data)
	return &text
}

// mintID makes an identifier of 128 random bits.
func mintID(prefix string) string {
	var wide [32]byte
	_, _ = rand.Read(wide[16:]) // never fails, by its documentation
	return prefix + base62(wide)[bodyDigits-22:]
}

func (l Limits) clone() Limits {
	return Limits{
		RequestsPerMinute: clonePtr(l.RequestsPerMinute),
		TokensPerMinute:   clonePtr(l.TokensPerMinute),
		TokensPerDay:      clonePtr(l.TokensPerDay),
		Concurrency:       clonePtr(l.Concurrency),
		CostPerDay:        clonePtr(l.CostPerDay),
		CostPerMonth:      clonePtr(l.CostPerMonth),
	}
}

func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// cloneList keeps nil and empty apart.
func cloneList(list []string) []string {
	if list == nil {
		return nil
	}
	return append([]string{}, list...)
}

// cloneMetadata makes none of empty: stores keep no difference.
func cloneMetadata(metadata map[string]string) map[string]string {
	if len(metadata) == 0 {
		return nil
	}
	return maps.Clone(metadata)
}

// later keeps a row's time from going back with the clock.
func later(now, before time.Time) time.Time {
	if now = micro(now); now.Before(before) {
		return before
	}
	return now
}

func firstError(errs ...error) error {
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return errs[i]
	}
	return nil
}
