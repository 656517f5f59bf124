package fleet_test

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/admin"
	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
)

// refused starts a gateway that must not start, and returns what it said.
func (f *fleet) refused(args ...string) string {
	f.Helper()
	cmd := f.command(append([]string{"serve", "-config", f.path("gateway.yaml")}, args...)...)
	out, err := cmd.CombinedOutput()
	require.Error(f, err, string(out))
	require.Equal(f, 1, cmd.ProcessState.ExitCode(), string(out))
	return string(out)
}

// TestStartIsRefused: a gateway says what is wrong with its database before it listens.
func TestStartIsRefused(t *testing.T) {
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	plain, err := os.ReadFile(f.path("gateway.yaml"))
	require.NoError(t, err)
	change := func(old, new string) { f.write(strings.Replace(string(plain), old, new, 1)) }
	require.Contains(t, f.refused(), "schema is older than this program", "tables are made on request only")

	f.start(1)
	var status report.Status
	f.gateways[0].do(http.MethodGet, "status", nil, &status)
	require.NotNil(t, status.Policies)
	change("dsn: env:DSN", "dsn: env:DSN, namespace: "+status.Policies.Namespace)
	f.start(1)
	// Another schema is another authority, whatever its policies say.
	other := pgtest.New(t)
	f.write(strings.NewReplacer("dsn: env:DSN", "dsn: env:DSN, namespace: "+status.Policies.Namespace, db.Schema, other.Schema).Replace(string(plain)))
	said := f.refused("-migrate")
	require.Contains(t, said, "another authority")
	require.NotContains(t, said, db.DSN)

	change("env:DSN", "env:NOWHERE")
	require.Contains(t, f.refused(), "environment variable NOWHERE is not set")
	f.dsn = "postgres://gate:hunter2@127.0.0.1:1/nowhere?connect_timeout=1"
	f.write(string(plain))
	said = f.refused()
	require.Contains(t, said, "the Postgres cannot be used")
	require.NotContains(t, said, "hunter2")
	between := " " // of a line of pairs
	switch {
	case strings.Contains(db.DSN, "?"):
		between = "&"
	case strings.Contains(db.DSN, "://"):
		between = "?"
	}
	f.dsn = db.DSN + between + "target_session_attrs=any"
	require.Contains(t, f.refused(), "other than read-write")
}

// TestTopologyIsTheFiles: no gateway can be told alone to route in another way.
func TestTopologyIsTheFiles(t *testing.T) {
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	f.start(2)
	var topology config.Topology
	f.gateways[0].do(http.MethodGet, "topology", nil, &topology)
	require.Equal(t, "1", topology.Version)
	require.Len(t, topology.Upstreams, 1)
	text, err := json.Marshal(topology)
	require.NoError(t, err)
	require.NotContains(t, string(text), providerKey)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		for _, path := range []string{"upstreams", "upstreams/one", "routes/demo-small", "models", "topology"} {
			err := f.gateways[0].admin.Do(t.Context(), method, path, nil, object{"name": "two"}, nil)
			var problem *admin.Problem
			require.ErrorAs(t, err, &problem)
			require.Equal(t, http.StatusConflict, problem.Status)
			require.Equal(t, "topology_from_file", problem.Type)
			require.Contains(t, problem.Message, "roll it out to every gateway")
		}
	}
	for _, g := range f.gateways {
		var status report.Status
		g.do(http.MethodGet, "status", nil, &status)
		require.True(t, status.Ready)
		require.Equal(t, report.Topology{Version: "1", Digest: topology.Digest}, status.Topology)
	}
}

// TestOperators looks, decides and resolves from the command line: over one gateway,
// and directly on the database.
func TestOperators(t *testing.T) {
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	f.start(2)
	token := f.gateways[0].key("app", keys.Limits{CostPerDay: keys.Cost(1_000_000)})
	run := func(args ...string) string {
		t.Helper()
		out, err := f.command(args...).CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	over := func(args ...string) string {
		t.Helper()
		return run(append(args, "-admin", f.gateways[1].admin.Base, "-token", "env:ADMIN")...)
	}
	direct := func(args ...string) string {
		t.Helper()
		return run(append(args, "-postgres", "env:DSN", "-schema", f.schema)...)
	}
	require.Equal(t, http.StatusOK, f.gateways[0].call(t.Context(), token, "{{provider: usage=none}}").status)
	f.settled()
	require.Contains(t, over("keys", "explain", "app", "-model", "demo-small", "-tokens", "10", "-cost", "$0.01"), "would be admitted")
	require.Contains(t, direct("keys", "explain", "app", "-model", "demo-small", "-tokens", "10", "-cost", "$2"), "trying again does not help")
	require.Contains(t, direct("keys", "explain", "app", "-model", "demo-small", "-tokens", "10", "-unpriced"), "refused: unpriced")
	holds := f.gateways[0].holds("")
	require.Len(t, holds, 1)
	require.Contains(t, direct("holds", "list"), holds[0].ID)
	direct("holds", "resolve", holds[0].ID, "-not-sent", "-actor", "ann", "-reason", "the provider knows nothing of it")
	require.NotContains(t, over("holds", "list"), holds[0].ID)

	require.Equal(t, http.StatusOK, f.gateways[0].call(t.Context(), token, "{{provider: usage=negative}}").status)
	f.settled()
	for _, a := range f.everywhere(token, says("frozen")) {
		require.Equal(t, http.StatusLocked, a.status)
	}
	var frozen report.FrozenPage
	f.gateways[1].do(http.MethodGet, "frozen", nil, &frozen)
	require.NotEmpty(t, frozen.Frozen)
	for _, a := range frozen.Frozen {
		over("holds", "release", a.Constraint, "-window-start", a.WindowStart.Format("2006-01-02T15:04:05.999999999Z07:00"), "-actor", "ben", "-reason", "a fault of the provider's")
	}
	for _, a := range f.everywhere(token, says("released")) {
		require.Equal(t, http.StatusOK, a.status)
	}
	notes := over("notes")
	require.Contains(t, notes, "the provider knows nothing of it")
	require.Contains(t, notes, "a fault of the provider's")
	require.Equal(t, strings.Count(notes, "ben"), len(frozen.Frozen))
	f.settled()
	require.Contains(t, direct("verify"), "the books balance")
	for _, way := range []func(...string) string{over, direct} {
		require.Contains(t, way("prune", "-older-than", "720h", "-actor", "cem", "-reason", "kept for long enough"), "HORIZON")
	}
	require.Equal(t, 2, strings.Count(over("notes"), "cem"))

	dumps := "../../../keys/keysimport/testdata/litellm-1.81/"
	out := run("keys", "import", "-from", "litellm", "-keys", dumps+"keys.jsonl", "-teams", dumps+"teams.jsonl", "-budgets", dumps+"budgets.jsonl",
		"-allow-wider", "-config", f.path("gateway.yaml"))
	require.Contains(t, out, "added: ")
	require.Contains(t, over("teams", "list"), "litellm", "the gateways know them at once")
	f.balanced()
}
