package policypg

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

// commit runs fn in a transaction and appends what it says that it changed before the commit: the row that says what is in force, which
// fn locks, puts the events in order. Where the process cannot be registered for what it is about to tell, nothing is changed.
func (s *Store) commit(ctx context.Context, fn func(context.Context, *pgtx.Tx) ([]policy.Event, error)) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if s.events != nil {
		if err := s.events.Ready(ctx); err != nil {
			return fmt.Errorf("%w: %w", policy.ErrUnavailable, err)
		}
	}
	told := false
	err := pgtx.Retry(ctx, s.pool, pgtx.Options{}, func(ctx context.Context, tx *pgtx.Tx) error {
		events, err := fn(ctx, tx)
		if err != nil || s.events == nil {
			return err
		}
		told = len(events) > 0
		return s.tell(ctx, tx, events)
	})
	if told && (err == nil || pgtx.Classify(err) == pgtx.UnknownOutcome) {
		s.events.Wake()
	}
	return coreError(err)
}

func (s *Store) tell(ctx context.Context, tx *pgtx.Tx, events []policy.Event) error {
	for some := range slices.Chunk(events, eventlog.MaxEvents) {
		a := eventlog.Append{Stream: policy.EventStream}
		for _, e := range some {
			a.Events = append(a.Events, eventlog.Event{ID: e.ID, Type: e.Type, Schema: e.Schema, Data: e.Data})
		}
		b := &pgx.Batch{}
		if err := s.events.Queue(b, []eventlog.Append{a}); err != nil {
			return err
		}
		if err := tx.Send(ctx, b); err != nil {
			return err
		}
	}
	return nil
}
