package keystest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

// BenchKeys is how many keys the benchmarks' store holds.
const BenchKeys = 1000

// Bench runs the same workloads for every adapter, on a store of BenchKeys keys.
func Bench(b *testing.B, h Harness) {
	s := h.New(b)
	BenchSize(b, s, BenchKeys)
	ctx := context.Background()
	b.Run("Resolve/Cached", func(b *testing.B) {
		cache, token := keys.NewCache(s, nil), BenchToken(0).Reveal()
		for b.Loop() {
			if _, err := cache.Resolve(ctx, token); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("UpdateKey", func(b *testing.B) {
		key, err := s.Key(ctx, benchID(0))
		for i := 0; b.Loop(); i++ {
			if err == nil {
				key, err = s.UpdateKey(ctx, keys.UpdateKey{ID: key.ID, IfRevision: key.Revision, Name: keys.Set(fmt.Sprint(i))})
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchSize runs the workloads that must not slow down as a store grows, on a store
// of n keys: it fills an empty store, or one that has some of them. Compare two sizes.
func BenchSize(b *testing.B, s keys.Store, n int) {
	b.Helper()
	ctx := context.Background()
	if err := BenchFill(ctx, s, n); err != nil {
		b.Fatal(err)
	}
	// Every n-th key in an order that visits all of them and jumps about.
	tokens := make([]string, min(n, 4096))
	places := make([]int, len(tokens))
	for i := range tokens {
		places[i] = i * 7919 % n
		tokens[i] = BenchToken(places[i]).Reveal()
	}
	b.Run("Resolve/Alone", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := s.Resolve(ctx, tokens[i%len(tokens)]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Resolve/Callers32", func(b *testing.B) {
		var next atomic.Int64
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := s.Resolve(ctx, tokens[int(next.Add(1))%len(tokens)]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
	for _, page := range []struct {
		name string
		keys.ListKeys
	}{
		{"Keys/PageOf100", keys.ListKeys{}},
		{"Keys/PageOf100OfTeam", keys.ListKeys{TeamID: benchTeam(3)}},
		{"Keys/PageOf100OfOwner", keys.ListKeys{Owner: benchOwner(3)}},
	} {
		b.Run(page.name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				page.After, page.Limit = benchID(places[i%len(places)]/2), 100 // a full page from there
				if _, err := s.Keys(ctx, page.ListKeys); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// benchGroups is how many teams and owners share the keys: so few that a page of one
// of them is full in the smaller store too.
const benchGroups = 4

// BenchFill gives a store n keys, of a few teams and owners: in bulk where the
// store is a keys.Importer. What is there already stays.
func BenchFill(ctx context.Context, s keys.Store, n int) error {
	if in, ok := s.(keys.Importer); ok {
		_, err := in.Import(ctx, func(yield func(keys.Rows, error) bool) {
			const batch = 2000
			for from := 0; from < n; from += batch {
				if !yield(benchRows(from, min(from+batch, n)), nil) {
					return
				}
			}
		})
		return err
	}
	for i := range n {
		if i < benchGroups {
			if _, err := s.CreateTeam(ctx, keys.CreateTeam{ID: benchTeam(i)}); err != nil {
				return err
			}
		}
		if _, err := s.CreateKey(ctx, keys.CreateKey{ID: benchID(i), TeamID: benchTeam(i), Owner: benchOwner(i), Token: BenchToken(i)}); err != nil {
			return err
		}
	}
	return nil
}

// BenchToken is the token of the i-th key: always the same.
func BenchToken(i int) keys.Token {
	token, err := keys.Mint(&seeded{i})
	if err != nil {
		panic(err) // seeded never fails
	}
	return token
}

// seeded is as random as a benchmark needs.
type seeded struct{ i int }

func (s *seeded) Read(p []byte) (int, error) {
	sum := sha256.Sum256(fmt.Append(nil, "bench ", s.i))
	return copy(p, sum[:]), nil
}

func benchRows(from, to int) keys.Rows {
	at := time.Unix(1, 0).UTC()
	var rows keys.Rows
	for i := range benchGroups {
		rows.Teams = append(rows.Teams, keys.Team{ID: benchTeam(i), Revision: 1, CreatedAt: at, UpdatedAt: at})
	}
	for i := from; i < to; i++ {
		rows.Keys = append(rows.Keys, keys.Key{ID: benchID(i), TeamID: benchTeam(i), Owner: benchOwner(i), Revision: 1, CreatedAt: at, UpdatedAt: at})
		rows.Secrets = append(rows.Secrets, keys.Secret{Hash: BenchToken(i).Hash(), KeyID: benchID(i), CreatedAt: at})
	}
	return rows
}

func benchTeam(i int) string  { return fmt.Sprint("team", i%benchGroups) }
func benchOwner(i int) string { return fmt.Sprint("user", i%benchGroups) }
func benchID(i int) string    { return fmt.Sprintf("k%07d", i) }
