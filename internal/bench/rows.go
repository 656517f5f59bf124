package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/tallystick-go/tallystick/keys/keyspg"
)

// row is one line of the table.
type row struct {
	name    string // e.g. admit/hot
	store   string // postgres, sqlite, memory
	callers int
	ceiling string
	work    func(*governed) (load, error)
	spread  bool
	refuse  bool // every answer is a refusal
	// ahead, if any, does before each round what is not measured; buckets are looked at then.
	ahead func(ctx context.Context, g *governed, length time.Duration) error
	// sizes, if any, compares a large store with a small one in place of work with a ceiling.
	sizes func(n int, s *keyspg.Store) load
	// journal, if any, makes the ceiling of a node's journal in place of an admission's.
	journal func(ctx context.Context, e *environment) (load, error)
	// lease, if any, makes both sides of what is done with leases in place of an admission.
	lease func(l *leases) (sides, error)
	// pair, if any, makes both sides.
	pair    func(ctx context.Context, e *environment) (pair, error)
	latency bool // of a pair: the ratio is of medians
}

func (r row) label() string { return fmt.Sprintf("%s/%s/%d", r.name, r.store, r.callers) }

func rows() (list []row) {
	for _, callers := range []int{1, 8, 32, 128} {
		list = append(list, row{name: "admit/hot", store: "postgres", callers: callers, ceiling: "update-hot", work: admitOnly})
	}
	for _, callers := range []int{1, 8, 32, 128} {
		list = append(list, row{name: "admit/spread", store: "postgres", callers: callers, ceiling: "update-spread", work: admitOnly, spread: true})
	}
	list = append(list, journalRows()...)
	list = append(list, leaseRows()...)
	list = append(list, eventlogRows()...)
	return append(list,
		row{name: "admit/alone", store: "postgres", callers: 1, ceiling: "insert", work: admitOnly},
		row{name: "cycle/hot", store: "postgres", callers: 32, ceiling: "update-hot", work: admitAndSettle},
		row{name: "settle/hot", store: "postgres", callers: 32, ceiling: "update-hot", work: settleOnly, ahead: admitAhead},
		row{name: "refuse/hot", store: "postgres", callers: 32, ceiling: "update-hot", work: refusedOnly, refuse: true},
		row{name: "admit/hot", store: "sqlite", callers: 32, ceiling: "sqlite-update", work: admitOnly},
		row{name: "keys/resolve", store: "postgres", callers: 32, sizes: resolveAny},
		row{name: "keys/list", store: "postgres", callers: 1, sizes: listAny},
	)
}

// measure runs the row and its ceiling in turns.
func (r row) measure(ctx context.Context, env *environment) (*result, error) {
	if r.sizes != nil {
		return r.compareSizes(ctx, env)
	}
	if r.journal != nil {
		return r.measureJournal(ctx, env)
	}
	if r.lease != nil {
		return r.measureLease(ctx, env)
	}
	if r.pair != nil {
		return r.measurePair(ctx, env)
	}
	c, err := env.ceiling(ctx, r)
	if err != nil {
		return nil, err
	}
	g, err := env.govern(ctx, r)
	if err != nil {
		return nil, err
	}
	defer g.close(ctx)
	if err := g.calibrate(ctx, r); err != nil {
		return nil, err
	}
	op, err := r.work(g)
	if err != nil {
		return nil, err
	}
	var mine, theirs []sample
	for range env.options.rounds {
		if err := g.fill(ctx); err != nil {
			return nil, err
		}
		if r.ahead != nil {
			if err := r.ahead(ctx, g, env.options.length); err != nil {
				return nil, err
			}
			if err := g.checkLevels(ctx, r); err != nil {
				return nil, err
			}
		}
		before, synced := g.wal(ctx), g.syncs(ctx)
		s, err := drive(ctx, r.callers, env.options.length, op)
		if err != nil {
			return nil, err
		}
		s.wal = float64(g.wal(ctx)-before) / float64(s.count)
		s.syncs = float64(g.syncs(ctx) - synced)
		mine = append(mine, s)
		if r.ahead == nil {
			if err := g.checkLevels(ctx, r); err != nil {
				return nil, err
			}
		}
		best := sample{}
		for _, op := range c.loads {
			synced := g.syncs(ctx)
			s, err := drive(ctx, r.callers, env.options.length/2, op)
			if err != nil {
				return nil, err
			}
			s.syncs = float64(g.syncs(ctx) - synced)
			if s.ops > best.ops {
				best = s
			}
		}
		theirs = append(theirs, best)
	}
	if err := g.checkBooks(ctx); err != nil {
		return nil, err
	}
	out := &result{
		Name: r.name, Store: r.store, Callers: r.callers, Gateways: 1, Ceiling: c.name,
		Ops: pick(mine, func(s sample) float64 { return s.ops }), P50: pick(mine, func(s sample) float64 { return s.p50 }),
		P99: pick(mine, func(s sample) float64 { return s.p99 }), WAL: pick(mine, func(s sample) float64 { return s.wal }),
		Allocs: pick(mine, func(s sample) float64 { return s.allocs }), CeilingOps: pick(theirs, func(s sample) float64 { return s.ops }),
	}
	out.Ratio = out.Ops / out.CeilingOps
	if r.name == "admit/alone" {
		out.Ratio = pick(theirs, func(s sample) float64 { return s.p50 }) / out.P50
	}
	if g.pool != nil {
		per := func(s sample) float64 { return s.syncs / float64(s.count) }
		fmt.Fprintf(os.Stderr, "# %s: wal_sync %.0f a round, %.4f per operation; ceiling %.0f, %.4f\n", r.label(),
			pick(mine, func(s sample) float64 { return s.syncs }), pick(mine, per), pick(theirs, func(s sample) float64 { return s.syncs }), pick(theirs, per))
	}
	fmt.Fprintf(os.Stderr, "# %s: %d admissions, %d permits found, verify 0 of %d accounts, buckets %s\n", r.label(), g.admitted.Load(), g.found, g.accounts, g.levels)
	return out, nil
}
