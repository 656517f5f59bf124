package httpgov_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tallystick-go/tallystick/governance/httpgov"
)

func selectAs(s httpgov.Selection) func(*http.Request, string) (httpgov.Selection, error) {
	return func(*http.Request, string) (httpgov.Selection, error) { return s, nil }
}

// What a provider gets of a client's headers, on governed and on unbilled routes.
func TestForwardedHeaders(t *testing.T) {
	for _, path := range []string{chatPath, "/v1/messages/count_tokens"} {
		t.Run(path, func(t *testing.T) {
			upstream := says(200, "application/json", chatReply)
			g := open(t, upstream, setup{})
			r := g.request(t.Context(), path, chatBody)
			for name, value := range map[string]string{
				"Accept-Encoding": "gzip, br", "Cookie": "session=1", "Api-Key": "k", "X-Goog-Api-Key": "k",
				"Openai-Organization": "theirs", "Openai-Project": "theirs", "Idempotency-Key": "k", "X-Idempotency-Key": "k",
				"Proxy-Authorization": "Basic x", "Connection": "X-Hop", "X-Hop": "1", "Te": "trailers", "Expect": "100-continue",
				"Anthropic-Version": "2023-06-01", "Anthropic-Beta": "b", "X-Custom": "stays",
			} {
				r.Header.Set(name, value)
			}
			r.Header.Set("X-Api-Key", g.token) // the same key in both places
			is(t, "status", g.do(r).StatusCode, 200)
			h := upstream.only(t).header
			for _, name := range []string{
				"X-Api-Key", "Cookie", "Api-Key", "X-Goog-Api-Key", "Openai-Organization", "Openai-Project",
				"Idempotency-Key", "X-Idempotency-Key", "Proxy-Authorization", "Connection", "X-Hop", "Te", "Expect",
			} {
				if h.Get(name) != "" {
					t.Errorf("the provider got %s: %s", name, h.Get(name))
				}
			}
			for name, want := range map[string]string{
				"Authorization": providerKey, "Accept-Encoding": "identity", "Content-Type": "application/json",
				"Anthropic-Version": "2023-06-01", "Anthropic-Beta": "b", "X-Custom": "stays",
			} {
				is(t, name, h.Get(name), want)
			}
			for name, values := range h {
				if strings.Contains(strings.Join(values, " "), g.token) {
					t.Errorf("the client's key went on in %s", name)
				}
			}
		})
	}
}

// The request of the attempt can be sent once only.
func TestOutgoingRequest(t *testing.T) {
	upstream := says(200, "application/json", chatReply)
	checked := false
	s := setup{transport: &httpgov.Transport{}}
	s.transport.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
		checked = true
		if r.GetBody != nil {
			t.Error("there is a GetBody")
		}
		is(t, "length", r.ContentLength, int64(len(chatBody)))
		base := &http.Transport{DisableKeepAlives: true}
		return base.RoundTrip(r)
	})
	g := open(t, upstream, s)
	r := g.request(t.Context(), chatPath, chatBody)
	r.ContentLength = -1 // chunked
	r.Header.Set("Content-Md5", "x")
	r.Header.Set("Range", "bytes=0-1")
	is(t, "status", g.do(r).StatusCode, 200)
	is(t, "checked", checked, true)
	sent := upstream.only(t)
	is(t, "body", sent.raw, chatBody)
	is(t, "digest", sent.header.Get("Content-Md5")+sent.header.Get("Range"), "")
}

// What comes back names the permit, and nothing that is secret.
func TestAnswerHeaders(t *testing.T) {
	g := open(t, says(200, "application/json", chatReply), setup{})
	got := g.post(chatPath, chatBody)
	is(t, "permit", got.Header.Get(httpgov.PermitHeader), g.attempt().Permit.String())
	for name, values := range got.Header {
		text := strings.Join(values, " ")
		if strings.Contains(text, g.token) || strings.Contains(text, "provider-secret") {
			t.Errorf("%s tells %q", name, text)
		}
	}
}
