package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/ratelimit"
)

// calibrate measures the speed once and sets limits that drain as fast as the
// load fills: so buckets stay about half full, with many live segments.
func (g *governed) calibrate(ctx context.Context, r row) error {
	g.perMinute = startRate
	if err := g.fill(ctx); err != nil {
		return err
	}
	op, err := admitOnly(g)
	if err != nil {
		return err
	}
	s, err := drive(ctx, r.callers, time.Second, op)
	if err != nil {
		return err
	}
	g.speed, g.perMinute = s.ops, int64(s.ops*60)
	store := g.backend.Backend().Keys
	for i := range g.teams {
		change := func(team bool, share int) keys.LimitsChange {
			l := limitsAt(g.perMinute/int64(share), team)
			return keys.LimitsChange{RequestsPerMinute: keys.Set(l.RequestsPerMinute), TokensPerMinute: keys.Set(l.TokensPerMinute)}
		}
		team, err := store.UpdateTeam(ctx, keys.UpdateTeam{ID: g.teams[i].ID, IfRevision: g.teams[i].Revision, Limits: change(true, len(g.teams))})
		if err != nil {
			return err
		}
		g.teams[i] = team
		each := len(g.principals) / len(g.teams)
		for j := i * each; j < (i+1)*each; j++ {
			p := &g.principals[j]
			if _, err := store.UpdateKey(ctx, keys.UpdateKey{ID: p.KeyID, IfRevision: p.Key.Revision, Limits: change(false, len(g.principals))}); err != nil {
				return err
			}
			if *p, err = store.Reload(ctx, *p); err != nil {
				return err
			}
		}
	}
	return nil
}

// segmentsFilled is how many reservations of equal size fill a bucket by half.
const segmentsFilled = 200

// fill writes every bucket anew, half full of live segments, through the store
// itself. It is how a bench arranges what would take a minute of traffic.
func (g *governed) fill(ctx context.Context) error {
	type wanted struct {
		id    governance.ConstraintID
		kind  governance.Kind
		limit int64
	}
	seen := map[governance.ConstraintID]wanted{}
	for i := range g.principals {
		usage, err := g.gov.Usage(ctx, governance.UsageQuery{Principal: &g.principals[i]})
		if err != nil {
			return err
		}
		for _, v := range usage.Verdicts {
			if v.Constraint.Kind == governance.KindRequestRate || v.Constraint.Kind == governance.KindTokenRate {
				seen[v.Constraint.ID] = wanted{v.Constraint.ID, v.Constraint.Kind, v.Limit}
			}
		}
	}
	list := make([]wanted, 0, len(seen))
	for _, w := range seen {
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b wanted) int { return bytes.Compare(a.id[:], b.id[:]) })
	store := g.backend.Backend().Store
	for part := range slices.Chunk(list, 200) {
		plan := &governance.Plan{Batch: governance.BatchID(governance.NewPermitID(time.Now()))}
		for _, w := range part {
			plan.Constraints = append(plan.Constraints, w.id)
		}
		var failed error
		err := store.Step(ctx, plan, func(l *governance.Loaded) *governance.Changes {
			ch := &governance.Changes{}
			for i, w := range part {
				cell := governance.Cell{Key: governance.AccountKey{Constraint: w.id}, End: 1<<63 - 1, Kind: w.kind}
				for range segmentsFilled {
					if _, v, err := cell.Bucket.Admit(l.Now, ratelimit.Per(w.limit), max(1, w.limit/2/segmentsFilled)); err != nil || !v.OK {
						failed = errors.Join(errors.New("a bucket cannot be filled"), err)
						return nil
					}
				}
				ch.Cells = append(ch.Cells, cell)
				if l.Current[i].Window.End == 0 {
					w := governance.WindowChange{Constraint: w.id}
					w.Window.End = 1<<63 - 1
					ch.Windows = append(ch.Windows, w)
				}
			}
			return ch
		})
		if err != nil || failed != nil {
			return errors.Join(err, failed)
		}
	}
	return nil
}

// checkLevels refuses a round in which buckets were not between 20 and 80 % full
// with many live segments: it would have measured something easier.
func (g *governed) checkLevels(ctx context.Context, r row) error {
	if r.refuse {
		return nil
	}
	low, high, fewest := 1.0, 0.0, 1<<30
	for i := range min(len(g.principals), 50) {
		usage, err := g.gov.Usage(ctx, governance.UsageQuery{Principal: &g.principals[i]})
		if err != nil {
			return err
		}
		plan := &governance.Plan{}
		for _, v := range usage.Verdicts {
			if v.Constraint.Kind == governance.KindRequestRate || v.Constraint.Kind == governance.KindTokenRate {
				level := float64(v.Reserved) / float64(v.Limit)
				low, high = min(low, level), max(high, level)
				plan.Constraints = append(plan.Constraints, v.Constraint.ID)
			}
		}
		slices.SortFunc(plan.Constraints, func(a, b governance.ConstraintID) int { return bytes.Compare(a[:], b[:]) })
		loaded, err := g.backend.Backend().Store.View(ctx, plan)
		if err != nil {
			return err
		}
		for j := range loaded.Current {
			fewest = min(fewest, loaded.Current[j].Cell.Bucket.Segments())
		}
	}
	g.levels = fmt.Sprintf("%.0f to %.0f %% full with at least %d segments", 100*low, 100*high, fewest)
	if low < 0.2 || high > 0.8 || fewest < 150 {
		return fmt.Errorf("buckets were %s: the round does not count", g.levels)
	}
	return nil
}

// checkBooks counts the permits and verifies every account.
func (g *governed) checkBooks(ctx context.Context) error {
	if g.pool != nil {
		if err := g.pool.QueryRow(ctx, fmt.Sprintf("select count(*) from %q.governance_permits", g.schema)).Scan(&g.found); err != nil {
			return err
		}
	} else if err := g.countPermits(ctx); err != nil {
		return err
	}
	if g.found != g.admitted.Load() {
		return fmt.Errorf("%d admissions, but %d permits", g.admitted.Load(), g.found)
	}
	v, err := g.gov.Verify(ctx, governance.VerifyQuery{})
	if err != nil {
		return err
	}
	g.accounts = v.Accounts
	if len(v.Differences) > 0 {
		return fmt.Errorf("%d accounts differ from their permits, the first: %+v", len(v.Differences), v.Differences[0])
	}
	return nil
}

// countPermits counts page by page, where no SQL of ours can ask.
func (g *governed) countPermits(ctx context.Context) error {
	const page = 1000
	g.found = 0
	for after := (governance.PermitID{}); ; {
		list, err := g.backend.Backend().Store.Permits(ctx, governance.PermitQuery{After: after, Limit: page})
		if err != nil {
			return err
		}
		g.found += int64(len(list))
		if len(list) < page {
			return nil
		}
		after = list[len(list)-1].ID
	}
}
