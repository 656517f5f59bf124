package httpgov_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancemem"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/governance/usage"
	"github.com/tallystick-go/tallystick/keys"
)

func TestWhoIsCalling(t *testing.T) {
	upstream := says(200, "application/json", chatReply)
	g := open(t, upstream, setup{})
	other := g.key(keys.CreateKey{})
	past := time.Now().Add(50 * time.Millisecond)
	expired := g.key(keys.CreateKey{ExpiresAt: &past})
	revoked := g.key(keys.CreateKey{ID: "revoked"})
	_, err := g.db.Keys.RevokeKey(t.Context(), keys.RevokeKey{ID: "revoked"})
	check(t, err)
	for !errors.Is(err, keys.ErrExpired) {
		_, err = g.db.Keys.Resolve(t.Context(), expired)
	}

	for name, c := range map[string]struct {
		header http.Header
		ok     bool
	}{
		"bearer":                        {http.Header{"Authorization": {"Bearer " + g.token}}, true},
		"bearer in small letters":       {http.Header{"Authorization": {"bearer  " + g.token + " "}}, true},
		"x-api-key":                     {http.Header{"X-Api-Key": {g.token}}, true},
		"the same in both":              {http.Header{"Authorization": {"Bearer " + g.token}, "X-Api-Key": {g.token}}, true},
		"two different":                 {http.Header{"Authorization": {"Bearer " + g.token}, "X-Api-Key": {other}}, false},
		"two lines, different":          {http.Header{"Authorization": {"Bearer " + g.token, "Bearer " + other}}, false},
		"a good one and an empty":       {http.Header{"Authorization": {"Bearer " + g.token}, "X-Api-Key": {""}}, false},
		"a good one and another scheme": {http.Header{"Authorization": {"Basic " + g.token}, "X-Api-Key": {g.token}}, false},
		"none":                          {http.Header{}, false},
		"empty bearer":                  {http.Header{"Authorization": {"Bearer "}}, false},
		"no scheme":                     {http.Header{"Authorization": {g.token}}, false},
		"unknown":                       {http.Header{"X-Api-Key": {"tly_00000000000000000000000000000000000000000001N4bGd"}}, false},
		"no token":                      {http.Header{"X-Api-Key": {"hello"}}, false},
		"expired":                       {http.Header{"X-Api-Key": {expired}}, false},
		"revoked":                       {http.Header{"X-Api-Key": {revoked}}, false},
	} {
		for _, path := range []string{chatPath, messagesPath, "/v1/models", "/anything"} {
			t.Run(name+path, func(t *testing.T) {
				r := g.request(t.Context(), path, chatBody)
				r.Header.Del("Authorization")
				for name, values := range c.header {
					r.Header[name] = values
				}
				got := g.do(r)
				is(t, "let in", got.StatusCode != http.StatusUnauthorized, c.ok)
				if c.ok {
					return
				}
				is(t, "x-should-retry", got.Header.Get("X-Should-Retry"), "false")
				is(t, "WWW-Authenticate", got.Header.Get("WWW-Authenticate"), "Bearer")
				envelope(t, got, path == messagesPath, "authentication_error")
				for _, secret := range []string{g.token, other, expired, revoked} {
					if strings.Contains(got.body, secret) {
						t.Error("the answer repeats a key")
					}
				}
			})
		}
	}
}

// envelope decodes an answer strictly.
func envelope(t testing.TB, got answer, anthropic bool, kind string) (message, code string) {
	t.Helper()
	is(t, "content type", got.Header.Get("Content-Type"), "application/json")
	d := json.NewDecoder(strings.NewReader(got.body))
	d.DisallowUnknownFields()
	if anthropic {
		var e struct {
			Type  string `json:"type"`
			Error struct {
				Type    string `json:"type"`
				Message string `json:"message"`
			} `json:"error"`
		}
		check(t, d.Decode(&e))
		is(t, "type", e.Type, "error")
		is(t, "error.type", e.Error.Type, kind)
		return e.Error.Message, ""
	}
	var e struct {
		Error struct {
			Message string  `json:"message"`
			Type    string  `json:"type"`
			Param   *string `json:"param"`
			Code    string  `json:"code"`
		} `json:"error"`
	}
	check(t, d.Decode(&e))
	is(t, "error.type", e.Error.Type, kind)
	return e.Error.Message, e.Error.Code
}

// stubborn is a key store that fails, or hangs until it is given up.
type stubborn struct {
	keys.Resolver
	err error
}

func (s stubborn) Resolve(ctx context.Context, _ string) (keys.Principal, error) {
	if s.err != nil {
		return keys.Principal{}, s.err
	}
	<-ctx.Done()
	return keys.Principal{}, fmt.Errorf("%w: %w", keys.ErrUnavailable, ctx.Err())
}

// An outage is an outage: it must not make clients throw good keys away.
func TestKeyStoreOutage(t *testing.T) {
	for name, broken := range map[string]stubborn{
		"unavailable":       {err: fmt.Errorf("%w: dial postgres://user:password@host", keys.ErrUnavailable)},
		"something unknown": {err: errors.New("SELECT secret FROM keys: broken pipe")},
		"hangs":             {},
	} {
		t.Run(name, func(t *testing.T) {
			upstream := says(200, "application/json", chatReply)
			g := open(t, upstream, setup{
				resolver: func(*governancemem.DB) keys.Resolver { return broken },
				options:  httpgov.Options{ResolveTimeout: 20 * time.Millisecond},
			})
			for _, path := range []string{chatPath, messagesPath} {
				got := g.post(path, chatBody)
				is(t, "status", got.StatusCode, http.StatusServiceUnavailable)
				is(t, "Retry-After", got.Header.Get("Retry-After"), "1")
				is(t, "x-should-retry", got.Header.Get("X-Should-Retry"), "")
				kind := "server_error"
				if path == messagesPath {
					kind = "overloaded_error"
				}
				message, _ := envelope(t, got, path == messagesPath, kind)
				if strings.Contains(message, "postgres") || strings.Contains(message, "SELECT") {
					t.Errorf("the answer tells %q", message)
				}
			}
			is(t, "requests at the provider", len(upstream.requests()), 0)
		})
	}
}

// Endpoints that admit nothing must not trust a cache.
func TestFreshPrincipal(t *testing.T) {
	upstream := says(200, "application/json", `{"input_tokens":3}`)
	g := open(t, upstream, setup{resolver: func(db *governancemem.DB) keys.Resolver { return keys.NewCache(db.Keys, nil) }})
	g.token = g.key(keys.CreateKey{ID: "leaver"})
	count := "/v1/messages/count_tokens"
	is(t, "before", g.post(count, messageBody).StatusCode, 200)
	is(t, "governed before", g.post(chatPath, chatBody).StatusCode, 200)
	_, err := g.db.Keys.RevokeKey(t.Context(), keys.RevokeKey{ID: "leaver"})
	check(t, err)
	got := g.post(count, messageBody)
	is(t, "after", got.StatusCode, http.StatusUnauthorized)
	envelope(t, got, true, "authentication_error")
	is(t, "governed after", g.post(chatPath, chatBody).StatusCode, http.StatusUnauthorized)
	is(t, "requests at the provider", len(upstream.requests()), 2)
}

// What a cache does not know of yet must not be refused for as long as it keeps what it has.
func TestEditThatAllows(t *testing.T) {
	upstream := says(200, "application/json", `{"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)
	g := open(t, upstream, setup{resolver: func(db *governancemem.DB) keys.Resolver { return keys.NewCache(db.Keys, nil) }})
	g.token = g.key(keys.CreateKey{ID: "newcomer", AllowedModels: []string{"other"}})
	is(t, "before", g.post(chatPath, chatBody).StatusCode, http.StatusForbidden)
	_, err := g.db.Keys.UpdateKey(t.Context(), keys.UpdateKey{ID: "newcomer", IfRevision: 1, AllowedModels: keys.Set([]string(nil))})
	check(t, err)
	is(t, "after", g.post(chatPath, chatBody).StatusCode, 200)
	is(t, "requests at the provider", len(upstream.requests()), 1)
}

// forgetful knows everybody and cannot look anybody up anew.
type forgetful struct{ keys.Resolver }

func (forgetful) Reload(context.Context, keys.Principal) (keys.Principal, error) {
	return keys.Principal{}, keys.ErrUnavailable
}

func TestFreshPrincipalOutage(t *testing.T) {
	upstream := says(200, "application/json", `{"data":[]}`)
	g := open(t, upstream, setup{resolver: func(db *governancemem.DB) keys.Resolver { return forgetful{db.Keys} }})
	got := g.post("/v1/messages/count_tokens", messageBody)
	is(t, "status", got.StatusCode, http.StatusServiceUnavailable)
	is(t, "Retry-After", got.Header.Get("Retry-After"), "1")
	is(t, "requests at the provider", len(upstream.requests()), 0)
}

func TestNoPrincipalNoCall(t *testing.T) {
	upstream := says(200, "application/json", chatReply)
	g := open(t, upstream, setup{})
	for _, path := range []string{chatPath, "/v1/models"} {
		r := httptest.NewRequest(http.MethodPost, g.server.URL+path, strings.NewReader(chatBody))
		if path == "/v1/models" {
			r.Method = http.MethodGet
		}
		resp, err := g.transport.RoundTrip(r)
		check(t, err)
		is(t, "status", resp.StatusCode, http.StatusUnauthorized)
		refused, ok := httpgov.RefusalFrom(resp)
		is(t, "ours", ok && errors.Is(refused, httpgov.ErrNoPrincipal), true)
		check(t, resp.Body.Close())
	}
	if _, ok := httpgov.PrincipalFrom(t.Context()); ok {
		t.Error("somebody is calling")
	}
	if _, err := httpgov.FreshPrincipal(t.Context()); !errors.Is(err, httpgov.ErrNoPrincipal) {
		t.Errorf("FreshPrincipal says %v", err)
	}
	is(t, "requests at the provider", len(upstream.requests()), 0)
}

// The handler behind the Middleware knows who is calling.
func TestPrincipalInContext(t *testing.T) {
	g := open(t, http.NotFoundHandler(), setup{})
	h := httpgov.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, ok := httpgov.PrincipalFrom(r.Context())
		fresh, err := httpgov.FreshPrincipal(r.Context())
		if !ok || err != nil || p.TeamID != "team" || fresh.KeyID != p.KeyID {
			t.Errorf("principal %v, fresh %v, %v", p, fresh, err)
		}
	}), g.db.Keys, nil)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Api-Key", g.token)
	h.ServeHTTP(httptest.NewRecorder(), r)
}

func TestWriteRefusal(t *testing.T) {
	for _, c := range []struct {
		protocol usage.Protocol
		err      error
		status   int
		kind     string
	}{
		{usage.OpenAIChat, &governance.Refusal{Reason: governance.ReasonMoney}, 402, "insufficient_quota"},
		{usage.AnthropicMessages, governance.ErrInFlight, 409, "invalid_request_error"},
		{usage.OpenAIChat, keys.ErrUnavailable, 503, "server_error"},
		{usage.AnthropicMessages, errors.New("whatever"), 503, "overloaded_error"},
	} {
		w := httptest.NewRecorder()
		httpgov.WriteRefusal(w, c.protocol, c.err)
		is(t, "status", w.Code, c.status)
		envelope(t, answer{w.Result(), w.Body.String(), nil}, c.protocol == usage.AnthropicMessages, c.kind)
	}
}
