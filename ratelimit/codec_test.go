package ratelimit_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/tallystick-go/tallystick/ratelimit"
)

// sample returns a bucket with segments of every kind.
func sample(t testing.TB) *ratelimit.Bucket {
	t.Helper()
	l := ratelimit.Per(6000)
	b := new(ratelimit.Bucket)
	var seqs []uint64
	for range 12 {
		seqs = append(seqs, admit(t, b, epoch, l, 300))
	}
	b.Fit(9, 1<<20)
	giveBack(t, b, seqs[8], 300, 100, 200)
	giveBack(t, b, seqs[10], 300, 0, 300)
	admit(t, b, epoch+12_345, l, 7)
	if _, v, err := b.Raise(epoch+20_000, l, 9); err != nil || !v.OK {
		t.Fatal(v, err)
	}
	if err := b.Overrun(epoch+30_000, 11); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestCodecRefusesEveryCut(t *testing.T) {
	p := encode(t, sample(t))
	for n := range p {
		refuseBytes(t, p[:n])
	}
	refuseBytes(t, append(bytes.Clone(p), 0))
	refuseBytes(t, bytes.Repeat([]byte{0xff}, 2000))
}

// Any change of the bytes is refused or is another bucket in its one encoding.
func TestCodecIsCanonical(t *testing.T) {
	p := encode(t, sample(t))
	for i := range p {
		for v := range 256 {
			q := bytes.Clone(p)
			q[i] = byte(v)
			checkBytes(t, q)
		}
		checkBytes(t, append(bytes.Clone(p[:i]), p[i+1:]...))
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		q := bytes.Clone(p)
		for range 1 + rng.IntN(3) {
			q[rng.IntN(len(q))] ^= 1 << rng.IntN(8)
		}
		checkBytes(t, q)
	}
}

func TestCodecMalformed(t *testing.T) {
	for name, p := range map[string][]byte{
		"empty":                       {},
		"version 0":                   {0, 0},
		"newer version":               {2, 0},
		"unknown flags":               {1, 16},
		"not anchored but open":       {1, 2},
		"more after an empty bucket":  {1, 0, 0},
		"number 0":                    {1, 1, 0, 1, 1, 0},
		"long varint":                 {1, 1, 0x81, 0, 1, 1, 0},
		"varint of eleven bytes":      {1, 1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 1, 1, 0},
		"rate too high":               {1, 1, 1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0},
		"too many segments":           {1, 1, 1, 1, 1, 0x81, 2},
		"segments missing":            {1, 1, 1, 1, 1, 1},
		"empty segment":               {1, 1, 1, 1, 1, 1, 0},
		"fraction of nothing":         {1, 5, 1, 1, 1, 0, 9},
		"zero fraction":               {1, 5, 1, 1, 1, 1, 0, 4},
		"fraction of a whole token":   {1, 5, 1, 1, 1, 1, 0x80, 0x8e, 0xce, 0x1c, 4},
		"drained of debt":             {1, 9, 1, 1, 1, 1, 1, 0, 4},
		"nothing drained":             {1, 11, 9, 1, 1, 1, 1, 0, 0, 5},
		"fractions differ":            {1, 15, 9, 1, 1, 1, 1, 5, 0, 4, 5},
		"fraction never drained":      {1, 7, 9, 1, 1, 1, 1, 5, 5},
		"open member missing":         {1, 3, 9, 1, 1, 1, 1, 4},
		"open member unannounced":     {1, 1, 9, 1, 1, 1, 5},
		"open member not made yet":    {1, 3, 9, 1, 1, 0, 1, 5},
		"open member before the time": {1, 3, 9, 1, 1, 9, 1, 5},
		"range of nothing":            {1, 3, 9, 1, 1, 1, 1, 6, 0, 0},
		"first range with a gap":      {1, 3, 9, 1, 1, 2, 1, 6, 2, 1},
		"range past the end":          {1, 3, 9, 1, 1, 1, 1, 6, 0, 2},
		"range goes back":             {1, 3, 9, 1, 1, 3, 2, 5, 6, 1, 1},
		"unknown kind":                {1, 1, 9, 1, 1, 1, 7, 3, 1},
		"not late":                    {1, 1, 9, 1, 1, 1, 7, 0, 0},
		"late and part drained":       {1, 5, 9, 1, 1, 1, 1, 7, 0, 1},
	} {
		t.Run(name, func(t *testing.T) { refuseBytes(t, p) })
	}
	for name, p := range map[string][]byte{
		"empty bucket": {1, 0},
		"no segments":  {1, 1, 9, 1, 1, 0},
		"debt":         {1, 1, 9, 1, 1, 1, 4},
		"open":         {1, 3, 9, 1, 1, 1, 1, 5},
		"range":        {1, 3, 9, 1, 1, 1, 1, 6, 0, 1},
		"late":         {1, 1, 9, 1, 1, 1, 7, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if err := new(ratelimit.Bucket).UnmarshalBinary(p); err != nil {
				t.Fatal(err)
			}
			checkBytes(t, p)
		})
	}
}

// refuseBytes checks that bytes are refused and that the receiver stays as it was.
func refuseBytes(t testing.TB, p []byte) {
	t.Helper()
	b := sample(t)
	before := encode(t, b)
	if err := b.UnmarshalBinary(p); !errors.Is(err, ratelimit.ErrCorrupt) {
		t.Fatalf("% x: %v", p, err)
	}
	if !bytes.Equal(before, encode(t, b)) {
		t.Fatal("a refused encoding changed the bucket")
	}
}

// checkBytes checks that bytes are refused, or decode to a sound bucket that encodes
// to them again.
func checkBytes(t testing.TB, p []byte) {
	t.Helper()
	b := new(ratelimit.Bucket)
	if err := b.UnmarshalBinary(p); err != nil {
		if !errors.Is(err, ratelimit.ErrCorrupt) {
			t.Fatalf("% x: %v", p, err)
		}
		return
	}
	if !b.Check() {
		t.Fatalf("% x: cached sums are wrong", p)
	}
	if again := encode(t, b); !bytes.Equal(p, again) {
		t.Fatalf("% x\nencodes as\n% x", p, again)
	}
}

// Decoding into a bucket that held more leaves nothing of it.
func TestUnmarshalReplaces(t *testing.T) {
	b := sample(t)
	if err := b.UnmarshalBinary(encode(t, new(ratelimit.Bucket))); err != nil {
		t.Fatal(err)
	}
	if b.Segments() != 0 || !bytes.Equal(encode(t, b), encode(t, new(ratelimit.Bucket))) {
		t.Fatal("something is left")
	}
}

// useDecoded makes every kind of call on a decoded bucket: none may panic or leave it
// unsound.
func useDecoded(t testing.TB, p []byte) {
	t.Helper()
	b := new(ratelimit.Bucket)
	if b.UnmarshalBinary(p) != nil {
		return
	}
	l := ratelimit.Per(1000)
	sound := func(what string) {
		t.Helper()
		if !b.Check() {
			t.Fatalf("% x: unsound after %s", p, what)
		}
		checkBytes(t, encode(t, b))
	}
	for seq := range uint64(12) {
		for _, amount := range []int64{0, 1, 2, 300} {
			if n, err := b.Return(seq, amount, amount/2); err == nil && (n < 0 || n > amount) {
				t.Fatalf("% x: returned %d of %d", p, n, amount)
			}
			sound("Return")
		}
	}
	for _, now := range []int64{-1, 0, 5, epoch, 1<<63 - 1} {
		if _, v, err := b.Admit(now, l, 1); err == nil && v.OK {
			sound("Admit")
		}
		if _, v, err := b.Raise(now, l, 1); err == nil && v.OK {
			sound("Raise")
		}
		if b.Overrun(now, 3) == nil {
			sound("Overrun")
		}
	}
	b.Reanchor(7)
	sound("Reanchor")
}
