package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keyspg"
	"github.com/tallystick-go/tallystick/keys/keystest"
)

// The sizes that a look-up must not feel.
const (
	manyKeys = 1_000_000
	fewKeys  = 1_000
)

// keyStore returns a store of n keys, filled when first asked for.
func (e *environment) keyStore(ctx context.Context, n int) (*keyspg.Store, error) {
	if s := e.keys[n]; s != nil {
		return s, nil
	}
	pool, err := e.pool(ctx, 32)
	if err != nil {
		return nil, err
	}
	schema, began := e.schema(), time.Now()
	s, err := keyspg.New(pool, &keyspg.Options{Schema: schema, Timeout: 10 * time.Minute})
	if err != nil {
		return nil, err
	}
	if err := s.Migrate(ctx); err != nil {
		return nil, err
	}
	if err := keystest.BenchFill(ctx, s, n); err != nil {
		return nil, err
	}
	for _, table := range []string{"teams", "keys", "key_secrets"} {
		if _, err := pool.Exec(ctx, fmt.Sprintf("vacuum analyze %q.%s", schema, table)); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(os.Stderr, "# %d keys were imported in %.0f s\n", n, time.Since(began).Seconds())
	if e.keys == nil {
		e.keys = map[int]*keyspg.Store{}
	}
	e.keys[n] = s
	return s, nil
}

// resolveAny resolves tokens of all the store, without a cache.
func resolveAny(n int, s *keyspg.Store) load {
	tokens := make([]string, min(n, 1<<16))
	for i := range tokens {
		tokens[i] = keystest.BenchToken(rand.IntN(n)).Reveal()
	}
	return func(ctx context.Context, _ int) error {
		_, err := s.Resolve(ctx, tokens[rand.IntN(len(tokens))])
		return err
	}
}

// listAny asks for a page of 100 from anywhere.
func listAny(n int, s *keyspg.Store) load {
	return func(ctx context.Context, _ int) error {
		page, err := s.Keys(ctx, keys.ListKeys{After: fmt.Sprintf("k%07d", rand.IntN(n-101)), Limit: 100})
		if err == nil && len(page.Keys) != 100 {
			err = fmt.Errorf("a page has %d keys, not 100", len(page.Keys))
		}
		return err
	}
}

// compareSizes runs the same on many keys and on few, in turns, after a warm-up.
func (r row) compareSizes(ctx context.Context, env *environment) (*result, error) {
	sides := map[int][]sample{}
	loads := map[int]load{}
	for _, n := range []int{fewKeys, manyKeys} {
		s, err := env.keyStore(ctx, n)
		if err != nil {
			return nil, err
		}
		loads[n] = r.sizes(n, s)
		if _, err := drive(ctx, r.callers, env.options.length, loads[n]); err != nil {
			return nil, err
		}
	}
	for range env.options.rounds {
		for n, op := range loads {
			s, err := drive(ctx, r.callers, env.options.length, op)
			if err != nil {
				return nil, err
			}
			sides[n] = append(sides[n], s)
		}
	}
	mine := sides[manyKeys]
	out := &result{
		Name: r.name, Store: r.store, Callers: r.callers, Gateways: 1, Ceiling: "thousand-keys",
		Ops: pick(mine, func(s sample) float64 { return s.ops }), P50: pick(mine, func(s sample) float64 { return s.p50 }),
		P99: pick(mine, func(s sample) float64 { return s.p99 }), Allocs: pick(mine, func(s sample) float64 { return s.allocs }),
		CeilingOps: pick(sides[fewKeys], func(s sample) float64 { return s.ops }),
	}
	out.Ratio = out.Ops / out.CeilingOps
	return out, nil
}
