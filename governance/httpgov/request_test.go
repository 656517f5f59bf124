package httpgov_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tallystick-go/tallystick/governance/httpgov"
)

func packed(t testing.TB, encoding, text string) []byte {
	t.Helper()
	var buf bytes.Buffer
	var w io.WriteCloser
	switch encoding {
	case "gzip":
		w = gzip.NewWriter(&buf)
	case "zlib":
		w = zlib.NewWriter(&buf)
	default:
		raw, err := flate.NewWriter(&buf, flate.BestSpeed)
		check(t, err)
		w = raw
	}
	_, err := io.WriteString(w, text)
	check(t, err)
	check(t, w.Close())
	return buf.Bytes()
}

// A packed body is bounded by what it unpacks to, and goes on unpacked.
func TestPackedRequests(t *testing.T) {
	large := strings.Replace(chatBody, "hello", strings.Repeat("a", 4000), 1)
	for name, c := range map[string]struct {
		encoding string
		body     []byte
		status   int
	}{
		"gzip":                 {"gzip", packed(t, "gzip", large), 200},
		"gzip in capitals":     {"GZIP", packed(t, "gzip", large), 200},
		"gzip in two parts":    {"gzip", append(packed(t, "gzip", large[:100]), packed(t, "gzip", large[100:])...), 200},
		"deflate":              {"deflate", packed(t, "zlib", large), 200},
		"deflate without zlib": {"deflate", packed(t, "raw", large), 200},
		"identity":             {"identity", []byte(large), 200},
		"zstd":                 {"zstd", []byte("x"), http.StatusUnsupportedMediaType},
		"br":                   {"br", []byte("x"), http.StatusUnsupportedMediaType},
		"gzip twice":           {"gzip, gzip", packed(t, "gzip", large), http.StatusUnsupportedMediaType},
		"cut":                  {"gzip", packed(t, "gzip", large)[:50], 400},
		"no gzip":              {"gzip", []byte(large), 400},
		"bytes behind":         {"gzip", append(packed(t, "gzip", large), "more"...), 400},
		"bytes behind zlib":    {"deflate", append(packed(t, "zlib", large), "more"...), 400},
		"bomb":                 {"gzip", packed(t, "gzip", strings.Repeat(" ", 10<<20)), http.StatusRequestEntityTooLarge},
		"nothing":              {"gzip", nil, 400},
	} {
		t.Run(name, func(t *testing.T) {
			upstream := says(200, "application/json", chatReply)
			s := setup{transport: &httpgov.Transport{MaxBody: 1 << 20}}
			g := open(t, upstream, s)
			r := g.request(t.Context(), chatPath, string(c.body))
			r.Header.Set("Content-Encoding", c.encoding)
			got := g.do(r)
			is(t, "status", got.StatusCode, c.status)
			a := g.attempt()
			if c.status != 200 {
				is(t, "requests at the provider", len(upstream.requests()), 0)
				untouched(g)
				return
			}
			is(t, "bound", int64(a.Bound.Tokens), text(large, 1, 0)+100)
			sent := upstream.only(t)
			is(t, "forwarded", sent.raw, large)
			is(t, "encoding", sent.header.Get("Content-Encoding"), "")
		})
	}
}

func TestLargeRequests(t *testing.T) {
	for name, chunked := range map[string]bool{"declared": false, "chunked": true} {
		t.Run(name, func(t *testing.T) {
			upstream := says(200, "application/json", chatReply)
			g := open(t, upstream, setup{transport: &httpgov.Transport{MaxBody: 1000}})
			r := g.request(t.Context(), chatPath, strings.Replace(chatBody, "hello", strings.Repeat("a", 1000), 1))
			if chunked {
				r.ContentLength = -1
			}
			is(t, "status", g.do(r).StatusCode, http.StatusRequestEntityTooLarge)
			is(t, "requests at the provider", len(upstream.requests()), 0)
			is(t, "one that fits", g.post(chatPath, chatBody).StatusCode, 200)
		})
	}
}

// A client that breaks off while it sends has reserved nothing.
func TestRequestCutShort(t *testing.T) {
	upstream := says(200, "application/json", chatReply)
	g := open(t, upstream, setup{})
	in, out := io.Pipe()
	r := g.request(t.Context(), chatPath, "")
	r.Body, r.ContentLength = in, int64(len(chatBody))
	go func() {
		_, _ = io.WriteString(out, chatBody[:10])
		_ = out.CloseWithError(io.ErrUnexpectedEOF)
	}()
	if _, err := g.client.Do(r); err == nil { //nolint:bodyclose // there is none
		t.Error("half a request was answered")
	}
	if a := g.attempt(); a.Err == nil {
		t.Errorf("the attempt is %+v", a)
	}
	is(t, "requests at the provider", len(upstream.requests()), 0)
	untouched(g)
}

// No route can skip governance because nobody thought of it.
func TestRoutes(t *testing.T) {
	upstream := says(200, "application/json", chatReply)
	g := open(t, upstream, setup{})
	for _, c := range []struct{ method, path string }{
		{"POST", "/v1/completions"}, {"POST", "/v1/responses/x"}, {"GET", "/v1/responses/x"}, {"POST", "/model/m/count-tokens"}, {"GET", "/model/m/converse"}, {"POST", "/model/../converse"}, {"POST", "/v1/images/generations"}, {"POST", "/v1/audio/speech"},
		{"POST", "/v1/batches"}, {"POST", "/v1/messages/batches"}, {"POST", "/v1/files"}, {"POST", "/"}, {"GET", "/"},
		{"GET", "/v1/chat/completions"}, {"PUT", "/v1/chat/completions"}, {"POST", "/v1/models"}, {"DELETE", "/v1/models/x"},
		{"POST", "/v1/chat/completions/"}, {"POST", "//v1/chat/completions"}, {"POST", "/v1/./chat/completions"},
		{"POST", "/v1/chat%2Fcompletions"}, {"GET", "/v1/models/../chat/completions"}, {"GET", "/v1/models/a/b"},
		{"GET", "/v1/realtime"}, {"POST", "/V1/CHAT/COMPLETIONS"}, {"OPTIONS", "/v1/chat/completions"},
	} {
		r := g.request(t.Context(), "", chatBody)
		r.Method = c.method
		r.URL.Path, r.URL.RawPath = unescape(c.path), ""
		if strings.Contains(c.path, "%") {
			r.URL.RawPath = c.path
		}
		got := g.do(r)
		is(t, c.method+" "+c.path, got.StatusCode, http.StatusNotFound)
		is(t, "x-should-retry", got.Header.Get("X-Should-Retry"), "false")
	}
	is(t, "requests at the provider", len(upstream.requests()), 0)
	for _, c := range []struct{ method, path string }{
		{"GET", "/v1/models"}, {"GET", "/v1/models/gpt-test"}, {"HEAD", "/v1/models"}, {"POST", "/v1/messages/count_tokens"},
	} {
		r := g.request(t.Context(), c.path, chatBody)
		r.Method = c.method
		is(t, c.method+" "+c.path, g.do(r).StatusCode, 200)
	}
	untouched(g)
}

func unescape(path string) string { return strings.ReplaceAll(path, "%2F", "/") }

// A gateway may declare routes of its own.
func TestOwnRoutes(t *testing.T) {
	upstream := says(200, "application/json", chatReply)
	s := setup{transport: &httpgov.Transport{Route: func(r *http.Request) httpgov.Route {
		if r.URL.Path == "/health" {
			return httpgov.Route{Kind: httpgov.RouteUnbilled}
		}
		return httpgov.DefaultRoute(r)
	}}}
	g := open(t, upstream, s)
	is(t, "own", g.post("/health", "x").StatusCode, 200)
	is(t, "default", g.post(chatPath, chatBody).StatusCode, 200)
	is(t, "other", g.post("/other", chatBody).StatusCode, 404)
	g.spent(books{consumed: replyCost}, books{consumed: replyTokens})
}
