package httpgov_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tallystick-go/tallystick/governance/httpgov"
)

// The same holds over HTTP/2, where a connection carries many requests and each
// ends in its own way.
func TestHTTP2(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("the provider is spoken to in %s", r.Proto)
		}
		chaos.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	base := server.Client().Transport.(*http.Transport)
	g := open(t, nil, setup{target: server.URL, transport: &httpgov.Transport{Base: base}})

	is(t, "plain", g.post(chatPath, asking("plain")).body, chatReply)
	is(t, "stream", g.post(chatPath, asking("stream")).body, firstChunk+doneChunk)
	is(t, "rejected", g.post(chatPath, asking("rejected")).StatusCode, 400)
	for range 3 {
		g.attempt()
	}
	g.spent(books{consumed: 2 * replyCost}, books{consumed: 2 * replyTokens})

	is(t, "reset", g.post(chatPath, asking("abort")).StatusCode, http.StatusBadGateway)
	a := g.attempt()
	g.spent(books{consumed: 2 * replyCost, uncertain: int64(a.Bound.Cost)}, books{consumed: 2 * replyTokens, uncertain: int64(a.Bound.Tokens)})

	server.CloseClientConnections()
	resp, err := g.client.Do(g.request(t.Context(), chatPath, asking("plain")))
	check(t, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	g.attempt()
	g.balanced()
}
