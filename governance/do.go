package governance

import (
	"context"
	"errors"
	"time"
)

// settleTimeout bounds the settlement of a call whose own context has ended.
const settleTimeout = 10 * time.Second

// Do admits the request, calls fn with the permit, and settles by what fn
// returns, whatever happens: on return, panic, cancellation and timeout. The
// zero Outcome and a bare error mean Unknown: the reservation is kept.
//
// fn's reply is returned even with an error. fn's own error is wrapped so that
// errors.As with a *Refusal finds only the refusal of this call.
//
// Errors: those of Admit (fn was not called), fn's error, *SettleError. When both
// fn and the settlement fail, errors.As finds both.
func Do[T any](ctx context.Context, g *Governor, r Request, fn func(context.Context, *Permit) (T, Outcome, error)) (reply T, err error) {
	permit, err := g.Admit(ctx, r)
	if err != nil {
		return reply, err
	}
	outcome := Unknown()
	returned := false
	settle := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		defer cancel()
		err := permit.Settle(ctx, outcome)
		var failed *SettleError
		if err != nil && !errors.As(err, &failed) {
			err = &SettleError{ID: permit.ID(), Err: err}
		}
		return err
	}
	defer func() {
		if !returned { // a panic or runtime.Goexit goes on after this
			_ = settle()
		}
	}()
	reply, outcome, err = fn(ctx, permit)
	if outcome.validate() != nil {
		outcome = Outcome{Tokens: Measure{Certainty: Impossible}, Cost: Measure{Certainty: Impossible}}
	}
	returned = true
	if err != nil {
		err = &CallError{Err: err}
	}
	if failed := settle(); failed != nil && err != nil {
		return reply, errors.Join(err, failed)
	} else if failed != nil {
		return reply, failed
	}
	return reply, err
}

// CallError is an error of the function that Do called. errors.Is and errors.As
// look through it, except for a *Refusal: a refusal inside it came from some
// other call, and must not be taken for this one's.
type CallError struct{ Err error }

func (e *CallError) Error() string { return e.Err.Error() }

// Is reports whether the function's error is the target.
func (e *CallError) Is(target error) bool { return errors.Is(e.Err, target) }

// As finds the function's error, but never a *Refusal.
func (e *CallError) As(target any) bool {
	if _, ok := target.(**Refusal); ok {
		return false
	}
	return errors.As(e.Err, target)
}
