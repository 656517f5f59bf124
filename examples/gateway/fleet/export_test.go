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
	require.Eventually(t, func() bool { return len(events()) == 18 && len(f.exported()) == 18 }, patience, tick)
	for id, lines := range f.exported() {
		require.Len(t, lines, 1, "one export of %s", id)
		require.Equal(t, lines[0].Producer, lines[0].Exporter)
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
			require.Equal(t, producer, lines[0].Exporter)
		}
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
