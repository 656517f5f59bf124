package ratelimit_test

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever the bytes are, they are refused or are the one encoding of a sound bucket
// that can be used.
func FuzzUnmarshalBinary(f *testing.F) {
	f.Add(encode(f, sample(f)))
	f.Add([]byte{1, 0})
	f.Add([]byte{1, 3, 9, 1, 1, 1, 1, 6, 0, 1})
	f.Fuzz(func(t *testing.T, p []byte) {
		checkBytes(t, p)
		useDecoded(t, p)
	})
}

// FuzzSchedule reads the fuzzer's bytes as a schedule and holds the bucket against the
// model.
func FuzzSchedule(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		s := newSchedule(t, true)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			s.step()
			s.recode()
			s.compare()
		}
		s.checkCounterfactual()
	}))
}
