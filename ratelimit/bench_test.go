package ratelimit_test

import (
	"fmt"
	"testing"

	"github.com/tallystick-go/tallystick/ratelimit"
)

// busy returns a bucket that is half full with that many open segments.
func busy(b *testing.B, segments int, cost int64) (*ratelimit.Bucket, ratelimit.Limit) {
	b.Helper()
	l := ratelimit.Per(2 * int64(segments) * cost)
	bucket := new(ratelimit.Bucket)
	for range segments {
		admit(b, bucket, epoch, l, cost)
	}
	return bucket, l
}

// Admissions at the pace at which the bucket drains, so that it stays half full.
func BenchmarkAdmit(b *testing.B) {
	for _, n := range []int{8, 150, 256} {
		b.Run(fmt.Sprintf("segments=%d", n), func(b *testing.B) {
			bucket, l := busy(b, n, 1500)
			step := minute / (2 * int64(n))
			now := epoch
			b.ReportAllocs()
			for b.Loop() {
				now += step
				if _, v, err := bucket.Admit(now, l, 1500); err != nil || !v.OK {
					b.Fatal(v, err)
				}
			}
		})
	}
}

func BenchmarkRefuse(b *testing.B) {
	bucket, l := busy(b, 150, 1500)
	b.ReportAllocs()
	for b.Loop() {
		if _, v, err := bucket.Admit(epoch+1, l, l.Burst); err != nil || v.OK {
			b.Fatal(v, err)
		}
	}
}

// One batch as a store does it: decode, 32 admissions, encode.
func BenchmarkBatch32(b *testing.B) {
	for _, n := range []int{150, 220} {
		b.Run(fmt.Sprintf("segments=%d", n), func(b *testing.B) {
			bucket, l := busy(b, n, 1500)
			p := encode(b, bucket)
			out := make([]byte, 0, ratelimit.MaxEncoded)
			var work ratelimit.Bucket
			b.ReportAllocs()
			b.ReportMetric(float64(len(p)), "bytes")
			for b.Loop() {
				if err := work.UnmarshalBinary(p); err != nil {
					b.Fatal(err)
				}
				for range 32 {
					if _, v, err := work.Admit(epoch+1000, l, 1500); err != nil || !v.OK {
						b.Fatal(v, err)
					}
				}
				out, _ = work.AppendBinary(out[:0])
			}
		})
	}
}

func BenchmarkReturn(b *testing.B) {
	bucket, l := busy(b, 150, 1500)
	b.ReportAllocs()
	for b.Loop() {
		seq, _, err := bucket.Admit(epoch, l, 1500)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := bucket.Return(seq, 1500, 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnmarshal(b *testing.B) {
	bucket, _ := busy(b, 150, 1500)
	p := encode(b, bucket)
	b.ReportAllocs()
	for b.Loop() {
		if err := bucket.UnmarshalBinary(p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnmarshalFresh(b *testing.B) {
	bucket, _ := busy(b, 150, 1500)
	p := encode(b, bucket)
	b.ReportAllocs()
	for b.Loop() {
		var fresh ratelimit.Bucket
		if err := fresh.UnmarshalBinary(p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	bucket, _ := busy(b, 150, 1500)
	out := make([]byte, 0, ratelimit.MaxEncoded)
	b.ReportAllocs()
	for b.Loop() {
		out, _ = bucket.AppendBinary(out[:0])
	}
}

func BenchmarkLimiter(b *testing.B) {
	l, _ := newLimiter(b, ratelimit.Limit{PerMinute: ratelimit.MaxPerMinute, Burst: ratelimit.MaxPerMinute}, 0)
	b.ReportAllocs()
	for b.Loop() {
		if v, err := l.Allow("key", 1); err != nil || !v.OK {
			b.Fatal(v, err)
		}
	}
}
