package keyssqlite

import (
	"context"
	"fmt"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
	"github.com/tallystick-go/tallystick/keys"
)

// telling runs fn in a write transaction and appends what it says that it changed, before the commit. Where the process
// cannot be registered for what it is about to tell, nothing is changed.
func (s *Store) telling(ctx context.Context, fn func(*sqlitetx.Tx) ([]keys.Event, error)) error {
	if s.events != nil {
		if err := s.events.Ready(ctx); err != nil {
			return fmt.Errorf("%w: %w", keys.ErrUnavailable, err)
		}
	}
	told := false
	err := s.db.Write(ctx, func(tx *sqlitetx.Tx) error {
		events, err := fn(tx)
		if err != nil || s.events == nil {
			return err
		}
		for _, e := range events {
			told = true
			if err := s.events.Append(tx, []eventlog.Append{{Stream: e.Stream, Events: []eventlog.Event{{ID: e.ID, Type: e.Type, Schema: e.Schema, Data: e.Data}}}}); err != nil {
				return err
			}
		}
		return nil
	})
	if told && (err == nil || sqlitetx.Classify(err) == sqlitetx.UnknownOutcome) {
		s.events.Wake()
	}
	return coreError(err)
}
