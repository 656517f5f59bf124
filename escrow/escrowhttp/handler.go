package escrowhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
)

// HandlerOptions tune a handler. Identify is required; nil and zero fields are the defaults.
type HandlerOptions struct {
	// Identify says which node a request comes from: Bearer's, or Certificate.
	Identify Identify
	// AllowPlaintext takes requests without TLS from other machines: something in front
	// speaks TLS, and the network in between is trusted.
	AllowPlaintext bool
	// Timeout bounds the work on one heartbeat. Default 10 s.
	Timeout time.Duration
	// Logger is told of what a node is not. Default slog.Default().
	Logger *slog.Logger
}

// Handler answers heartbeats. It keeps nothing between two of them, so that any number of
// processes over one database may stand behind one address.
//
// Give the server that it is in a ReadTimeout and MaxHeaderBytes: a handler bounds the body's size
// and its own work only.
//
// Answers: 200 with an escrow.Answer; 422, 409, 410, 412, 415 and 503 for the errors of
// escrow.Authority, and 401 for a credential that is unknown or another node's, each with a
// body that Client reads back.
// Errors: Identify is missing, or the Timeout negative.
//
// Source: ADR-045 "Failure and operational boundaries".
func Handler(authority escrow.Authority, o HandlerOptions) (http.Handler, error) {
	switch {
	case authority == nil:
		return nil, errors.New("escrowhttp: there is no authority to answer for")
	case o.Identify == nil:
		return nil, errors.New("escrowhttp: options.identify is missing: without it anybody could speak for any node")
	case o.Timeout < 0:
		return nil, errors.New("escrowhttp: options.timeout must not be negative; zero is the default")
	case o.Timeout == 0:
		o.Timeout = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &handler{authority, o}, nil
}

type handler struct {
	authority escrow.Authority
	HandlerOptions
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.TLS == nil && !h.AllowPlaintext && !local(r.RemoteAddr) {
		h.Logger.WarnContext(r.Context(), "escrow: a heartbeat came in plain text from another machine: its token is known on the way")
		h.fail(w, problem{Code: codeDenied, Message: "use https"})
		return
	}
	node, ok := h.Identify(r)
	if !ok {
		h.fail(w, problemOf(ErrDenied))
		return
	}
	beat, err := h.read(w, r)
	var answer *escrow.Answer
	if err == nil {
		answer, err = h.beat(r.Context(), node, beat)
	}
	if err != nil {
		p := problemOf(err)
		level := slog.LevelWarn
		if p.Code == codeUnavailable {
			level = slog.LevelError
		}
		h.Logger.Log(r.Context(), level, "escrow: a heartbeat was not taken", "node", node, "code", p.Code, "error", err)
		h.fail(w, p)
		return
	}
	data, err := json.Marshal(answer)
	if err == nil && len(data) > escrow.MaxAnswerBytes {
		err = fmt.Errorf("an answer has %d bytes, and %d is the most", len(data), escrow.MaxAnswerBytes)
	}
	if err != nil {
		h.Logger.ErrorContext(r.Context(), "escrow: an answer cannot be sent", "node", node, "error", err)
		h.fail(w, problemOf(err))
		return
	}
	h.write(w, http.StatusOK, data)
}

// read reads what is asked. Nothing of a request is believed before its form is right.
func (h *handler) read(w http.ResponseWriter, r *http.Request) (*escrow.Heartbeat, error) {
	encoding := r.Header.Get("Content-Encoding")
	switch {
	case r.Method != http.MethodPost, !spoken(r.Header.Get("Content-Type")), len(r.Header.Values("Content-Type")) != 1,
		encoding != "" && !strings.EqualFold(encoding, "identity"):
		return nil, fmt.Errorf("%w: not a POST of %s", escrow.ErrIncompatible, ContentType)
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, escrow.MaxHeartbeatBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &escrow.Error{Field: "heartbeat", Why: "must be at most " + strconv.Itoa(escrow.MaxHeartbeatBytes) + " bytes"}
	case err != nil:
		return nil, unanswered(err)
	}
	beat := new(escrow.Heartbeat)
	if err := decode(data, beat); err != nil {
		return nil, err
	}
	return beat, nil
}

// beat takes a heartbeat of a node that has shown who it is.
func (h *handler) beat(ctx context.Context, node string, beat *escrow.Heartbeat) (*escrow.Answer, error) {
	if beat.Node != node {
		return nil, fmt.Errorf("%w: node %s spoke for %q", ErrDenied, node, beat.Node)
	}
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	return h.authority.Beat(ctx, beat)
}

func (h *handler) fail(w http.ResponseWriter, p problem) {
	data, err := json.Marshal(failure{p})
	if err != nil {
		panic("escrowhttp: a problem does not encode: " + err.Error())
	}
	switch p.Code {
	case codeUnavailable:
		w.Header().Set("Retry-After", "1")
	case codeDenied:
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	h.write(w, statuses[p.Code], data)
}

func (h *handler) write(w http.ResponseWriter, status int, data []byte) {
	w.Header().Set("Content-Type", ContentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	_, _ = w.Write(data) // a node that is gone repeats
}

// local reports whether a peer is on this machine.
func local(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	return loopback(host)
}

func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
