// Package admin is the operators' API: teams, keys, holds and the audit. It is
// strict: unknown fields and parameters are refused, and every failure has a type.
package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/coordination"
	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/examples/gateway/suspend"
	"github.com/tallystick-go/tallystick/examples/gateway/upstreams"
	"github.com/tallystick-go/tallystick/examples/gateway/wire"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/keys"
)

// Prefix begins every path of the API.
const Prefix = "/admin/v1/"

// SystemPath is where /system is too, for who asks every gateway of a fleet alike.
const SystemPath = "/api/system"

const maxBody = 64 << 10

// Options are what the API works on. What is left out has no paths.
type Options struct {
	Keys     keys.Store
	Governor *governance.Governor
	// Token is what operators present. An empty one lets nobody in.
	Token string
	// Timeout bounds every request but those that audit. Default 10 s.
	Timeout time.Duration
	// AuditTimeout bounds those. Default 5 min.
	AuditTimeout time.Duration
	// Changed is told of a key whose cached principals are out of date.
	Changed func(keyID string)
	Logger  *slog.Logger
	// Status says what the gateway is; nil where none serves.
	Status func(context.Context) (report.Status, error)
	// System says what it is among others; nil where none serves.
	System func(context.Context) (report.System, error)
	// Suspensions are those of gateways that coordinate; nil: this one does not.
	Suspensions *suspend.Suspensions
	// Coordination is what gateways share; nil as Suspensions.
	Coordination *coordination.Base
	// Fleet are the upstreams that are registered with them; nil as Suspensions.
	Fleet *upstreams.Upstreams
	// Policies are those in force, nil where there are none. PoliciesFromFiles says that they
	// can be read and not changed, and so does the profile node, whose policies are the
	// authority's. Profile decides which of them are enforced.
	Policies          policy.Store
	PoliciesFromFiles bool
	Profile           policy.Profile
	// Authority grants budgets to nodes; nil where none does.
	Authority *governance.Authority
	// Journal is that of a node; nil where there is none.
	Journal journal.Store
	// Topology is where the gateway sends requests. It can be read and not changed.
	Topology config.Topology
}

type api struct {
	Options
	token [sha256.Size]byte
}

// Handler returns the API. All its paths but SystemPath begin with Prefix.
func Handler(o Options) http.Handler {
	a := &api{Options: o, token: sha256.Sum256([]byte(o.Token))}
	if a.Timeout <= 0 {
		a.Timeout = 10 * time.Second
	}
	if a.AuditTimeout <= 0 {
		a.AuditTimeout = 5 * time.Minute
	}
	if a.Changed == nil {
		a.Changed = func(string) {}
	}
	if a.Logger == nil {
		a.Logger = slog.Default()
	}
	mux := http.NewServeMux()
	sized := func(pattern string, timeout time.Duration, size int64, h func(*call) (any, error)) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" "+Prefix+path, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, size)
			a.serve(w, r, timeout, h)
		})
	}
	route := func(pattern string, timeout time.Duration, h func(*call) (any, error)) {
		sized(pattern, timeout, maxBody, h)
	}
	if a.Keys != nil {
		route("GET teams", a.Timeout, a.listTeams)
		route("POST teams", a.Timeout, a.createTeam)
		route("GET teams/{id}", a.Timeout, a.team)
		route("PATCH teams/{id}", a.Timeout, a.updateTeam)
		route("DELETE teams/{id}", a.Timeout, a.deleteTeam)
		route("GET keys", a.Timeout, a.listKeys)
		route("POST keys", a.Timeout, a.createKey)
		route("GET keys/{id}", a.Timeout, a.key)
		route("PATCH keys/{id}", a.Timeout, a.updateKey)
		route("POST keys/{id}/revoke", a.Timeout, a.revokeKey)
		route("POST keys/{id}/rotate", a.Timeout, a.rotateKey)
		route("GET keys/{id}/usage", a.Timeout, a.usage)
		route("POST keys/{id}/explain", a.Timeout, a.explain)
	}
	route("GET holds", a.Timeout, a.listHolds)
	route("POST holds/{id}/resolve", a.Timeout, a.resolve)
	route("GET frozen", a.Timeout, a.listFrozen)
	route("POST frozen/release", a.AuditTimeout, a.release)
	route("POST verify", a.AuditTimeout, a.verify)
	route("POST prune", a.AuditTimeout, a.prune)
	route("GET notes", a.Timeout, a.listNotes)
	route("GET policies", a.Timeout, a.listPolicies)
	sized("POST policies/diff", a.Timeout, maxPolicies, a.diffPolicies)
	sized("POST policies", a.Timeout, maxPolicies, a.editPolicies)
	route("GET status", a.Timeout, a.status)
	route("GET nodes", a.Timeout, a.listNodes)
	route("GET journal", a.Timeout, a.journalStatus)
	route("POST journal/release", a.Timeout, a.journalRelease)
	route("GET system", a.Timeout, a.system)
	mux.HandleFunc("GET "+SystemPath, func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, a.Timeout, a.system) })
	route("GET suspensions", a.Timeout, a.listSuspensions)
	route("POST suspensions", a.Timeout, a.suspend)
	route("POST suspensions/lift", a.Timeout, a.lift)
	route("GET events/checkpoints", a.Timeout, a.listCheckpoints)
	route("POST events/checkpoints/drop", a.Timeout, a.dropCheckpoints)
	route("GET fleet", a.Timeout, a.listFleet)
	route("POST fleet", a.Timeout, a.register)
	route("DELETE fleet/{name}", a.Timeout, a.deregister)
	route("POST fleet/{name}/deregister", a.Timeout, a.dismiss)
	if a.Topology.Digest != "" {
		for _, name := range []string{"topology", "upstreams", "routes", "models"} {
			for _, path := range []string{name, name + "/{rest...}"} {
				route("GET "+path, a.Timeout, a.topology)
				for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
					route(method+" "+path, a.Timeout, a.fixed)
				}
			}
		}
	}
	return a.authorize(mux)
}

// authorize compares hashes, so that the time taken tells nothing of the token.
func (a *api) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, presented, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		hash := sha256.Sum256([]byte(strings.TrimSpace(presented)))
		if a.Token == "" || !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(hash[:], a.token[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			answer(w, &Problem{Status: http.StatusUnauthorized, Type: "unauthorized", Message: "present the admin token as Authorization: Bearer"})
			return
		}
		pattern := &patternProbe{ResponseWriter: w}
		next.ServeHTTP(pattern, r)
	})
}

// patternProbe turns the plain-text answers of http.ServeMux into ours.
type patternProbe struct {
	http.ResponseWriter
	replaced bool
}

func (p *patternProbe) WriteHeader(code int) {
	plain := strings.HasPrefix(p.Header().Get("Content-Type"), "text/plain")
	if plain && (code == http.StatusNotFound || code == http.StatusMethodNotAllowed) {
		p.replaced = true
		answer(p.ResponseWriter, &Problem{Status: code, Type: "unknown_route", Message: "there is nothing under this path and method"})
		return
	}
	p.ResponseWriter.WriteHeader(code)
}

func (p *patternProbe) Write(b []byte) (int, error) {
	if p.replaced {
		return len(b), nil
	}
	return p.ResponseWriter.Write(b)
}

// call is one request.
type call struct {
	*http.Request
	ctx    context.Context
	status int // of a success
}

// serve runs a handler and writes what it returns.
func (a *api) serve(w http.ResponseWriter, r *http.Request, timeout time.Duration, h func(*call) (any, error)) {
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	c := &call{Request: r, ctx: ctx, status: http.StatusOK}
	document, err := h(c)
	if err != nil {
		p := problemOf(err)
		if p.Status >= 500 {
			a.Logger.ErrorContext(ctx, "admin: a request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		}
		answer(w, p)
		return
	}
	if r.Method != http.MethodGet {
		a.Logger.InfoContext(ctx, "admin: done", "method", r.Method, "path", r.URL.Path)
	}
	wire.JSON(w, c.status, document)
}

// body reads the request's body.
func (c *call) body() ([]byte, error) {
	data, err := io.ReadAll(c.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &Problem{Status: http.StatusRequestEntityTooLarge, Type: "invalid", Message: fmt.Sprintf("the body is larger than %d bytes", tooLarge.Limit)}
	case err != nil:
		return nil, &Problem{Status: http.StatusBadRequest, Type: "invalid", Message: "the body could not be read"}
	}
	return data, nil
}

// nothing refuses a body or parameters where there are none.
func (c *call) nothing() error {
	if err := c.parameters(nil); err != nil {
		return err
	}
	data, err := c.body()
	if err == nil && len(data) > 0 {
		err = invalid("", "this request has no body")
	}
	return err
}
