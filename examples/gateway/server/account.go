package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/examples/gateway/router"
	"github.com/tallystick-go/tallystick/examples/gateway/wire"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/governance/usage"
	"github.com/tallystick-go/tallystick/keys"
)

// usageDocument says how full limits are, and whether that is known.
type usageDocument struct {
	report.Usage
	// Available is false while the store does not answer. The counts are then what this
	// gateway knows by itself, which is nothing: all of them are zero.
	Available bool `json:"available"`
}

// usage tells a caller how full its own limits are. Nothing is asked of a provider.
func (s *Server) usage(w http.ResponseWriter, r *http.Request) {
	protocol := httpgov.DefaultRoute(r).Protocol
	ctx, cancel := context.WithTimeout(r.Context(), s.Config.Timeouts.Storage.Duration)
	defer cancel()
	principal, err := httpgov.FreshPrincipal(ctx)
	if err != nil {
		known, _ := httpgov.PrincipalFrom(ctx)
		s.withoutStore(w, protocol, known, err)
		return
	}
	usage, err := s.Governor.Usage(ctx, governance.UsageQuery{Principal: principal})
	if err != nil {
		s.withoutStore(w, protocol, principal, err)
		return
	}
	wire.JSON(w, http.StatusOK, usageDocument{report.UsageOf(principal, usage.Verdicts), true})
}

// withoutStore answers for a store that did not: an outage is no refusal, and no
// reason to ask anybody else.
func (s *Server) withoutStore(w http.ResponseWriter, protocol usage.Protocol, known *keys.Principal, err error) {
	if e := wire.Of(err); e.Status != http.StatusServiceUnavailable || known == nil {
		e.Write(w, protocol)
		return
	}
	s.logger.Warn("gateway: usage cannot be told", "error", err)
	out := usageDocument{Usage: report.UsageOf(known, nil)}
	add := func(scope, subject string, l keys.Limits) {
		for _, c := range []struct {
			rule  string
			kind  governance.Kind
			limit *int64
		}{
			{"requests_per_minute", governance.KindRequestRate, l.RequestsPerMinute},
			{"tokens_per_minute", governance.KindTokenRate, l.TokensPerMinute},
			{"tokens_per_day", governance.KindTokenQuota, l.TokensPerDay},
			{"cost_per_day", governance.KindMoney, (*int64)(l.CostPerDay)},
			{"cost_per_month", governance.KindMoney, (*int64)(l.CostPerMonth)},
			{"concurrency", governance.KindConcurrency, l.Concurrency},
		} {
			if c.limit != nil {
				out.Constraints = append(out.Constraints, report.Constraint{
					Rule: c.rule, Scope: scope, Subject: subject, Kind: c.kind.String(), Unit: report.Unit(c.kind), Limit: *c.limit, Hard: true,
				})
			}
		}
	}
	add(governance.ScopeKey.String(), known.KeyID, known.Key.Limits)
	add(governance.ScopeTeam.String(), known.TeamID, known.Team.Limits)
	out.Constraints = append(out.Constraints, s.zeroPolicies(known)...)
	wire.JSON(w, http.StatusOK, out)
}

// zeroPolicies are the limits of the policies that this gateway has read last.
func (s *Server) zeroPolicies(known *keys.Principal) (out []report.Constraint) {
	_, rules := s.Governor.LastPolicies()
	if rules == nil {
		return nil
	}
	for _, m := range rules.Match(known.TeamID, known.User) {
		for _, l := range m.Rule.Limits() {
			out = append(out, report.Constraint{
				Policy: m.Policy, Rule: m.Rule.Name, Scope: m.Scope.String(), Subject: m.Subject.String(),
				Kind: l.Kind.String(), Unit: report.Unit(governance.Kind(l.Kind)), Limit: l.Amount, Hard: l.Hard,
			})
		}
	}
	return out
}

// tolerant lets a request through whose caller cannot be told while the store does not
// answer. It is for a route that tells nothing without the store.
type tolerant struct{ keys.Resolver }

// Resolve returns nobody during an outage. Errors: those of a refusal.
func (t tolerant) Resolve(ctx context.Context, presented string) (keys.Principal, error) {
	p, err := t.Resolver.Resolve(ctx, presented)
	if errors.Is(err, keys.ErrUnavailable) {
		return keys.Principal{}, nil
	}
	return p, err
}

// Reload asks the store, but never who nobody is. Errors: the store's.
func (t tolerant) Reload(ctx context.Context, old keys.Principal) (keys.Principal, error) {
	if old.KeyID == "" {
		return keys.Principal{}, keys.ErrUnavailable
	}
	return t.Resolver.Reload(ctx, old)
}

type openaiModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

type anthropicModel struct {
	Type        string `json:"type"`
	ID          string `json:"id"`
	DisplayName string `json:"display_name"`
	CreatedAt   string `json:"created_at"`
}

// models lists what the caller may use, in the protocol that it speaks.
func (s *Server) models(w http.ResponseWriter, r *http.Request, keep func(router.Model) bool) ([]router.Model, usage.Protocol, bool) {
	protocol := httpgov.DefaultRoute(r).Protocol
	principal, err := httpgov.FreshPrincipal(r.Context())
	if err != nil {
		wire.Of(err).Write(w, protocol)
		return nil, protocol, false
	}
	_, rules, err := s.Governor.Policies(r.Context())
	if err != nil {
		wire.Of(err).Write(w, protocol)
		return nil, protocol, false
	}
	var access policy.Access
	if rules != nil {
		access = policy.AccessOf(rules.Match(principal.TeamID, principal.User))
	}
	speaks := map[string]usage.Protocol{config.OpenAI: usage.OpenAIChat, config.Anthropic: usage.AnthropicMessages}
	var list []router.Model
	for _, m := range s.router.Models() {
		if speaks[m.Protocol] == protocol && principal.AllowsModel(m.Name) && access.Allows(m.Name) && keep(m) {
			list = append(list, m)
		}
	}
	return list, protocol, true
}

func modelOf(m router.Model, protocol usage.Protocol) any {
	if protocol == usage.AnthropicMessages {
		return anthropicModel{"model", m.Name, m.Name, startTime.Format("2006-01-02T15:04:05Z07:00")}
	}
	return openaiModel{m.Name, "model", startTime.Unix(), "gateway"}
}

func (s *Server) listModels(w http.ResponseWriter, r *http.Request) {
	routes, protocol, ok := s.models(w, r, func(router.Model) bool { return true })
	if !ok {
		return
	}
	data := make([]any, 0, len(routes))
	for _, route := range routes {
		data = append(data, modelOf(route, protocol))
	}
	if protocol != usage.AnthropicMessages {
		wire.JSON(w, http.StatusOK, map[string]any{"object": "list", "data": data})
		return
	}
	page := map[string]any{"data": data, "has_more": false, "first_id": nil, "last_id": nil}
	if len(routes) > 0 {
		page["first_id"], page["last_id"] = routes[0].Name, routes[len(routes)-1].Name
	}
	wire.JSON(w, http.StatusOK, page)
}

func (s *Server) oneModel(w http.ResponseWriter, r *http.Request) {
	routes, protocol, ok := s.models(w, r, func(m router.Model) bool { return m.Name == r.PathValue("model") })
	switch {
	case !ok:
	case len(routes) == 0:
		e := wire.Error{Status: http.StatusNotFound, Code: "model_not_found", Message: "there is no such model, or this key may not use it"}
		e.Write(w, protocol)
	default:
		wire.JSON(w, http.StatusOK, modelOf(routes[0], protocol))
	}
}
