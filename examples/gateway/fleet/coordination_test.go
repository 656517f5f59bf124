package fleet_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/admin"
	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
)

// coordinate has the gateways that are started from now on be one.
func (f *fleet) coordinate(more string) {
	f.Helper()
	plain, err := os.ReadFile(f.path("gateway.yaml"))
	require.NoError(f, err)
	f.write(string(plain) + "coordination:\n  tenure: 3s\n  tail: 50ms\n" + more)
}

// system is what a gateway is among others.
func (g *gateway) system() report.System {
	g.f.Helper()
	req, err := http.NewRequestWithContext(g.f.Context(), http.MethodGet, g.admin.Base+admin.SystemPath, nil)
	require.NoError(g.f, err)
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(g.f, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(g.f, err)
	require.Equal(g.f, http.StatusOK, resp.StatusCode, string(body))
	var s report.System
	require.NoError(g.f, json.Unmarshal(body, &s))
	return s
}

// manager waits until one gateway alone manages the fleet, and returns it.
func (f *fleet) manager() *gateway {
	f.Helper()
	var found *gateway
	require.Eventually(f, func() bool {
		n := 0
		for _, g := range f.gateways {
			if g.system().ManagesFleet {
				found, n = g, n+1
			}
		}
		return n == 1
	}, patience, tick)
	return found
}

// others are all gateways but one.
func (f *fleet) others(but *gateway) (out []*gateway) {
	for _, g := range f.gateways {
		if g != but {
			out = append(out, g)
		}
	}
	return out
}

// TestGatewaysThatAreOne: three gateways coordinate, the one that manages dies and is replaced while all
// serve, and what was suspended stays so, for who joins later too.
func TestGatewaysThatAreOne(t *testing.T) {
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	f.coordinate("")
	f.start(3)
	token := f.gateways[0].key("app", keys.Limits{RequestsPerMinute: keys.Limit(1_000_000)})
	bad := f.gateways[0].key("bad", keys.Limits{})
	manager := f.manager()
	instances := map[string]bool{}
	for _, g := range f.gateways {
		s := g.system()
		instances[s.Instance] = true
		require.True(t, s.CoordinatesWithPeers && s.StorageIsShareable)
		require.Equal(t, report.Scope{Rates: report.OfFleet, Quotas: report.OfFleet, Budgets: report.OfFleet}, s.Limits)
		require.False(t, s.History.Regressed)
	}
	require.Len(t, instances, 3, "one configuration, three identities")

	f.forgets()

	manager.do(http.MethodPost, "suspensions", object{"key": "bad", "reason": "leaked on a forum", "actor": "ann"}, nil)
	manager.do(http.MethodPost, "suspensions", object{"key": "app", "session": "s-7", "reason": "goes in circles", "actor": "ann"}, nil)
	suspended := func(g *gateway) {
		t.Helper()
		require.Eventually(t, func() bool {
			a := g.call(t.Context(), bad, says("bad"))
			return a.status == http.StatusForbidden && a.code == "suspended" && strings.Contains(a.err.Error(), "leaked on a forum")
		}, patience, tick)
		require.Eventually(t, func() bool {
			status, body := g.inSession(token, "s-7")
			return status == http.StatusForbidden && strings.Contains(string(body), "goes in circles")
		}, patience, tick)
		status, body := g.inSession(token, "s-8")
		require.Equal(t, http.StatusOK, status, string(body))
	}
	for _, g := range f.gateways {
		suspended(g)
	}

	l := f.load(1, token, says("load"))
	l.more(http.StatusOK, 10)
	generation := leaseOf(t, manager.system()).Generation
	f.gateways = f.others(manager)
	require.NoError(t, manager.Process.Signal(syscall.SIGKILL))
	require.Error(t, manager.wait())
	l.more(http.StatusOK, 10)
	next := f.manager()
	require.Greater(t, leaseOf(t, next.system()).Generation, generation, "whatever the dead one still meant to do is of the past")
	l.more(http.StatusOK, 10)
	l.stop()
	require.Zero(t, l.count(http.StatusServiceUnavailable), "who serves has not noticed")

	f.start(1)
	late := f.gateways[len(f.gateways)-1]
	suspended(late)
	late.do(http.MethodPost, "suspensions/lift", object{"key": "bad", "reason": "rotated", "actor": "ben"}, nil)
	for _, g := range f.gateways {
		require.Eventually(t, func() bool { return g.call(t.Context(), bad, says("good")).status == http.StatusOK }, patience, tick)
	}
	out, err := f.command("system", "-admin", late.admin.Base, "-token", "env:ADMIN").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "gateway-fleet")
	out, err = f.command("suspensions", "list", "-admin", late.admin.Base, "-token", "env:ADMIN").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "goes in circles")

	// In good order the right to manage is handed over, and nobody waits for a tenure.
	f.gateways = f.others(next)
	next.stop()
	f.manager()
	f.balanced()
}

// forgets revokes on one gateway a key that all have seen: all refuse it at once, for calls and for what admits nothing.
func (f *fleet) forgets() {
	f.Helper()
	gone := f.gateways[0].key("gone", keys.Limits{})
	for i, a := range f.everywhere(gone, says("here")) {
		require.Equal(f, http.StatusOK, a.status, "gateway %d", i)
	}
	followed := func(g *gateway) int64 {
		for _, s := range g.system().Log.Subscriptions {
			if s.Name == "definitions" {
				require.Zero(f, s.Aside)
				return s.Handled
			}
		}
		return -1
	}
	before := make([]int64, len(f.gateways))
	for i, g := range f.gateways {
		before[i] = followed(g)
		require.GreaterOrEqual(f, before[i], int64(0), "it follows keys")
	}
	f.gateways[1].do(http.MethodPost, "keys/gone/revoke", nil, nil)
	for i, a := range f.everywhere(gone, says("gone")) {
		require.Equal(f, http.StatusUnauthorized, a.status, "gateway %d: %s", i, a.code) // its own words depend on who noticed
	}
	for i, g := range f.gateways {
		for _, path := range []string{"/v1/usage", "/v1/models"} {
			status, _ := g.get(path, gone)
			require.Equal(f, http.StatusUnauthorized, status, path)
		}
		require.Eventually(f, func() bool { return followed(g) > before[i] }, patience, tick, "gateway %d heard of it", i)
	}
}

func leaseOf(t *testing.T, s report.System) report.LeaseState {
	t.Helper()
	for _, l := range s.Leases {
		if l.Name == "gateway-fleet" {
			return l
		}
	}
	t.Fatalf("no lease in %+v", s)
	return report.LeaseState{}
}

// inSession makes one call that names its session.
func (g *gateway) inSession(token, session string) (int, []byte) {
	g.f.Helper()
	body := `{"model":"demo-small","max_completion_tokens":40,"messages":[{"role":"user","content":"` + says("session") + `"}]}`
	req, err := http.NewRequestWithContext(g.f.Context(), http.MethodPost, g.clients+"/v1/chat/completions", strings.NewReader(body))
	require.NoError(g.f, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Gateway-Session", session)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(g.f, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(g.f, err)
	return resp.StatusCode, answer
}

// fleetOf is the registered upstreams as a gateway knows them: health by name.
func (g *gateway) fleetOf() map[string]string {
	g.f.Helper()
	var found admin.Fleet
	g.do(http.MethodGet, "fleet", nil, &found)
	out := map[string]string{}
	for _, u := range found.Upstreams {
		out[u.Name] = u.Health
	}
	return out
}

// TestOneFleetOfUpstreams: what is registered on one gateway is served by all; one of them manages it, and when it
// dies another does.
func TestOneFleetOfUpstreams(t *testing.T) {
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	f.coordinate("  fleet: {cycle: 100ms, credentials: {inference: env:KEY}}\n")
	f.start(3)
	token := f.gateways[0].key("app", keys.Limits{})
	var topology struct {
		Upstreams []struct {
			BaseURL string `json:"base_url"`
		}
	}
	f.gateways[0].do(http.MethodGet, "topology", nil, &topology)
	registration := object{
		"name": "gpu-1", "protocol": "openai", "base_url": topology.Upstreams[0].BaseURL, "models": []string{"demo-free", "demo-small"}, "credential": "inference", "ttl_ms": 3_600_000,
	}
	converged := func(want map[string]string) {
		t.Helper()
		for _, g := range f.gateways {
			require.Eventually(t, func() bool { return maps.Equal(g.fleetOf(), want) }, patience, tick)
		}
	}
	require.Equal(t, http.StatusNotFound, f.gateways[1].ask(t.Context(), token, "demo-free", says("free")).status)
	f.gateways[0].do(http.MethodPost, "fleet", registration, nil)
	converged(map[string]string{"gpu-1": "healthy"})
	for _, g := range f.gateways {
		a := g.ask(t.Context(), token, "demo-free", says("free"))
		require.Equal(t, http.StatusOK, a.status, "%v", a.err)
		_, models := g.get("/v1/models", token)
		require.Contains(t, string(models), "demo-free")
	}
	var problem *admin.Problem
	registration["name"], registration["mode"] = "mine", "subprocess"
	require.ErrorAs(t, f.gateways[1].admin.Do(t.Context(), http.MethodPost, "fleet", nil, registration, nil), &problem)
	require.Equal(t, http.StatusConflict, problem.Status)
	require.Contains(t, problem.Message, "which one gateway runs")

	manager := f.manager()
	f.gateways = f.others(manager)
	require.NoError(t, manager.Process.Signal(syscall.SIGKILL))
	require.Error(t, manager.wait())
	// While nobody manages, everybody serves, and registers. What falls silent then is seen to by the next one.
	delete(registration, "mode")
	registration["name"], registration["ttl_ms"] = "gpu-2", 200
	f.gateways[0].do(http.MethodPost, "fleet", registration, nil)
	for _, g := range f.gateways {
		require.Equal(t, http.StatusOK, g.ask(t.Context(), token, "demo-free", says("free")).status)
	}
	f.manager()
	converged(map[string]string{"gpu-1": "healthy"})
	f.start(1)
	converged(map[string]string{"gpu-1": "healthy"})
	var fleet admin.Fleet
	require.Eventually(t, func() bool {
		f.gateways[0].do(http.MethodGet, "fleet?snapshots=1", nil, &fleet)
		return len(fleet.Snapshots) == 1 && fleet.Snapshots[0].Registered == 1 && fleet.Snapshots[0].Healthy == 1
	}, patience, tick)
	f.operatesTheFleet(topology.Upstreams[0].BaseURL)
	f.gateways[1].do(http.MethodDelete, "fleet/gpu-1", nil, nil)
	converged(map[string]string{})
	require.Equal(t, http.StatusNotFound, f.gateways[1].ask(t.Context(), token, "demo-free", says("free")).status)
}

// operatesTheFleet does with commands what the API does: gpu-1 is there, gpu-2 comes and goes.
func (f *fleet) operatesTheFleet(url string) {
	f.Helper()
	run := func(args ...string) (string, error) {
		out, err := f.command(append(append([]string{"fleet"}, args...), "-admin", f.gateways[0].admin.Base, "-token", "env:ADMIN")...).CombinedOutput()
		return string(out), err
	}
	for _, refused := range []struct {
		args []string
		says string
	}{
		{[]string{"register", "gpu-2", "-base-url", url, "-model", "demo-free", "-credential", "inference"}, "needs -actor and -reason"},
		{[]string{"register", "gpu-2", "-base-url", url, "-model", "demo-free", "-credential", "nobody's", "-actor", "ann", "-reason", "more room"}, "credential"},
		{[]string{"deregister", "gpu-1", "-actor", "ann"}, "needs -actor and -reason"},
		{[]string{"deregister", "gpu-1", "-actor", "ann", "-reason", strings.Repeat("x", 501)}, "reason: is too long"},
		{[]string{"deregister", "gpu-9", "-actor", "ann", "-reason", "never was"}, "there is nothing of this name"},
	} {
		out, err := run(refused.args...)
		require.Error(f, err, out)
		require.Contains(f, out, refused.says)
	}
	out, err := run("register", "gpu-2", "-base-url", url, "-model", "demo-free", "-credential", "inference", "-ttl", "1h", "-actor", "ann", "-reason", "more room")
	require.NoError(f, err, out)
	require.Contains(f, out, "gpu-2 is known to every gateway")
	require.Eventually(f, func() bool { return f.gateways[0].fleetOf()["gpu-2"] == "healthy" }, patience, tick)
	out, err = run("list")
	require.NoError(f, err, out)
	require.Regexp(f, `gpu-2 +openai +demo-free +healthy +registered .* 59m.* ann`, out)
	out, err = run("status", "-snapshots", "1")
	require.NoError(f, err, out)
	for _, want := range []string{`MANAGED BY +\S`, `GENERATION +[1-9]`, `TENURE +3s`, `THIS GATEWAY +(holding|standby)`, `UPSTREAMS +2`, `healthy +2`, `SNAPSHOT .* registered`} {
		require.Regexp(f, want, out)
	}
	require.NotContains(f, out, "EXPIRING")
	out, err = run("deregister", "gpu-2", "-actor", "ann", "-reason", "too dear")
	require.NoError(f, err, out)
	require.Eventually(f, func() bool { _, is := f.gateways[1].fleetOf()["gpu-2"]; return !is }, patience, tick)
}
