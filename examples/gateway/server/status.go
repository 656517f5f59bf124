package server

import (
	"context"

	"github.com/tallystick-go/tallystick/examples/gateway/report"
)

// status says what this gateway is and what it goes by, without asking a provider.
func (s *Server) status(ctx context.Context) (report.Status, error) {
	found, err := s.probe(ctx)
	if err != nil {
		return report.Status{}, err
	}
	t := s.Config.Topology()
	return report.Status{
		Profile: s.Config.Profile, StartedAt: s.began, Draining: s.draining.Load(), Ready: found.Status == partReady, Parts: found.Parts,
		Topology: report.Topology{Version: t.Version, Digest: t.Digest},
	}, nil
}
