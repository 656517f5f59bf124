package server

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/policy"
)

// marking is an authority that says by which policies it goes.
type marking struct {
	of    policy.Store
	err   error
	heard []escrow.Heartbeat
}

func (m *marking) Beat(ctx context.Context, h *escrow.Heartbeat) (*escrow.Answer, error) {
	m.heard = append(m.heard, *h)
	if m.err != nil {
		return nil, m.err
	}
	now, err := m.of.Load(ctx)
	if err != nil {
		return nil, err
	}
	return &escrow.Answer{Mark: now.Mark, Documents: now.Set}, nil
}

func TestWitness(t *testing.T) {
	own, other := policy.NewMemory(), policy.NewMemory()
	a := &marking{of: own, err: escrow.ErrUnavailable}
	w := newWitness(a, own, "gate-1", slog.New(slog.DiscardHandler))
	require.ErrorIs(t, w.ask(t.Context()), errUnwitnessed)
	require.Error(t, w.look(t.Context()))
	require.Error(t, w.ask(t.Context()), "nobody has said yet that it is one database")

	a.err = nil
	require.NoError(t, w.look(t.Context()))
	require.NoError(t, w.ask(t.Context()))
	a.err = escrow.ErrUnavailable
	require.Error(t, w.look(t.Context()))
	require.NoError(t, w.ask(t.Context()), "it was one database, and it still is")

	a.err = &escrow.Fenced{Reason: escrow.Restored, BootNumber: 1 << 60}
	require.Error(t, w.look(t.Context()))
	a.err = nil
	require.NoError(t, w.look(t.Context()), "a clock that was set back locks nobody out who holds nothing")
	last := a.heard[len(a.heard)-1]
	require.EqualValues(t, 1<<60+1, last.BootNumber)
	require.EqualValues(t, 1, last.Sequence)
	require.NotEqual(t, a.heard[0].Boot, last.Boot)
	for _, h := range a.heard {
		require.NoError(t, h.Validate())
		require.Empty(t, h.Requests)
	}

	a.of = other
	require.ErrorIs(t, w.look(t.Context()), errElsewhere, "equal policies in two databases are two sets of accounts")
	require.ErrorIs(t, w.ask(t.Context()), errElsewhere)
	a.err = escrow.ErrUnavailable
	require.Error(t, w.look(t.Context()))
	require.Error(t, w.ask(t.Context()), "an outage makes nothing sure again")
	a.of, a.err = own, nil
	require.NoError(t, w.look(t.Context()))
	require.NoError(t, w.ask(t.Context()))
}

// behind stores an older state than the authority goes by.
type behind struct {
	policy.Store
}

func (b behind) Load(ctx context.Context) (policy.Snapshot, error) {
	now, err := b.Store.Load(ctx)
	now.Revision--
	return now, err
}

func TestWitnessOfACopy(t *testing.T) {
	own := policy.NewMemory()
	now, err := own.Load(t.Context())
	require.NoError(t, err)
	_, err = own.Replace(t.Context(), policy.Replace{Documents: []policy.Document{}, Expect: now.Generation})
	require.NoError(t, err)
	w := newWitness(&marking{of: own}, behind{Store: own}, "gate-1", slog.New(slog.DiscardHandler))
	err = w.look(t.Context())
	require.True(t, errors.Is(err, errElsewhere), "the same namespace, and older: a copy, or a standby: %v", err)
}
