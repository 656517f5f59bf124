package escrowhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/escrow/escrowhttp"
)

func TestAHeartbeatAndItsAnswerArriveAsTheyWere(t *testing.T) {
	a := &authority{}
	sent := beat()
	got, err := client(t, serve(t, handler(t, a))).Beat(t.Context(), sent)
	require.NoError(t, err)
	require.Equal(t, emptyAnswer(), got)
	require.Equal(t, []*escrow.Heartbeat{sent}, a.heard)
}

func TestWhatNoNodeCanMeanIsNotSent(t *testing.T) {
	a := &authority{}
	h := beat()
	h.Node = ""
	_, err := client(t, serve(t, handler(t, a))).Beat(t.Context(), h)
	var wrong *escrow.Error
	require.ErrorAs(t, err, &wrong)
	require.Empty(t, a.heard)
}

func TestErrorsSurviveTheTrip(t *testing.T) {
	var wrong *escrow.Error
	var fenced *escrow.Fenced
	sentinels := []error{escrow.ErrStale, escrow.ErrRegressed, escrow.ErrIncompatible, escrow.ErrUnavailable, escrowhttp.ErrDenied}
	for name, sent := range map[string]error{
		"invalid":            &escrow.Error{Field: "requests[2].amount", Why: "must not be negative"},
		"replaced":           &escrow.Fenced{Reason: escrow.Replaced, BootNumber: 7},
		"cloned":             &escrow.Fenced{Reason: escrow.Cloned, BootNumber: 1},
		"restored":           &escrow.Fenced{Reason: escrow.Restored, BootNumber: 1 << 62},
		"stale":              escrow.ErrStale,
		"regressed":          escrow.ErrRegressed,
		"incompatible":       escrow.ErrIncompatible,
		"unavailable":        escrow.ErrUnavailable,
		"denied":             escrowhttp.ErrDenied,
		"wrapped":            fmt.Errorf("the store: %w", &escrow.Fenced{Reason: escrow.Cloned, BootNumber: 3}),
		"stale, with reason": fmt.Errorf("%w: sequence 3 after 4", escrow.ErrStale),
		"not the protocol's": errors.New("dial postgres://gate:hunter2@db"),
		"out of time":        context.DeadlineExceeded,
	} {
		t.Run(name, func(t *testing.T) {
			_, got := client(t, serve(t, handler(t, refusing(sent)))).Beat(t.Context(), beat())
			require.Error(t, got)
			require.NotContains(t, got.Error(), "hunter2")
			known := false
			for _, s := range sentinels {
				require.Equal(t, errors.Is(sent, s), errors.Is(got, s) && (known || errors.Is(sent, s)), s)
				known = known || errors.Is(got, s)
			}
			if errors.As(sent, &wrong) {
				want := *wrong
				require.ErrorAs(t, got, &wrong)
				require.Equal(t, want, *wrong)
				known = true
			} else {
				require.NotErrorAs(t, got, &wrong)
			}
			if errors.As(sent, &fenced) {
				want := *fenced
				require.ErrorAs(t, got, &fenced)
				require.Equal(t, want, *fenced)
				known = true
			} else {
				require.NotErrorAs(t, got, &fenced)
			}
			require.True(t, known, "whatever it was, a node knows what to do: %v", got)
		})
	}
}

func TestForeignAnswersAreOutagesOrRefused(t *testing.T) {
	const old = "application/vnd.tallystick.escrow-v0+json"
	for _, c := range []struct {
		status  int
		content string
		body    string
		is      error
	}{
		{200, "text/html", "<html>", escrow.ErrIncompatible},
		{200, old, "{}", escrow.ErrIncompatible},
		{200, "application/json", "{}", escrow.ErrIncompatible},
		{200, escrowhttp.ContentType, "{}", escrow.ErrIncompatible},
		{200, escrowhttp.ContentType, "", escrow.ErrIncompatible},
		{200, escrowhttp.ContentType + "; version=2", "{}", escrow.ErrIncompatible},
		{204, "", "", escrow.ErrIncompatible},
		{404, "text/plain", "404 page not found", escrow.ErrIncompatible},
		{405, "", "", escrow.ErrIncompatible},
		{415, "text/plain", "", escrow.ErrIncompatible},
		{409, escrowhttp.ContentType, `{"error":{"code":"fenced","message":"","reason":1,"boot_number":2}}`, escrow.ErrIncompatible},
		{410, escrowhttp.ContentType, `{"error":{"code":"fenced","message":"","reason":9,"boot_number":2}}`, escrow.ErrIncompatible},
		{410, "application/json", `{"error":{"code":"fenced","message":"","reason":1,"boot_number":2}}`, escrow.ErrIncompatible},
		{422, escrowhttp.ContentType, `{"error":{"code":"something newer","message":""}}`, escrow.ErrIncompatible},
		{401, "text/plain", "", escrowhttp.ErrDenied},
		{403, "text/html", "", escrowhttp.ErrDenied},
		{407, "", "", escrowhttp.ErrDenied},
		{408, "", "", escrow.ErrUnavailable},
		{429, "text/plain", "slowly", escrow.ErrUnavailable},
		{500, escrowhttp.ContentType, "{", escrow.ErrUnavailable},
		{502, "text/html", "<html>", escrow.ErrUnavailable},
		{503, "", strings.Repeat("x", 1<<17), escrow.ErrUnavailable},
		{504, "", "", escrow.ErrUnavailable},
	} {
		t.Run(fmt.Sprint(c.status, " ", c.content), func(t *testing.T) {
			url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.content)
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			}))
			_, err := client(t, url).Beat(t.Context(), beat())
			require.ErrorIs(t, err, c.is)
			var fenced *escrow.Fenced
			require.NotErrorAs(t, err, &fenced, "nobody but the authority stops a node")
			var wrong *escrow.Error
			require.NotErrorAs(t, err, &wrong)
		})
	}
}

func TestNoRedirectIsFollowed(t *testing.T) {
	a := &authority{}
	elsewhere := serve(t, handler(t, a))
	for _, status := range []int{301, 302, 303, 307, 308} {
		url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere+escrowhttp.Path, status)
		}))
		_, err := client(t, url).Beat(t.Context(), beat())
		require.ErrorIs(t, err, escrow.ErrIncompatible, status)
	}
	require.Empty(t, a.heard, "the token went nowhere else")
}

func TestAnswersAreBounded(t *testing.T) {
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", escrowhttp.ContentType)
		chunk := []byte(strings.Repeat(" ", 1<<10))
		for r.Context().Err() == nil { // without end, until the client leaves
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	c := client(t, url)
	c.Bound(1 << 16)
	_, err := c.Beat(t.Context(), beat())
	require.ErrorIs(t, err, escrow.ErrIncompatible)
}

func TestACompressedAnswerIsNoAnswer(t *testing.T) {
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			t.Error("it was asked for")
		}
		w.Header().Set("Content-Type", escrowhttp.ContentType)
		w.Header().Set("Content-Encoding", "gzip")
	}))
	_, err := client(t, url).Beat(t.Context(), beat())
	require.ErrorIs(t, err, escrow.ErrIncompatible)
}

func TestAnOutageIsUnavailable(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	_, err := client(t, gone.URL).Beat(t.Context(), beat())
	require.ErrorIs(t, err, escrow.ErrUnavailable)

	cut := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", escrowhttp.ContentType)
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("{"))
		panic(http.ErrAbortHandler)
	}))
	_, err = client(t, cut).Beat(t.Context(), beat())
	require.ErrorIs(t, err, escrow.ErrUnavailable, "the reply was lost on the way")

	asked, left := make(chan struct{}), make(chan struct{})
	hangs := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-left
	}))
	t.Cleanup(func() { close(left) })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	_, err = client(t, hangs).Beat(ctx, beat())
	require.ErrorIs(t, err, escrow.ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)

	impatient, err := escrowhttp.NewClient(escrowhttp.ClientOptions{URL: serve(t, http.HandlerFunc(func(_ http.ResponseWriter, _ *http.Request) { <-left })), Timeout: 1})
	require.NoError(t, err)
	_, err = impatient.Beat(t.Context(), beat())
	require.ErrorIs(t, err, escrow.ErrUnavailable)
}

func TestWhereAClientGoes(t *testing.T) {
	for _, url := range []string{
		"", "control.example.com", "ftp://control.example.com", "http://control.example.com", "http://10.0.0.1:80", "https://node:secret@control.example.com",
		"https://control.example.com/?a=b", "https://control.example.com/#top", "https://control.example.com?", "unix:///run/a",
	} {
		_, err := escrowhttp.NewClient(escrowhttp.ClientOptions{URL: url})
		require.Error(t, err, url)
		require.NotContains(t, err.Error(), "secret")
	}
	for _, url := range []string{"https://control.example.com", "https://control.example.com/tally/", "http://127.0.0.1:80", "http://[::1]:80", "http://LOCALHOST:80"} {
		_, err := escrowhttp.NewClient(escrowhttp.ClientOptions{URL: url})
		require.NoError(t, err, url)
	}
	_, err := escrowhttp.NewClient(escrowhttp.ClientOptions{URL: "http://10.0.0.1", AllowPlaintext: true})
	require.NoError(t, err)
	_, err = escrowhttp.NewClient(escrowhttp.ClientOptions{URL: "https://a", Timeout: -1})
	require.Error(t, err)
}

func TestATokenThatCannotBeReadIsDenied(t *testing.T) {
	a := &authority{}
	lost := errors.New("the file is gone")
	c, err := escrowhttp.NewClient(escrowhttp.ClientOptions{URL: serve(t, handler(t, a)), Token: func() (string, error) { return "", lost }})
	require.NoError(t, err)
	_, err = c.Beat(t.Context(), beat())
	require.ErrorIs(t, err, escrowhttp.ErrDenied)
	require.ErrorIs(t, err, escrow.ErrUnavailable, "it may be repaired: the node goes on")
	require.ErrorIs(t, err, lost)
	require.Empty(t, a.heard)
}
