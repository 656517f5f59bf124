package governance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

var errProvider = errors.New("provider said no")

// Every way out of the function settles the permit, once, by the stated rules.
func TestDoSettlesEveryWayOut(t *testing.T) {
	type outcome = Outcome
	impossible := Outcome{Tokens: Measure{Certainty: Impossible}, Cost: Measure{Certainty: Impossible}}
	for name, test := range map[string]struct {
		fn    func(context.Context, *Permit) (string, Outcome, error)
		state State
		want  outcome
		err   error
	}{
		"returns what was used": {func(context.Context, *Permit) (string, Outcome, error) { return "hi", Used(2, 1), nil }, StateSettled, Used(2, 1), nil},
		"an overrun":            {func(context.Context, *Permit) (string, Outcome, error) { return "hi", Used(200, 100), nil }, StateSettled, Used(200, 100), nil},
		"the zero outcome":      {func(context.Context, *Permit) (string, Outcome, error) { return "hi", Outcome{}, nil }, StateSettled, Unknown(), nil},
		"a bare error":          {func(context.Context, *Permit) (string, Outcome, error) { return "", Outcome{}, errProvider }, StateSettled, Unknown(), errProvider},
		"an error and what was used": {func(context.Context, *Permit) (string, Outcome, error) { return "half", Used(1, 1), errProvider },
			StateSettled, Used(1, 1), errProvider},
		"an error before anything was sent": {func(context.Context, *Permit) (string, Outcome, error) { return "", NotSent(), errProvider }, StateCancelled, NotSent(), errProvider},
		"what was seen":                     {func(context.Context, *Permit) (string, Outcome, error) { return "hi", Observed(2, 1), nil }, StateSettled, Observed(2, 1), nil},
		"an outcome that cannot be":         {func(context.Context, *Permit) (string, Outcome, error) { return "hi", Used(-1, 1), nil }, StateSettled, impossible, nil},
		"unsent and used": {func(context.Context, *Permit) (string, Outcome, error) {
			o := Used(1, 1)
			o.Unsent = true
			return "hi", o, nil
		}, StateSettled, impossible, nil},
		"settled by the function": {func(ctx context.Context, p *Permit) (string, Outcome, error) {
			return "hi", Used(1, 1), p.Settle(ctx, Used(1, 1))
		},
			StateSettled, Used(1, 1), nil},
		"the context ended": {func(ctx context.Context, _ *Permit) (string, Outcome, error) { return "", Outcome{}, context.Canceled }, StateSettled, Unknown(), context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			p := r.caller("red", "k", plenty(), plenty())
			var id PermitID
			calls := 0
			reply, err := Do(r.ctx, r.g, Request{Principal: p, Bound: small}, func(ctx context.Context, permit *Permit) (string, Outcome, error) {
				id, calls = permit.ID(), calls+1
				return test.fn(ctx, permit)
			})
			if (err == nil) != (test.err == nil) || !errors.Is(err, test.err) || calls != 1 {
				t.Fatalf("error %v after %d calls", err, calls)
			}
			if test.err == nil && reply != "hi" {
				t.Fatalf("reply %q", reply)
			}
			if rec := r.stored(id); rec.State != test.state || rec.Outcome != test.want {
				t.Fatalf("permit is %s with %+v", rec.State, rec.Outcome)
			}
			if r.reserved() != 0 {
				t.Fatalf("%d is reserved", r.reserved())
			}
			r.verify()
		})
	}
}

func TestDoSettlesAPanic(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	var id PermitID
	func() {
		defer func() {
			if v := recover(); v != "boom" {
				t.Errorf("recovered %v", v)
			}
		}()
		_, _ = Do(r.ctx, r.g, Request{Principal: p, Bound: small}, func(_ context.Context, permit *Permit) (int, Outcome, error) {
			id = permit.ID()
			panic("boom")
		})
	}()
	if rec := r.stored(id); rec.State != StateSettled || rec.Outcome != Unknown() || rec.Flags != FlagTokensUncertain|FlagCostUncertain {
		t.Fatalf("permit %+v", rec)
	}
}

func TestDoSettlesAGoroutineThatExits(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	var id PermitID
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = Do(r.ctx, r.g, Request{Principal: p, Bound: small}, func(_ context.Context, permit *Permit) (int, Outcome, error) {
			id = permit.ID()
			runtime.Goexit()
			return 0, Outcome{}, nil
		})
		t.Error("Do returned")
	})
	wg.Wait()
	if rec := r.stored(id); rec.State != StateSettled || rec.Outcome != Unknown() {
		t.Fatalf("permit %+v", rec)
	}
}

// The caller's context, ended or timed out, ends the work but not the settlement.
func TestDoSettlesAfterItsContextEnded(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	ctx, cancel := context.WithTimeout(r.ctx, time.Hour)
	var id PermitID
	_, err := Do(ctx, r.g, Request{Principal: p, Bound: small}, func(ctx context.Context, permit *Permit) (int, Outcome, error) {
		id = permit.ID()
		cancel()
		return 0, Used(1, 1), ctx.Err()
	})
	r.is(err, context.Canceled)
	if rec := r.stored(id); rec.State != StateSettled || rec.Outcome != Used(1, 1) {
		t.Fatalf("permit %+v", rec)
	}
	_, err = Do(ctx, r.g, Request{Principal: p, Bound: small}, func(context.Context, *Permit) (int, Outcome, error) { t.Error("called"); return 0, Outcome{}, nil })
	r.is(err, context.Canceled)
}

func TestDoRefused(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", room(0), plenty())
	_, err := Do(r.ctx, r.g, Request{Principal: p, Bound: small}, func(context.Context, *Permit) (int, Outcome, error) { t.Error("called"); return 0, Outcome{}, nil })
	r.refused(err, ReasonNeverFits)
	var call *CallError
	if errors.As(err, &call) {
		t.Fatal("the refusal looks like the function's")
	}
}

// A refusal of another call, inside the function's error, is not this call's.
func TestDoHidesTheRefusalOfAnotherCall(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	inner := fmt.Errorf("fallback: %w", errors.Join(&Refusal{Reason: ReasonMoney}, errProvider, &TerminalError{State: StateSettled}))
	_, err := Do(r.ctx, r.g, Request{Principal: p, Bound: small}, func(context.Context, *Permit) (int, Outcome, error) { return 0, NotSent(), inner })
	var refusal *Refusal
	if errors.As(err, &refusal) {
		t.Fatal("the other call's refusal is found")
	}
	var ended *TerminalError
	if !errors.Is(err, errProvider) || !errors.Is(err, inner) || !errors.As(err, &ended) || err.Error() != inner.Error() {
		t.Fatalf("error %v", err)
	}
	var call *CallError
	if !errors.As(err, &call) || call.Err != inner {
		t.Fatalf("error %v", err)
	}
}

// The reply is good though the settlement failed; both errors are found.
func TestDoJoinsBothErrors(t *testing.T) {
	for _, own := range []error{nil, errProvider} {
		r := newRig(t, nil)
		p := r.caller("red", "k", plenty(), plenty())
		up := func() {}
		var id PermitID
		reply, err := Do(r.ctx, r.g, Request{Principal: p, Bound: small}, func(_ context.Context, permit *Permit) (string, Outcome, error) {
			up, id = r.down(), permit.ID()
			return "hi", Used(1, 1), own
		})
		r.unsettled(err, id)
		if reply != "hi" || !errors.Is(err, ErrUnavailable) || (own != nil && !errors.Is(err, own)) {
			t.Fatalf("reply %q, error %v", reply, err)
		}
		up()
		r.until("it is recorded", func() bool { return r.stored(id).State == StateSettled })
	}
}

// A function that settled otherwise than it returned has made a mistake, and is told.
func TestDoWithTwoOutcomes(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	var id PermitID
	reply, err := Do(r.ctx, r.g, Request{Principal: p, Bound: small}, func(ctx context.Context, permit *Permit) (string, Outcome, error) {
		id = permit.ID()
		return "hi", Used(2, 2), permit.Settle(ctx, Used(1, 1))
	})
	r.unsettled(err, id)
	r.is(err, ErrConflict)
	if reply != "hi" || r.stored(id).Outcome != Used(1, 1) || r.g.backlog.length() != 0 {
		t.Fatalf("reply %q, outcome %+v", reply, r.stored(id).Outcome)
	}
}
