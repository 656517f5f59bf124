package keyspg

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/internal/pgtx"
	"github.com/tallystick-go/tallystick/keys"
)

// telling is what runs in a transaction and says what it changed there.
type telling func(ctx context.Context, tx *pgtx.Tx) ([]keys.Event, error)

// telling runs fn in a transaction, again where that is known to have done nothing, and appends what it tells before the
// commit: the rows that it locked put each stream in order. Where the process cannot be registered for what it is about to
// tell, nothing is changed.
func (s *Store) telling(ctx context.Context, o pgtx.Options, fn telling) error {
	if s.events != nil {
		if err := s.events.Ready(ctx); err != nil {
			return fmt.Errorf("%w: %w", keys.ErrUnavailable, err)
		}
	}
	told := false
	err := pgtx.Retry(ctx, s.pool, o, func(ctx context.Context, tx *pgtx.Tx) error {
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
	return err
}

func (s *Store) tell(ctx context.Context, tx *pgtx.Tx, events []keys.Event) error {
	for some := range slices.Chunk(events, eventlog.MaxEvents) {
		appends := make([]eventlog.Append, len(some))
		for i, e := range some {
			appends[i] = eventlog.Append{Stream: e.Stream, Events: []eventlog.Event{{ID: e.ID, Type: e.Type, Schema: e.Schema, Data: e.Data}}}
		}
		b := &pgx.Batch{}
		if err := s.events.Queue(b, appends); err != nil {
			return err
		}
		if err := tx.Send(ctx, b); err != nil {
			return err
		}
	}
	return nil
}
