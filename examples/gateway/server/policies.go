package server

import (
	"context"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/governance/policy"
)

// profile is the one that says which rules can be enforced.
func (s *Server) profile() policy.Profile {
	switch s.Config.Profile {
	case config.Shared:
		return policy.Shared
	case config.Node:
		return policy.Node
	}
	return policy.Local
}

// startPolicies reads the policies before anything is served: those of files, or what
// the database has. A node hears them from its authority.
func (s *Server) startPolicies(ctx context.Context) error {
	switch s.Config.Profile {
	case config.Local:
		return s.ReloadPolicies(ctx)
	case config.Node:
		return nil
	}
	now, err := s.Storage.Policies.Load(ctx)
	if err == nil {
		s.sayPolicies(now)
	}
	return err
}

// ReloadPolicies reads the files of policies again, in the profile local. Either all of
// them are put in the place of those in force, or nothing changes.
//
// Errors: *config.PolicyError, and those of policy.Store.
func (s *Server) ReloadPolicies(ctx context.Context) error {
	if s.Config.Profile != config.Local {
		return nil // they are in the database, and every admission compares, or the authority sends them
	}
	documents, err := config.ReadPolicies(s.Config.Policies.Files)
	if err != nil {
		return err
	}
	now, err := s.Storage.Policies.Load(ctx)
	if err != nil {
		return err
	}
	now, err = s.Storage.Policies.Replace(ctx, policy.Replace{Documents: documents, Expect: now.Generation})
	if err != nil {
		return err
	}
	s.sayPolicies(now)
	return nil
}

// sayPolicies logs which policies are in force, and whom they shut out.
func (s *Server) sayPolicies(now policy.Snapshot) {
	e := now.Set.Enforce(s.profile(), policy.Enforcing{})
	if now.Set.Len() == 0 {
		return
	}
	s.logger.Info("gateway: policies in force", "policies", now.Set.Len(), "generation", now.Generation, "revision", now.Revision)
	for _, g := range e.Gates() {
		s.logger.Warn("gateway: everybody whom a policy is about is refused: a mandatory rule cannot be enforced",
			"policy", g.Policy, "rule", g.Rule, "subject", g.Subject, "why", g.Reason)
	}
	for _, v := range e.Verdicts() {
		if !v.Enforced {
			s.logger.Warn("gateway: a rule is not enforced", "policy", v.Policy, "rule", v.Rule, "why", v.Reason)
		}
	}
}
