package governance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/tallystick-go/tallystick/journal"
)

// stepContext bounds a transaction; a caller who leaves does not end it.
func (g *Governor) stepContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), g.options.StepTimeout)
}

// attempts is how often a transaction that provably did not commit is repeated.
const attempts = 4

// transact runs the tasks once more as a whole, in parts, or not at all, by what
// the store says of the failure.
func (g *Governor) transact(ctx context.Context, tasks []task) {
	err := g.carry(ctx, tasks, false)
	if err == nil {
		return
	}
	// Some task's commit was sent and its answer lost. What can be done twice is
	// done again, once: it finds what the first time did, or does it. So is what was
	// refused because of that task: it changed nothing, whatever became of the commit.
	var again []task
	doubtful := map[task]bool{}
	for _, t := range tasks {
		switch failed := t.failed(); {
		case errors.Is(failed, ErrUnknownOutcome) && t.replayable():
			doubtful[t] = true
			again = append(again, t)
		case errors.Is(failed, errLeant):
			again = append(again, t)
		}
	}
	if len(again) == 0 {
		return
	}
	ctx, cancel := g.stepContext(ctx)
	defer cancel()
	_ = g.carry(ctx, again, false)
	for _, t := range again {
		if doubtful[t] && errors.Is(t.failed(), ErrUnavailable) {
			t.fail(err) // of the first time nothing was learned
		}
	}
}

// errLeant is the answer to a task that was refused by numbers of its own transaction,
// when nobody knows whether they came true.
var errLeant = fmt.Errorf("%w: it was refused because of calls whose own outcome is unknown", ErrUnavailable)

// carry gives every task its answer. The error, if any, wraps ErrUnknownOutcome and
// is the answer of those whose commit may have happened.
func (g *Governor) carry(ctx context.Context, tasks []task, skip bool) error {
	for attempt := 1; ; attempt++ {
		first, err := g.step(ctx, tasks, skip)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrUnknownOutcome):
			for i, t := range tasks {
				switch {
				case t.failed() == nil:
					t.fail(err)
				case i > first: // up to the first change a refusal stands: it went by what is stored
					t.fail(errLeant)
				}
			}
			return err
		case ctx.Err() != nil:
			failAll(tasks, ErrUnavailable)
			return nil
		case errors.Is(err, ErrRetry) && attempt < attempts:
			continue
		case errors.Is(err, ErrLockTimeout) && !skip:
			skip = true // answer those whose rows are free; do not wait again
			continue
		case (errors.Is(err, ErrPoison) || errors.Is(err, ErrCorrupt)) && len(tasks) > 1: // one task's rows are to blame
			half := len(tasks) / 2
			first, second := g.carry(ctx, tasks[:half], skip), g.carry(ctx, tasks[half:], skip)
			if first != nil {
				return first
			}
			return second
		case errors.Is(err, ErrPoison), errors.Is(err, ErrRetry), errors.Is(err, ErrLockTimeout):
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		failAll(tasks, err)
		return nil
	}
}

func failAll(tasks []task, err error) {
	for _, t := range tasks {
		t.fail(err)
	}
}

// step runs the tasks in one transaction of the store. first is the task that made the
// first change: those behind it were decided on what may never be stored.
func (g *Governor) step(ctx context.Context, tasks []task, skip bool) (first int, err error) {
	said := g.credit.now()
	plan := g.planOf(tasks, skip, said)
	first = -1 // nothing was decided
	var broken error
	var book *till
	defer func() {
		if r := recover(); r != nil {
			// A lane must outlive an adapter that panics. Nothing says how far it came.
			g.options.Logger.Error("governance: the store panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: the store panicked", ErrUnknownOutcome)
		}
	}()
	err = g.store.Step(ctx, plan, func(loaded *Loaded) (changes *Changes) {
		defer func() {
			if r := recover(); r != nil {
				// Nothing is written. The one to blame is found by splitting.
				g.options.Logger.Error("governance: a decision panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
				broken, changes = fmt.Errorf("%w: a decision failed", ErrPoison), nil
			}
		}()
		// Stores keep batches by the time inside their ids, beside permits of the same
		// time: it is the store's, not ours.
		(*PermitID)(&plan.Batch).stamp(loaded.stamp())
		s := newSheet(plan, loaded)
		if s.till, broken = g.credit.open(loaded, said); broken != nil {
			broken = fmt.Errorf("%w: %w", ErrPoison, broken) // of one task's rows, perhaps
			return nil
		}
		book = s.till
		first = len(tasks)
		for i, t := range tasks {
			t.fail(nil) // forget what an earlier attempt said
			t.decide(s)
			if first == len(tasks) && s.changed() {
				first = i
			}
		}
		return s.finish()
	})
	if broken != nil {
		return first, broken
	}
	if err == nil {
		book.done()
	}
	return first, err
}

// planner collects the rows that a batch of tasks needs.
type planner struct {
	constraints []ConstraintID
	sets        []*constraintSet
	accounts    []AccountKey
	keys        []string
	permits     []PermitID
	entries     *EntryQuery
	policies    bool
	node        string
	checkpoint  *AccountKey
	said        *said // nil: not a node
	journal     *journal.Plan
	one         [1]*constraintSet
}

// set adds all constraints of a principal; equal sets are added once.
func (p *planner) set(s *constraintSet) {
	if p.sets == nil {
		p.sets = p.one[:0]
	}
	if !slices.Contains(p.sets, s) {
		p.sets = append(p.sets, s)
		p.policies = p.policies || s.rules != nil
		p.credit(s)
	}
}

func (p *planner) holds(t *terms) {
	p.constraints, p.accounts = slices.Grow(p.constraints, len(t.holds)), slices.Grow(p.accounts, len(t.holds))
	for i := range t.holds {
		p.constraints = append(p.constraints, t.holds[i].constraint)
		if t.holds[i].kind.isAccount() {
			p.accounts = append(p.accounts, t.holds[i].account())
		}
	}
}

func sortPermits(list []PermitID) { slices.SortFunc(list, comparePermits) }

func (g *Governor) planOf(tasks []task, skip bool, said *said) *Plan {
	p := planner{said: said}
	for _, t := range tasks {
		t.plan(&p)
	}
	if len(p.sets) == 1 && len(p.constraints) == 0 && len(p.keys) == 0 {
		p.constraints, p.keys = p.sets[0].ids, p.sets[0].keys // sorted, and shared: a plan is never changed
	} else {
		for _, s := range p.sets {
			p.constraints, p.keys = append(p.constraints, s.ids...), append(p.keys, s.keyID)
		}
		slices.SortFunc(p.constraints, func(a, b ConstraintID) int { return bytes.Compare(a[:], b[:]) })
		p.constraints = slices.Compact(p.constraints)
	}
	slices.SortFunc(p.accounts, AccountKey.Compare)
	slices.Sort(p.keys)
	sortPermits(p.permits)
	return &Plan{
		Batch: BatchID(NewPermitID(g.options.Now())), Constraints: p.constraints, Accounts: slices.Compact(p.accounts),
		Keys: slices.Compact(p.keys), Permits: slices.Compact(p.permits), Entries: p.entries, Checkpoint: p.checkpoint, Policies: p.policies, Node: p.node, Journal: p.journal, NoTerms: p.entries == nil, SkipLocked: skip,
	}
}
