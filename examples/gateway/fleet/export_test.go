package fleet_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/audit"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
)

// exported are the lines of all files, by event.
func (f *fleet) exported() map[string][]audit.Line {
	f.Helper()
	files, err := filepath.Glob(f.path("audit/*.jsonl"))
	require.NoError(f, err)
	out := map[string][]audit.Line{}
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(f, err)
		for line := range strings.Lines(string(text)) {
			if !strings.HasSuffix(line, "\n") {
				continue // of a process that died while it wrote, or that writes
			}
			var l audit.Line
			require.NoError(f, json.Unmarshal([]byte(line), &l), line)
			out[l.ID] = append(out[l.ID], l)
		}
	}
	return out
}

// edits changes keys and policies through all gateways, and behind their backs.
func (f *fleet) edits() {
	f.Helper()
	f.gateways[1].key("lost", keys.Limits{})
	f.gateways[2].do(http.MethodPatch, "keys/lost", object{"if_revision": 1, "name": "x"}, nil)
	f.gateways[0].do(http.MethodPost, "keys/lost/revoke", nil, nil)
	f.gateways[1].do(http.MethodPost, "keys/lost/revoke", nil, nil) // again, which changes nothing
	f.gateways[0].apply(policyOf("thrift", "team: team-app", "name: pace, failurePolicy: FailClosed, rate: {rpm: 1000}"))
	f.gateways[2].edit(object{"delete": []string{"thrift"}})
	for _, args := range [][]string{{"teams", "create", "-id", "direct"}, {"keys", "create", "-id", "direct", "-team", "direct"}} {
		out, err := f.command(append(args, "-postgres", "env:DSN", "-schema", f.schema)...).CombinedOutput()
		require.NoError(f, err, string(out))
	}
}

// TestEachEventIsExported: by the gateway that did the work, once, while it lives; and what a gateway left that
// was killed is exported by another.
func TestEachEventIsExported(t *testing.T) {
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	f.coordinate("  audit: {folder: audit, calls: true}\n")
	f.start(3)
	token := f.gateways[0].key("app", keys.Limits{})
	events := func() map[string]string { // producers by event
		rows, err := db.Pool.Query(t.Context(), "select id, producer from "+db.Schema+".events")
		require.NoError(t, err)
		out := map[string]string{}
		var id, producer string
		_, err = pgx.ForEachRow(rows, []any{&id, &producer}, func() error { out[id] = producer; return nil })
		require.NoError(t, err)
		return out
	}
	for _, g := range f.gateways {
		g.do(http.MethodPost, "suspensions", object{"key": "app", "session": "s-" + strings.ToLower(g.system().Instance[len(g.system().Instance)-8:]), "reason": "tried", "actor": "ann"}, nil)
		for range 5 {
			require.Equal(t, http.StatusOK, g.call(t.Context(), token, says("calls")).status)
		}
	}
	f.edits()
	const command = "command/" // producers of what was done directly; it is exported once they count as gone
	var made map[string]int
	require.Eventually(t, func() bool {
		made = map[string]int{}
		list, done := events(), f.exported()
		for id, producer := range list {
			if done[id] == nil && !strings.HasPrefix(producer, command) {
				return false
			}
		}
		for _, lines := range done {
			made[lines[0].Type+" "+lines[0].Stream]++
		}
		return len(list) >= 28
	}, patience, tick)
	for id, lines := range f.exported() {
		require.Len(t, lines, 1, "one export of %s", id)
		require.Equal(t, !strings.HasPrefix(lines[0].Producer, command), lines[0].Producer == lines[0].Exporter)
	}
	for _, once := range []string{
		"team.created team/team-app", "key.created key/app", "team.created team/team-lost", "key.created key/lost", "key.updated key/lost", "key.revoked key/lost",
		"policy.applied policies", "policy.removed policies",
	} {
		require.Equal(t, 1, made[once], "%s: %v", once, made)
	}

	victim := f.gateways[2]
	dead := victim.system().Instance
	l := f.load(2, token, says("load"))
	l.more(http.StatusOK, 30)
	require.NoError(t, victim.Process.Signal(syscall.SIGKILL))
	require.Error(t, victim.wait())
	f.gateways = f.gateways[:2]
	l.more(http.StatusOK, 10)
	l.stop()
	require.Eventually(t, func() bool { // what the dead one had appended, and what the others still had to
		list, done := events(), f.exported()
		for id := range list {
			if done[id] == nil {
				return false
			}
		}
		var consumers int
		err := db.Pool.QueryRow(t.Context(), "select count(*) from "+db.Schema+".event_consumers where producer = $1 and bound <> -1", dead).Scan(&consumers)
		return err == nil && consumers == 0 && len(list) > 40
	}, patience, 10*tick)
	for id, producer := range events() {
		lines := f.exported()[id]
		if producer != dead {
			require.Len(t, lines, 1, "one export of %s", id)
			require.Equal(t, !strings.HasPrefix(producer, command), producer == lines[0].Exporter)
		}
	}
	for _, direct := range []string{"team/direct/1", "key/direct/1"} {
		require.Len(t, f.exported()[direct], 1)
	}
	f.balanced()
	readers := func(args ...string) string {
		out, _ := f.command(append(append([]string{"events"}, args...), "-admin", f.gateways[0].admin.Base, "-token", "env:ADMIN")...).CombinedOutput()
		return string(out)
	}
	list := readers("checkpoints")
	require.Contains(t, list, dead)
	require.Contains(t, list, "closed")
	require.Contains(t, readers("drop", "audit"), "needs -actor and -reason")
	require.Contains(t, readers("drop", "nothing", "-actor", "ann", "-reason", "mistyped"), "there is nothing of this name")
	require.Contains(t, readers("drop", "audit", "-actor", "ann", "-reason", "tried"), "nobody uses are forgotten")
	for _, g := range f.gateways { // in good order nothing is left behind
		require.Zero(t, g.system().Log.CallsLost)
		require.Less(t, g.system().Log.AgeMS, g.system().Log.StaleMS)
		g.stop()
	}
}
