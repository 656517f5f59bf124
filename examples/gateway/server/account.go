package server

import (
	"context"
	"net/http"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/examples/gateway/wire"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/governance/usage"
)

// usage tells a caller how full its own limits are. Nothing is asked of a provider.
func (s *Server) usage(w http.ResponseWriter, r *http.Request) {
	protocol := httpgov.DefaultRoute(r).Protocol
	ctx, cancel := context.WithTimeout(r.Context(), s.Config.Timeouts.Storage.Duration)
	defer cancel()
	principal, err := httpgov.FreshPrincipal(ctx)
	if err != nil {
		wire.Of(err).Write(w, protocol)
		return
	}
	verdicts, err := s.Governor.Usage(ctx, principal)
	if err != nil {
		s.logger.WarnContext(ctx, "gateway: usage cannot be told", "error", err)
		wire.Of(err).Write(w, protocol)
		return
	}
	wire.JSON(w, http.StatusOK, report.UsageOf(principal, verdicts))
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
func (s *Server) models(w http.ResponseWriter, r *http.Request, keep func(config.Route) bool) ([]config.Route, usage.Protocol, bool) {
	protocol := httpgov.DefaultRoute(r).Protocol
	principal, err := httpgov.FreshPrincipal(r.Context())
	if err != nil {
		wire.Of(err).Write(w, protocol)
		return nil, protocol, false
	}
	speaks := map[string]usage.Protocol{config.OpenAI: usage.OpenAIChat, config.Anthropic: usage.AnthropicMessages}
	protocols := map[string]string{}
	for i := range s.Config.Upstreams {
		protocols[s.Config.Upstreams[i].Name] = s.Config.Upstreams[i].Protocol
	}
	var list []config.Route
	for _, route := range s.Config.Routes {
		if speaks[protocols[route.Attempts[0].Upstream]] == protocol && principal.AllowsModel(route.Model) && keep(route) {
			list = append(list, route)
		}
	}
	return list, protocol, true
}

func modelOf(route config.Route, protocol usage.Protocol) any {
	if protocol == usage.AnthropicMessages {
		return anthropicModel{"model", route.Model, route.Model, startTime.Format("2006-01-02T15:04:05Z07:00")}
	}
	return openaiModel{route.Model, "model", startTime.Unix(), "gateway"}
}

func (s *Server) listModels(w http.ResponseWriter, r *http.Request) {
	routes, protocol, ok := s.models(w, r, func(config.Route) bool { return true })
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
		page["first_id"], page["last_id"] = routes[0].Model, routes[len(routes)-1].Model
	}
	wire.JSON(w, http.StatusOK, page)
}

func (s *Server) oneModel(w http.ResponseWriter, r *http.Request) {
	routes, protocol, ok := s.models(w, r, func(route config.Route) bool { return route.Model == r.PathValue("model") })
	switch {
	case !ok:
	case len(routes) == 0:
		e := wire.Error{Status: http.StatusNotFound, Code: "model_not_found", Message: "there is no such model, or this key may not use it"}
		e.Write(w, protocol)
	default:
		wire.JSON(w, http.StatusOK, modelOf(routes[0], protocol))
	}
}
