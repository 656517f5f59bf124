package main

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/provider"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancesqlite"
	"github.com/tallystick-go/tallystick/keys"
)

// TestGovernedProxy drives the proxy with the official SDK: a key is needed, a
// call is charged what it used, and the books balance after a restart.
func TestGovernedProxy(t *testing.T) {
	ctx := t.Context()
	upstream := httptest.NewServer(provider.New(&provider.Options{Credential: "provider-key"}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "proxy.db")
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	handler, end, err := govern(ctx, proxy, file, "provider-key")
	require.NoError(t, err)
	front := httptest.NewServer(handler)
	defer front.Close()

	client := func(key string) openai.Client {
		return openai.NewClient(option.WithBaseURL(front.URL+"/v1"), option.WithAPIKey(key), option.WithUnsafeAllowHTTP())
	}
	ask := openai.ChatCompletionNewParams{
		Model: "demo-small", MaxCompletionTokens: openai.Int(50),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")},
	}
	stranger := client("tly_nobody")
	_, err = stranger.Chat.Completions.New(ctx, ask)
	var refused *openai.Error
	require.True(t, errors.As(err, &refused), "%v", err)
	require.Equal(t, http.StatusUnauthorized, refused.StatusCode)

	// The first key was printed; for the test a second one is made.
	handle, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)")
	require.NoError(t, err)
	defer func() { _ = handle.Close() }()
	st := governancesqlite.Open(handle, nil)
	defer func() { _ = st.Close() }()
	created, err := st.Keys.CreateKey(ctx, keys.CreateKey{TeamID: "first", Name: "test", Owner: "test"})
	require.NoError(t, err)
	known := client(created.Token.Reveal())
	answer, err := known.Chat.Completions.New(ctx, ask)
	require.NoError(t, err)
	require.NotEmpty(t, answer.Choices)
	require.NoError(t, end(context.Background()))

	gov, err := governance.New(st, nil)
	require.NoError(t, err)
	defer func() { _ = gov.Close(context.Background()) }()
	p, err := st.Keys.Resolve(ctx, created.Token.Reveal())
	require.NoError(t, err)
	usage, err := gov.Usage(ctx, governance.UsageQuery{Principal: &p})
	require.NoError(t, err)
	var spent int64
	for _, v := range usage.Verdicts {
		if v.Constraint.Kind == governance.KindMoney {
			spent += v.Consumed
			require.Zero(t, v.Reserved+v.Uncertain)
		}
	}
	require.Positive(t, spent)
	verified, err := gov.Verify(ctx, governance.VerifyQuery{})
	require.NoError(t, err)
	require.Empty(t, verified.Differences)
}
