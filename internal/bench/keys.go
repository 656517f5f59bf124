package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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
	// Few connections: each has to map every page of the server's memory that it meets, and
	// until it has, that is what is measured of the larger store.
	pool, err := e.pool(ctx, 4)
	if err != nil {
		return nil, err
	}
	schema, began := e.schema(), time.Now()
	s, err := keyspg.New(pool, &keyspg.Options{Schema: schema})
	if err != nil {
		return nil, err
	}
	if err := s.Migrate(ctx); err != nil {
		return nil, err
	}
	if err := fillKeys(ctx, pool, schema, n); err != nil {
		return nil, err
	}
	for _, table := range []string{"teams", "keys", "key_secrets"} {
		if _, err := pool.Exec(ctx, fmt.Sprintf("vacuum analyze %q.%s", schema, table)); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(os.Stderr, "# %d keys were made in %.0f s\n", n, time.Since(began).Seconds())
	if e.keys == nil {
		e.keys = map[int]*keyspg.Store{}
	}
	e.keys[n] = s
	return s, nil
}

// fillKeys makes n keys of a thousand teams as the adapter writes them, though not by it: a
// million would take minutes.
func fillKeys(ctx context.Context, pool *pgxpool.Pool, schema string, n int) error {
	for _, sql := range []string{
		`insert into %[1]q.teams (id, name, guardrail, revision, created_us, updated_us) select 't' || i, '', '', 1, 1, 1 from generate_series(0, 999) i`,
		`insert into %[1]q.keys (id, team_id, owner, name, revision, created_us, updated_us)
		 select 'k' || lpad(i::text, 7, '0'), 't' || i %% 1000, 'u' || i %% 1000, '', 1, 1, 1 from generate_series(0, %[2]d) i`,
	} {
		if _, err := pool.Exec(ctx, fmt.Sprintf(sql, schema, n-1)); err != nil {
			return err
		}
	}
	_, err := pool.CopyFrom(ctx, pgx.Identifier{schema, "key_secrets"}, []string{"hash", "key_id", "rotation_id", "grace_us", "created_us"},
		pgx.CopyFromSlice(n, func(i int) ([]any, error) {
			hash := keystest.BenchToken(i).Hash()
			return []any{hash[:], keyID(i), "", int64(0), int64(1)}, nil
		}))
	return err
}

func keyID(i int) string { return fmt.Sprintf("k%07d", i) }

// resolveAny resolves tokens from all over the store, without a cache.
func resolveAny(n int, s *keyspg.Store) load {
	tokens := make([]string, min(n, 1<<12))
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
		page, err := s.Keys(ctx, keys.ListKeys{After: keyID(rand.IntN(n - 101)), Limit: 100})
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
	for _, op := range loads { // and again, now that every connection has met both
		if _, err := drive(ctx, r.callers, 2*env.options.length, op); err != nil {
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
