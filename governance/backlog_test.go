package governance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// down makes the store unreachable until it is told otherwise.
func (r *rig) down() (up func()) {
	var off atomic.Bool
	r.shelf.with(func() {
		r.shelf.enter = func(*Plan) error {
			if off.Load() {
				return nil
			}
			return fmt.Errorf("%w: no route", ErrUnavailable)
		}
	})
	return func() { off.Store(true) }
}

// deaf makes the store refuse settlements, and nothing else, until it is told otherwise.
func (r *rig) deaf() (up func()) {
	var off atomic.Bool
	r.shelf.with(func() {
		r.shelf.commit = func(_ *Plan, ch *Changes) error {
			if !off.Load() && slices.ContainsFunc(ch.Permits, func(rec Record) bool { return rec.State == StateSettled }) {
				return fmt.Errorf("%w: disk full", ErrUnavailable)
			}
			return nil
		}
	})
	return func() { off.Store(true) }
}

func (r *rig) unsettled(err error, id PermitID) {
	r.Helper()
	var s *SettleError
	if !errors.As(err, &s) || s.ID != id {
		r.Fatalf("error is %v, want a *SettleError of %s", err, id)
	}
}

func TestOutcomeThatCannotBeRecordedIsTriedUntilItIs(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	permits := []*Permit{r.admit(p, small), r.admit(p, small), r.admit(p, small)}
	up := r.down()
	for i, o := range []Outcome{Used(1, 1), NotSent(), Unknown()} {
		err := permits[i].Settle(r.ctx, o)
		r.unsettled(err, permits[i].ID())
		r.is(err, ErrUnavailable)
		if s := StatusOf(err); s.Code != 503 {
			t.Fatalf("status %+v", s)
		}
	}
	if r.g.backlog.length() != 3 {
		t.Fatalf("%d wait", r.g.backlog.length())
	}
	up()
	r.until("all are recorded", func() bool { return r.g.backlog.length() == 0 })
	for i, want := range []State{StateSettled, StateCancelled, StateSettled} {
		if have := r.stored(permits[i].ID()); have.State != want {
			t.Errorf("permit %d is %s", i, have.State)
		}
	}
	if r.reserved() != 0 {
		t.Fatalf("%d is reserved", r.reserved())
	}
	r.ok(permits[0].Settle(r.ctx, Used(1, 1))) // a repetition is a no-op
	r.is(permits[0].Settle(r.ctx, Used(2, 1)), ErrConflict)
	r.verify()
}

// A settlement whose caller has no time left is recorded all the same.
func TestSettlementWithAContextThatEnded(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	permit := r.admit(p, small)
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	err := permit.Settle(ctx, Used(1, 1))
	r.unsettled(err, permit.ID())
	r.is(err, context.Canceled)
	r.until("it is recorded", func() bool { return r.stored(permit.ID()).State == StateSettled })
}

// An outcome that can never be recorded holds up none of the others.
func TestOutcomeThatIsRefusedForEverHoldsUpNone(t *testing.T) {
	r := newRig(t, &Options{BatchLimit: 1}) // one after the other
	p := r.caller("red", "k", plenty(), plenty())
	bad, good := r.admit(p, small), r.admit(p, small)
	up := r.down()
	r.unsettled(bad.Settle(r.ctx, Used(1, 1)), bad.ID())
	r.unsettled(good.Settle(r.ctx, Used(1, 1)), good.ID())
	r.shelf.with(func() {
		r.shelf.commit = func(_ *Plan, ch *Changes) error {
			if slices.ContainsFunc(ch.Permits, func(rec Record) bool { return rec.ID == bad.ID() }) {
				return ErrPoison
			}
			return nil
		}
	})
	up()
	r.until("the good one is recorded", func() bool { return r.stored(good.ID()).State == StateSettled })
	if r.stored(bad.ID()).State != StateOpen {
		t.Fatal("the bad one was recorded")
	}
	err := r.g.Close(r.ctx)
	r.unsettled(err, bad.ID())
}

func TestBacklogIsBounded(t *testing.T) {
	var log bytes.Buffer
	r := newRig(t, &Options{BacklogLimit: 2, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	p := r.caller("red", "k", plenty(), plenty())
	var permits []*Permit
	for range 4 {
		permits = append(permits, r.admit(p, small))
	}
	up := r.down()
	for _, permit := range permits {
		r.unsettled(permit.Settle(r.ctx, Used(1, 1)), permit.ID())
	}
	if n := r.g.backlog.length(); n != 2 {
		t.Fatalf("%d wait", n)
	}
	if n := strings.Count(log.String(), "too many outcomes wait"); n != 2 || !strings.Contains(log.String(), permits[3].ID().String()) {
		t.Fatalf("log:\n%s", log.String())
	}
	up()
	r.until("two are recorded", func() bool { return r.g.backlog.length() == 0 })
	holds, err := r.g.Holds(r.ctx, HoldQuery{})
	r.ok(err)
	if len(holds) != 2 { // the others are left to an operator
		t.Fatalf("holds %+v", holds)
	}
}

func TestCloseRecordsWhatWaits(t *testing.T) {
	r := newRig(t, &Options{BatchLimit: 3})
	p := r.caller("red", "k", plenty(), plenty())
	var permits []*Permit
	for range 8 {
		permits = append(permits, r.admit(p, small))
	}
	up := r.down()
	for _, permit := range permits {
		r.unsettled(permit.Settle(r.ctx, Used(1, 1)), permit.ID())
	}
	up()
	r.ok(r.g.Close(r.ctx))
	for _, permit := range permits {
		if r.stored(permit.ID()).State != StateSettled {
			t.Fatal("a permit is still open")
		}
	}
	r.is(permits[0].Raise(r.ctx, Bound{Tokens: 5}), ErrClosed)
	_, err := r.g.Explain(r.ctx, Request{Principal: p})
	r.is(err, ErrClosed)
}

func TestCloseSaysWhatCouldNotBeRecorded(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	permit := r.admit(p, small)
	_ = r.down()
	r.unsettled(permit.Settle(r.ctx, Used(1, 1)), permit.ID())
	r.unsettled(r.g.Close(r.ctx), permit.ID())
	if r.stored(permit.ID()).State != StateOpen {
		t.Fatal("nothing may be refunded")
	}
}

// Close ends with its context though the store hangs.
func TestCloseEndsWithItsContext(t *testing.T) {
	r := newRig(t, &Options{StepTimeout: 300 * time.Millisecond})
	p := r.caller("red", "k", plenty(), plenty())
	permit := r.admit(p, small)
	hangs := make(chan struct{}, 8)
	r.shelf.pause = func(ctx context.Context, _ *Plan) { hangs <- struct{}{}; <-ctx.Done() }
	r.unsettled(permit.Settle(r.ctx, Used(1, 1)), permit.ID())
	<-hangs
	<-hangs // the backlog's try
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	r.is(r.g.Close(ctx), context.Canceled)
}

// A permit that an operator resolved, or that is gone, is not tried again.
func TestOutcomesThatAreHopelessAreDropped(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	permit := r.admit(p, small)
	up := r.deaf()
	r.unsettled(permit.Settle(r.ctx, Used(1, 1)), permit.ID())
	_, err := r.g.Resolve(r.ctx, Evidence{ID: permit.ID(), Outcome: Used(3, 2), Actor: "op", Reason: "the bill came"})
	r.ok(err)
	up()
	r.until("it is dropped", func() bool { return r.g.backlog.length() == 0 })
	if rec := r.stored(permit.ID()); rec.State != StateResolved || rec.Resolution != Used(3, 2) {
		t.Fatalf("permit %+v", rec)
	}
	var ended *TerminalError
	if err := permit.Settle(r.ctx, Used(1, 1)); !errors.As(err, &ended) || ended.State != StateResolved {
		t.Fatalf("error %v", err)
	}
	r.verify()
}
