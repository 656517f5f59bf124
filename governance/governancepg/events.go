package governancepg

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/governance"
)

// ready must come before a step's transaction begins. What would go unrecorded is not done.
func (s *Store) ready(ctx context.Context) error {
	if s.events == nil {
		return nil
	}
	if err := s.events.Ready(ctx); err != nil {
		return fmt.Errorf("%w: the event log is not ready: %w", governance.ErrUnavailable, err)
	}
	return nil
}

// record queues one statement for all events behind the step's other writes, and none for none. The rows that the
// streams are named after are locked or written by then.
func (s *Store) record(b *pgx.Batch, list []governance.Event) error {
	if s.events == nil || len(list) == 0 {
		return nil
	}
	appends := make([]eventlog.Append, len(list))
	for i, e := range list {
		appends[i] = eventlog.Append{Stream: e.Stream, Events: []eventlog.Event{{ID: e.ID, Type: e.Type, Schema: e.Schema, Data: e.Data}}}
	}
	if err := s.events.Queue(b, appends); err != nil {
		return fmt.Errorf("%w: %w", governance.ErrPoison, err)
	}
	return nil
}

// wake tells followers of events that were committed, or may have been.
func (s *Store) wake(list []governance.Event, err error) {
	if s.events != nil && len(list) > 0 && (err == nil || errors.Is(err, governance.ErrUnknownOutcome)) {
		s.events.Wake()
	}
}
