package server_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/keys"
)

// models lists what the providers were asked for.
func (w *world) models() []string {
	var out []string
	for _, r := range w.arrived.all() {
		out = append(out, r.Model)
	}
	return out
}

// Every attempt has a reservation of its own, and is asked under its own name.
func TestFallbackAfterAnError(t *testing.T) {
	for status, first := range map[string]string{"503": "uncertain", "500": "uncertain", "429": "settled", "529": "uncertain", "408": "uncertain"} {
		t.Run(status, func(t *testing.T) {
			w := newWorld(t)
			token := w.key("app", budget(10_000_000))
			client, _ := w.openai(token)
			var resp *http.Response
			_, err := client.Chat.Completions.New(t.Context(), chat("safe", "{{provider: error="+status+"}}"),
				option.WithMaxRetries(0), option.WithResponseInto(&resp))
			require.Error(t, err, "both providers read the same prompt")
			require.Equal(t, []string{"demo-small", "demo-large"}, w.models(), "each under its own name")
			require.Equal(t, "two", resp.Header.Get("X-Gateway-Upstream"))
			w.settled()
			require.Equal(t, map[string]int{first: 2}, w.permits())
			w.balanced()
		})
	}
}

func TestFallbackToAnUpstreamThatAnswers(t *testing.T) {
	w := newWorld(t)
	token := w.key("app", budget(10_000_000))
	client, _ := w.openai(token)
	var resp *http.Response
	answer, err := client.Chat.Completions.New(t.Context(), chat("reach", "hello"), option.WithResponseInto(&resp))
	require.NoError(t, err)
	require.Equal(t, "demo-small", answer.Model)
	require.Equal(t, "two", resp.Header.Get("X-Gateway-Upstream"))
	w.settled()
	require.Equal(t, map[string]int{"cancelled": 1, "settled": 1}, w.permits(), "nothing was sent to the first")
	money := constraint(t, w.usage(token), "cost_per_day")
	require.Equal(t, answer.Usage.PromptTokens+2*answer.Usage.CompletionTokens, money.Consumed, "billed once")
	w.balanced()

	stream := client.Chat.Completions.NewStreaming(t.Context(), chat("reach", "hello"))
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		require.True(t, all.AddChunk(stream.Current()))
	}
	require.NoError(t, stream.Err())
	w.balanced()
}

// A free model first and a paid one behind it: the paid attempt has its own
// reservation, and an empty budget refuses it.
func TestFallbackReservesEachAttempt(t *testing.T) {
	w := newWorld(t)
	token := w.spent("app")
	before := len(w.arrived.all())
	client, count := w.openai(token)
	_, err := client.Chat.Completions.New(t.Context(), chat("cheap", "{{provider: error=503}}"))
	var failed *openai.Error
	require.ErrorAs(t, err, &failed)
	// The paid model is dearer than the whole budget, which is never admissible.
	require.Contains(t, []int{402, 429}, failed.StatusCode)
	require.Contains(t, []string{"money", "never_fits"}, failed.Code)
	require.Equal(t, int64(1), count.n.Load())
	require.Equal(t, []string{"demo-free"}, w.models()[before:], "the paid provider was not asked")
	w.balanced()
}

func TestFallbackReservesEachAttemptUnderASpentBudget(t *testing.T) {
	w := newWorld(t)
	token := w.key("app", budget(10_000))
	client, count := w.openai(token)
	for full := false; !full; { // every answer costs 3000 and a little
		_, err := client.Chat.Completions.New(t.Context(), chat("demo-large", "{{provider: tokens=100}}"))
		if full = err != nil; full {
			require.Equal(t, 402, status(t, err))
		}
		w.settled()
	}
	before, sent := len(w.arrived.all()), count.n.Load()
	_, err := client.Chat.Completions.New(t.Context(), chat("cheap", "needs a little more room than what was refused {{provider: error=503}}"))
	require.Equal(t, 402, status(t, err))
	require.Equal(t, sent+1, count.n.Load())
	require.Equal(t, []string{"demo-free"}, w.models()[before:])
	w.balanced()
}

// Our own refusal is an answer, not a failed upstream: nothing else is tried.
func TestRefusalIsNotFallenBackFrom(t *testing.T) {
	w := newWorld(t)
	token := w.spent("app")
	before := len(w.arrived.all())
	client, count := w.openai(token)
	_, err := client.Chat.Completions.New(t.Context(), chat("safe", "hello"))
	require.Equal(t, 402, status(t, err))
	require.Equal(t, int64(1), count.n.Load())
	require.Len(t, w.arrived.all(), before)
	w.mu.Lock()
	refused := 0
	for _, a := range w.attempts {
		if a.Refusal != nil {
			refused++
		}
	}
	w.mu.Unlock()
	require.Equal(t, 1, refused, "asked once, refused once")
	w.balanced()
}

func TestNoFallbackAfterTheFirstByte(t *testing.T) {
	w := newWorld(t)
	client, _ := w.openai(w.key("app", budget(10_000_000)))
	stream := client.Chat.Completions.NewStreaming(t.Context(), chat("safe", "{{provider: cut=3}}"))
	seen := 0
	for stream.Next() {
		seen++
	}
	require.Equal(t, 3, seen)
	require.ErrorIs(t, stream.Err(), io.ErrUnexpectedEOF)
	require.Equal(t, []string{"demo-small"}, w.models())
	w.settled()
	require.Equal(t, map[string]int{"uncertain": 1}, w.permits(), "what was used is not known: the bound is held")
	w.balanced()
}

func TestNoUpstream(t *testing.T) {
	w := newWorld(t)
	token := w.key("app", budget(10_000_000))
	code, body, header := w.post("/v1/chat/completions", token, `{"model":"nowhere","max_tokens":5,"messages":[{"role":"user","content":"x"}]}`)
	require.Equal(t, 502, code)
	require.Contains(t, string(body), "upstream_unreachable")
	require.NotContains(t, string(body), "127.0.0.1", "no address is given away")
	require.Empty(t, header.Get("X-Should-Retry"))
	w.settled()
	require.Equal(t, map[string]int{"cancelled": 1}, w.permits())
	require.Zero(t, constraint(t, w.usage(token), "cost_per_day").Reserved)
	w.balanced()
}

// A provider that does not accept the gateway's credential must not make clients
// throw their own keys away.
func TestWrongCredential(t *testing.T) {
	w := newWorld(t, `base_url: "%[1]s/v1", credential: env:KEY`, "", "models: [demo-small, demo-large, demo-free, demo-embedding]",
		"models: [demo-small, demo-large, demo-free, demo-embedding]", "credential: env:KEY, models: [demo-small, demo-large, demo-free", "credential: env:WRONG, models: [demo-small, demo-large, demo-free")
	token := w.key("app", budget(10_000_000))
	code, body, header := w.post("/v1/chat/completions", token, `{"model":"demo-small","max_tokens":5,"messages":[{"role":"user","content":"x"}]}`)
	require.Equal(t, 502, code)
	require.Contains(t, string(body), "upstream_unauthorized")
	require.Equal(t, "one", header.Get("X-Gateway-Upstream"))

	client, _ := w.openai(token)
	_, err := client.Chat.Completions.New(t.Context(), chat("safe", "hello"))
	require.NoError(t, err, "the next upstream has the right one")
	w.balanced()
}

func TestBodies(t *testing.T) {
	w := newWorld(t, "timeouts:", "requests: {max_body_bytes: 4096}\ntimeouts:")
	token := w.key("app", budget(10_000_000))
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"empty":           {"", 400},
		"no JSON":         {"hello", 400},
		"a list":          {"[]", 400},
		"no model":        {`{"messages":[]}`, 400},
		"model twice":     {`{"model":"demo-small","model":"demo-large","messages":[]}`, 400},
		"model of a kind": {`{"model":7}`, 400},
		"cut off":         {`{"model":"demo-small","messages":[`, 400},
		"two documents":   {`{"model":"demo-small","messages":[]}{}`, 400},
		"too large":       {`{"model":"demo-small","messages":[{"role":"user","content":"` + string(bytes.Repeat([]byte("x"), 5000)) + `"}]}`, 413},
		"unknown member":  {`{"model":"demo-small","max_tokens":5,"hosted":{},"messages":[{"role":"user","content":"x"}]}`, 403},
		"negative limit":  {`{"model":"demo-small","max_tokens":-5,"messages":[{"role":"user","content":"x"}]}`, 400},
	} {
		code, body, header := w.post("/v1/chat/completions", token, c.body)
		require.Equal(t, c.status, code, name+": "+string(body))
		require.Equal(t, "false", header.Get("X-Should-Retry"), name)
		var shape struct {
			Error struct {
				Message string `json:"message"`
				Type    string `json:"type"`
			} `json:"error"`
		}
		require.NoError(t, json.Unmarshal(body, &shape), name)
		require.NotEmpty(t, shape.Error.Message, name)
	}
	require.Empty(t, w.arrived.all(), "no provider was asked")
	require.Empty(t, w.permits(), "nothing was reserved")

	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, _ = zip.Write([]byte(`{"model":"safe","max_tokens":5,"messages":[{"role":"user","content":"x"}]}`))
	require.NoError(t, zip.Close())
	for encoding, want := range map[string]int{"gzip": 200, "br": 415} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url()+"/v1/chat/completions", bytes.NewReader(packed.Bytes()))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Encoding", encoding)
		code, body := w.do(req)
		require.Equal(t, want, code, string(body))
	}
	require.Equal(t, []string{"demo-small"}, w.models(), "under the upstream's name")
	w.balanced()
}

func TestUnknownRoutes(t *testing.T) {
	w := newWorld(t)
	token := w.key("app", keys.Limits{})
	for _, path := range []string{"/v1/completions", "/v1/responses/x", "/v1/images/generations", "/v1/files", "/v1/", "/v2/chat/completions"} {
		code, body, _ := w.post(path, token, `{"model":"demo-small"}`)
		require.Equal(t, 404, code, path)
		require.Contains(t, string(body), "unknown_route", path)
	}
	code, _, _ := w.post("/v1/responses", "", `{}`)
	require.Equal(t, 401, code, "who is asked first")
	require.Empty(t, w.arrived.all())
}
