package upstreams_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/coordination"
	"github.com/tallystick-go/tallystick/examples/gateway/upstreams"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/lease"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

const patience, tick = 30 * time.Second, 2 * time.Millisecond

// member is one gateway of a fleet, whose cycles the test runs.
type member struct {
	*testing.T
	base    *coordination.Base
	fleet   *upstreams.Upstreams
	manager *upstreams.Manager
	changes atomic.Int64
}

func configuration(t *testing.T, db *pgtest.DB, discover string) *config.Config {
	t.Helper()
	text := `
profile: shared
topology_version: "1"
storage: {postgres: {dsn: env:DSN}}
upstreams: [{name: main, protocol: openai, base_url: "https://api.example.com", credential: env:KEY, models: [gpt-4o]}]
coordination: {fleet: {probe: 2s, credentials: {inference: env:KEY}` + discover + `}}
`
	c, err := config.Parse([]byte(text), t.TempDir(), func(name string) (string, bool) {
		if name == "DSN" {
			return db.DSN, true
		}
		return "sk-inference", true
	})
	require.NoError(t, err)
	return c
}

func join(t *testing.T, db *pgtest.DB, c *config.Config) *member {
	t.Helper()
	m := &member{T: t}
	var err error
	m.base, err = coordination.Open(t.Context(), coordination.Options{
		DSN: db.DSN, Schema: db.Schema, Connect: 5 * time.Second, Call: 10 * time.Second, Migrate: true,
		Tenure: 6 * time.Second, Tail: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	m.fleet = upstreams.New(m.base, c, func() { m.changes.Add(1) })
	m.manager = upstreams.NewManager(m.fleet)
	require.NoError(t, m.base.Start(m.fleet.Subscription()))
	t.Cleanup(func() { require.NoError(t, m.base.Close(context.WithoutCancel(t.Context()))) })
	require.Eventually(t, func() bool {
		_, err := m.fleet.List()
		return err == nil
	}, patience, tick)
	return m
}

// held is the right to manage, once this member has it.
func (m *member) held() lease.Lease {
	m.Helper()
	l, err := m.base.Keeper.Await(m.Context(), coordination.FleetLease)
	require.NoError(m, err)
	return l
}

// sees waits until a member's view is this: health by name.
func (m *member) sees(want map[string]string) {
	m.Helper()
	require.Eventually(m, func() bool {
		list, err := m.fleet.List()
		if err != nil || len(list) != len(want) {
			return false
		}
		for _, r := range list {
			if want[r.Name] != r.Health {
				return false
			}
		}
		return true
	}, patience, tick)
}

func registration(name, url string) upstreams.Registration {
	return upstreams.Registration{Name: name, Protocol: config.OpenAI, BaseURL: url, Models: []string{"llama"}, Credential: "inference", TTLMS: 3_600_000}
}

func TestTheFleet(t *testing.T) {
	db := pgtest.New(t)
	c := configuration(t, db, "")
	one := join(t, db, c)
	held := one.held()
	two := join(t, db, c)
	var sick atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if sick.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusUnauthorized) // an answer all the same
	}))
	t.Cleanup(s.Close)
	r := registration("gpu-1", s.URL+"/v1")
	_, err := two.fleet.Register(t.Context(), r)
	require.NoError(t, err)
	for _, m := range []*member{one, two} {
		m.sees(map[string]string{"gpu-1": upstreams.Unprobed})
		usable := m.fleet.Usable()
		require.Len(t, usable, 1)
		require.Equal(t, "sk-inference", usable[0].Credential.Reveal())
	}
	// Only who manages probes; all hear of it.
	require.NoError(t, one.manager.Cycle(t.Context(), held))
	two.sees(map[string]string{"gpu-1": upstreams.Healthy})
	one.sees(map[string]string{"gpu-1": upstreams.Healthy})
	sick.Store(true)
	require.NoError(t, one.manager.Cycle(t.Context(), held))
	require.NoError(t, one.manager.Cycle(t.Context(), held))
	two.sees(map[string]string{"gpu-1": upstreams.Unhealthy})
	require.Empty(t, two.fleet.Usable())
	// Registering again keeps it alive and says nothing new.
	before := two.changes.Load()
	again, err := two.fleet.Register(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, upstreams.Unhealthy, again.Health)
	require.Equal(t, before, two.changes.Load())

	require.NoError(t, one.fleet.Deregister(t.Context(), "gpu-1", upstreams.Decision{}))
	require.NoError(t, one.fleet.Deregister(t.Context(), "gpu-1", upstreams.Decision{}))
	require.ErrorIs(t, one.fleet.Deregister(t.Context(), "gpu-2", upstreams.Decision{}), coordination.ErrNotFound)
	two.sees(map[string]string{})
	list, err := two.fleet.Snapshots(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, list, 3)
	require.Equal(t, int64(held.Generation), list[0].Generation)
	late := join(t, db, c)
	late.sees(map[string]string{})
}

// TestWhoLostTheLeaseTakesNothingAway: a gateway that stood still past its tenure wakes and goes on with what it was
// about; nothing of it reaches the fleet.
func TestWhoLostTheLeaseTakesNothingAway(t *testing.T) {
	db := pgtest.New(t)
	c := configuration(t, db, "")
	former := join(t, db, c)
	stale := former.held()
	require.NoError(t, former.base.Close(t.Context()))
	one := join(t, db, c)
	one.held()
	r := registration("gpu-1", "http://127.0.0.1:1")
	r.TTLMS = 100
	_, err := one.fleet.Register(t.Context(), r)
	require.NoError(t, err)
	row := func() (gone bool) {
		require.NoError(t, db.Pool.QueryRow(t.Context(), "select gone_us is not null from "+db.Schema+".gateway_upstreams where name = 'gpu-1'").Scan(&gone))
		return gone
	}
	expired := func() (is bool) {
		require.NoError(t, db.Pool.QueryRow(t.Context(), "select expires_us < (extract(epoch from clock_timestamp()) * 1000000)::bigint from "+db.Schema+".gateway_upstreams").Scan(&is))
		return is
	}
	require.Eventually(t, expired, patience, tick)
	require.ErrorIs(t, one.manager.Expire(t.Context(), stale), lease.ErrLost)
	require.ErrorIs(t, one.manager.Cycle(t.Context(), stale), lease.ErrLost)
	require.False(t, row(), "nothing was taken away")
	one.sees(map[string]string{"gpu-1": upstreams.Unprobed})
	require.NoError(t, one.manager.Expire(t.Context(), one.held()))
	require.True(t, row())
	one.sees(map[string]string{})
	// What is gone is forgotten later, fenced too.
	_, err = db.Pool.Exec(t.Context(), "update "+db.Schema+".gateway_upstreams set gone_us = 1")
	require.NoError(t, err)
	require.ErrorIs(t, one.manager.Collect(t.Context(), stale), lease.ErrLost)
	count := func() (n int) {
		require.NoError(t, db.Pool.QueryRow(t.Context(), "select count(*) from "+db.Schema+".gateway_upstreams").Scan(&n))
		return n
	}
	require.Equal(t, 1, count())
	require.NoError(t, one.manager.Collect(t.Context(), one.held()))
	require.Zero(t, count())
	// A name that comes back is known by all, though its trace is gone.
	r.TTLMS = 0
	_, err = one.fleet.Register(t.Context(), r)
	require.NoError(t, err)
	one.sees(map[string]string{"gpu-1": upstreams.Unprobed})
}

func TestDiscovery(t *testing.T) {
	db := pgtest.New(t)
	path := filepath.Join(t.TempDir(), "fleet.json")
	c := configuration(t, db, `, discover: "`+path+`"`)
	write := func(list ...upstreams.Registration) {
		text, err := json.Marshal(list)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, text, 0o600))
	}
	one := join(t, db, c)
	local := registration("mine", "http://127.0.0.1:1")
	local.Mode = config.Subprocess
	write(registration("gpu-1", "http://127.0.0.1:1"), local, registration("gpu-2", "http://127.0.0.1:1"))
	require.ErrorContains(t, one.manager.Cycle(t.Context(), one.held()), `"mine"`)
	one.sees(map[string]string{"gpu-1": upstreams.Unprobed, "gpu-2": upstreams.Unprobed})
	write()
	require.NoError(t, one.manager.Cycle(t.Context(), one.held()))
	list, err := one.fleet.List()
	require.NoError(t, err)
	require.Len(t, list, 2, "what stands there no more falls silent, and is not torn away")
	require.Equal(t, upstreams.InFile, list[0].Origin)
}

func TestRefusedRegistrations(t *testing.T) {
	db := pgtest.New(t)
	one := join(t, db, configuration(t, db, ""))
	for field, change := range map[string]func(*upstreams.Registration){
		"mode":       func(r *upstreams.Registration) { r.Mode = config.Subprocess },
		"name":       func(r *upstreams.Registration) { r.Name = "main" },
		"credential": func(r *upstreams.Registration) { r.Credential = "env:DSN" },
		"base_url":   func(r *upstreams.Registration) { r.BaseURL = "http://gpu.example.com" },
		"ttl_ms":     func(r *upstreams.Registration) { r.TTLMS = 1 },
		"protocol":   func(r *upstreams.Registration) { r.Protocol = "smtp" },
	} {
		r := registration("gpu-1", "https://gpu.example.com")
		change(&r)
		_, err := one.fleet.Register(t.Context(), r)
		var wrong *coordination.FieldError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, field, wrong.Field)
	}
	one.sees(map[string]string{})
}

// TestHowTheyStand: who registered what, until when, and why this gateway does not use it.
func TestHowTheyStand(t *testing.T) {
	db := pgtest.New(t)
	one := join(t, db, configuration(t, db, ""))
	r := registration("gpu-1", "https://gpu.example.com")
	r.Decision = upstreams.Decision{Actor: "ann", Reason: "more room"}
	_, err := one.fleet.Register(t.Context(), r)
	require.NoError(t, err)
	again := r
	again.Decision = upstreams.Decision{Actor: "a program"}
	kept, err := one.fleet.Register(t.Context(), again)
	require.NoError(t, err)
	require.Equal(t, "ann", kept.Actor, "who says it again is nobody's news")
	list, err := one.fleet.Standings(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Empty(t, list[0].Declined)
	require.Greater(t, list[0].ExpiresInMS, r.TTLMS/2)
	require.LessOrEqual(t, list[0].ExpiresInMS, r.TTLMS)
	for _, d := range []upstreams.Decision{{Actor: strings.Repeat("a", 201)}, {Reason: "a\nb"}} {
		r.Decision = d
		_, err := one.fleet.Register(t.Context(), r)
		var wrong *coordination.FieldError
		require.ErrorAs(t, err, &wrong)
		require.ErrorAs(t, one.fleet.Deregister(t.Context(), "gpu-1", d), &wrong)
	}
	require.NoError(t, one.fleet.Deregister(t.Context(), "gpu-1", upstreams.Decision{Actor: "ben", Reason: "too dear"}))
	var text string
	require.NoError(t, db.Pool.QueryRow(t.Context(), "select record from "+db.Schema+".gateway_upstreams").Scan(&text))
	require.Contains(t, text, `"actor":"ben","reason":"too dear"`)
	list, err = one.fleet.Standings(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)
}

// TestWithoutARecordNothingIsInvented: an earlier gateway wrote the event of a registration and not the record, or a record that lacks
// where the upstream is. Who followed and who joins late decline alike, say so, and go on behind it.
func TestWithoutARecordNothingIsInvented(t *testing.T) {
	db := pgtest.New(t)
	c := configuration(t, db, "")
	one := join(t, db, c)
	for name, data := range map[string]string{"bare": "", "named": `{"name":"named","credential":"inference"}`, "another": `{"name":"gpu-1","protocol":"openai"}`} {
		require.NoError(t, one.base.Edit(t.Context(), func(ctx context.Context, tx *coordination.Tx) error {
			_, err := tx.Append(ctx, "upstream/"+name, "upstream.registered", []byte(data))
			return err
		}))
	}
	_, err := db.Pool.Exec(t.Context(), "insert into "+db.Schema+`.gateway_upstreams (name, version, record, expires_us) values ('named', 1, '{"name":"named"}', 1), ('bare', 1, '', 1)`)
	require.NoError(t, err)
	_, err = one.fleet.Register(t.Context(), registration("gpu-1", "https://gpu.example.com"))
	require.NoError(t, err)
	_, err = db.Pool.Exec(t.Context(), "insert into "+db.Schema+`.gateway_upstreams (name, version, record, expires_us) values ('lapsed', 1, '{', 1)`)
	require.NoError(t, err)
	require.NoError(t, one.fleet.Deregister(t.Context(), "lapsed", upstreams.Decision{}))
	late := join(t, db, c)
	for _, m := range []*member{one, late} {
		m.sees(map[string]string{"gpu-1": upstreams.Unprobed})
		require.Len(t, m.fleet.Usable(), 1)
	}
	require.Eventually(t, func() bool {
		for _, sub := range one.base.Log.Status().Subscriptions {
			if sub.Aside == 3 && sub.Handled == 2 {
				return len(one.fleet.Declined()) == 3
			}
		}
		return false
	}, patience, tick)
	require.Len(t, late.fleet.Declined(), 2, "as the table has it")
	require.Contains(t, late.fleet.Declined()["named"], "record of its registration is missing")

	// Whoever registers it again mends it, for all, also over a row that could not be read.
	for _, name := range []string{"named", "bare"} {
		_, err = one.fleet.Register(t.Context(), registration(name, "https://gpu.example.com"))
		require.NoError(t, err)
	}
	for _, m := range []*member{one, late} {
		m.sees(map[string]string{"gpu-1": upstreams.Unprobed, "named": upstreams.Unprobed, "bare": upstreams.Unprobed})
		require.NotContains(t, m.fleet.Declined(), "named")
		require.NotContains(t, m.fleet.Declined(), "bare")
	}
	// Nor does one that cannot be read keep those that fell silent.
	_, err = db.Pool.Exec(t.Context(), "update "+db.Schema+`.gateway_upstreams set expires_us = 1, record = case name when 'bare' then '{' else record end`)
	require.NoError(t, err)
	require.NoError(t, one.manager.Expire(t.Context(), one.held()))
	for _, m := range []*member{one, late} {
		m.sees(map[string]string{})
	}
}

// TestAnothersProcessIsNotLaunched: a record that an older or foreign program wrote is no reason to route to what one
// gateway runs, or to run it too.
func TestAnothersProcessIsNotLaunched(t *testing.T) {
	db := pgtest.New(t)
	one := join(t, db, configuration(t, db, ""))
	r := registration("mine", "http://127.0.0.1:1")
	r.Mode = config.Subprocess
	text, err := json.Marshal(upstreams.Record{Registration: r, Health: upstreams.Healthy})
	require.NoError(t, err)
	require.NoError(t, one.base.Edit(t.Context(), func(ctx context.Context, tx *coordination.Tx) error {
		_, err := tx.Append(ctx, "upstream/mine", "upstream.registered", text)
		return err
	}))
	one.sees(map[string]string{"mine": upstreams.Healthy})
	require.Empty(t, one.fleet.Usable())
	require.Contains(t, one.fleet.Declined()["mine"], "which one gateway runs")
}
