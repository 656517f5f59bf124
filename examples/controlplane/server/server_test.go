package server_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/escrow/escrowhttp"
	"github.com/tallystick-go/tallystick/examples/controlplane/server"
	"github.com/tallystick-go/tallystick/examples/gateway/admin"
	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

const document = `
listen: 127.0.0.1:0
admin: {listen: 127.0.0.1:0, token: env:ADMIN}
storage: {postgres: {dsn: env:DSN, schema: %s}}
nodes:
  - {name: node-1, token: env:ONE, next_token: env:NEXT}
  - {name: node-2, token: env:TWO}
timeouts: {storage: 2s, drain: 5s}
`

const budget = `[{"apiVersion":"tallystick.dev/v1alpha1","kind":"GovernancePolicy","metadata":{"name":"acme"},"spec":{"subject":{"team":"acme"},
"rules":[{"name":"day","failurePolicy":"FailClosed","budget":{"limitMilliUSD":1000,"hardCap":true,"period":"day"}}]}}]`

// plane is a control plane that serves.
type plane struct {
	*server.Server
	t    *testing.T
	stop func() error
}

func start(t *testing.T, dsn, schema string) *plane {
	t.Helper()
	env := func(name string) (string, bool) {
		value, ok := map[string]string{
			"ADMIN": "admin-secret", "DSN": dsn, "ONE": "one-one-one-one-one", "NEXT": "next-next-next-next", "TWO": "two-two-two-two-two",
		}[name]
		return value, ok
	}
	c, err := config.ParseControlPlane([]byte(strings.Replace(document, "%s", schema, 1)), t.TempDir(), env)
	require.NoError(t, err)
	s, err := server.Open(t.Context(), c, &server.Options{Logger: slog.New(slog.DiscardHandler), Migrate: true})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	p := &plane{Server: s, t: t}
	p.stop = func() error {
		cancel()
		err := <-ended
		ended <- nil
		return err
	}
	t.Cleanup(func() {
		require.NoError(t, p.stop())
		require.NoError(t, s.Close(ctx))
	})
	return p
}

func (p *plane) do(method, path string, body, into any) error {
	c := &admin.Client{Base: p.AdminURL(), Token: "admin-secret"}
	return c.Do(p.t.Context(), method, path, nil, body, into)
}

func (p *plane) node(token string) *escrowhttp.Client {
	c, err := escrowhttp.NewClient(escrowhttp.ClientOptions{URL: p.URL(), Token: func() (string, error) { return token, nil }})
	require.NoError(p.t, err)
	p.t.Cleanup(c.Close)
	return c
}

func (p *plane) get(path string) (int, string) {
	p.t.Helper()
	resp, err := http.Get(p.URL() + path)
	require.NoError(p.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	return resp.StatusCode, string(body)
}

// edit puts a set of policies in the place of the one in force.
func (p *plane) edit(documents string) report.Policies {
	p.t.Helper()
	decoded, err := policy.Decode([]byte(documents))
	require.NoError(p.t, err)
	edit := map[string]any{"documents": decoded, "replace": true}
	var diff report.PolicyDiff
	require.NoError(p.t, p.do(http.MethodPost, "policies/diff", edit, &diff))
	edit["expect"], edit["actor"], edit["reason"] = diff.Expect, "ops", "a test"
	var now report.Policies
	require.NoError(p.t, p.do(http.MethodPost, "policies", edit, &now))
	return now
}

func heartbeat(node string, sequence int64) *escrow.Heartbeat {
	return &escrow.Heartbeat{Node: node, Boot: escrow.BootID{1, 6: 0x40, 8: 0x80}, BootNumber: 1, Sequence: sequence}
}

// Two control planes on one schema are one authority: what one has answered, the other
// answers again.
func TestReplicasAreOneAuthority(t *testing.T) {
	db := pgtest.New(t)
	a, b := start(t, db.DSN, db.Schema), start(t, db.DSN, db.Schema)
	now := a.edit(budget)
	require.Empty(t, now.Gates)
	h := heartbeat("node-1", 1)
	first, err := a.node("one-one-one-one-one").Beat(t.Context(), h)
	require.NoError(t, err)
	require.NoError(t, first.Verify(h))
	require.Equal(t, now.Generation, first.Mark.Generation.String())
	require.Len(t, first.Definitions, 1)

	h = heartbeat("node-1", 2)
	h.Answered, h.Mark = 1, first.Mark
	h.Requests = []escrow.Request{{ID: escrow.NewGrantID(time.Now()), Account: first.Definitions[0].Account, Amount: 600_000, Least: 600_000}}
	granted, err := a.node("next-next-next-next").Beat(t.Context(), h)
	require.NoError(t, err, "the next token is taken beside the first")
	require.Len(t, granted.Grants, 1)
	again, err := b.node("one-one-one-one-one").Beat(t.Context(), h)
	require.NoError(t, err)
	require.Equal(t, granted.Grants, again.Grants, "a lost answer is given again, by whoever is asked")

	other := heartbeat("node-2", 1)
	other.Requests = []escrow.Request{{ID: escrow.NewGrantID(time.Now()), Account: first.Definitions[0].Account, Amount: 600_000, Least: 600_000}}
	denied, err := b.node("two-two-two-two-two").Beat(t.Context(), other)
	require.NoError(t, err)
	require.Empty(t, denied.Grants, "the rest is not enough")
	require.EqualValues(t, 400_000, denied.Denials[0].Left)

	_, err = b.node("two-two-two-two-two").Beat(t.Context(), heartbeat("node-1", 3))
	require.ErrorIs(t, err, escrowhttp.ErrDenied, "a token names its node")
}

func TestReadinessIsTheDatabases(t *testing.T) {
	server := pgtest.Own(t)
	p := start(t, server.DSN(), "tallystick")
	code, body := p.get("/readyz")
	require.Equal(t, http.StatusOK, code, body)
	ctx := context.WithoutCancel(t.Context())
	require.NoError(t, server.Kill(ctx))
	code, body = p.get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.JSONEq(t, `{"status":"not ready","parts":{"accounts":"does not answer","policies":"does not answer"}}`, body)
	code, _ = p.get("/healthz")
	require.Equal(t, http.StatusOK, code, "restarting would not help")
	_, err := p.node("one-one-one-one-one").Beat(t.Context(), heartbeat("node-1", 1))
	require.ErrorIs(t, err, escrow.ErrUnavailable)
	require.NoError(t, server.Start(ctx))
	require.Eventually(t, func() bool {
		code, _ := p.get("/readyz")
		return code == http.StatusOK
	}, 30*time.Second, 10*time.Millisecond)
	_, err = p.node("one-one-one-one-one").Beat(t.Context(), heartbeat("node-1", 1))
	require.NoError(t, err)
}

// What a control plane does not have is not there.
func TestOperators(t *testing.T) {
	db := pgtest.New(t)
	p := start(t, db.DSN, db.Schema)
	var problem *admin.Problem
	for _, path := range []string{"keys", "teams", "topology"} {
		require.ErrorAs(t, p.do(http.MethodGet, path, nil, nil), &problem, path)
		require.Equal(t, "unknown_route", problem.Type)
	}
	p.edit(budget)
	var list report.PolicySet
	require.NoError(t, p.do(http.MethodGet, "policies", nil, &list))
	require.Equal(t, 1, list.Count)
	require.NotEmpty(t, list.Namespace)
	var v report.Verification
	require.NoError(t, p.do(http.MethodPost, "verify", nil, &v))
	require.True(t, v.Balanced)
	code, _ := p.get(admin.Prefix + "policies")
	require.Equal(t, http.StatusNotFound, code, "operators have an address of their own")
}
