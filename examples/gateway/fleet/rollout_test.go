package fleet_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/rollout"
	"github.com/tallystick-go/tallystick/keys"
)

// earlier is the gateway of an earlier commit, or skips the test where the history is not there.
func earlier(t *testing.T) string {
	t.Helper()
	program, err := rollout.Build(t.Context(), rollout.Before, "./examples/gateway", t.TempDir())
	if errors.Is(err, rollout.ErrNoHistory) && !pgtest.Required() {
		t.Skip(err)
	}
	require.NoError(t, err)
	return program
}

// versions are the migrations that a schema says it has, by package.
func (f *fleet) versions(db *pgtest.DB) map[string]int {
	f.Helper()
	rows, err := db.Pool.Query(f.Context(), "select package, max(version) from "+db.Schema+"."+migrate.Table+" group by package")
	require.NoError(f, err)
	out := map[string]int{}
	var name string
	var version int
	_, err = pgx.ForEachRow(rows, []any{&name, &version}, func() error { out[name] = version; return nil })
	require.NoError(f, err)
	return out
}

// refusal is what a gateway says that does not start on the tables as they are; empty: it starts.
func (f *fleet) refusal() string {
	f.Helper()
	g := &gateway{f: f, Cmd: f.command("serve", "-config", f.path("gateway.yaml")), said: &output{}}
	g.start()
	if g.admin != nil {
		g.stop()
		return ""
	}
	require.Error(f, g.wait())
	return g.said.String()
}

// TestTwoVersionsOnOneDatabase rolls gateways from an earlier version to this one and back, with calls all the time. Each
// reads what the other wrote: keys, limits, policies, accounts, suspensions, upstreams, leases and the log.
func TestTwoVersionsOnOneDatabase(t *testing.T) {
	program := earlier(t)
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	f.coordinate("  fleet: {cycle: 100ms, credentials: {inference: env:KEY}}\n")
	add := func(program string, more ...string) *gateway {
		t.Helper()
		f.program = program
		f.serve(1, more...)
		f.program = ""
		return f.gateways[len(f.gateways)-1]
	}

	// The earlier one is there, with tables of its own making, and serves while the tables become newer.
	old := add(program, "-migrate")
	had := f.versions(db)
	require.NotEmpty(t, had)
	token := old.key("app", keys.Limits{CostPerMonth: keys.Cost(1_000_000_000), RequestsPerMinute: keys.Limit(1_000_000)})
	old.apply(policyOf("month", "user: zelda", "name: month, failurePolicy: FailOpen, budget: {limitMilliUSD: 1000000, period: month}"))
	old.do(http.MethodPost, "suspensions", object{"key": "app", "session": "s-old", "reason": "before the roll-out", "actor": "ann"}, nil)
	before := f.load(1, token, says("before"))
	before.more(http.StatusOK, 3)
	refused := f.refusal() // a newer one, with tables that may be older
	newer := add("", "-migrate")
	has := f.versions(db)
	before.more(http.StatusOK, 10)
	for name, version := range had {
		require.GreaterOrEqual(t, has[name], version, name)
	}
	if fmt.Sprint(had) != fmt.Sprint(has) {
		t.Logf("the tables went from %v to %v", had, has)
		require.Contains(t, refused, "older than this program: run")
	} else {
		require.Empty(t, refused)
	}
	late := add(program) // an earlier one that starts now passes the newer tables, and does not touch them
	require.Equal(t, has, f.versions(db))
	require.Equal(t, []*gateway{old, newer, late}, f.gateways)
	after := f.load(1, token, says("after"))
	after.more(http.StatusOK, 10)

	// What one edits holds at the others for the next call, whichever version either is.
	for i, by := range []*gateway{newer, old} {
		id := fmt.Sprint("edited-", i)
		edited := by.key(id, keys.Limits{})
		other := []*gateway{old, newer}[i]
		status := func(want int) {
			t.Helper()
			for n, a := range f.everywhere(edited, says(id)) {
				require.Equal(t, want, a.status, "gateway %d: %v", n, a.err)
			}
		}
		status(http.StatusOK)
		by.do(http.MethodPatch, "keys/"+id, object{"if_revision": 1, "allowed_models": []string{"demo-large"}}, nil)
		status(http.StatusForbidden)
		by.do(http.MethodPatch, "keys/"+id, object{"if_revision": 2, "allowed_models": []string{"demo-small"}}, nil)
		status(http.StatusOK)
		other.apply(policyOf("of-"+id, "team: team-"+id, "name: none, failurePolicy: FailClosed, modelAccess: {allow: [demo-large]}"))
		status(http.StatusForbidden)
		by.edit(object{"delete": []string{"of-" + id}})
		status(http.StatusOK)
		by.do(http.MethodPost, "keys/"+id+"/revoke", nil, nil)
		status(http.StatusUnauthorized)
	}

	// One limit is one limit: to the last unit, whoever of them admits.
	limited := newer.key("limited", keys.Limits{})
	old.apply(policyOf("limited", "team: team-limited", "name: only, failurePolicy: FailClosed, budget: {limitMilliUSD: 3, hardCap: true, period: month}"))
	s := f.spend(says("limited"), limited)
	f.eventuallySettled("team-limited", "only")
	for _, g := range f.gateways {
		require.Equal(t, money(s, says("limited")), constraint(t, g.usage(limited), "only").Consumed)
	}
	require.LessOrEqual(t, money(s, says("limited")), int64(3000))
	require.Greater(t, 2*money(s, says("limited")), int64(3000), "the limit was worth something")

	// They follow one log, and each appends what the other reads.
	suspended := func(session string) {
		t.Helper()
		for n, g := range f.gateways {
			require.Eventually(t, func() bool { code, _ := g.inSession(token, session); return code == http.StatusForbidden }, patience, tick, "gateway %d", n)
		}
	}
	suspended("s-old")
	for _, g := range []*gateway{old, newer} {
		session := fmt.Sprint("s-", g.Process.Pid)
		g.do(http.MethodPost, "suspensions", object{"key": "app", "session": session, "reason": "goes in circles", "actor": "ann"}, nil)
		suspended(session)
	}
	var topology struct {
		Upstreams []struct {
			BaseURL string `json:"base_url"`
		}
	}
	old.do(http.MethodGet, "topology", nil, &topology)
	want := map[string]string{}
	for i, g := range []*gateway{old, newer} {
		name := fmt.Sprint("gpu-", i)
		want[name] = "healthy"
		g.do(http.MethodPost, "fleet", object{
			"name": name, "protocol": "openai", "base_url": topology.Upstreams[0].BaseURL, "models": []string{"demo-free"}, "credential": "inference", "ttl_ms": 3_600_000,
		}, nil)
	}
	fleetIs := func() {
		t.Helper()
		for n, g := range f.gateways {
			require.Eventually(t, func() bool { return fmt.Sprint(g.fleetOf()) == fmt.Sprint(want) }, patience, tick, "gateway %d", n)
			require.Equal(t, http.StatusOK, g.ask(t.Context(), token, "demo-free", says("free")).status)
		}
	}
	fleetIs()

	for _, l := range []*load{before, after} {
		l.more(http.StatusOK, 3)
		l.stop()
		require.Len(t, l.seen, 1, "every call of either version was served: %v", l.seen)
	}

	// The right to manage passes from one version to the other and back; its generation only rises.
	generation := int64(0)
	for _, next := range []string{"", program, ""} {
		manager := f.manager()
		l := leaseOf(t, manager.system())
		require.Greater(t, l.Generation, generation)
		generation = l.Generation
		f.gateways = f.others(manager)
		manager.stop()
		add(next)
		fleetIs()
	}
	f.understood()

	// Both audits find the same: nothing.
	f.settled()
	for _, of := range []string{program, ""} {
		g := add(of)
		var v report.Verification
		g.do(http.MethodPost, "verify", nil, &v)
		require.Empty(t, v.Differences, "by the version of %q", of)
		require.True(t, v.Balanced)
	}
	f.isRolledTo(db, program)
}

// understood: nothing of the other version was set aside, and the log is followed by all.
func (f *fleet) understood() {
	f.Helper()
	for n, g := range f.gateways {
		s := g.system()
		require.NotNil(f, s.Log)
		require.Empty(f, s.Log.Error)
		require.False(f, s.History.Regressed)
		for _, sub := range s.Log.Subscriptions {
			require.Zero(f, sub.Aside, "%s of gateway %d: %s", sub.Name, n, sub.Error)
			require.Empty(f, sub.Error, "%s of gateway %d", sub.Name, n)
		}
	}
}

// isRolledTo makes the tables those of a version that is still to come, as the rule of roll-outs has it: every table has a column more
// that may be null, and one with a default. Both versions start, pass it, and serve.
func (f *fleet) isRolledTo(db *pgtest.DB, program string) {
	f.Helper()
	rows, err := db.Pool.Query(f.Context(),
		"select relname::text from pg_catalog.pg_class where relnamespace = $1::regnamespace and relkind in ('r', 'p') and not relispartition and relname <> $2", db.Schema, migrate.Table)
	require.NoError(f, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(f, err)
	require.Greater(f, len(tables), 10)
	slices.Sort(tables)
	for _, table := range tables { // one at a time: calls go on
		_, err := db.Pool.Exec(f.Context(), fmt.Sprintf("alter table %s.%s add column of_the_next text, add column of_the_next_too bigint not null default 7", db.Schema, pgx.Identifier{table}.Sanitize()))
		require.NoError(f, err, table)
	}
	_, err = db.Pool.Exec(f.Context(), fmt.Sprintf("insert into %[1]s.%[2]s (package, version, name, checksum) select package, max(version) + 1, 'next', 'unknown' from %[1]s.%[2]s group by package", db.Schema, migrate.Table))
	require.NoError(f, err)
	var token string
	for i, of := range []string{program, ""} {
		f.program = of
		f.serve(1, "-migrate")
		f.program = ""
		if i == 0 {
			token = f.gateways[len(f.gateways)-1].key("next", keys.Limits{TokensPerDay: keys.Limit(1_000_000)})
		}
	}
	for n, g := range f.gateways { // also those whose statements were prepared for the narrower tables
		require.Equal(f, http.StatusOK, g.call(f.Context(), token, says("next")).status, "gateway %d", n)
	}
	f.settled()
	f.balanced()
}

// TestOlderTablesAreRefused: a gateway whose migration was not made says which one that is, whatever package it is of.
func TestOlderTablesAreRefused(t *testing.T) {
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	f.coordinate("")
	f.start(1)
	for name, version := range f.versions(db) {
		var row [2]string
		table := db.Schema + "." + migrate.Table
		err := db.Pool.QueryRow(t.Context(), "delete from "+table+" where package = $1 and version = $2 returning name, checksum", name, version).Scan(&row[0], &row[1])
		require.NoError(t, err)
		said := f.refused()
		require.Contains(t, said, name)
		if !strings.Contains(said, "is already there and was not made by our migrations") { // it made tables, which are somebody's now
			require.Contains(t, said, "older than this program")
			require.Contains(t, said, row[0])
		}
		_, err = db.Pool.Exec(t.Context(), "insert into "+table+" (package, version, name, checksum) values ($1, $2, $3, $4)", name, version, row[0], row[1])
		require.NoError(t, err)
	}
	f.serve(1)
}
