package governancepg_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgwire"
)

// operation is something that a caller does and that a break can come into.
type operation struct {
	name  string
	ready func(t *testing.T, s *subject)
	do    func(ctx context.Context, s *subject) error
	// judge finds out what became of it and leaves nothing open.
	judge func(t *testing.T, s *subject, err error)
}

// TestCutAtEveryMessage: the connection ends at the k-th message, for every k, and the next one works. Every
// call ends in what it should do or in nothing, says which, and can be repeated.
func TestCutAtEveryMessage(t *testing.T) {
	for _, op := range operations() {
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			op.everywhere(t, benchOptions{mode: pgx.QueryExecModeExec})
		})
	}
	settle := operations()[1]
	t.Run("Settle/prepared", func(t *testing.T) { // named statements change what is sent, not what is done
		t.Parallel()
		settle.everywhere(t, benchOptions{mode: pgx.QueryExecModeCacheStatement})
	})
}

func (op *operation) everywhere(t *testing.T, b benchOptions) {
	w := newBench(t, b)
	faults := pgwire.Everywhere(op.dry(t, w), pgwire.Cut, false)
	require.Greater(t, len(faults), 10)
	if b.each > 0 {
		faults = every(faults, b.each)
	}
	if testing.Short() {
		faults = every(faults, 7)
	}
	for _, f := range pgwire.Sample(faults) {
		if b.mode == pgx.QueryExecModeCacheStatement {
			op.dry(t, w) // the statements are prepared once more
		}
		s := w.subject(t)
		err := op.broken(t, s, f)
		op.judge(t, s, err)
		if t.Failed() {
			t.Fatalf("at %+v", f)
		}
	}
	w.settled(t)
}

// dry does the operation with nothing broken and returns what was sent.
func (op *operation) dry(t *testing.T, w *bench) []pgwire.Message {
	t.Helper()
	times := 1
	if w.pool.Config().ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		times = 2 // the first one prepares the statements
	}
	var seen []pgwire.Message
	for range times {
		s := w.subject(t)
		op.ready(t, s)
		require.NoError(t, w.pool.Ping(t.Context()))
		w.proxy.Arm(pgwire.Fault{})
		err := op.do(t.Context(), s)
		seen = w.proxy.Messages()
		require.NoError(t, err)
		op.judge(t, s, nil)
	}
	return seen
}

// broken does the operation with a fault in it.
func (op *operation) broken(t *testing.T, s *subject, f pgwire.Fault) error {
	t.Helper()
	op.ready(t, s)
	require.NoError(t, s.w.pool.Ping(t.Context())) // a connection is there: the fault comes into the operation
	happened := s.w.proxy.Arm(f)
	err := op.do(t.Context(), s)
	wait := patience
	if s.w.loose { // a pooler has messages of its own, now more of them and now less
		wait = 0
	}
	select {
	case <-happened:
	case <-time.After(wait):
		if s.w.loose {
			break
		}
		t.Fatalf("the operation ended (%v) and did not meet %+v", err, f)
	}
	// An operation that needed no more of its connection leaves it in the pool; whoever gets it learns that it is broken.
	require.Eventually(t, func() bool { return s.w.pool.Ping(t.Context()) == nil }, patience, tick)
	return err
}

// every keeps each n-th fault.
func every(list []pgwire.Fault, n int) (kept []pgwire.Fault) {
	for i := 0; i < len(list); i += n {
		kept = append(kept, list[i])
	}
	return kept
}

func operations() []operation {
	nothing := func(*testing.T, *subject) {}
	admitted := func(t *testing.T, s *subject) { s.admit(t) }
	uncertain := func(t *testing.T, s *subject) {
		s.admit(t)
		require.NoError(t, s.permit.Settle(t.Context(), governance.Observed(20, 1)))
	}
	return []operation{
		{"Admit", nothing, func(ctx context.Context, s *subject) (err error) {
			s.permit, err = s.w.gov.Admit(ctx, s.request())
			return err
		}, judgeAdmit},
		{"Settle", admitted, func(ctx context.Context, s *subject) error {
			return s.permit.Settle(ctx, governance.Used(60, 3))
		}, judgeEnd(governance.Used(60, 3), books{consumed: 60, requests: 1})},
		{"Cancel", admitted, func(ctx context.Context, s *subject) error { return s.permit.Cancel(ctx) }, judgeEnd(governance.NotSent(), books{})},
		{"Raise", admitted, raise, judgeRaise},
		{"Renew", admitted, func(ctx context.Context, s *subject) error { return s.permit.Renew(ctx) }, judgeRenew},
		{"Regain", func(t *testing.T, s *subject) {
			s.admit(t)
			s.w.direct.clock.us.Add(61_000_000) // the slot is gone
		}, func(ctx context.Context, s *subject) error { return s.permit.Renew(ctx) }, judgeRegain},
		{"Resolve", uncertain, resolve, judgeResolve},
		{"Unfreeze", func(t *testing.T, s *subject) {
			s.admit(t)
			impossible := governance.Outcome{Tokens: governance.Measure{Certainty: governance.Impossible}, Cost: governance.Measure{Certainty: governance.Known, Value: 1}}
			require.NoError(t, s.permit.Settle(t.Context(), impossible))
			frozen, err := s.w.truth.FrozenAccounts(t.Context(), governance.AccountQuery{Limit: 10})
			require.NoError(t, err)
			require.Len(t, frozen, 1)
			s.account = frozen[0].Key
		}, unfreeze, judgeUnfreeze},
		{"Do", nothing, func(ctx context.Context, s *subject) error {
			r := s.request()
			r.ID = governance.PermitID{} // no id to ask by: what is left behind is found by its key
			_, err := governance.Do(ctx, s.w.gov, r, func(context.Context, *governance.Permit) (int, governance.Outcome, error) {
				s.calls++
				return 1, governance.Used(60, 3), nil
			})
			return err
		}, judgeDo},
		{"Usage", nothing, func(ctx context.Context, s *subject) error {
			_, err := s.w.gov.Usage(ctx, governance.UsageQuery{Principal: &s.principal})
			return err
		}, judgeLook},
		{"Explain", nothing, func(ctx context.Context, s *subject) error {
			_, err := s.w.gov.Explain(ctx, s.request())
			return err
		}, judgeLook},
		{"Holds", nothing, func(ctx context.Context, s *subject) error {
			_, err := s.w.gov.Holds(ctx, governance.HoldQuery{Key: s.principal.KeyID})
			return err
		}, judgeLook},
	}
}

func judgeAdmit(t *testing.T, s *subject, err error) {
	if err != nil {
		unavailable(t, err) // that nothing is known does not happen: it can be learned
		s.count(t, false, books{})
		s.permit, err = s.w.truth.Admit(t.Context(), s.request())
		require.NoError(t, err)
	}
	_, err = s.w.truth.Admit(t.Context(), s.request())
	require.ErrorIs(t, err, governance.ErrInFlight, "the permit is with its caller")
	require.Len(t, s.held(t), 1)
	s.count(t, false, books{reserved: 100, requests: 1, slots: 1})
	s.ended(t)
	s.count(t, false, books{consumed: 60, requests: 1})
}

// judgeEnd: an end is recorded once, if not at once then later; another one is refused.
func judgeEnd(outcome governance.Outcome, want books) func(*testing.T, *subject, error) {
	other := governance.Used(61, 3)
	return func(t *testing.T, s *subject, err error) {
		if err != nil {
			unavailable(t, err)
			var unsettled *governance.SettleError
			require.ErrorAs(t, err, &unsettled)
			require.Equal(t, s.permit.ID(), unsettled.ID)
		}
		s.count(t, err != nil, want)
		require.NoError(t, s.permit.Settle(t.Context(), outcome), "a repetition changes nothing")
		require.ErrorIs(t, s.permit.Settle(t.Context(), other), governance.ErrConflict)
		s.count(t, false, want)
	}
}

var raised = governance.Bound{Tokens: 250, Cost: 20}

func raise(ctx context.Context, s *subject) error { return s.permit.Raise(ctx, raised) }

func judgeRaise(t *testing.T, s *subject, err error) {
	if err != nil {
		unavailable(t, err)
		s.count(t, false, books{reserved: 100, requests: 1, slots: 1})
		require.EqualValues(t, 100, s.permit.Bound().Tokens)
		require.NoError(t, raise(t.Context(), s))
	}
	require.Equal(t, raised, s.permit.Bound())
	require.NoError(t, raise(t.Context(), s), "a bound that was reached is a no-op")
	s.count(t, false, books{reserved: 250, requests: 1, slots: 1})
	s.ended(t)
	s.count(t, false, books{consumed: 60, requests: 1})
}

func judgeRenew(t *testing.T, s *subject, err error) {
	if err != nil {
		unavailable(t, err)
		require.NoError(t, s.permit.Renew(t.Context()))
	}
	s.count(t, false, books{reserved: 100, requests: 1, slots: 1})
	s.ended(t)
	s.count(t, false, books{consumed: 60, requests: 1})
}

// judgeRegain: of slots whose taking is in doubt none is taken twice by the same permit's name, and none
// outlives its minute.
func judgeRegain(t *testing.T, s *subject, err error) {
	if err != nil && !errors.Is(err, governance.ErrUnknownOutcome) {
		unavailable(t, err)
	}
	require.LessOrEqual(t, s.books(t).slots, int64(1))
	s.ended(t)
	if err == nil {
		require.Zero(t, s.books(t).slots)
	}
	s.w.direct.clock.us.Add(61_000_000)
	s.count(t, false, books{consumed: 60})
}

func resolve(ctx context.Context, s *subject) error {
	_, err := s.w.gov.Resolve(ctx, governance.Evidence{ID: s.permit.ID(), Outcome: governance.Used(30, 2), Actor: "operator", Reason: "asked the provider"})
	return err
}

func judgeResolve(t *testing.T, s *subject, err error) {
	if err != nil {
		unavailable(t, err)
		require.Len(t, s.held(t), 1)
		require.NoError(t, resolve(t.Context(), s))
	}
	require.NoError(t, resolve(t.Context(), s), "the same finding again is a no-op")
	_, err = s.w.gov.Resolve(t.Context(), governance.Evidence{ID: s.permit.ID(), Outcome: governance.Used(31, 2), Actor: "operator", Reason: "asked again"})
	require.ErrorIs(t, err, governance.ErrConflict)
	s.count(t, false, books{consumed: 30, requests: 1})
	require.Empty(t, s.held(t))
	require.Equal(t, 1, s.notes(t, func(n governance.Note) bool { return n.Permit == s.permit.ID() }))
	require.Equal(t, []string{governance.EventHoldOpened, governance.EventHoldResolved, governance.EventNote}, s.told(t, "permit/"+s.permit.ID().String()))
}

func unfreeze(ctx context.Context, s *subject) error {
	return s.w.gov.Unfreeze(ctx, governance.Release{Account: s.account, Actor: "operator", Reason: "the report was corrected"})
}

func judgeUnfreeze(t *testing.T, s *subject, err error) {
	if err != nil {
		if !errors.Is(err, governance.ErrUnknownOutcome) { // it may have happened, and is not repeated unasked
			unavailable(t, err)
		}
		require.NoError(t, unfreeze(t.Context(), s))
	}
	frozen, err := s.w.truth.FrozenAccounts(t.Context(), governance.AccountQuery{Limit: 10})
	require.NoError(t, err)
	require.Empty(t, frozen)
	require.Equal(t, 1, s.notes(t, func(n governance.Note) bool { return n.Account == s.account }))
	require.Equal(t, []string{governance.EventNote}, s.told(t, "account/"+s.account.Constraint.String()))
	s.count(t, false, books{uncertain: 100, requests: 1})
}

func judgeDo(t *testing.T, s *subject, err error) {
	var unsettled *governance.SettleError
	switch {
	case err == nil, errors.As(err, &unsettled):
		require.Equal(t, 1, s.calls)
		s.count(t, err != nil, books{consumed: 60, requests: 1})
	default:
		unavailable(t, err)
		require.Zero(t, s.calls, "nothing was called without a permit")
		s.count(t, false, books{})
	}
	require.Empty(t, s.held(t))
}

// judgeLook: a look changes nothing, and a failed one says nothing of the key.
func judgeLook(t *testing.T, s *subject, err error) {
	if err != nil {
		unavailable(t, err)
	}
	s.count(t, false, books{})
}
