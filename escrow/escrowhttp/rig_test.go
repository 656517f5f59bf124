package escrowhttp_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/escrow/escrowhttp"
	"github.com/tallystick-go/tallystick/governance/policy"
)

const (
	node  = "node-1"
	token = "the-token-of-node-one"
	other = "the-token-of-node-two"
)

// authority answers with what a test gives it, and remembers what it was asked.
type authority struct {
	heard  []*escrow.Heartbeat
	answer func(context.Context) (*escrow.Answer, error)
}

func (a *authority) Beat(ctx context.Context, h *escrow.Heartbeat) (*escrow.Answer, error) {
	a.heard = append(a.heard, h)
	if a.answer == nil {
		return emptyAnswer(), nil
	}
	return a.answer(ctx)
}

func refusing(err error) *authority {
	return &authority{answer: func(context.Context) (*escrow.Answer, error) { return nil, err }}
}

func emptyAnswer() *escrow.Answer {
	set, err := policy.NewSet(nil)
	if err != nil {
		panic(err)
	}
	return &escrow.Answer{
		Mark: policy.Mark{Namespace: policy.Namespace{1}, Generation: set.Generation(), Revision: 1}, Documents: set, Now: 1_800_000_000_000_000,
	}
}

func beat() *escrow.Heartbeat {
	return &escrow.Heartbeat{Node: node, Boot: escrow.BootID{9}, BootNumber: 1, Sequence: 1}
}

func written(t testing.TB, h *escrow.Heartbeat) []byte {
	t.Helper()
	data, err := json.Marshal(h)
	require.NoError(t, err)
	return data
}

func bearer(t testing.TB) escrowhttp.Identify {
	t.Helper()
	who, err := escrowhttp.Bearer([]escrowhttp.Token{{Node: node, Value: token}, {Node: "node-2", Value: other}})
	require.NoError(t, err)
	return who
}

// handler answers for an authority.
func handler(t testing.TB, a escrow.Authority) http.Handler {
	t.Helper()
	h, err := escrowhttp.Handler(a, escrowhttp.HandlerOptions{Identify: bearer(t), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return h
}

// serve serves a handler on the machine itself.
func serve(t testing.TB, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func client(t testing.TB, url string) *escrowhttp.Client {
	t.Helper()
	c, err := escrowhttp.NewClient(escrowhttp.ClientOptions{URL: url, Token: func() (string, error) { return token, nil }})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// post sends anything at all.
func post(t testing.TB, h http.Handler, change func(*http.Request), body io.Reader) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, escrowhttp.Path, body)
	r.RemoteAddr = "127.0.0.1:5000"
	r.Header.Set("Content-Type", escrowhttp.ContentType)
	r.Header.Set("Authorization", "Bearer "+token)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
