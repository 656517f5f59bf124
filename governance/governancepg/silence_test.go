package governancepg_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancepg"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgwire"
)

// hasty gateways are soon at the end of their patience, so that each break can be waited out.
func hasty() benchOptions {
	return benchOptions{
		mode: pgx.QueryExecModeExec, step: 2 * time.Second,
		store: governancepg.Options{LockTimeout: 750 * time.Millisecond, IdleTimeout: time.Second, CommitTimeout: 500 * time.Millisecond},
	}
}

// TestLostAtEveryMessage: at the k-th message, for every k, the database is gone: cut off from everything, or
// one connection falls silent. Only who has asked for a commit may not know its outcome, and the truth
// comes out by itself when the database is back.
func TestLostAtEveryMessage(t *testing.T) {
	list := operations()[:2]
	for name, f := range map[string]pgwire.Fault{
		"gone": {Then: pgwire.Cut, Gone: true}, "silent": {Then: pgwire.Hole},
	} {
		for _, op := range list {
			t.Run(op.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				w := newBench(t, hasty())
				seen := op.dry(t, w)
				asked := pgwire.Before(seen, "commit")
				require.NotZero(t, asked[pgwire.Client])
				faults := pgwire.Everywhere(seen, f.Then, f.Gone)
				if testing.Short() {
					faults = every(faults, 7)
				}
				w.inParallel(t, pgwire.Sample(faults), func(w *bench, f pgwire.Fault) {
					op.lost(t, w, f, f.At > asked[f.From])
				})
				w.settled(t)
			})
		}
	}
}

// inParallel spreads the faults over gateways, which mostly wait.
func (w *bench) inParallel(t *testing.T, faults []pgwire.Fault, do func(*bench, pgwire.Fault)) {
	t.Helper()
	const gateways = 8
	var wg sync.WaitGroup
	for i := range gateways {
		other := w.beside(t, hasty())
		wg.Go(func() {
			for j := i; j < len(faults) && !t.Failed(); j += gateways {
				do(other, faults[j])
			}
		})
	}
	wg.Wait()
}

// lost does the operation while the database becomes silent or goes away.
func (op *operation) lost(t *testing.T, w *bench, f pgwire.Fault, asked bool) {
	s := w.subject(t)
	op.ready(t, s)
	require.NoError(t, w.pool.Ping(t.Context()))
	happened := w.proxy.Arm(f)
	err := op.do(t.Context(), s)
	<-happened
	told := err
	var unsettled *governance.SettleError
	if errors.As(err, &unsettled) {
		told = unsettled.Err
	}
	switch {
	case err == nil:
	case errors.Is(told, governance.ErrUnknownOutcome):
		require.True(t, asked, "at %+v nobody had asked for a commit yet", f)
		require.Equal(t, 503, governance.StatusOf(err).Code)
	default:
		unavailable(t, err)
	}
	// What the server has read to the end it gives up by itself; who sends half a question and falls silent must be cut.
	if f.From == pgwire.Client && !f.Pass || f.Gone {
		w.proxy.Heal()
	}
	switch op.name {
	case "Admit":
		if err == nil {
			s.count(t, false, books{reserved: 100, requests: 1, slots: 1})
			require.Len(t, s.held(t), 1)
			require.NoError(t, s.end(t))
			break
		}
		// Nobody has the permit. If there is one, it is given back, since nobody has used it.
		require.Eventually(t, func() bool { return s.books(t) == books{} && len(s.held(t)) == 0 }, patience, tick, "at %+v", f)
		permit, again := s.again(t)
		if errors.Is(told, governance.ErrUnknownOutcome) && errors.Is(again, governance.ErrTerminal) {
			break // it had been admitted
		}
		require.NoError(t, again, "at %+v", f)
		s.permit = permit
		s.count(t, false, books{reserved: 100, requests: 1, slots: 1})
		require.NoError(t, s.end(t))
	}
	if s.permit != nil {
		s.count(t, true, books{consumed: 60, requests: 1})
	}
	require.Empty(t, s.held(t))
	w.proxy.Heal()
}

// again asks for the permit once more, past rows that a connection which fell silent still holds.
func (s *subject) again(t *testing.T) (permit *governance.Permit, err error) {
	t.Helper()
	require.Eventually(t, func() bool {
		permit, err = s.w.truth.Admit(context.Background(), s.request())
		return !errors.Is(err, governance.ErrUnavailable)
	}, patience, tick)
	return permit, err
}

// end settles the permit, or leaves it to the Governor to do so.
func (s *subject) end(t *testing.T) error {
	t.Helper()
	err := s.permit.Settle(t.Context(), governance.Used(60, 3))
	if errors.Is(err, governance.ErrUnavailable) || errors.Is(err, governance.ErrUnknownOutcome) {
		return nil
	}
	return err
}
