package server

import (
	"context"

	"github.com/tallystick-go/tallystick/examples/serving"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
)

// parts are what a gateway needs to admit anything.
func (s *Server) parts() []serving.Part {
	parts := []serving.Part{
		{Name: "keys", Ask: func(ctx context.Context) error {
			_, err := s.Storage.Keys.Keys(ctx, keys.ListKeys{Limit: 1})
			return err
		}},
		{Name: "counters", Ask: func(ctx context.Context) error {
			_, err := s.Governor.FrozenAccounts(ctx, governance.AccountQuery{Limit: 1})
			return err
		}},
		{Name: "policies", Ask: func(ctx context.Context) error {
			_, _, err := s.Governor.Policies(ctx)
			return err
		}},
	}
	if s.coordination != nil {
		parts = append(parts, serving.Part{Name: "log", Ask: s.follows, Say: sayFollows})
	}
	switch {
	case s.node != nil:
		parts = append(parts,
			serving.Part{Name: "authority", Ask: func(context.Context) error { return s.node.heard() }, Say: sayHeard},
			serving.Part{Name: "journal", Ask: s.Governor.Ready, Say: sayReady})
	case s.Config.Authority != nil:
		parts = append(parts, serving.Part{Name: "authority", Ask: s.bound, Down: "is not bound"})
	}
	return parts
}
