package keys

import (
	"crypto/rand"
	"maps"
	"slices"
	"time"
)

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
