package server

import (
	"context"

	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/examples/serving"
)

// status says what this gateway is and what it goes by, without asking a provider.
func (s *Server) status(ctx context.Context) (report.Status, error) {
	found, err := s.probe.Look(ctx)
	if err != nil {
		return report.Status{}, err
	}
	t := s.Config.Topology()
	out := report.Status{
		Profile: s.Config.Profile, StartedAt: s.began, Draining: s.probe.Draining(), Ready: found.Status == serving.Ready, Parts: found.Parts,
		Topology: report.Topology{Version: t.Version, Digest: t.Digest}, Node: s.nodeStatus(),
	}
	mark, enforced, err := s.Governor.Policies(ctx)
	if err != nil { // what it would decide by, if it could make sure of it
		mark, enforced = s.Governor.LastPolicies()
	}
	if enforced != nil {
		policies := report.PoliciesOf(mark, enforced)
		out.Policies = &policies
	}
	return out, nil
}
