package fleet_test

import (
	"encoding/json"
	"io"
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

	manager.do(http.MethodPost, "suspensions", object{"key": "bad", "reason": "leaked on a forum", "actor": "ann"}, nil)
	manager.do(http.MethodPost, "suspensions", object{"key": "app", "session": "s-7", "reason": "goes in circles", "actor": "ann"}, nil)
	suspended := func(g *gateway) {
		t.Helper()
		require.Eventually(t, func() bool {
			a := g.call(t.Context(), bad, says("bad"))
			return a.status == http.StatusForbidden && a.code == "suspended" && strings.Contains(a.err.Error(), "leaked on a forum")
		}, patience, tick)
		status, body := g.inSession(token, "s-7")
		require.Equal(t, http.StatusForbidden, status, string(body))
		require.Contains(t, string(body), "goes in circles")
		status, body = g.inSession(token, "s-8")
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
	f.settled()
	f.balanced()
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
