package governancetest

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
)

func doubtCases() []scenario {
	return []scenario{
		{name: "ReplayL2LostAnswerOfACommit", also: "PrimitiveG19CommitOnADeadConnection PrimitiveG20RetryAfterACommit", run: doubtLost},
		{name: "LostAnswerNothingCommitted", run: doubtNothing},
		{name: "LostAnswerRefusalStands", run: doubtRefusal},
		{name: "CallerGoneDuringCommit", run: doubtGone},
		{name: "CallerGoneWhileWaiting", run: doubtGoneWaiting},
		{name: "PrimitiveG7FailureIsNoRefusal", also: "ReplayF1StoreErrorIsNoAdmission", run: doubtFailure},
		{name: "RetryIsRepeated", run: doubtRetry},
		{name: "LockTimeoutSkipsTheHeld", run: doubtLockTimeout},
		{name: "HeldRowsAreAnOutageOfTheirOwn", run: doubtHeld},
		{name: "PoisonFailsAlone", run: doubtPoison},
		{name: "PrimitiveG22QueueIsBounded", run: doubtQueue},
		{name: "FullQueueLeavesRoomForOthers", run: doubtFair},
		{name: "StorePanicKeepsTheLane", run: doubtPanic},
		{name: "ReplayF2StoreHangs", run: doubtHangs},
	}
}

var errLost = errors.New("the answer was lost")

func unknown() error { return errors.Join(governance.ErrUnknownOutcome, errLost) }

// doubtLost commits and loses the answer. The caller must not take the amounts for
// free, and trying again with the same id must never hold twice.
func doubtLost(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	var lose atomic.Bool
	lose.Store(true)
	g := e.through(nil, func(_ context.Context, _ *governance.Plan, commit func() error) error {
		err := commit()
		if err == nil && lose.CompareAndSwap(true, false) {
			return unknown()
		}
		return err
	})
	id := e.id()
	_, err := g.Admit(e.ctx, ask(c, both(10, 10), id))
	e.is(err, governance.ErrUnknownOutcome)
	e.equal("status", governance.StatusOf(err).Code, http.StatusServiceUnavailable)
	for range 3 { // the client's retries
		_, err = g.Admit(e.ctx, ask(c, both(10, 10), id))
		if !errors.Is(err, governance.ErrInFlight) && !errors.Is(err, governance.ErrTerminal) {
			e.Fatalf("the same id again: %v", err)
		}
	}
	e.ok(g.Close(e.ctx)) // waits for the background
	// Nobody received the permit, so its owner returned everything.
	e.equal("state", e.record(id).State, governance.StateCancelled)
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 0, 0)
	e.held(c, governance.ScopeTeam, "concurrency", 0, 0, 0)
	_, err = e.g.Admit(e.ctx, ask(c, both(10, 10), id))
	e.is(err, governance.ErrTerminal)
}

func doubtNothing(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	var lose atomic.Bool
	lose.Store(true)
	g := e.through(nil, func(_ context.Context, _ *governance.Plan, commit func() error) error {
		if lose.CompareAndSwap(true, false) {
			return unknown()
		}
		return commit()
	})
	ids := e.constraintsOf(c)
	before := e.snapshot(ids...)
	id := e.id()
	_, err := g.Admit(e.ctx, ask(c, both(10, 10), id))
	if err == nil {
		e.Fatal("a commit that never happened was reported as one")
	}
	e.ok(g.Close(e.ctx))
	e.unchanged(before, ids...)
	p, err := e.g.Admit(e.ctx, ask(c, both(10, 10), id))
	e.ok(err)
	e.settle(p, governance.Used(1, 1))
}

// doubtRefusal: what was refused changed nothing, whatever became of the commit.
func doubtRefusal(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(5)})
	c := e.caller("team-1", keys.Limits{})
	g := e.through(nil, func(_ context.Context, _ *governance.Plan, commit func() error) error {
		_ = commit()
		return unknown()
	})
	_, err := g.Admit(e.ctx, request(c, tokens(6)))
	e.refusal(err, governance.ReasonNeverFits)
}

func doubtGone(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	ctx, cancel := context.WithCancel(e.ctx)
	var once sync.Once
	g := e.through(nil, func(_ context.Context, _ *governance.Plan, commit func() error) error {
		err := commit()
		once.Do(cancel) // the caller hangs up while its admission is being committed
		return err
	})
	id := e.id()
	_, err := g.Admit(ctx, ask(c, both(10, 10), id))
	e.is(err, context.Canceled)
	e.ok(g.Close(e.ctx))
	e.equal("state", e.record(id).State, governance.StateCancelled)
	for _, scope := range bothScopes {
		for _, r := range rules {
			e.held(c, scope, r.rule, 0, 0, 0)
		}
	}
}

func doubtGoneWaiting(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	gate := e.gated()
	first := make(chan error, 1)
	go func() {
		_, err := gate.g.Admit(e.ctx, request(c, both(10, 10)))
		first <- err
	}()
	<-gate.entered
	ctx, cancel := context.WithCancel(e.ctx)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := gate.g.Admit(ctx, request(c, both(10, 10))); !errors.Is(err, context.Canceled) {
				e.Errorf("a caller that left: %v", err)
			}
		})
	}
	moment()
	cancel()
	wg.Wait() // they leave though the store is busy
	gate.open()
	e.ok(<-first)
	e.ok(gate.g.Close(e.ctx))
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 0, 10)
}

func doubtFailure(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	ids := e.constraintsOf(c)
	before := e.snapshot(ids...)
	for _, failure := range []error{governance.ErrUnavailable, governance.ErrRetry, governance.ErrLockTimeout, governance.ErrPoison} {
		g := e.through(nil, func(context.Context, *governance.Plan, func() error) error { return failure })
		_, err := g.Admit(e.ctx, request(c, both(1, 1)))
		e.is(err, governance.ErrUnavailable)
		var refusal *governance.Refusal
		if errors.As(err, &refusal) {
			e.Fatalf("%v was reported as a refusal", failure)
		}
		e.equal("status", governance.StatusOf(err), governance.Status{Code: http.StatusServiceUnavailable, RetryAfter: time.Second, Retryable: true})
	}
	e.unchanged(before, ids...)
}

func doubtRetry(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	var batches []governance.BatchID
	g := e.through(nil, func(_ context.Context, plan *governance.Plan, commit func() error) error {
		if batches = append(batches, plan.Batch); len(batches) < 3 {
			return governance.ErrRetry
		}
		return commit()
	})
	p, err := g.Admit(e.ctx, request(c, both(10, 10)))
	e.ok(err)
	if len(batches) != 3 || batches[0] == batches[1] || batches[1] == batches[2] {
		e.Fatalf("attempts were made as %v, want three, each with a batch id of its own", batches)
	}
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 0, 10)
	e.ok(p.Cancel(e.ctx))
}

func doubtLockTimeout(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	var skipped []bool
	g := e.through(nil, func(_ context.Context, plan *governance.Plan, commit func() error) error {
		if skipped = append(skipped, plan.SkipLocked); len(skipped) == 1 {
			return governance.ErrLockTimeout
		}
		return commit()
	})
	p, err := g.Admit(e.ctx, request(c, both(10, 10)))
	e.ok(err)
	if !slices.Equal(skipped, []bool{false, true}) {
		e.Fatalf("the attempts skipped: %v, want the second to", skipped)
	}
	e.ok(p.Cancel(e.ctx))
}

// doubtHeld: some rows do not come. Who needs them is told to try again; nobody takes
// a row that was not locked for an empty one, nor a permit that was not loaded for
// one that does not exist; everybody else goes on.
func doubtHeld(e *env) {
	e.team("team-1", everyLimit())
	e.team("team-2", everyLimit())
	stuck, free := e.caller("team-1", everyLimit()), e.caller("team-2", everyLimit())
	rows := &holding{Store: e.store}
	g := e.governor(governance.Stores{Keys: e.keys, Store: rows}, nil)
	admit := func(c *caller) (*governance.Permit, error) { return g.Admit(e.ctx, request(c, both(10, 10))) }
	open, err := admit(stuck)
	e.ok(err)
	ids := e.constraintsOf(stuck)
	before := e.snapshot(ids...)
	for _, id := range ids { // each row by itself
		rows.hold(id)
		_, err = admit(stuck)
		e.is(err, governance.ErrUnavailable)
	}
	rows.hold(ids...)
	err = open.Raise(e.ctx, both(20, 20))
	e.is(err, governance.ErrUnavailable)
	err = open.Settle(e.ctx, governance.Used(3, 3))
	e.is(err, governance.ErrUnavailable)
	_, err = g.Resolve(e.ctx, e.finding(open.ID(), governance.NotSent()))
	e.is(err, governance.ErrUnavailable)
	e.unchanged(before, ids...)
	p, err := admit(free)
	e.ok(err)
	e.ok(p.Cancel(e.ctx))
	rows.hold()
	e.ok(g.Close(e.ctx)) // what could not be recorded is, now
	e.equal("state", e.record(open.ID()).State, governance.StateSettled)
	e.held(stuck, governance.ScopeTeam, "tokens_per_day", 3, 0, 0)
}

// doubtPoison has a database that refuses one key's rows: only that key fails.
func doubtPoison(e *env) {
	e.team("team-1", everyLimit())
	var callers []*caller
	for range 9 {
		callers = append(callers, e.caller("team-1", everyLimit()))
	}
	bad := callers[4].id
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	g := e.through(nil, func(_ context.Context, plan *governance.Plan, commit func() error) error {
		once.Do(func() { close(entered); <-release })
		if slices.Contains(plan.Keys, bad) {
			return governance.ErrPoison
		}
		return commit()
	})
	var wg sync.WaitGroup
	call := func(c *caller) {
		_, err := g.Admit(e.ctx, request(c, both(1, 1)))
		if failed := errors.Is(err, governance.ErrUnavailable); failed != (c.id == bad) || (err != nil) != failed {
			e.Errorf("the key that is poison: %v, error %v", c.id == bad, err)
		}
	}
	wg.Go(func() { call(callers[0]) })
	<-entered
	for i := range 64 {
		wg.Go(func() { call(callers[i%9]) })
	}
	moment()
	close(release)
	wg.Wait()
}

func doubtQueue(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	gate := e.gated(&governance.Options{QueueLimit: 3})
	first := make(chan error, 1)
	go func() {
		_, err := gate.g.Admit(e.ctx, request(c, both(1, 1)))
		first <- err
	}()
	<-gate.entered
	results := make(chan error, 50)
	for range 50 {
		go func() {
			_, err := gate.g.Admit(e.ctx, request(c, both(1, 1)))
			results <- err
		}()
	}
	waiting := 50
	for range 47 { // all but three are told at once, while the store hangs
		err := <-results
		waiting--
		r := e.refusal(err, governance.ReasonQueueFull)
		if !r.Retryable || r.RetryAfter <= 0 {
			e.Fatalf("a full queue answers %v", r)
		}
		e.equal("status", governance.StatusOf(err).Code, http.StatusTooManyRequests)
	}
	gate.open()
	e.ok(<-first)
	for range waiting {
		e.ok(<-results)
	}
}

func doubtFair(e *env) {
	e.team("team-1", everyLimit())
	e.team("team-2", everyLimit())
	flood, quiet := e.caller("team-1", everyLimit()), e.caller("team-2", everyLimit())
	gate := e.gated(&governance.Options{QueueLimit: 4})
	results := make(chan error, 32)
	var wg sync.WaitGroup
	try := func(c *caller, out chan<- error) {
		wg.Go(func() {
			_, err := gate.g.Admit(e.ctx, request(c, both(1, 1)))
			out <- err
		})
	}
	try(flood, results)
	<-gate.entered
	for range 31 {
		try(flood, results)
	}
	for range 27 {
		e.refusal(<-results, governance.ReasonQueueFull)
	}
	mine := make(chan error, 1)
	try(quiet, mine)
	moment()
	gate.open()
	wg.Wait()
	e.ok(<-mine) // the queue was full, but not of this team's
}

func doubtPanic(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	var once sync.Once
	g := e.through(nil, func(_ context.Context, _ *governance.Plan, commit func() error) error {
		once.Do(func() { panic("an adapter's mistake") })
		return commit()
	})
	_, err := g.Admit(e.ctx, request(c, both(1, 1)))
	if err == nil {
		e.Fatal("an adapter that panicked admitted")
	}
	p, err := g.Admit(e.ctx, request(c, both(1, 1)))
	e.ok(err)
	e.ok(p.Cancel(e.ctx))
}

// doubtHangs: a store that does not answer is an outage after a bounded time.
func doubtHangs(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	g := e.through(&governance.Options{StepTimeout: 20 * time.Millisecond}, func(ctx context.Context, _ *governance.Plan, _ func() error) error {
		<-ctx.Done()
		return errors.Join(governance.ErrUnavailable, ctx.Err())
	})
	_, err := g.Admit(e.ctx, request(c, both(1, 1)))
	e.is(err, governance.ErrUnavailable)
	e.equal("status", governance.StatusOf(err).Code, http.StatusServiceUnavailable)
}
