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
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/wire"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/governance/pricing"
)

// UpstreamHeader names the upstream that answered, and ModelHeader the model that was
// used where policies put it in the place of the one that was asked for.
const (
	UpstreamHeader = "X-Gateway-Upstream"
	ModelHeader    = "X-Gateway-Model"
)

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
	fixed     map[string]*route // of the configuration
	upstreams []*upstream       // of the configuration
	routes    atomic.Pointer[map[string]*route]
	turn      atomic.Uint64

	mu         sync.Mutex
	registered []*upstream
	retired    []*upstream
}

type route struct {
	name     string
	protocol string
	targets  []target
	extra    int // how many of them are registered: the last
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
	route   string
	by      *governance.Route
	refused *governance.Refusal
	target  target
}

// New makes a Router of a checked configuration.
func New(o Options) *Router {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	r := &Router{options: o, fixed: map[string]*route{}}
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
		r.fixed[c.Model] = to
	}
	r.routes.Store(&r.fixed)
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
			if chosen.refused != nil {
				return httpgov.Selection{}, chosen.refused
			}
			return httpgov.Selection{
				Model: chosen.route, Route: chosen.by, Price: model, Region: chosen.target.region, Guardrail: chosen.target.guardrail,
				GuardrailID: chosen.target.enforcement.Identifier, GuardrailVersion: chosen.target.enforcement.Version,
				OutputField: c.OutputField, NoStreamUsage: c.NoStreamUsage,
			}, nil
		},
		AllowFields: r.options.Config.Requests.AllowFields,
		AllowTools:  r.options.Config.Requests.AllowTools,
		MaxBody:     r.options.Config.Requests.MaxBodyBytes,

		OneAnswer:    r.options.Config.Profile == config.Node,
		ContextBound: r.options.Config.Requests.Bound == config.BoundByContext,
		Linger:       t.Linger.Duration,
		Logger:       r.options.Logger,
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
	for last := false; ; last = true {
		resp, err := r.attempts(req, kind, b)
		// The policies changed between the selection and the admission: select once more.
		if why, is := httpgov.RefusalFrom(resp); last || !is || !errors.Is(why, governance.ErrStale) {
			return resp, err
		}
	}
}

// attempts selects where a request goes, and tries one target after the other.
func (r *Router) attempts(req *http.Request, kind httpgov.Route, b *body) (*http.Response, error) {
	s, why := r.choose(req, kind, b.model)
	if why != nil {
		return why.Response(req, kind.Protocol), nil
	}
	var resp *http.Response
	var err error
	for i, t := range s.targets {
		if i > 0 {
			r.leave(s.req, s.to, s.targets[i-1], t, resp)
		}
		resp, err = t.send(&s, b)
		if req.Context().Err() != nil || !t.failed(resp, err) {
			break
		}
	}
	if err == nil && s.targets[0].denied(resp) {
		resp = r.unauthorized(req, kind, resp)
	}
	if err == nil && s.to.name != b.model && !ours(resp) {
		resp.Header.Set(ModelHeader, s.to.name)
	}
	return resp, err
}

// send makes one attempt.
func (t target) send(s *selection, b *body) (*http.Response, error) {
	req := s.req
	out := req.Clone(context.WithValue(req.Context(), choiceKey{}, choice{s.to.name, s.by, s.refused, t}))
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
	for _, u := range r.all() {
		err = errors.Join(err, u.transport.Shutdown(ctx))
		u.base.CloseIdleConnections()
	}
	return err
}
