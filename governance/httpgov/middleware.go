package httpgov

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

// Options tune a Middleware. Nil and zero fields are the defaults.
type Options struct {
	// Route says what a request's path stands for; here it picks the envelope of
	// refusals. Default DefaultRoute.
	Route func(*http.Request) Route
	// ResolveTimeout bounds the look-up of a key, so that a store which hangs is
	// an outage and not a queue. Default 5 s.
	ResolveTimeout time.Duration
	// Observe is told of every request that was refused here.
	Observe func(Attempt)
}

// Middleware lets in who presents a key, and nobody else. The key comes as
// Authorization: Bearer or as x-api-key; who it belongs to is in the context of
// the request that next receives (PrincipalFrom), and beside it a way to read it
// anew (FreshPrincipal). The key itself is left in the headers: the Transport
// strips it.
//
// The resolver may be a keys.Cache: whatever is admitted is compared with what is
// in force, and FreshPrincipal asks the store.
//
// Answers: 401 for no key, two different keys, an unknown, revoked or expired
// one; 503 with Retry-After when the store does not answer, never 401.
//
// Source: internal/docs/guarantees.md "Revoked is revoked".
func Middleware(next http.Handler, resolver keys.Resolver, o *Options) http.Handler {
	m := &middleware{next: next, resolver: resolver}
	if o != nil {
		m.options = *o
	}
	if m.options.Route == nil {
		m.options.Route = DefaultRoute
	}
	if m.options.ResolveTimeout <= 0 {
		m.options.ResolveTimeout = 5 * time.Second
	}
	return m
}

type middleware struct {
	next     http.Handler
	resolver keys.Resolver
	options  Options
}

func (m *middleware) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	principal, err := m.authenticate(r)
	if err != nil {
		m.refuse(w, r, err, began)
		return
	}
	fresh := func(ctx context.Context) (*keys.Principal, error) { return m.reload(ctx, principal) }
	m.next.ServeHTTP(w, r.WithContext(WithPrincipal(r.Context(), principal, fresh)))
}

func (m *middleware) authenticate(r *http.Request) (*keys.Principal, error) {
	presented, err := presentedKey(r.Header)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), m.options.ResolveTimeout)
	defer cancel()
	p, err := m.resolver.Resolve(ctx, presented)
	if err != nil {
		return nil, err
	}
	return &p, nil
}

func (m *middleware) reload(ctx context.Context, old *keys.Principal) (*keys.Principal, error) {
	ctx, cancel := context.WithTimeout(ctx, m.options.ResolveTimeout)
	defer cancel()
	p, err := m.resolver.Reload(ctx, *old)
	if err != nil {
		return nil, err
	}
	return &p, nil
}

// presentedKey finds the one key of a request. It never returns it in an error.
func presentedKey(h http.Header) (string, error) {
	var found string
	take := func(key string) bool {
		key = strings.TrimSpace(key)
		if key == "" || (found != "" && found != key) {
			return false
		}
		found = key
		return true
	}
	for _, value := range h.Values("Authorization") {
		scheme, key, ok := strings.Cut(strings.TrimSpace(value), " ")
		if !ok || !strings.EqualFold(scheme, "Bearer") || !take(key) {
			return "", ErrAmbiguousKey
		}
	}
	for _, value := range h.Values("X-Api-Key") {
		if !take(value) {
			return "", ErrAmbiguousKey
		}
	}
	if found == "" {
		return "", ErrNoPrincipal
	}
	return found, nil
}

func (m *middleware) refuse(w http.ResponseWriter, r *http.Request, err error, began time.Time) {
	route, a := m.options.Route(r), answerTo(err)
	a.write(w, route.Protocol)
	if m.options.Observe != nil && !errors.Is(r.Context().Err(), context.Canceled) {
		m.options.Observe(Attempt{
			Route: route, Status: a.code(route.Protocol), Refusal: err, Reason: a.reason, Began: began, Duration: time.Since(began),
		})
	}
}
