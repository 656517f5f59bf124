package governancetest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tallystick-go/tallystick/governance"
)

// faulty is a store between the Governor and the real one that fails on demand.
type faulty struct {
	governance.Store
	// step is called for each step; commit runs it on the real store.
	step func(ctx context.Context, plan *governance.Plan, commit func() error) error
}

func (f *faulty) Step(ctx context.Context, plan *governance.Plan, decide func(*governance.Loaded) *governance.Changes) error {
	return f.step(ctx, plan, func() error { return f.Store.Step(ctx, plan, decide) })
}

// through returns a Governor whose steps go through f.
func (e *env) through(o *governance.Options, f func(ctx context.Context, plan *governance.Plan, commit func() error) error) *governance.Governor {
	e.Helper()
	return e.governor(governance.Stores{Keys: e.keys, Store: &faulty{e.store, f}}, o)
}

// drop decides a step and commits nothing of it.
func drop(ctx context.Context, s governance.Store, plan *governance.Plan, decide func(*governance.Loaded) *governance.Changes) error {
	return s.Step(ctx, plan, func(l *governance.Loaded) *governance.Changes {
		decide(l)
		return nil
	})
}

// forgetful is a store that at first drops every step and does not know it; later
// steps wait until they may go on.
type forgetful struct {
	governance.Store
	better atomic.Bool
	goOn   chan struct{}
}

func (f *forgetful) Step(ctx context.Context, plan *governance.Plan, decide func(*governance.Loaded) *governance.Changes) error {
	if !f.better.Load() {
		if err := drop(ctx, f.Store, plan, decide); err != nil {
			return err
		}
		return unknown()
	}
	<-f.goOn
	return f.Store.Step(ctx, plan, decide)
}

// holding is a store whose rows others hold: a step that waits for one of them times
// out, and one that skips gets it unlocked and without its state.
type holding struct {
	governance.Store
	mu   sync.Mutex
	rows map[governance.ConstraintID]bool
}

func (h *holding) hold(ids ...governance.ConstraintID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rows = map[governance.ConstraintID]bool{}
	for _, id := range ids {
		h.rows[id] = true
	}
}

func (h *holding) Step(ctx context.Context, plan *governance.Plan, decide func(*governance.Loaded) *governance.Changes) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := slices.ContainsFunc(plan.Constraints, func(id governance.ConstraintID) bool { return h.rows[id] })
	if held && !plan.SkipLocked {
		return governance.ErrLockTimeout
	}
	return h.Store.Step(ctx, plan, func(l *governance.Loaded) *governance.Changes {
		for i, id := range plan.Constraints {
			if h.rows[id] {
				l.Current[i] = governance.Current{}
			}
		}
		if held {
			l.Permits = make([]governance.Record, len(l.Permits)) // admitted by the transaction that holds the rows
		}
		return decide(l)
	})
}

// gate is a Governor whose first step waits until the gate is opened.
type gate struct {
	g       *governance.Governor
	entered chan struct{} // closed when the first step waits
	once    sync.Once
	release chan struct{}
	steps   atomic.Int64
}

func (g *gate) open() { g.once.Do(func() { close(g.release) }) }

func (e *env) gated(options ...*governance.Options) *gate {
	e.Helper()
	g := &gate{entered: make(chan struct{}), release: make(chan struct{})}
	var o *governance.Options
	if len(options) > 0 {
		o = options[0]
	}
	g.g = e.through(o, func(_ context.Context, _ *governance.Plan, commit func() error) error {
		if g.steps.Add(1) == 1 {
			close(g.entered)
			<-g.release
		}
		return commit()
	})
	e.Cleanup(g.open)
	return g
}
