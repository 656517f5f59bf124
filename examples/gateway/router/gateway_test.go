package router_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/provider"
	"github.com/tallystick-go/tallystick/examples/gateway/router"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancemem"
	"github.com/tallystick-go/tallystick/governance/governancepg"
	"github.com/tallystick-go/tallystick/governance/governancesqlite"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/governance/pricing"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
)

// withServer ends the Postgres that the tests shared before leaks are looked for.
type withServer struct{ m *testing.M }

func (w withServer) Run() int { return pgtest.Run(w.m) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(withServer{m}) }

const (
	providerKey = "sk-provider-secret"

	waitFor = 10 * time.Second
	tick    = 2 * time.Millisecond
)

// storage is where a gateway's keys and books are, and how it governs. Another storage
// or profile is another entry.
type storage struct {
	name string
	open func(t *testing.T) (governance.Backend, *governance.Options)
}

var storages = []storage{
	{"memory", func(t *testing.T) (governance.Backend, *governance.Options) {
		db, err := governancemem.New(nil)
		require.NoError(t, err)
		return db, nil
	}},
	{"sqlite", func(t *testing.T) (governance.Backend, *governance.Options) {
		settings := "_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)"
		handle, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "books.db")+"?"+settings)
		require.NoError(t, err)
		db := governancesqlite.Open(handle, nil)
		t.Cleanup(func() {
			require.NoError(t, db.Close())
			require.NoError(t, handle.Close())
		})
		require.NoError(t, db.Migrate(t.Context()))
		return db, nil
	}},
	{"postgres", func(t *testing.T) (governance.Backend, *governance.Options) {
		place := pgtest.New(t)
		db, err := governancepg.Open(place.Pool, &governancepg.Options{Schema: place.Schema})
		require.NoError(t, err)
		require.NoError(t, db.Migrate(t.Context()))
		return db, nil
	}},
}

// document is the configuration. %s is the provider, which speaks all protocols.
const document = `
listen: 127.0.0.1:0
storage: {sqlite: unused.db}
upstreams:
  - {name: openai, protocol: openai, base_url: "%[1]s", credential: env:KEY, models: [demo-small, demo-embedding]}
  - {name: anthropic, protocol: anthropic, base_url: "%[1]s", credential: env:KEY, models: [demo-small]}
  - name: bedrock
    protocol: bedrock
    base_url: "%[1]s"
    credential: env:KEY
    region: us-east-1
    guardrails: {strict: {identifier: gr-1, version: "7"}}
    models: [demo-small, demo-large, "us.anthropic.claude-sonnet-4-5-v1:0"]
routes:
  - {model: demo-small, attempts: [{upstream: openai}]}
  - {model: spoken, attempts: [{upstream: anthropic, model: demo-small}]}
  - {model: "us.vendor.small-v1:0", attempts: [{upstream: bedrock, model: demo-small}]}
  - model: placed
    attempts:
      - {upstream: bedrock, model: demo-small}
      - {upstream: bedrock, model: demo-small, guardrail: strict}
      - {upstream: bedrock, model: demo-large, region: eu-west-1}
      - {upstream: bedrock, model: demo-large, region: eu-west-1, guardrail: strict}
timeouts: {linger: %[2]s}
`

// gateway is a router with a Governor on some storage, in front of the provider.
type gateway struct {
	*testing.T
	url      string
	client   *http.Client
	stores   governance.Stores
	governor *governance.Governor
	provider *provider.Provider
	arrived  chan provider.Received
}

func newGateway(t *testing.T, s storage, linger time.Duration) *gateway {
	t.Helper()
	backend, options := s.open(t)
	g := &gateway{T: t, stores: backend.Backend(), arrived: make(chan provider.Received, 1000)}
	g.provider = provider.New(&provider.Options{Credential: providerKey, Observe: func(r provider.Received) { g.arrived <- r }})
	upstream := g.serve(g.provider)
	c, err := config.Parse([]byte(fmt.Sprintf(document, upstream, linger)), t.TempDir(), func(string) (string, bool) { return providerKey, true })
	require.NoError(t, err)
	if options == nil {
		options = &governance.Options{}
	}
	cache := keys.NewCache(g.stores.Keys, nil)
	options.Evict, options.Logger = cache.Evict, slog.New(slog.DiscardHandler)
	g.governor, err = governance.New(backend, options)
	require.NoError(t, err)
	prices, err := pricing.Bundled()
	require.NoError(t, err)
	r := router.New(router.Options{Config: c, Governor: g.governor, Prices: prices, Logger: options.Logger})
	t.Cleanup(func() { // the server in front of it is closed by now
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), waitFor)
		defer cancel()
		require.NoError(t, r.Shutdown(ctx))
		require.NoError(t, g.governor.Close(ctx))
	})
	g.url = g.serve(httpgov.Middleware(&httputil.ReverseProxy{
		Rewrite: func(*httputil.ProxyRequest) {}, Transport: r, FlushInterval: -1,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}, cache, nil))
	g.client = &http.Client{Transport: &http.Transport{}}
	t.Cleanup(g.client.CloseIdleConnections)
	return g
}

func (g *gateway) serve(h http.Handler) string {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.Start()
	g.Cleanup(s.Close)
	return s.URL
}

// key makes a team with limits and a key in it, and returns the token.
func (g *gateway) key(id string, limits keys.Limits, change ...func(*keys.CreateTeam)) string {
	g.Helper()
	team := keys.CreateTeam{ID: "team-" + id, Limits: limits}
	for _, c := range change {
		c(&team)
	}
	_, err := g.stores.Keys.CreateTeam(g.Context(), team)
	require.NoError(g, err)
	created, err := g.stores.Keys.CreateKey(g.Context(), keys.CreateKey{ID: id, TeamID: team.ID, Owner: "zelda"})
	require.NoError(g, err)
	return created.Token.Reveal()
}

func (g *gateway) principal(token string) *keys.Principal {
	g.Helper()
	p, err := g.stores.Keys.Resolve(g.Context(), token)
	require.NoError(g, err)
	return &p
}

// books are one limit's accounts.
type books struct{ consumed, uncertain, reserved int64 }

// books returns what the token's team used of money and of tokens.
func (g *gateway) books(token string) (money, tokens books) {
	g.Helper()
	usage, err := g.governor.Usage(g.Context(), governance.UsageQuery{Principal: g.principal(token)})
	require.NoError(g, err)
	for i := range usage.Verdicts {
		v := &usage.Verdicts[i]
		switch v.Constraint.Rule {
		case "cost_per_day":
			money = books{v.Consumed, v.Uncertain, v.Reserved}
		case "tokens_per_day":
			tokens = books{v.Consumed, v.Uncertain, v.Reserved}
		}
	}
	return money, tokens
}

// permits waits until no permit is open any more, and returns all of them.
func (g *gateway) permits() []governance.Record {
	g.Helper()
	var list []governance.Record
	require.Eventually(g, func() bool {
		var err error
		list, err = g.stores.Store.Permits(g.Context(), governance.PermitQuery{Limit: 1000})
		require.NoError(g, err)
		for i := range list {
			if list[i].State == governance.StateOpen {
				return false
			}
		}
		return true
	}, waitFor, tick)
	return list
}

func (g *gateway) balanced() {
	g.Helper()
	v, err := g.governor.Verify(g.Context(), governance.VerifyQuery{})
	require.NoError(g, err)
	require.Empty(g, v.Differences)
}

// nothingArrived checks that no provider was asked since it was last looked at.
func (g *gateway) nothingArrived() {
	g.Helper()
	select {
	case r := <-g.arrived:
		g.Fatalf("a provider was asked: %s", r.Path)
	default:
	}
}

func directive(words ...string) string { return "{{provider: " + strings.Join(words, " ") + "}}" }
