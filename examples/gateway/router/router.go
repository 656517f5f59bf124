// Package router sends a request to the upstream that serves its model, and to the
// next one when that fails before the first byte. Every attempt is governed on its
// own, by the Transport of its upstream.
package router

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/wire"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/governance/pricing"
	"github.com/tallystick-go/tallystick/governance/usage"
	"github.com/tallystick-go/tallystick/keys"
)

// UpstreamHeader names the upstream that answered.
const UpstreamHeader = "X-Gateway-Upstream"

// drainTime is how long the end of a failed answer is waited for, so that it is
// settled before the next attempt asks for room.
const drainTime = 2 * time.Second

const drainSize = 1 << 20

// Options are what a Router is made of. Observe, Fallback and Logger may be nil.
type Options struct {
	Config   *config.Config
	Governor *governance.Governor
	Prices   *pricing.Catalogue
	Logger   *slog.Logger
	// Observe is told of every attempt when it has ended.
	Observe func(upstream string, a httpgov.Attempt)
	// Fallback is told whenever an attempt failed and another one follows.
	Fallback func(route, from, to string)
}

// Router is an http.RoundTripper. It is safe for concurrent use.
type Router struct {
	options   Options
	routes    map[string]*route
	upstreams []*upstream
}

type route struct {
	name     string
	protocol string
	targets  []target
}

type target struct {
	upstream    *upstream
	model       string
	region      string
	guardrail   string // as teams name it
	enforcement config.Guardrail
}

type upstream struct {
	config    *config.Upstream
	transport *httpgov.Transport
	base      *http.Transport
}

// choiceKey finds what was chosen for an attempt in its context.
type choiceKey struct{}

type choice struct {
	route  string
	target target
}

// New makes a Router of a checked configuration.
func New(o Options) *Router {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	r := &Router{options: o, routes: map[string]*route{}}
	byName := map[string]*upstream{}
	for i := range o.Config.Upstreams {
		u := r.upstream(&o.Config.Upstreams[i])
		r.upstreams = append(r.upstreams, u)
		byName[u.config.Name] = u
	}
	for _, c := range o.Config.Routes {
		to := &route{name: c.Model}
		for _, a := range c.Attempts {
			u := byName[a.Upstream]
			to.protocol = u.config.Protocol
			to.targets = append(to.targets, target{u, a.Model, a.Region, a.Guardrail, u.config.Guardrails[a.Guardrail]})
		}
		r.routes[c.Model] = to
	}
	return r
}

func (r *Router) upstream(c *config.Upstream) *upstream {
	t := r.options.Config.Timeouts
	base := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: t.Connect.Duration, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   t.Connect.Duration,
		ResponseHeaderTimeout: t.FirstByte.Duration,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   64,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true,
	}
	u := &upstream{config: c, base: base}
	u.transport = &httpgov.Transport{
		Governor:    r.options.Governor,
		Prices:      r.options.Prices,
		Base:        base,
		Credentials: u.authorize,
		Select: func(req *http.Request, model string) (httpgov.Selection, error) {
			chosen, _ := req.Context().Value(choiceKey{}).(choice)
			return httpgov.Selection{
				Model: chosen.route, Price: model, Region: chosen.target.region, Guardrail: chosen.target.guardrail,
				GuardrailID: chosen.target.enforcement.Identifier, GuardrailVersion: chosen.target.enforcement.Version,
				OutputField: c.OutputField, NoStreamUsage: c.NoStreamUsage,
			}, nil
		},
		AllowFields: r.options.Config.Requests.AllowFields,
		AllowTools:  r.options.Config.Requests.AllowTools,
		MaxBody:     r.options.Config.Requests.MaxBodyBytes,
		Linger:      t.Linger.Duration,
		Logger:      r.options.Logger,
	}
	if observe := r.options.Observe; observe != nil {
		u.transport.Observe = func(a httpgov.Attempt) { observe(c.Name, a) }
	}
	return u
}

// authorize puts the provider's key on a request.
func (u *upstream) authorize(out *http.Request) error {
	if u.config.Protocol == config.Anthropic {
		out.Header.Set("X-Api-Key", u.config.Credential.Reveal())
		if out.Header.Get("Anthropic-Version") == "" {
			out.Header.Set("Anthropic-Version", "2023-06-01")
		}
		return nil
	}
	out.Header.Set("Authorization", "Bearer "+u.config.Credential.Reveal())
	return nil
}

// RoundTrip implements http.RoundTripper. The request's URL is a path alone.
func (r *Router) RoundTrip(req *http.Request) (*http.Response, error) {
	kind := httpgov.DefaultRoute(req)
	b, refused, err := readBody(req, r.options.Config.Requests.MaxBodyBytes)
	if err != nil {
		return nil, &ClientError{err}
	}
	if refused != nil {
		return refused.Response(req, kind.Protocol), nil
	}
	to, refused := r.find(req, kind, b.model)
	if refused != nil {
		return refused.Response(req, kind.Protocol), nil
	}
	req, targets, refused := to.open(req)
	if refused != nil {
		return refused.Response(req, kind.Protocol), nil
	}
	var resp *http.Response
	for i, t := range targets {
		if i > 0 {
			r.leave(req, to, targets[i-1], t, resp)
		}
		resp, err = t.send(req, to.name, b)
		if req.Context().Err() != nil || !t.failed(resp, err) {
			break
		}
	}
	if err == nil && targets[0].denied(resp) {
		return r.unauthorized(req, kind, resp), nil
	}
	return resp, err
}

// find returns the route of a model that the caller may use in this protocol.
func (r *Router) find(req *http.Request, kind httpgov.Route, model string) (*route, *wire.Error) {
	to := r.routes[model]
	if to == nil || to.protocol != protocols[kind.Protocol] {
		return nil, &wire.Error{Status: http.StatusNotFound, Code: "model_not_found", Message: "model: this gateway does not serve this model under this protocol"}
	}
	if kind.Kind == httpgov.RouteGoverned {
		return to, nil // admission asks
	}
	p, err := httpgov.FreshPrincipal(req.Context())
	if err != nil {
		refused := wire.Of(err)
		return nil, &refused
	}
	if !p.AllowsModel(to.name) {
		return nil, &wire.Error{Status: http.StatusForbidden, Code: "model", Message: "this key may not use this model"}
	}
	return to, nil
}

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

// send makes one attempt.
func (t target) send(req *http.Request, name string, b *body) (*http.Response, error) {
	out := req.Clone(context.WithValue(req.Context(), choiceKey{}, choice{name, t}))
	data := b.as(t.model)
	out.URL.Scheme, out.URL.Host = t.upstream.config.URL.Scheme, t.upstream.config.URL.Host
	out.URL.Path, out.URL.RawPath = b.path(req.URL, t.upstream.config.URL.Path, t.model)
	out.Host = ""
	out.Header.Del("Content-Encoding")
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	resp, err := t.upstream.transport.RoundTrip(out)
	if err == nil && !ours(resp) {
		for _, name := range withheld {
			resp.Header.Del(name)
		}
		resp.Header.Set(UpstreamHeader, t.upstream.config.Name)
	}
	return resp, err
}

// withheld are headers of providers that tell who the gateway is to them.
var withheld = []string{"Set-Cookie", "Openai-Organization", "Openai-Project", "Anthropic-Organization-Id", "Anthropic-Workspace-Id"}

// failed reports whether another upstream may do better. A refusal of ours is
// final: the same limits would be asked again.
func (t target) failed(resp *http.Response, err error) bool {
	if err != nil {
		return true
	}
	if ours(resp) {
		return false
	}
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	}
	return resp.StatusCode >= 500 || t.denied(resp)
}

// denied reports whether the upstream does not accept our credential. Bedrock says so
// with 403, also where our account may not use the model: neither is about the client.
func (t target) denied(resp *http.Response) bool {
	return !ours(resp) && (resp.StatusCode == http.StatusUnauthorized ||
		resp.StatusCode == http.StatusForbidden && t.upstream.config.Protocol == config.Bedrock)
}

func ours(resp *http.Response) bool {
	_, is := httpgov.RefusalFrom(resp)
	return is
}

// drain reads an answer to its end, for a bounded time: then it is settled.
func drain(resp *http.Response) {
	timer := time.AfterFunc(drainTime, func() { _ = resp.Body.Close() })
	_, _ = io.CopyN(io.Discard, resp.Body, drainSize)
	timer.Stop()
	_ = resp.Body.Close()
}

// leave gives up on one target for the next.
func (r *Router) leave(req *http.Request, to *route, left, chosen target, resp *http.Response) {
	if resp != nil {
		drain(resp)
	}
	from, next := left.upstream.config.Name, chosen.upstream.config.Name
	r.options.Logger.InfoContext(req.Context(), "gateway: an attempt failed, the next one follows", "route", to.name, "from", from, "to", next)
	if r.options.Fallback != nil {
		r.options.Fallback(to.name, from, next)
	}
}

// unauthorized answers for an upstream that does not accept our credential: the
// client's own key is good, and must not be thrown away for this.
func (r *Router) unauthorized(req *http.Request, kind httpgov.Route, resp *http.Response) *http.Response {
	drain(resp)
	name := resp.Header.Get(UpstreamHeader)
	r.options.Logger.ErrorContext(req.Context(), "gateway: an upstream does not accept its credential", "upstream", name)
	e := wire.Error{Status: http.StatusBadGateway, Code: "upstream_unauthorized", Message: "the provider does not accept this gateway's credential"}
	answer := e.Response(req, kind.Protocol)
	answer.Header.Set(UpstreamHeader, name)
	return answer
}

// ClientError is a request that could not be read because of its client.
type ClientError struct{ Err error }

func (e *ClientError) Error() string { return "router: reading the request: " + e.Err.Error() }
func (e *ClientError) Unwrap() error { return e.Err }

// Shutdown waits until every attempt was settled, and closes idle connections.
// Errors: the context's.
func (r *Router) Shutdown(ctx context.Context) error {
	var err error
	for _, u := range r.upstreams {
		err = errors.Join(err, u.transport.Shutdown(ctx))
		u.base.CloseIdleConnections()
	}
	return err
}
