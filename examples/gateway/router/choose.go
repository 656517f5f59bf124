package router

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/wire"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/governance/usage"
	"github.com/tallystick-go/tallystick/keys"
)

// selection is where a request goes.
type selection struct {
	req     *http.Request
	to      *route
	targets []target
	by      *governance.Route   // nil for what is not governed
	refused *governance.Refusal // the Transport answers with it
}

// choose selects where a request for a model goes. For what is governed the policies
// are asked first, by the name that the client used.
func (r *Router) choose(req *http.Request, kind httpgov.Route, asked string) (s selection, why *wire.Error) {
	s.req = req
	if s.to, why = r.find(kind, asked); why != nil {
		return s, why
	}
	p, ok := httpgov.PrincipalFrom(req.Context())
	if !ok {
		unknown := wire.Of(httpgov.ErrNoPrincipal)
		return s, &unknown
	}
	free := kind.Kind != httpgov.RouteGoverned
	if free { // nothing else asks who is calling anew
		fresh, err := httpgov.FreshPrincipal(req.Context())
		if err != nil {
			down := wire.Of(err)
			return s, &down
		}
		p = fresh
	}
	by, err := r.options.Governor.Route(req.Context(), p, asked)
	if free && errors.Is(err, governance.ErrNotReady) { // what costs nothing needs no budget
		by, err = &governance.Route{Asked: asked, Choice: policy.Choice{Model: asked, Required: asked}}, nil
	}
	if errors.As(err, &s.refused) {
		s.targets = s.to.targets[:1]
		if free {
			why = gated
		}
		return s, why
	}
	if err != nil {
		down := wire.Of(err)
		return s, &down
	}
	// What strict tiers alone make of the request will do where the rest cannot be had.
	s.by = by
	for _, model := range slices.Compact([]string{by.Model, by.Required}) {
		if s.to, why = r.find(kind, model); why != nil || model != by.Required && !p.AllowsModel(model) {
			continue
		}
		if free {
			if why = r.permitted(req, p, model); why != nil {
				continue
			}
		}
		if s.req, s.targets, why = s.to.open(req); why == nil {
			return s, nil
		}
	}
	return s, why
}

// find returns the route of a model in the protocol of the caller.
func (r *Router) find(kind httpgov.Route, model string) (*route, *wire.Error) {
	to := r.turned((*r.routes.Load())[model])
	if to == nil || to.protocol != protocols[kind.Protocol] {
		return nil, &wire.Error{Status: http.StatusNotFound, Code: "model_not_found", Message: "model: this gateway does not serve this model under this protocol"}
	}
	return to, nil
}

// permitted asks whether somebody may use a model by what is in force now: what is not
// admitted is compared with nothing else. A node that knows of no policies, or must spend
// nothing, goes by the key.
func (r *Router) permitted(req *http.Request, p *keys.Principal, model string) *wire.Error {
	e, err := r.options.Governor.Explain(req.Context(), governance.Request{Principal: p, Model: model})
	if errors.Is(err, governance.ErrNotReady) {
		if !p.AllowsModel(model) {
			return &wire.Error{Status: http.StatusForbidden, Code: "model", Message: "this key may not use this model"}
		}
		return nil
	}
	if err != nil {
		down := wire.Of(err)
		return &down
	}
	if e.Refusal == nil {
		return nil
	}
	switch e.Refusal.Reason {
	case governance.ReasonModel:
		return &wire.Error{Status: http.StatusForbidden, Code: "model", Message: "this key may not use this model"}
	case governance.ReasonGated:
		return gated
	}
	return nil // limits are for what is billed
}

var gated = &wire.Error{Status: http.StatusForbidden, Code: "gated", Message: "a rule for this key cannot be enforced by this gateway"}

// protocols says under which protocol of upstreams a route of ours is served.
var protocols = map[usage.Protocol]string{
	usage.OpenAIChat: config.OpenAI, usage.OpenAIEmbeddings: config.OpenAI, usage.OpenAIResponses: config.OpenAI,
	usage.AnthropicMessages: config.Anthropic,
	usage.BedrockConverse:   config.Bedrock, usage.BedrockInvoke: config.Bedrock,
}

// open returns the targets that the caller's team may use, and the request as it goes
// on to them. What is known of the caller may be some time old: before it is refused,
// the store is asked.
func (to *route) open(req *http.Request) (*http.Request, []target, *wire.Error) {
	ctx := req.Context()
	p, ok := httpgov.PrincipalFrom(ctx)
	if !ok {
		return req, to.targets, nil // the Transport refuses
	}
	targets, why := to.allowed(p)
	if why == nil {
		return req, targets, nil
	}
	fresh := func(context.Context) (*keys.Principal, error) { return httpgov.FreshPrincipal(ctx) }
	p, err := fresh(ctx)
	if err != nil {
		refused := wire.Of(err)
		return req, nil, &refused
	}
	if targets, why = to.allowed(p); why != nil {
		return req, nil, why
	}
	return req.WithContext(httpgov.WithPrincipal(ctx, p, fresh)), targets, nil
}

// allowed returns the targets in regions that key and team allow and behind the
// team's guardrail, or why there is none.
func (to *route) allowed(p *keys.Principal) ([]target, *wire.Error) {
	var out []target
	guarded := false
	for _, t := range to.targets {
		if t.guardrail != p.Team.Guardrail {
			continue
		}
		guarded = true
		if p.AllowsRegion(t.region) {
			out = append(out, t)
		}
	}
	switch {
	case !guarded:
		return nil, &wire.Error{Status: http.StatusForbidden, Code: "guardrail", Message: "model: nowhere is this model served behind the guardrail of this key's team"}
	case len(out) == 0:
		return nil, &wire.Error{Status: http.StatusForbidden, Code: "region", Message: "model: this key may not use any region where this model is served"}
	}
	return out, nil
}
