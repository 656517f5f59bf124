package governancesqlite

import (
	"context"
	"fmt"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
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

// record appends what the step tells, in its transaction.
func (s *Store) record(tx *sqlitetx.Tx, list []governance.Event) error {
	if s.events == nil || len(list) == 0 {
		return nil
	}
	appends := make([]eventlog.Append, len(list))
	for i, e := range list {
		appends[i] = eventlog.Append{Stream: e.Stream, Events: []eventlog.Event{{ID: e.ID, Type: e.Type, Schema: e.Schema, Data: e.Data}}}
	}
	return s.events.Append(tx, appends)
}

// wake tells followers of events that were committed, or may have been.
func (s *Store) wake(ch *governance.Changes, class sqlitetx.Class) {
	if s.events != nil && ch != nil && len(ch.Events) > 0 && (class == sqlitetx.OK || class == sqlitetx.UnknownOutcome) {
		s.events.Wake()
	}
}
