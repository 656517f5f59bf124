package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/lease"
	"github.com/tallystick-go/tallystick/lease/leasepg"
)

// leaseRows compare renewals with a bare UPDATE of as many rows, and fenced transactions with the same
// transaction without the fence.
func leaseRows() (list []row) {
	for _, callers := range []int{1, 32} {
		list = append(list,
			row{name: "lease/renew", store: "postgres", callers: callers, ceiling: "update-own", lease: renewing},
			row{name: "lease/fenced", store: "postgres", callers: callers, ceiling: "transaction", lease: fencing})
	}
	return append(list, row{name: "lease/renew-fenced", store: "postgres", callers: 1, ceiling: "renew-alone", lease: renewingFenced})
}

// leases are as many as there are callers, and the work that they guard.
type leases struct {
	pool   *pgxpool.Pool
	leaser *leasepg.Leaser
	schema string
	held   []lease.Lease
	done   atomic.Int64
}

// sides are what a row measures, and what with.
type sides struct {
	mine, bare load
	after      func(ctx context.Context) error // what must hold in the end
}

func (e *environment) leases(ctx context.Context, callers int) (*leases, error) {
	if err := e.prepareCeilings(ctx); err != nil {
		return nil, err
	}
	pool, err := e.pool(ctx, callers+16)
	if err != nil {
		return nil, err
	}
	l := &leases{pool: pool, schema: e.schema()}
	if l.leaser, err = leasepg.New(pool, &leasepg.Options{Schema: l.schema}); err != nil {
		return nil, err
	}
	if err := l.leaser.Migrate(ctx); err != nil {
		return nil, err
	}
	for i := range callers {
		held, err := l.leaser.Acquire(ctx, lease.Claim{Name: fmt.Sprintf("name-%d", i), Holder: lease.NewHolder("bench"), TTL: time.Hour})
		if err != nil {
			return nil, err
		}
		l.held = append(l.held, held)
	}
	return l, nil
}

func (l *leases) renew(ctx context.Context, caller int) error {
	_, err := l.leaser.Renew(ctx, l.held[caller])
	return err
}

// still looks whether every lease is in the generation that it was acquired in.
func (l *leases) still(ctx context.Context) error {
	for _, held := range l.held {
		row, err := l.leaser.Look(ctx, held.Name)
		if err != nil {
			return err
		}
		if !row.Held() || row.Generation != held.Generation {
			return fmt.Errorf("%s is in generation %d, not %d", held.Name, row.Generation, held.Generation)
		}
	}
	return nil
}

func renewing(l *leases) (sides, error) {
	return sides{l.renew, func(ctx context.Context, caller int) error {
		_, err := l.pool.Exec(ctx, anyUpdate, int64(1+caller))
		return err
	}, l.still}, nil
}

// fencing writes a row of a thousand in a transaction, all under the first lease.
func fencing(l *leases) (sides, error) {
	write := func(fence bool) load {
		return func(ctx context.Context, _ int) error {
			return pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
				if fence {
					if err := l.leaser.Fence(ctx, tx, l.held[0]); err != nil {
						return err
					}
				}
				_, err := tx.Exec(ctx, anyUpdate, 1+rand.Int64N(1000))
				return err
			})
		}
	}
	return sides{write(true), write(false), l.still}, nil
}

// renewingFenced renews while sixteen callers have fenced transactions open all the time.
func renewingFenced(l *leases) (sides, error) {
	quiet, err := leasepg.New(l.pool, &leasepg.Options{Schema: l.schema})
	if err != nil {
		return sides{}, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 16)
	for range 16 {
		go func() {
			for ctx.Err() == nil {
				err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
					if err := l.leaser.Fence(ctx, tx, l.held[0]); err != nil {
						return err
					}
					l.done.Add(1)
					_, err := tx.Exec(ctx, "select pg_sleep(0.05)")
					return err
				})
				if err != nil && ctx.Err() == nil {
					failed <- err
					return
				}
			}
		}()
	}
	alone, err := quiet.Acquire(ctx, lease.Claim{Name: "alone", Holder: lease.NewHolder("bench"), TTL: time.Hour})
	if err != nil {
		cancel()
		return sides{}, err
	}
	return sides{l.renew, func(ctx context.Context, _ int) error {
		_, err := quiet.Renew(ctx, alone)
		return err
	}, func(ctx context.Context) error {
		cancel()
		select {
		case err := <-failed:
			return err
		default:
			return l.still(ctx)
		}
	}}, nil
}

// measureLease runs both sides in turns.
func (r row) measureLease(ctx context.Context, env *environment) (*result, error) {
	l, err := env.leases(ctx, r.callers)
	if err != nil {
		return nil, err
	}
	s, err := r.lease(l)
	if err != nil {
		return nil, err
	}
	var mine, theirs []sample
	for range env.options.rounds {
		for _, side := range []struct {
			op load
			to *[]sample
		}{{s.mine, &mine}, {s.bare, &theirs}} {
			got, err := drive(ctx, r.callers, env.options.length, side.op)
			if err != nil {
				return nil, err
			}
			*side.to = append(*side.to, got)
		}
	}
	if err := s.after(ctx); err != nil {
		return nil, err
	}
	out := &result{
		Name: r.name, Store: r.store, Callers: r.callers, Gateways: 1, Ceiling: r.ceiling,
		Ops: pick(mine, func(s sample) float64 { return s.ops }), P50: pick(mine, func(s sample) float64 { return s.p50 }),
		P99: pick(mine, func(s sample) float64 { return s.p99 }), Allocs: pick(mine, func(s sample) float64 { return s.allocs }),
		CeilingOps: pick(theirs, func(s sample) float64 { return s.ops }),
	}
	out.Ratio = out.Ops / out.CeilingOps
	if n := l.done.Load(); n > 0 {
		fmt.Fprintf(os.Stderr, "# %s: %d fenced transactions of 50 ms beside it, sixteen at a time\n", r.label(), n)
	}
	return out, nil
}
