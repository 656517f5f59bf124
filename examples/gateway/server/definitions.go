package server

import (
	"context"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/examples/gateway/coordination"
	"github.com/tallystick-go/tallystick/governance/policy"
)

// definitions follows what any gateway edits of keys, teams and policies. Calls need it not, since each admission compares
// what it goes by; this gateway merely stops to offer what would be refused, and reads policies before somebody waits for them.
func (s *Server) definitions() eventlog.Subscription {
	begin := func(ctx context.Context) (eventlog.Cursor, error) {
		at, err := s.coordination.Store.Head(ctx)
		if err == nil { // in this order: what is read from now on is no older than the cursor
			s.cache.Clear()
			s.policiesEdited()
		}
		return at, err
	}
	return coordination.Follow("definitions", begin, func(_ context.Context, e eventlog.Recorded) error {
		if !s.cache.Follow(e.Stream) && e.Stream == policy.EventStream {
			s.policiesEdited()
		}
		return nil
	})
}

func (s *Server) policiesEdited() {
	select {
	case s.edited <- struct{}{}:
	default: // they are going to be read anyway
	}
}

// keepPolicies reads the policies when they were edited. Where that fails, the next call does.
func (s *Server) keepPolicies(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.edited:
		}
		reading, cancel := context.WithTimeout(ctx, s.Config.Timeouts.Storage.Duration)
		_, _, err := s.Governor.Policies(reading)
		cancel()
		if err != nil && ctx.Err() == nil {
			s.logger.Warn("gateway: edited policies are read with the next call", "error", err)
		}
	}
}
