package governance

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

// marked reports whether a transaction admits a request with this price.
func marked(ch *Changes, price string) bool {
	return ch.Batch != nil && slices.ContainsFunc(ch.Batch.Terms, func(p []byte) bool { return bytes.Contains(p, []byte(price)) })
}

// together runs one transaction of admissions with these prices and returns each one's error.
func (r *rig) together(p *keys.Principal, prices ...string) (permits []*Permit, errs []error) {
	tasks := make([]task, len(prices))
	for i, price := range prices {
		tasks[i] = r.g.admission(&Request{Principal: p, Bound: small, Price: []byte(price)}, nil)
	}
	r.g.lanes[0].transact(r.ctx, tasks)
	for _, t := range tasks {
		errs = append(errs, t.failed())
		if t.failed() == nil {
			permits = append(permits, r.g.permit(t.(*admission)))
		}
	}
	return permits, errs
}

func TestPoisonedRequestFailsAlone(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	attempts := 0
	r.shelf.commit = func(_ *Plan, ch *Changes) error {
		attempts++
		if marked(ch, "poison") {
			return fmt.Errorf("%w: invalid byte", ErrPoison)
		}
		return nil
	}
	prices := slices.Repeat([]string{"fine"}, 16)
	prices[5] = "poison"
	permits, errs := r.together(p, prices...)
	for i, err := range errs {
		if (i == 5) != errors.Is(err, ErrUnavailable) || (i == 5) != errors.Is(err, ErrPoison) {
			t.Errorf("request %d: %v", i, err)
		}
	}
	if len(permits) != 15 || attempts > 9 || len(r.shelf.permits) != 15 {
		t.Fatalf("%d permits after %d attempts", len(permits), attempts)
	}
	r.verify()
}

// A row that cannot be read is the answer of whoever needs it, and of nobody who shares the transaction.
func TestUnreadableRowFailsAlone(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	r.shelf.commit = func(_ *Plan, ch *Changes) error {
		if marked(ch, "unreadable") {
			return ErrCorrupt
		}
		return nil
	}
	prices := slices.Repeat([]string{"fine"}, 8)
	prices[3] = "unreadable"
	permits, errs := r.together(p, prices...)
	for i, err := range errs {
		if (i == 3) != errors.Is(err, ErrCorrupt) {
			t.Errorf("request %d: %v", i, err)
		}
	}
	if len(permits) != 7 {
		t.Fatalf("%d permits", len(permits))
	}
	r.verify()
}

func TestTransactionThatDidNotCommitIsRepeated(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	batches, failures := map[BatchID]bool{}, 3
	r.shelf.commit = func(plan *Plan, _ *Changes) error {
		batches[plan.Batch] = true
		if len(batches) <= failures {
			return fmt.Errorf("%w: deadlock", ErrRetry)
		}
		return nil
	}
	_, errs := r.together(p, "a", "b")
	if errs[0] != nil || errs[1] != nil || len(batches) != 4 || len(r.shelf.permits) != 2 {
		t.Fatalf("errors %v, %d batches", errs, len(batches))
	}
	failures = 1000
	_, errs = r.together(p, "a", "b")
	for _, err := range errs {
		r.is(err, ErrUnavailable)
	}
	if len(batches) != 4+attempts || len(r.shelf.permits) != 2 {
		t.Fatalf("%d batches", len(batches))
	}
	r.verify()
}

// After a lock timeout those whose rows are free are answered, the others are not
// waited for again.
func TestLockTimeoutAnswersThoseWhoseRowsAreFree(t *testing.T) {
	r := newRig(t, nil)
	red, blue := r.caller("red", "k1", plenty(), plenty()), r.caller("blue", "k2", plenty(), plenty())
	r.admit(red, small)
	held := r.g.sets.of(red, nil).ids[2]
	r.shelf.taken = func(id ConstraintID) bool { return id == held }
	tasks := []task{
		r.g.admission(&Request{Principal: red, Bound: small}, nil), r.g.admission(&Request{Principal: blue, Bound: small}, nil),
		r.g.admission(&Request{Principal: blue, Bound: Bound{Tokens: 2e12}}, nil),
	}
	before := r.shelf.steps
	r.g.lanes[0].transact(r.ctx, tasks)
	r.is(tasks[0].failed(), ErrUnavailable)
	r.ok(tasks[1].failed())
	r.refused(tasks[2].failed(), ReasonNeverFits)
	if r.shelf.steps != before+1 {
		t.Fatalf("%d transactions came to their locks", r.shelf.steps-before)
	}
}

func TestUnavailableForAll(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	r.shelf.enter = func(*Plan) error { return fmt.Errorf("%w: no route", ErrUnavailable) }
	_, errs := r.together(p, "a", "b", "c")
	for _, err := range errs {
		r.is(err, ErrUnavailable)
		if s := StatusOf(err); s.Code != 503 || !s.Retryable || s.RetryAfter <= 0 {
			t.Fatalf("status %+v", s)
		}
	}
}

// A store that hangs costs a step's time, not the caller's patience.
func TestStoreThatHangs(t *testing.T) {
	r := newRig(t, &Options{StepTimeout: 20 * time.Millisecond})
	p := r.caller("red", "k", plenty(), plenty())
	r.shelf.pause = func(ctx context.Context, _ *Plan) { <-ctx.Done() }
	_, err := r.g.Admit(r.ctx, Request{Principal: p, Bound: small})
	r.is(err, ErrUnavailable)
	r.shelf.pause = nil
	r.admit(p, small)
}

func TestDecisionThatPanics(t *testing.T) {
	var log strings.Builder
	r := newRig(t, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	p := r.caller("red", "k", plenty(), plenty())
	tasks := []task{
		r.g.admission(&Request{Principal: p, Bound: small}, nil),
		&stub{act: func(s *sheet) { panic("broken") }},
		r.g.admission(&Request{Principal: p, Bound: small}, nil),
	}
	r.g.lanes[0].transact(r.ctx, tasks)
	r.ok(tasks[0].failed())
	r.is(tasks[1].failed(), ErrUnavailable)
	r.ok(tasks[2].failed())
	if len(r.shelf.permits) != 2 || !strings.Contains(log.String(), "broken") {
		t.Fatalf("%d permits, log %s", len(r.shelf.permits), log.String())
	}
	r.verify()
}

// A lane outlives an adapter that panics; nothing is known of what it was doing.
func TestStoreThatPanics(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	r.shelf.pause = func(context.Context, *Plan) { panic("nil map") }
	_, err := r.g.Admit(r.ctx, Request{Principal: p, Bound: small})
	r.is(err, ErrUnknownOutcome)
	r.shelf.pause = nil
	r.admit(p, small)
	r.until("the lane is idle", r.idle)
}

// lost makes commits lose their answers: the first n of the transactions that
// change permits or admit, whether the change was written or not.
func (r *rig) lost(n int, written bool) {
	lose := func(_ *Plan, ch *Changes) error {
		if n <= 0 {
			return nil
		}
		n--
		return fmt.Errorf("%w: connection reset", ErrUnknownOutcome)
	}
	r.shelf.with(func() {
		r.shelf.commit, r.shelf.answer = nil, nil
		if written {
			r.shelf.answer = lose
		} else {
			r.shelf.commit = lose
		}
	})
}

// Nobody received the permit of an admission whose answer was lost. It is never
// retried as new, and cancelled once the store answers again.
func TestUnknownAdmission(t *testing.T) {
	for _, written := range []bool{false, true} {
		r := newRig(t, nil)
		p := r.caller("red", "k", plenty(), plenty())
		r.lost(1, written)
		_, err := r.g.Admit(r.ctx, Request{Principal: p, Bound: small})
		r.is(err, ErrUnknownOutcome)
		if s := StatusOf(err); s.Code != 503 || !s.Retryable {
			t.Fatalf("status %+v", s)
		}
		r.until("nothing waits", func() bool { return r.g.backlog.length() == 0 })
		if r.reserved() != 0 {
			t.Fatalf("written %v: %d is reserved", written, r.reserved())
		}
		n := map[bool]int{true: 1}[written]
		r.shelf.with(func() {
			if len(r.shelf.permits) != n {
				t.Fatalf("written %v: %d permits", written, len(r.shelf.permits))
			}
		})
		r.verify()
	}
}

// The permit cannot be seen while the doubtful transaction holds its rows: that is
// no proof that there is none.
func TestUnknownAdmissionThatStillHoldsItsRows(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	r.lost(1, false)
	var late *Changes
	commit := r.shelf.commit
	held := true
	r.shelf.commit = func(plan *Plan, ch *Changes) error {
		if err := commit(plan, ch); err != nil {
			late = ch // commits later
			return err
		}
		return nil
	}
	r.shelf.taken = func(ConstraintID) bool { return held && late != nil }
	_, err := r.g.Admit(r.ctx, Request{Principal: p, Bound: small})
	r.is(err, ErrUnknownOutcome)
	tried := func() (n int) { r.shelf.with(func() { n = r.shelf.steps }); return n }
	before := tried()
	r.until("the cancellation was tried", func() bool { return tried() > before })
	r.shelf.with(func() {
		if err := r.shelf.write(late); err != nil {
			t.Fatal(err)
		}
		held = false
	})
	r.until("it is cancelled", func() bool { return r.g.backlog.length() == 0 && r.reserved() == 0 })
	if rec := r.stored(late.Batch.Permits[0].ID); rec.State != StateCancelled {
		t.Fatalf("the permit is %s", rec.State)
	}
}

// What is idempotent is done again: whether the first time was written or not.
func TestUnknownOutcomeOfWhatCanBeDoneTwice(t *testing.T) {
	for _, written := range []bool{false, true} {
		r := newRig(t, nil)
		p := r.caller("red", "k", plenty(), plenty())
		permit, other := r.admit(p, small), r.admit(p, small)

		r.lost(1, written)
		r.ok(permit.Raise(r.ctx, Bound{Tokens: 10, Cost: 10}))
		if permit.Bound() != (Bound{Tokens: 10, Cost: 10}) || r.stored(permit.ID()).Tokens != 10 {
			t.Fatalf("bound %+v", permit.Bound())
		}
		r.lost(1, written)
		r.ok(permit.Settle(r.ctx, Used(7, 7)))
		r.lost(1, written)
		hold, err := r.g.Resolve(r.ctx, Evidence{ID: other.ID(), Outcome: Used(1, 1), Actor: "op", Reason: "saw the bill"})
		r.ok(err)
		if hold.State != StateResolved || len(r.shelf.notes) != 1 || r.reserved() != 0 {
			t.Fatalf("hold %+v, notes %+v", hold, r.shelf.notes)
		}
		r.verify()
	}
}

// When that does not help either, the answer stays that nothing is known.
func TestUnknownOutcomeThatStays(t *testing.T) {
	for name, second := range map[string]error{"unknown again": ErrUnknownOutcome, "unavailable": ErrUnavailable, "deadlocks": ErrRetry} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			p := r.caller("red", "k", plenty(), plenty())
			permit := r.admit(p, small)
			n := 0
			r.shelf.commit = func(*Plan, *Changes) error {
				if n++; n == 1 {
					return ErrUnknownOutcome
				}
				return second
			}
			r.is(permit.Raise(r.ctx, Bound{Tokens: 10}), ErrUnknownOutcome)
			n = 0
			err := permit.Settle(r.ctx, Used(1, 1))
			var unsettled *SettleError
			if !errors.As(err, &unsettled) || unsettled.ID != permit.ID() {
				t.Fatalf("error %v", err)
			}
			r.is(err, ErrUnknownOutcome)
			r.shelf.with(func() { r.shelf.commit = nil })
			r.until("it is settled", func() bool { return r.stored(permit.ID()).State == StateSettled })
			r.verify()
		})
	}
}

// What is refused because of a call in the same transaction is decided again when nobody
// knows whether that transaction was committed. What was refused before it stands.
func TestRefusalInATransactionOfDoubt(t *testing.T) {
	for name, test := range map[string]struct {
		written bool  // the commit was done, its answer lost
		after   error // what the store says of every commit from then on
		want    func(r *rig, second error)
	}{
		"committed":     {written: true, want: func(r *rig, err error) { r.refused(err, ReasonReserved) }},
		"not committed": {want: func(r *rig, err error) { r.ok(err) }},
		"never known": {after: ErrUnavailable, want: func(r *rig, err error) {
			r.is(err, ErrUnavailable)
			if s := StatusOf(err); s.Code != 503 || !s.Retryable {
				r.Fatalf("status %+v", s)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			limits := plenty()
			limits.TokensPerDay = keys.Limit(3)
			p := r.caller("red", "k", limits, keys.Limits{})
			r.lost(1, test.written)
			if commit := r.shelf.commit; test.after != nil {
				r.shelf.commit = func(plan *Plan, ch *Changes) error { return cmp.Or(commit(plan, ch), test.after) }
			}
			first := r.g.admission(&Request{Principal: p, Bound: Bound{Tokens: 4}}, nil)
			second, third := r.g.admission(&Request{Principal: p, Bound: small}, nil), r.g.admission(&Request{Principal: p, Bound: small}, nil)
			fourth := r.g.admission(&Request{Principal: p, Bound: Bound{Tokens: 4}}, nil)
			r.g.lanes[0].transact(r.ctx, []task{first, second, third, fourth})
			r.refused(first.err, ReasonNeverFits)
			r.is(second.err, ErrUnknownOutcome)
			test.want(r, third.err)
			if test.after == nil {
				r.refused(fourth.err, ReasonNeverFits)
			} else {
				r.is(fourth.err, ErrUnavailable)
			}
		})
	}
}

// An answer of an earlier attempt does not survive the next one.
func TestAnswersAreForgottenBetweenAttempts(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	permit := r.admit(p, small)
	o := &settlement{id: permit.id, owner: permit.owner, terms: permit.terms, outcome: Used(1, 1), team: "red"}
	for _, written := range []bool{false, true} { // the second time is a replay
		r.lost(1, written)
		o.err = ErrUnavailable
		r.g.lanes[0].transact(r.ctx, []task{o})
		r.ok(o.err)
	}
}

func (b *backlog) length() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

var discard = slog.New(slog.NewTextHandler(io.Discard, nil))
