package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/eventlog"
)

// TestPropertyLines: whatever an event holds is one line, and reads back.
func TestPropertyLines(t *testing.T) {
	x := New(nil, func() string { return "me" })
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.OneOf(
			rapid.SliceOfN(rapid.Byte(), 0, 20),
			rapid.Map(rapid.String(), func(s string) []byte { text, _ := json.MarshalIndent(map[string]string{"a": s}, "", "\n"); return text }),
		).Draw(t, "data")
		e := eventlog.Recorded{Event: eventlog.Event{ID: "id", Type: "happened", Data: data}, Stream: "s", Version: 2, Position: 3, Producer: "it"}
		text, err := x.line(e)
		require.NoError(t, err)
		require.False(t, bytes.ContainsRune(text, '\n'))
		var l Line
		require.NoError(t, json.Unmarshal(text, &l))
		require.Equal(t, []any{"id", "it", "me", int64(2), int64(3)}, []any{l.ID, l.Producer, l.Exporter, l.Version, l.Position})
		if json.Valid(data) {
			require.JSONEq(t, string(data), string(l.Data))
			require.Empty(t, l.Raw)
		} else {
			require.Equal(t, len(data), len(l.Raw))
			require.True(t, bytes.Equal(data, l.Raw))
		}
	})
}

// TestALineThatBrokeOffIsALineOfItsOwn: what follows it can be read.
func TestALineThatBrokeOffIsALineOfItsOwn(t *testing.T) {
	folder := t.TempDir()
	f, err := NewFile(folder, func() string { return "host/../a b" })
	require.NoError(t, err)
	require.NoError(t, f.Take(t.Context(), "1", []byte(`{"n":1}`)))
	f.torn = true
	_, err = f.file.WriteString(`{"n":`)
	require.NoError(t, err)
	for _, line := range []string{`{"n":2}`, `{"n":3}`} {
		require.NoError(t, f.Take(t.Context(), "2", []byte(line)))
	}
	require.NoError(t, f.Close())
	text, err := os.ReadFile(filepath.Join(folder, "audit-host_.._a_b.jsonl"))
	require.NoError(t, err)
	require.Equal(t, "{\"n\":1}\n{\"n\":\n{\"n\":2}\n{\"n\":3}\n", string(text))
}

// TestPauses: after a failure nobody asks for a while, longer each time up to a bound; an answer ends it.
func TestPauses(t *testing.T) {
	x := New(nil, nil)
	require.Equal(t, eventlog.DefaultPage, x.Again())
	down := errors.New("down")
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		x.note(down)
		require.Equal(t, want*time.Second, x.pause, "%d", i)
		require.True(t, x.paused())
		require.Zero(t, x.Again())
		x.until = time.Time{} // it is over
		require.False(t, x.paused())
		require.Equal(t, 1, x.Again(), "one, to see")
	}
	x.note(nil)
	require.Equal(t, eventlog.DefaultPage, x.Again())
	x.note(down)
	require.Equal(t, time.Second, x.pause)
}

// TestWhatAWebhookAnswers: only a 2xx has taken an event; what it refuses for good is told apart from what may pass; a token goes nowhere else.
func TestWhatAWebhookAnswers(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was followed") }))
	t.Cleanup(other.Close)
	code := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Idempotency-Key") != "id" || r.Header.Get("Authorization") != "Bearer secret" {
			t.Error("without its key or token")
		}
		w.Header().Set("Location", other.URL)
		w.WriteHeader(code)
	}))
	t.Cleanup(s.Close)
	w := NewWebhook(s.URL, "secret", 30*time.Second)
	t.Cleanup(func() { _ = w.Close() })
	for code = range map[int]bool{200: true, 204: true, 299: true, 300: true, 302: true, 307: true, 400: true, 401: true, 408: true, 413: true, 422: true, 429: true, 499: true, 500: true, 503: true} {
		err := w.Take(t.Context(), "id", []byte("{}"))
		refused := code >= 400 && code < 500 && code != 408 && code != 429
		require.Equal(t, code < 300, err == nil, "%d", code)
		require.Equal(t, refused, errors.Is(err, ErrRefused), "%d", code)
	}
}
