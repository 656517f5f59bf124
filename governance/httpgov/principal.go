package httpgov

import (
	"context"
	"errors"

	"github.com/tallystick-go/tallystick/keys"
)

// ErrNoPrincipal reports a request that no Middleware has let in.
var ErrNoPrincipal = errors.New("httpgov: no principal: the request did not pass the Middleware")

// contextKey is private, so that nothing but this package says who is calling.
type contextKey struct{}

// caller is what the Middleware knows of a request.
type caller struct {
	principal *keys.Principal
	fresh     func(context.Context) (*keys.Principal, error)
}

// WithPrincipal returns a context that says who is calling, for gateways that
// authenticate in their own way. fresh reads the principal anew from the store:
// endpoints that admit nothing rely on it.
func WithPrincipal(ctx context.Context, p *keys.Principal, fresh func(context.Context) (*keys.Principal, error)) context.Context {
	return context.WithValue(ctx, contextKey{}, &caller{principal: p, fresh: fresh})
}

// PrincipalFrom returns who is calling. It may be some time old where the
// Middleware's resolver is a cache: good enough for Admit, which compares it
// with what is in force, and for nothing else. See FreshPrincipal.
func PrincipalFrom(ctx context.Context) (*keys.Principal, bool) {
	c, ok := ctx.Value(contextKey{}).(*caller)
	if !ok || c.principal == nil {
		return nil, false
	}
	return c.principal, true
}

// FreshPrincipal reads who is calling anew from the store: what endpoints that
// admit nothing (count_tokens, models, usage) must do before they answer.
//
// Errors: ErrNoPrincipal, keys.ErrUnknown, keys.ErrRevoked, keys.ErrExpired,
// keys.ErrUnavailable.
//
// Source: internal/docs/guarantees.md "Revoked is revoked".
func FreshPrincipal(ctx context.Context) (*keys.Principal, error) {
	c, ok := ctx.Value(contextKey{}).(*caller)
	if !ok || c.principal == nil || c.fresh == nil {
		return nil, ErrNoPrincipal
	}
	return c.fresh(ctx)
}
