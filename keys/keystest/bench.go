package keystest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/tallystick-go/tallystick/keys"
)

// BenchKeys is how many keys the benchmarks' store holds.
const BenchKeys = 1000

// Bench runs the same workloads for every adapter.
func Bench(b *testing.B, h Harness) {
	ctx := context.Background()
	s := h.New(b)
	tokens := fill(b, s)
	b.Run("Resolve/Alone", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := s.Resolve(ctx, tokens[i%BenchKeys]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Resolve/Callers32", func(b *testing.B) {
		var next atomic.Int64
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := s.Resolve(ctx, tokens[next.Add(1)%BenchKeys]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
	b.Run("Resolve/Cached", func(b *testing.B) {
		cache := keys.NewCache(s, nil)
		for i := 0; b.Loop(); i++ {
			if _, err := cache.Resolve(ctx, tokens[i%BenchKeys]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Keys/PageOf100", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := s.Keys(ctx, keys.ListKeys{TeamID: "red", After: fmt.Sprintf("k%06d", i*37%BenchKeys), Limit: 100}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("UpdateKey", func(b *testing.B) {
		revision := int64(1)
		for i := 0; b.Loop(); i++ {
			key, err := s.UpdateKey(ctx, keys.UpdateKey{ID: "k000000", IfRevision: revision, Name: keys.Set(fmt.Sprint(i))})
			if err != nil {
				b.Fatal(err)
			}
			revision = key.Revision
		}
	})
}

func fill(b *testing.B, s keys.Store) []string {
	b.Helper()
	ctx := context.Background()
	if _, err := s.CreateTeam(ctx, keys.CreateTeam{ID: "red"}); err != nil {
		b.Fatal(err)
	}
	tokens := make([]string, BenchKeys)
	for i := range tokens {
		made, err := s.CreateKey(ctx, keys.CreateKey{ID: fmt.Sprintf("k%06d", i), TeamID: "red", Owner: fmt.Sprint("user", i%10)})
		if err != nil {
			b.Fatal(err)
		}
		tokens[i] = made.Token.Reveal()
	}
	return tokens
}
