package governancetest

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
)

func cancelCases() []scenario {
	return []scenario{
		{name: "ReturnsEverything", also: "ReplayL9NotDispatched", run: cancelAll},
		{name: "TwiceIsANoOp", also: "PrimitiveR1SecondCancel ReplayX8RefundsDoNotSaturate", run: cancelTwice},
		{name: "ReplayX2RefundStaysInItsWindow", run: cancelX2},
		{name: "EdgeOverlappingCancellations", run: cancelOverlapping},
		{name: "PrimitiveR1NeverMorePermissive", also: "EdgeRefundOfWhatWasRefilled", run: cancelLate},
		{name: "PrimitiveR15RefusedHasNothingToReturn", run: cancelRefused},
	}
}

func cancelAll(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	p := e.admit(c, both(100, 70))
	e.ok(p.Cancel(e.ctx))
	for _, scope := range bothScopes {
		for _, r := range rules {
			e.held(c, scope, r.rule, 0, 0, 0)
		}
	}
	rec := e.record(p.ID())
	if rec.State != governance.StateCancelled || rec.Flags != 0 {
		e.Fatalf("the permit is %s", describeRecord(&rec))
	}
}

func cancelTwice(e *env) {
	c := e.rated(10)
	p, q := e.admit(c, tokens(5)), e.admit(c, tokens(5))
	e.ok(p.Cancel(e.ctx))
	for range 5 {
		e.ok(p.Cancel(e.ctx))
	}
	e.is(p.Settle(e.ctx, governance.Used(1, 0)), governance.ErrConflict)
	if d := e.debt(c); d < 4 {
		e.Fatalf("the rate holds %d after one of two was cancelled, want 5", d)
	}
	e.refused(c, tokens(8), governance.ReasonRate)
	e.ok(q.Cancel(e.ctx))
}

func cancelX2(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(100)})
	c := e.caller("team-1", keys.Limits{})
	old := e.admit(c, tokens(100))
	e.advance(24 * time.Hour)
	e.admit(c, tokens(100))
	e.ok(old.Cancel(e.ctx)) // returns to yesterday
	e.refused(c, tokens(1), governance.ReasonReserved)
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 0, 100)
}

func cancelOverlapping(e *env) {
	c := e.rated(1000)
	var permits []*governance.Permit
	for range 10 {
		permits = append(permits, e.admit(c, tokens(100)))
	}
	var wg sync.WaitGroup
	for _, p := range permits {
		wg.Go(func() { e.background(p.Cancel(e.ctx)) })
	}
	wg.Wait()
	e.equal("debt", e.debt(c), int64(0))
	e.admit(c, tokens(1000))
}

// cancelLate cancels what has drained already: that is nobody's to give back.
func cancelLate(e *env) {
	c := e.rated(60)
	p := e.admit(c, tokens(30))
	e.advance(40 * time.Second) // all of it is gone
	e.admit(c, tokens(60))
	e.ok(p.Cancel(e.ctx))
	if d := e.debt(c); d < 55 {
		e.Fatalf("a cancellation of what had drained took %d from another's 60", 60-d)
	}
	e.refused(c, tokens(10), governance.ReasonRate)
}

func cancelRefused(e *env) {
	e.team("team-1", keys.Limits{TokensPerMinute: keys.Limit(100), TokensPerDay: keys.Limit(50)})
	c := e.caller("team-1", keys.Limits{})
	e.admit(c, tokens(40))
	_, err := governance.Do(e.ctx, e.g, request(c, tokens(20)), func(context.Context, *governance.Permit) (int, governance.Outcome, error) {
		e.Fatal("a refused call was made")
		return 0, governance.NotSent(), nil
	})
	e.refusal(err, governance.ReasonReserved)
	if d := e.debt(c); d < 39 || d > 40 {
		e.Fatalf("the rate holds %d, want 40", d)
	}
}

func doCases() []scenario {
	return []scenario{
		{name: "SettlesOnReturn", also: "ReplayL11NothingToForget", run: doReturns},
		{name: "ZeroOutcomeIsUnknown", run: doZero},
		{name: "ErrorKeepsTheReply", run: doError},
		{name: "RefusalOfAnotherCallIsNotOurs", run: doRefusal},
		{name: "ReplayL8Panic", run: doPanic},
		{name: "ReplayL1EveryExit", also: "PrimitiveG3EveryExit", run: doEveryExit},
		{name: "PrimitiveG13CancelledContextStillSettles", run: doCancelled},
		{name: "BadOutcomeFreezes", run: doBad},
		{name: "FailedSettlementIsSaid", run: doUnsettled},
	}
}

type reply = func(context.Context, *governance.Permit) (string, governance.Outcome, error)

func (e *env) do(c *caller, f reply) (string, error) {
	return governance.Do(e.ctx, e.g, request(c, both(100, 70)), f)
}

func doReturns(e *env) {
	c := e.spender()
	text, err := e.do(c, func(_ context.Context, p *governance.Permit) (string, governance.Outcome, error) {
		e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 0, 100)
		return string(p.Price()), governance.Used(40, 30), nil
	})
	e.ok(err)
	e.equal("reply", text, "price row 1")
	e.held(c, governance.ScopeTeam, "tokens_per_day", 40, 0, 0)
}

func doZero(e *env) {
	c := e.spender()
	_, err := e.do(c, func(context.Context, *governance.Permit) (string, governance.Outcome, error) {
		return "", governance.Outcome{}, nil
	})
	e.ok(err)
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 100, 0)
}

func doError(e *env) {
	c := e.spender()
	broken := errors.New("the provider hung up")
	text, err := e.do(c, func(context.Context, *governance.Permit) (string, governance.Outcome, error) {
		return "half a reply", governance.Observed(7, 7), broken
	})
	e.is(err, broken)
	e.equal("reply", text, "half a reply")
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 100, 0)
}

func doRefusal(e *env) {
	c := e.spender()
	_, err := e.do(c, func(context.Context, *governance.Permit) (string, governance.Outcome, error) {
		return "", governance.NotSent(), &governance.Refusal{Reason: governance.ReasonMoney} // of some call behind this one
	})
	var refusal *governance.Refusal
	if err == nil || errors.As(err, &refusal) {
		e.Fatalf("error is %v, want one that is no refusal of this call", err)
	}
}

func doPanic(e *env) {
	c := e.spender()
	func() {
		defer func() {
			if r := recover(); r != "boom" {
				e.Fatalf("recovered %v, want the panic of the call", r)
			}
		}()
		_, _ = e.do(c, func(context.Context, *governance.Permit) (string, governance.Outcome, error) { panic("boom") })
	}()
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 100, 0)
	e.held(c, governance.ScopeTeam, "concurrency", 0, 0, 0)
	e.equal("open permits", len(e.everyPermit(governance.PermitQuery{States: []governance.State{governance.StateOpen}})), 0)
}

func doEveryExit(e *env) {
	c := e.spender()
	failed := errors.New("failed")
	exits := map[string]struct {
		call reply
		want governance.State
	}{
		"validation": {func(context.Context, *governance.Permit) (string, governance.Outcome, error) {
			return "", governance.NotSent(), failed
		}, governance.StateCancelled},
		"upstream 4xx": {func(context.Context, *governance.Permit) (string, governance.Outcome, error) {
			return "", governance.Used(0, 0), failed
		}, governance.StateSettled},
		"timeout": {func(context.Context, *governance.Permit) (string, governance.Outcome, error) {
			return "", governance.Unknown(), context.DeadlineExceeded
		}, governance.StateSettled},
		"cached answer": {func(context.Context, *governance.Permit) (string, governance.Outcome, error) {
			return "cached", governance.NotSent(), nil
		}, governance.StateCancelled},
		"panic": {func(context.Context, *governance.Permit) (string, governance.Outcome, error) { panic("boom") }, governance.StateSettled},
	}
	for name, exit := range exits {
		var id governance.PermitID
		func() {
			defer func() { _ = recover() }()
			_, _ = e.do(c, func(ctx context.Context, p *governance.Permit) (string, governance.Outcome, error) {
				id = p.ID()
				return exit.call(ctx, p)
			})
		}()
		rec := e.record(id)
		if rec.State != exit.want || rec.Version != 2 {
			e.Fatalf("after %s the permit is %s", name, describeRecord(&rec))
		}
	}
	// An exit of the whole goroutine, as a test's FailNow.
	done := make(chan struct{})
	var id governance.PermitID
	go func() {
		defer close(done)
		_, _ = e.do(c, func(_ context.Context, p *governance.Permit) (string, governance.Outcome, error) {
			id = p.ID()
			runtime.Goexit()
			return "", governance.NotSent(), nil
		})
	}()
	<-done
	e.equal("state", e.record(id).State, governance.StateSettled)
	e.held(c, governance.ScopeTeam, "concurrency", 0, 0, 0)
}

func doCancelled(e *env) {
	c := e.spender()
	ctx, cancel := context.WithCancel(e.ctx)
	_, err := governance.Do(ctx, e.g, request(c, both(100, 70)), func(ctx context.Context, _ *governance.Permit) (string, governance.Outcome, error) {
		cancel() // the client is gone
		return "", governance.Used(40, 30), ctx.Err()
	})
	e.is(err, context.Canceled)
	e.held(c, governance.ScopeTeam, "tokens_per_day", 40, 0, 0)
}

func doBad(e *env) {
	c := e.spender()
	_, err := e.do(c, func(context.Context, *governance.Permit) (string, governance.Outcome, error) {
		return "", governance.Used(-5, -5), nil
	})
	e.ok(err)
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 100, 0)
	e.refused(c, tokens(1), governance.ReasonFrozen)
}

func doUnsettled(e *env) {
	c := e.spender()
	broken := errors.New("the provider hung up")
	var down atomic.Bool
	g := e.through(nil, func(_ context.Context, _ *governance.Plan, commit func() error) error {
		if down.Load() {
			return governance.ErrUnavailable
		}
		return commit()
	})
	text, err := governance.Do(e.ctx, g, request(c, both(100, 70)), func(context.Context, *governance.Permit) (string, governance.Outcome, error) {
		down.Store(true)
		return "a reply", governance.Used(40, 30), broken
	})
	var failed *governance.SettleError
	if !errors.As(err, &failed) || !errors.Is(err, broken) || text != "a reply" {
		e.Fatalf("%q, %v; want the reply, the call's error and a SettleError", text, err)
	}
	down.Store(false)
	e.ok(g.Close(e.ctx))
	e.held(c, governance.ScopeTeam, "tokens_per_day", 40, 0, 0)
}
