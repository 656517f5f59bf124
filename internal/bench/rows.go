package main

import (
	"context"
	"fmt"
	"os"
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
}

func (r row) label() string { return fmt.Sprintf("%s/%s/%d", r.name, r.store, r.callers) }

func rows() (list []row) {
	for _, callers := range []int{1, 8, 32, 128} {
		list = append(list, row{name: "admit/hot", store: "postgres", callers: callers, ceiling: "update-hot", work: admitOnly})
	}
	for _, callers := range []int{1, 8, 32, 128} {
		list = append(list, row{name: "admit/spread", store: "postgres", callers: callers, ceiling: "update-spread", work: admitOnly, spread: true})
	}
	return append(list,
		row{name: "admit/alone", store: "postgres", callers: 1, ceiling: "insert", work: admitOnly},
		row{name: "cycle/hot", store: "postgres", callers: 32, ceiling: "update-hot", work: admitAndSettle},
		row{name: "refuse/hot", store: "postgres", callers: 32, ceiling: "update-hot", work: refusedOnly, refuse: true},
		row{name: "admit/hot", store: "sqlite", callers: 32, ceiling: "sqlite-update", work: admitOnly},
	)
}

// measure runs the row and its ceiling in turns.
func (r row) measure(ctx context.Context, env *environment) (*result, error) {
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
		before := g.wal(ctx)
		s, err := drive(ctx, r.callers, env.options.length, op)
		if err != nil {
			return nil, err
		}
		s.wal = float64(g.wal(ctx)-before) / float64(s.count)
		mine = append(mine, s)
		if err := g.checkLevels(ctx, r); err != nil {
			return nil, err
		}
		best := sample{}
		for _, op := range c.loads {
			s, err := drive(ctx, r.callers, env.options.length/2, op)
			if err != nil {
				return nil, err
			}
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
	fmt.Fprintf(os.Stderr, "# %s: %d admissions, %d permits found, verify 0 of %d accounts, buckets %s\n", r.label(), g.admitted.Load(), g.found, g.accounts, g.levels)
	return out, nil
}
