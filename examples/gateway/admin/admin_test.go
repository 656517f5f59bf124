package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tallystick-go/tallystick/examples/gateway/admin"
	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/examples/gateway/storage"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "the-admin-token"

type world struct {
	t        *testing.T
	file     *storage.File
	governor *governance.Governor
	client   *admin.Client
	changed  []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t}
	var err error
	w.file, err = storage.Open(t.Context(), filepath.Join(t.TempDir(), "gateway.db"), storage.Options{Serve: true})
	require.NoError(t, err)
	w.governor, err = governance.New(w.file, nil)
	require.NoError(t, err)
	server := httptest.NewServer(admin.Handler(admin.Options{
		Keys: w.file.Keys, Governor: w.governor, Token: token, Logger: slog.New(slog.DiscardHandler),
		Changed: func(id string) { w.changed = append(w.changed, id) },
	}))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		server.Close()
		require.NoError(t, w.governor.Close(ctx))
		require.NoError(t, w.file.Close())
	})
	w.client = &admin.Client{Base: server.URL, Token: token, Transport: server.Client().Transport}
	return w
}

type object map[string]any

func (w *world) do(method, path string, body, into any) error {
	w.t.Helper()
	path, query, _ := strings.Cut(path, "?")
	values, err := url.ParseQuery(query)
	require.NoError(w.t, err)
	return w.client.Do(w.t.Context(), method, path, values, body, into)
}

func (w *world) must(method, path string, body, into any) {
	w.t.Helper()
	require.NoError(w.t, w.do(method, path, body, into))
}

func (w *world) problem(err error) *admin.Problem {
	w.t.Helper()
	var p *admin.Problem
	require.ErrorAs(w.t, err, &p)
	require.NotEmpty(w.t, p.Type)
	require.NotEmpty(w.t, p.Message)
	return p
}

// raw sends bytes as they are and returns status and body.
func (w *world) raw(method, path, body, auth string) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.client.Base+path, strings.NewReader(body))
	require.NoError(w.t, err)
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	resp, err := w.client.Transport.RoundTrip(req)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	var document json.RawMessage
	require.NoError(w.t, json.NewDecoder(resp.Body).Decode(&document), "every answer is JSON")
	return resp.StatusCode, string(document)
}

func TestOnlyOperators(t *testing.T) {
	w := newWorld(t)
	for name, auth := range map[string]string{
		"nothing": "", "other token": "Bearer other", "a prefix": "Bearer the-admin", "other scheme": "Basic " + token,
		"empty": "Bearer ", "a hash": "Bearer " + strings.Repeat("a", 64),
	} {
		for _, path := range []string{"/admin/v1/teams", "/admin/v1/nothing", "/admin/v1/verify"} {
			status, body := w.raw(http.MethodGet, path, "", auth)
			require.Equal(t, http.StatusUnauthorized, status, name)
			require.NotContains(t, body, token)
		}
	}
	status, _ := w.raw(http.MethodGet, "/admin/v1/teams", "", "bearer "+token)
	require.Equal(t, http.StatusOK, status)
	nobody := httptest.NewServer(admin.Handler(admin.Options{Keys: w.file.Keys, Governor: w.governor}))
	defer nobody.Close()
	err := (&admin.Client{Base: nobody.URL, Token: ""}).Do(t.Context(), http.MethodGet, "teams", nil, nil, nil)
	require.Equal(t, http.StatusUnauthorized, w.problem(err).Status, "without a token nobody is let in")
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func TestTeams(t *testing.T) {
	w := newWorld(t)
	var team keys.Team
	w.must("POST", "teams", object{"id": "acme", "name": "Acme", "limits": object{"requests_per_minute": 60, "cost_per_day_microusd": 5000000}}, &team)
	require.Equal(t, int64(60), *team.Limits.RequestsPerMinute)
	require.Nil(t, team.AllowedModels, "not said is everything")
	var again keys.Team
	w.must("GET", "teams/acme", nil, &again)
	require.Equal(t, team, again, "what is read is what was written")

	w.must("PATCH", "teams/acme", object{"if_revision": team.Revision, "limits": object{"requests_per_minute": nil}, "allowed_models": []string{}}, &team)
	require.Nil(t, team.Limits.RequestsPerMinute)
	require.NotNil(t, team.AllowedModels, "an empty list is nothing")
	require.Equal(t, int64(5000000), int64(*team.Limits.CostPerDay), "what is not named stays")

	p := w.problem(w.do("PATCH", "teams/acme", object{"if_revision": 1, "name": "x"}, nil))
	require.Equal(t, "stale", p.Type)
	require.Equal(t, http.StatusConflict, p.Status)
	require.Equal(t, "exists", w.problem(w.do("POST", "teams", object{"id": "acme"}, nil)).Type)
	require.Equal(t, "not_found", w.problem(w.do("GET", "teams/other", nil, nil)).Type)
	require.Equal(t, "stale", w.problem(w.do("DELETE", "teams/acme?if_revision=1", nil, nil)).Type)
	w.must("DELETE", "teams/acme?if_revision=2", nil, &team)
	require.NotNil(t, team.DeletedAt)
	require.Equal(t, "exists", w.problem(w.do("POST", "teams", object{"id": "acme"}, nil)).Type, "ids are never used twice")
	require.Equal(t, "revoked", w.problem(w.do("POST", "keys", object{"team_id": "acme"}, nil)).Type)
}

func TestKeys(t *testing.T) {
	w := newWorld(t)
	w.must("POST", "teams", object{"id": "acme"}, nil)
	var created admin.NewKey
	w.must("POST", "keys", object{"id": "app", "team_id": "acme", "owner": "ada", "limits": object{"concurrency": 3}}, &created)
	_, err := keys.Parse(created.Token)
	require.NoError(t, err)
	p, err := w.file.Keys.Resolve(t.Context(), created.Token)
	require.NoError(t, err)
	require.Equal(t, "ada", p.User)

	_, body := w.raw("GET", "/admin/v1/keys/app", "", "Bearer "+token)
	require.NotContains(t, body, created.Token, "the token is shown once")
	require.NotContains(t, body, "token")

	var key keys.Key
	w.must("PATCH", "keys/app", object{"if_revision": 1, "owner": "ben", "expires_at": "2099-01-01T00:00:00Z"}, &key)
	require.Equal(t, "ben", key.Owner)
	require.Equal(t, []string{"app"}, w.changed)

	var rotated admin.NewKey
	w.must("POST", "keys/app/rotate", object{"rotation_id": "r1", "if_revision": 2, "grace_seconds": 60}, &rotated)
	require.NotEqual(t, created.Token, rotated.Token)
	for _, old := range []string{created.Token, rotated.Token} {
		_, err = w.file.Keys.Resolve(t.Context(), old)
		require.NoError(t, err, "within the grace both are good")
	}
	var replayed admin.NewKey
	w.must("POST", "keys/app/rotate", object{"rotation_id": "r1", "if_revision": 2, "grace_seconds": 60}, &replayed)
	require.True(t, replayed.Replayed)
	require.Empty(t, replayed.Token)
	require.Equal(t, "conflict", w.problem(w.do("POST", "keys/app/rotate", object{"rotation_id": "r1", "if_revision": 2, "grace_seconds": 61}, nil)).Type)

	require.Equal(t, "stale", w.problem(w.do("POST", "keys/app/revoke", object{"if_revision": 1}, nil)).Type)
	w.must("POST", "keys/app/revoke", object{"if_revision": rotated.Key.Revision}, &key)
	require.NotNil(t, key.RevokedAt)
	w.must("POST", "keys/app/revoke", nil, nil)
	_, err = w.file.Keys.Resolve(t.Context(), rotated.Token)
	require.ErrorIs(t, err, keys.ErrRevoked)
	require.Equal(t, "revoked", w.problem(w.do("PATCH", "keys/app", object{"if_revision": 4, "name": "x"}, nil)).Type)
	require.Equal(t, "revoked", w.problem(w.do("GET", "keys/app/usage", nil, nil)).Type)
}

func TestPages(t *testing.T) {
	w := newWorld(t)
	for i := range 7 {
		w.must("POST", "teams", object{"id": fmt.Sprintf("team-%d", i)}, nil)
		w.must("POST", "keys", object{"id": fmt.Sprintf("key-%d", i), "team_id": fmt.Sprintf("team-%d", i%2), "owner": "ada"}, nil)
	}
	var ids []string
	after := ""
	for pages := 0; pages == 0 || after != ""; pages++ {
		var page keys.TeamPage
		w.must("GET", "teams?limit=3&after="+after, nil, &page)
		for _, team := range page.Teams {
			ids = append(ids, team.ID)
		}
		after = page.Next
		require.Less(t, pages, 4)
	}
	require.Len(t, ids, 7)
	require.IsIncreasing(t, ids)
	var page keys.KeyPage
	w.must("GET", "keys?team_id=team-1&owner=ada", nil, &page)
	require.Len(t, page.Keys, 3)
	w.must("GET", "keys?owner=nobody", nil, &page)
	require.NotNil(t, page.Keys, "an empty list is a list")
}

// Whatever is wrong with a request, it is said, and nothing changed.
func TestStrict(t *testing.T) {
	w := newWorld(t)
	w.must("POST", "teams", object{"id": "acme"}, nil)
	w.must("POST", "keys", object{"id": "app", "team_id": "acme"}, nil)
	big := strings.Repeat("x", 70000)
	for name, c := range map[string]struct{ method, path, body, field string }{
		"unknown field":           {"POST", "teams", `{"colour":"x"}`, "colour"},
		"unknown limit":           {"POST", "teams", `{"limits":{"rpm":1}}`, "limits.rpm"},
		"other case":              {"POST", "teams", `{"Name":"x"}`, "Name"},
		"field twice":             {"POST", "teams", `{"name":"x","name":"y"}`, ""},
		"negative limit":          {"POST", "teams", `{"limits":{"tokens_per_day":-1}}`, "limits"},
		"overflowing limit":       {"POST", "teams", `{"limits":{"tokens_per_day":9223372036854775808}}`, "limits.tokens_per_day"},
		"fraction":                {"POST", "teams", `{"limits":{"tokens_per_day":1.5}}`, "limits.tokens_per_day"},
		"ignored budget":          {"POST", "keys", `{"team_id":"acme","budget":{"max_limit":0.0005}}`, "budget"},
		"no object":               {"POST", "teams", `[]`, ""},
		"nothing":                 {"POST", "teams", ``, ""},
		"two documents":           {"POST", "teams", `{}{}`, ""},
		"empty team":              {"POST", "keys", `{}`, "team_id"},
		"control character":       {"POST", "teams", `{"name":"a\u0007"}`, "name"},
		"long name":               {"POST", "teams", `{"name":"` + strings.Repeat("x", 300) + `"}`, "name"},
		"large metadata":          {"POST", "teams", `{"metadata":{"a":"` + strings.Repeat("x", 5000) + `"}}`, "metadata"},
		"bad id":                  {"POST", "teams", `{"id":"a b"}`, "id"},
		"update without revision": {"PATCH", "teams/acme", `{"name":"x"}`, "if_revision"},
		"token of one's own":      {"POST", "keys", `{"team_id":"acme","token":"tly_x"}`, "token"},
		"expired already":         {"POST", "keys", `{"team_id":"acme","expires_at":"2001-01-01T00:00:00Z"}`, "expires_at"},
		"expiry that is none":     {"POST", "keys", `{"team_id":"acme","expires_at":"soon"}`, "expires_at"},
		"negative grace":          {"POST", "keys/app/rotate", `{"rotation_id":"r","if_revision":1,"grace_seconds":-1}`, "grace_seconds"},
		"unknown parameter":       {"GET", "teams?order=asc", "", ""},
		"parameter twice":         {"GET", "teams?limit=1&limit=2", "", "limit"},
		"page too large":          {"GET", "teams?limit=1001", "", "limit"},
		"negative page":           {"GET", "keys?limit=-1", "", "limit"},
		"page that is no number":  {"GET", "holds?limit=ten", "", "limit"},
		"after that is none":      {"GET", "holds?after=x", "", "after"},
		"frozen after":            {"GET", "frozen?after=x", "", "after"},
		"body of a read":          {"GET", "teams/acme", `{}`, ""},
		"resolve nothing":         {"POST", "holds/" + governance.NewPermitID(time.Now()).String() + "/resolve", `{"actor":"a","reason":"b"}`, "used"},
		"resolve both":            {"POST", "holds/" + governance.NewPermitID(time.Now()).String() + "/resolve", `{"actor":"a","reason":"b","not_sent":true,"used":{"tokens":1,"cost_microusd":1}}`, "used"},
		"resolve negative":        {"POST", "holds/" + governance.NewPermitID(time.Now()).String() + "/resolve", `{"actor":"a","reason":"b","used":{"tokens":-5,"cost_microusd":1}}`, "used"},
		"resolve half":            {"POST", "holds/" + governance.NewPermitID(time.Now()).String() + "/resolve", `{"actor":"a","reason":"b","used":{"tokens":5}}`, "used"},
		"resolve by nobody":       {"POST", "holds/" + governance.NewPermitID(time.Now()).String() + "/resolve", `{"reason":"b","not_sent":true}`, "actor"},
		"resolve no permit":       {"POST", "holds/x/resolve", `{"actor":"a","reason":"b","not_sent":true}`, "id"},
		"release nothing":         {"POST", "frozen/release", `{"actor":"a","reason":"b"}`, "constraint"},
		"explain unknown field":   {"POST", "keys/app/explain", `{"modell":"x"}`, "modell"},
		"explain negative":        {"POST", "keys/app/explain", `{"tokens":-1}`, "bound.tokens"},
		"nested unknown field":    {"POST", "holds/" + governance.NewPermitID(time.Now()).String() + "/resolve", `{"used":{"token":1}}`, "used.token"},
		"huge":                    {"POST", "teams", `{"name":"` + big + `"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path, query, _ := strings.Cut(c.path, "?")
			if query != "" {
				path += "?" + query
			}
			status, body := w.raw(c.method, "/admin/v1/"+path, c.body, "Bearer "+token)
			require.Contains(t, []int{400, 413}, status, body)
			var answer struct {
				Error admin.Problem `json:"error"`
			}
			require.NoError(t, json.Unmarshal([]byte(body), &answer))
			require.Equal(t, "invalid", answer.Error.Type)
			if !strings.HasPrefix(answer.Error.Field, c.field) {
				t.Fatalf("field %q, not %q: %s", answer.Error.Field, c.field, answer.Error.Message)
			}
		})
	}
	for _, path := range []string{"GET /admin/v1/nothing", "DELETE /admin/v1/keys/app", "PUT /admin/v1/teams"} {
		method, path, _ := strings.Cut(path, " ")
		status, body := w.raw(method, path, "", "Bearer "+token)
		require.Contains(t, []int{404, 405}, status)
		require.Contains(t, body, "unknown_route")
	}
	var teams keys.TeamPage
	w.must("GET", "teams", nil, &teams)
	require.Len(t, teams.Teams, 1)
	require.Equal(t, int64(1), teams.Teams[0].Revision)
	var list keys.KeyPage
	w.must("GET", "keys", nil, &list)
	require.Len(t, list.Keys, 1)
	require.Equal(t, int64(1), list.Keys[0].Revision)
}

func TestBooks(t *testing.T) {
	w := newWorld(t)
	w.must("POST", "teams", object{"id": "acme", "limits": object{"cost_per_day_microusd": 1000, "tokens_per_day": 500}}, nil)
	w.must("POST", "keys", object{"id": "app", "team_id": "acme"}, nil)
	p, err := w.file.Keys.Reload(t.Context(), keys.Principal{KeyID: "app"})
	require.NoError(t, err)
	admit := func(tokens, cost int64) *governance.Permit {
		permit, err := w.governor.Admit(t.Context(), governance.Request{
			Principal: &p, Model: "demo", Bound: governance.Bound{Tokens: amount.Tokens(tokens), Cost: amount.MicroUSD(cost)},
		})
		require.NoError(t, err)
		return permit
	}
	open := admit(100, 300)
	unknown := admit(50, 200)
	require.NoError(t, unknown.Settle(t.Context(), governance.Unknown()))

	var page report.HoldPage
	w.must("GET", "holds", nil, &page)
	require.Len(t, page.Holds, 2)
	require.Empty(t, page.Next)
	require.Equal(t, open.ID().String(), page.Holds[0].ID)
	require.Equal(t, "open", page.Holds[0].State)
	require.Equal(t, report.Amount{Tokens: 100, CostMicroUSD: 300}, page.Holds[0].Bound)
	require.ElementsMatch(t, []string{"tokens_uncertain", "cost_uncertain"}, page.Holds[1].Why)
	w.must("GET", "holds?limit=1", nil, &page)
	require.Len(t, page.Holds, 1)
	w.must("GET", "holds?limit=1&after="+page.Next, nil, &page)
	require.Equal(t, unknown.ID().String(), page.Holds[0].ID)
	w.must("GET", "holds?open=true&team_id=acme&key_id=app", nil, &page)
	require.Len(t, page.Holds, 1)
	w.must("GET", "holds?team_id=other", nil, &page)
	require.Empty(t, page.Holds)

	var e report.Explanation
	w.must("POST", "keys/app/explain", object{"model": "demo", "tokens": 10, "cost_microusd": 501}, &e)
	require.False(t, e.Admitted)
	require.Equal(t, "reserved", e.Refusal.Reason)
	require.Equal(t, "cost_per_day", e.Refusal.Constraint.Rule)
	w.must("POST", "keys/app/explain", object{"model": "demo", "tokens": 10, "cost_microusd": 500}, &e)
	require.True(t, e.Admitted)

	finding := object{"used": object{"tokens": 5, "cost_microusd": 20}, "actor": "ops", "reason": "the provider's invoice"}
	var hold report.Hold
	w.must("POST", "holds/"+unknown.ID().String()+"/resolve", finding, &hold)
	require.Equal(t, "resolved", hold.State)
	w.must("POST", "holds/"+unknown.ID().String()+"/resolve", finding, nil)
	finding["used"] = object{"tokens": 6, "cost_microusd": 20}
	require.Equal(t, "conflict", w.problem(w.do("POST", "holds/"+unknown.ID().String()+"/resolve", finding, nil)).Type)
	require.NoError(t, open.Cancel(t.Context()))
	finding = object{"not_sent": true, "actor": "ops", "reason": "late"}
	require.Equal(t, "terminal", w.problem(w.do("POST", "holds/"+open.ID().String()+"/resolve", finding, nil)).Type)
	require.Equal(t, "not_found", w.problem(w.do("POST", "holds/"+governance.NewPermitID(time.Now()).String()+"/resolve", finding, nil)).Type)

	var u report.Usage
	w.must("GET", "keys/app/usage", nil, &u)
	require.Len(t, u.Constraints, 2)
	for _, c := range u.Constraints {
		require.Contains(t, []int64{5, 20}, c.Consumed)
		require.Zero(t, c.Uncertain+c.Reserved)
	}

	impossible := admit(1, 1)
	require.NoError(t, impossible.Settle(t.Context(), governance.Outcome{
		Tokens: governance.Measure{Certainty: governance.Impossible}, Cost: governance.Measure{Certainty: governance.Impossible},
	}))
	var frozen report.FrozenPage
	w.must("GET", "frozen", nil, &frozen)
	require.Len(t, frozen.Frozen, 2)
	w.must("GET", "frozen?limit=1", nil, &frozen)
	require.Len(t, frozen.Frozen, 1)
	first := frozen.Frozen[0]
	w.must("GET", "frozen?limit=1&after="+url.QueryEscape(frozen.Next), nil, &frozen)
	require.Len(t, frozen.Frozen, 1)
	for _, f := range []report.Frozen{first, frozen.Frozen[0]} {
		w.must("POST", "frozen/release", object{"constraint": f.Constraint, "window_start": f.WindowStart, "actor": "ops", "reason": "looked at it"}, nil)
	}
	w.must("GET", "frozen", nil, &frozen)
	require.Empty(t, frozen.Frozen)

	var notes report.NotePage
	w.must("GET", "notes", nil, &notes)
	require.Len(t, notes.Notes, 5, "two questions, one finding and two releases")
	require.Equal(t, "explain", notes.Notes[0].Action)
	require.JSONEq(t, `{"key":"app","model":"demo","tokens":10,"cost_microusd":501,"admitted":false}`, string(notes.Notes[0].After))
	require.Contains(t, string(notes.Notes[4].Before), `"frozen":true,"consumed":`)

	var v report.Verification
	w.must("POST", "verify", nil, &v)
	require.True(t, v.Balanced)
	require.Equal(t, int64(2), v.Accounts)
	w.must("POST", "verify?full=true&actor=auditor&reason=month", nil, &v)
	require.True(t, v.Balanced)
	w.must("GET", "notes", nil, &notes)
	require.Len(t, notes.Notes, 7)
	last := notes.Notes[6]
	require.Equal(t, [3]string{"verify", "auditor", "month"}, [3]string{last.Action, last.Actor, last.Reason})
	require.JSONEq(t, `{"full":true,"accounts":2,"reservations":`+strconv.FormatInt(v.Reservations, 10)+`,"differences":0}`, string(last.After))

	var done report.Pruning
	w.must("POST", "prune", object{"older_than": "720h", "actor": "ops", "reason": "kept for long enough"}, &done)
	require.Zero(t, done.Removed)
	require.Empty(t, done.Differences)
	w.must("POST", "prune", object{"before": time.Now().AddDate(0, -2, 0), "actor": "ops", "reason": "kept for long enough"}, &done)
	for field, bad := range map[string]object{
		"before":     {"actor": "ops", "reason": "why"},
		"older_than": {"older_than": "a month", "actor": "ops", "reason": "why"},
		"actor":      {"older_than": "720h", "reason": "why"},
	} {
		problem := w.problem(w.do("POST", "prune", bad, nil))
		require.Equal(t, 400, problem.Status)
		require.Equal(t, field, problem.Field)
	}
}

func TestUnreachable(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	err := (&admin.Client{Base: server.URL, Token: token}).Do(t.Context(), "GET", "teams", nil, nil, nil)
	require.ErrorContains(t, err, "no answer")
	require.NotContains(t, err.Error(), token)
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	err = (&admin.Client{Base: other.URL, Token: token, Transport: other.Client().Transport}).Do(t.Context(), "GET", "teams", nil, nil, nil)
	require.ErrorContains(t, err, "not this API")
}
