package governance

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/keys"
)

// rules are the policies of one generation as this deployment enforces them. They
// are never changed; nil where the backend keeps no policies.
type rules struct {
	mark     policy.Mark
	enforced *policy.Enforcement
	node     bool // budgets are reserved in a node's journal
}

func (r *rules) marked() policy.Mark {
	if r == nil {
		return policy.Mark{}
	}
	return r.mark
}

func (r *rules) match(p *keys.Principal) []policy.Match {
	if r == nil {
		return nil
	}
	return r.enforced.Match(p.TeamID, p.User)
}

// gated refuses a principal for whom a mandatory rule cannot be enforced.
func (r *rules) gated(p *keys.Principal) *Refusal {
	if r == nil {
		return nil
	}
	if gate, yes := r.enforced.Gated(p.TeamID, p.User); yes {
		return &Refusal{Reason: ReasonGated, Gate: &gate}
	}
	return nil
}

// Rules that differ from those that a call was decided by are stale in another way
// than a key is: the principal need not be fetched again.
var (
	errRules = fmt.Errorf("%w: the policies are others now", ErrStale)
	errRoute = fmt.Errorf("%w: a budget has reached a tier that replaces the model", ErrStale)
)

// rulebook keeps the rules in force, read once for all who need them.
type rulebook struct {
	store   policy.Store // nil: there are no policies
	profile policy.Profile
	able    policy.Enforcing
	now     atomic.Pointer[rules]

	mu   sync.Mutex
	call *rulesCall
}

type rulesCall struct {
	done  chan struct{}
	rules *rules
	err   error
}

// latest returns the rules that were read last, in force or not: for who has them
// compared with the store's by what comes next.
func (b *rulebook) latest(ctx context.Context, g *Governor) (*rules, error) {
	if b.store == nil {
		return nil, nil
	}
	if now := b.now.Load(); now != nil {
		return now, nil
	}
	return b.after(ctx, g, nil)
}

// inForce returns the rules that were in force at some moment of the call.
func (b *rulebook) inForce(ctx context.Context, g *Governor) (*rules, error) {
	now, err := b.latest(ctx, g)
	for try := 1; err == nil && now != nil; try++ {
		var mark policy.Mark
		if mark, err = b.mark(ctx, g); err != nil || mark == now.mark {
			break
		}
		if try == reloads {
			return nil, errRules
		}
		now, err = b.after(ctx, g, now)
	}
	return now, err
}

func (b *rulebook) mark(ctx context.Context, g *Governor) (policy.Mark, error) {
	ctx, cancel := context.WithTimeout(ctx, g.options.StepTimeout)
	defer cancel()
	mark, err := b.store.Mark(ctx)
	if err != nil {
		err = fmt.Errorf("%w: the policies cannot be read: %w", ErrUnavailable, err)
	}
	return mark, err
}

// after returns rules that were read after the given ones turned out not to be in force.
func (b *rulebook) after(ctx context.Context, g *Governor, old *rules) (*rules, error) {
	b.mu.Lock()
	if now := b.now.Load(); now != nil && now != old {
		b.mu.Unlock()
		return now, nil
	}
	call := b.call
	if call == nil {
		call = &rulesCall{done: make(chan struct{})}
		b.call = call
		started := g.spawn(func() {
			ctx, cancel := g.stepContext(ctx)
			defer cancel()
			call.rules, call.err = b.read(ctx)
			b.mu.Lock()
			b.call = nil
			if call.err == nil {
				b.now.Store(call.rules)
			}
			b.mu.Unlock()
			close(call.done)
		})
		if !started {
			b.call = nil
			b.mu.Unlock()
			return nil, ErrClosed
		}
	}
	b.mu.Unlock()
	select {
	case <-call.done:
		return call.rules, call.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// again reads the rules once more, before a refusal by some that no transaction has compared.
func (b *rulebook) again(ctx context.Context, g *Governor, old *rules) (now *rules, others bool, err error) {
	if b.store == nil {
		return old, false, nil
	}
	now, err = b.after(ctx, g, old)
	return now, err == nil && now != old, err
}

func (b *rulebook) read(ctx context.Context) (*rules, error) {
	snapshot, err := b.store.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: the policies cannot be read: %w", ErrUnavailable, err)
	}
	if snapshot.Namespace.IsZero() {
		return nil, errUnheard
	}
	now := b.now.Load()
	if now != nil && now.mark == snapshot.Mark {
		return now, nil
	}
	if now != nil && now.mark.Namespace != snapshot.Namespace {
		// Equal policies elsewhere are other accounts.
		return nil, fmt.Errorf("%w: the policies are those of another authority than at the start; restart on the right database", ErrUnavailable)
	}
	return &rules{mark: snapshot.Mark, enforced: snapshot.Set.Enforce(b.profile, b.able), node: b.profile == policy.Node}, nil
}

// Policies returns the policies in force with what this deployment makes of them: which
// rules it enforces, and whom it must refuse because of one that it cannot. A backend
// without policies has none: a zero mark and nil.
//
// Concurrency: an edit that had returned before the call is seen, on every replica.
// Errors: ErrUnavailable, ErrStale (edits came faster than they could be read; ask
// again), ErrClosed.
//
// Source: ADR-046 "Policy and runtime binding".
func (g *Governor) Policies(ctx context.Context) (policy.Mark, *policy.Enforcement, error) {
	if g.isClosed() {
		return policy.Mark{}, nil, ErrClosed
	}
	now, err := g.rulebook.inForce(ctx, g)
	if err != nil || now == nil {
		return policy.Mark{}, nil, err
	}
	return now.mark, now.enforced, nil
}

// LastPolicies is Policies without asking the store: what was read last, in force or
// not, for an answer while the store is down. A zero mark and nil: nothing was read yet.
func (g *Governor) LastPolicies() (policy.Mark, *policy.Enforcement) {
	if now := g.rulebook.now.Load(); now != nil {
		return now.mark, now.enforced
	}
	return policy.Mark{}, nil
}
