package escrowhttp_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/escrow/escrowhttp"
)

// Whatever is sent: nothing but a node's own heartbeat reaches the authority.
func FuzzHandler(f *testing.F) {
	good := written(f, beat())
	f.Add(escrowhttp.ContentType, "Bearer "+token, good)
	f.Add(escrowhttp.ContentType+"; charset=utf-8", "bearer "+other, good)
	f.Add("application/json", "Bearer "+token, good[:len(good)/2])
	f.Add(`multipart/form-data; boundary="`, "", []byte(`{"protocol":"escrow-v0"}`))
	f.Fuzz(func(t *testing.T, content, credential string, body []byte) {
		a := &authority{}
		w := post(t, handler(t, a), func(r *http.Request) {
			r.Header.Set("Content-Type", content)
			r.Header.Set("Authorization", credential)
		}, bytes.NewReader(body))
		for _, h := range a.heard {
			if h.Node != node && h.Node != "node-2" || h.Validate() != nil {
				t.Fatalf("taken: %+v", h)
			}
		}
		if (w.Code == http.StatusOK) != (len(a.heard) == 1) || w.Code == http.StatusInternalServerError {
			t.Fatalf("answered %d to %d heartbeats", w.Code, len(a.heard))
		}
	})
}

// Whatever is answered: a node gets an answer that is valid, or an error of the protocol.
func FuzzClient(f *testing.F) {
	type exchange struct {
		status  int
		content string
		body    []byte
	}
	var now exchange
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = []string{now.content}
		w.WriteHeader(now.status)
		_, _ = w.Write(now.body)
	}))
	f.Cleanup(s.Close)
	c := client(f, s.URL)
	w := post(f, handler(f, &authority{}), nil, bytes.NewReader(written(f, beat())))
	f.Add(200, escrowhttp.ContentType, w.Body.Bytes())
	f.Add(410, escrowhttp.ContentType, []byte(`{"error":{"code":"fenced","message":"","reason":1,"boot_number":2}}`))
	f.Add(422, escrowhttp.ContentType, []byte(`{"error":{"code":"invalid","message":"","field":"boot","why":"must not be zero"}}`))
	f.Add(409, escrowhttp.ContentType, []byte(`{"error":{"code":"stale","message":""}} `))
	f.Add(502, "text/html", []byte("<html>"))
	f.Fuzz(func(t *testing.T, status int, content string, body []byte) {
		if status < 200 || status > 599 || status == 204 || status == 304 {
			return
		}
		now = exchange{status, content, body}
		a, err := c.Beat(t.Context(), beat())
		var wrong *escrow.Error
		var fenced *escrow.Fenced
		switch {
		case err == nil:
			if status != 200 || a.Validate() != nil {
				t.Fatalf("taken: %+v", a)
			}
		case errors.As(err, &wrong), errors.As(err, &fenced):
			if status < 400 {
				t.Fatalf("%d: %v", status, err)
			}
		case errors.Is(err, escrow.ErrUnavailable), errors.Is(err, escrow.ErrIncompatible), errors.Is(err, escrow.ErrStale), errors.Is(err, escrow.ErrRegressed):
		default:
			t.Fatalf("not an error of the protocol: %v", err)
		}
	})
}
