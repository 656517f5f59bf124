package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ceiling is the bare commit that a row is compared with.
type ceiling struct {
	name  string
	loads map[int]load // by pool size; the best one counts
}

const (
	hotUpdate = `update bench_ceiling set n = n + 1 where id = 1`
	anyUpdate = `update bench_ceiling set n = n + 1 where id = $1::bigint`
	bareRow   = `insert into bench_insert (id, a, b, c) values (gen_random_uuid(), $1::bigint, $2::bigint, $3::bytea)`
)

// prepareCeilings makes the tables, once per server.
func (e *environment) prepareCeilings(ctx context.Context) error {
	pool, err := e.pool(ctx, 1)
	if err != nil {
		return err
	}
	for _, sql := range []string{
		`create table if not exists bench_ceiling (id bigint primary key, n bigint not null) with (fillfactor = 50)`,
		`insert into bench_ceiling select i, 0 from generate_series(1, 1000) i on conflict do nothing`,
		`create table if not exists bench_insert (id uuid primary key, a bigint, b bigint, c bytea)`,
	} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

func (e *environment) postgresCeiling(ctx context.Context, name string, callers int) (*ceiling, error) {
	if err := e.prepareCeilings(ctx); err != nil {
		return nil, err
	}
	c := &ceiling{name: name, loads: map[int]load{}}
	for _, size := range []int{1, 4, callers} {
		if c.loads[size] != nil {
			continue
		}
		pool, err := e.pool(ctx, size)
		if err != nil {
			return nil, err
		}
		op, sql, err := bare(name, pool)
		if err != nil {
			return nil, err
		}
		if size == 1 {
			fmt.Fprintf(os.Stderr, "# ceiling %s: %s (autocommit, pools of 1, 4 and %d; the best counts)\n", name, sql, callers)
		}
		c.loads[size] = op
	}
	return c, nil
}

func bare(name string, pool *pgxpool.Pool) (load, string, error) {
	switch name {
	case "update-hot":
		return func(ctx context.Context, _ int) error {
			_, err := pool.Exec(ctx, hotUpdate)
			return err
		}, hotUpdate, nil
	case "update-spread":
		return func(ctx context.Context, _ int) error {
			_, err := pool.Exec(ctx, anyUpdate, 1+rand.Int64N(1000))
			return err
		}, anyUpdate, nil
	case "insert":
		payload := make([]byte, 64)
		return func(ctx context.Context, _ int) error {
			_, err := pool.Exec(ctx, bareRow, int64(1), int64(2), payload)
			return err
		}, bareRow, nil
	}
	return nil, "", fmt.Errorf("no ceiling %q", name)
}
