package escrowhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/tallystick-go/tallystick/escrow"
)

// ErrDenied reports that the authority did not let this node in: the token or certificate
// is unknown there, or another node's. Nothing of the heartbeat was taken. It is
// escrow.ErrUnavailable too, since a credential may be repaired while the node goes on.
var ErrDenied = fmt.Errorf("%w: it does not take this node's credential", escrow.ErrUnavailable)

// failure is the body of an answer that is none.
type failure struct {
	Error problem `json:"error"`
}

type problem struct {
	Code       string             `json:"code"`
	Message    string             `json:"message"`
	Field      string             `json:"field,omitempty"`       // of codeInvalid
	Why        string             `json:"why,omitempty"`         // of codeInvalid
	Reason     escrow.FenceReason `json:"reason,omitempty"`      // of codeFenced
	BootNumber int64              `json:"boot_number,omitempty"` // of codeFenced
}

// The codes are part of the protocol.
const (
	codeInvalid      = "invalid"
	codeFenced       = "fenced"
	codeStale        = "stale"
	codeRegressed    = "regressed"
	codeIncompatible = "incompatible"
	codeUnavailable  = "unavailable"
	codeDenied       = "denied"
)

// statuses says with which status a code comes, on both sides: a body that does not fit
// its status is somebody else's.
var statuses = map[string]int{
	codeInvalid:      http.StatusUnprocessableEntity,
	codeFenced:       http.StatusGone,
	codeStale:        http.StatusConflict,
	codeRegressed:    http.StatusPreconditionFailed,
	codeIncompatible: http.StatusUnsupportedMediaType,
	codeUnavailable:  http.StatusServiceUnavailable,
	codeDenied:       http.StatusUnauthorized,
}

// problemOf is the table of errors, on the way out. What is not of the protocol is not
// repeated: it may carry what a node has no business with.
func problemOf(err error) problem {
	var wrong *escrow.Error
	var fenced *escrow.Fenced
	switch {
	case errors.As(err, &wrong):
		return problem{Code: codeInvalid, Message: wrong.Error(), Field: wrong.Field, Why: wrong.Why}
	case errors.As(err, &fenced):
		return problem{Code: codeFenced, Message: fenced.Error(), Reason: fenced.Reason, BootNumber: fenced.BootNumber}
	case errors.Is(err, ErrDenied):
		return problem{Code: codeDenied, Message: "present the token or certificate of the node that the heartbeat is of"}
	case errors.Is(err, escrow.ErrStale):
		return problem{Code: codeStale, Message: escrow.ErrStale.Error()}
	case errors.Is(err, escrow.ErrRegressed):
		return problem{Code: codeRegressed, Message: escrow.ErrRegressed.Error()}
	case errors.Is(err, escrow.ErrIncompatible):
		return problem{Code: codeIncompatible, Message: "this authority speaks " + escrow.Protocol + " for nodes of its own namespace, and nothing else"}
	}
	return problem{Code: codeUnavailable, Message: "the heartbeat may have been taken: repeat it as it was"}
}

// err is the error that a problem was made of.
func (p *problem) err() error {
	switch p.Code {
	case codeInvalid:
		return &escrow.Error{Field: p.Field, Why: p.Why}
	case codeFenced:
		return &escrow.Fenced{Reason: p.Reason, BootNumber: p.BootNumber}
	case codeStale:
		return escrow.ErrStale
	case codeRegressed:
		return escrow.ErrRegressed
	case codeIncompatible:
		return escrow.ErrIncompatible
	case codeDenied:
		return ErrDenied
	}
	return escrow.ErrUnavailable
}

// decodeFailure reads a body that came with a status.
func decodeFailure(status int, data []byte) (error, bool) {
	var f failure
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if d.Decode(&f) != nil {
		return nil, false
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, false
	}
	p := &f.Error
	if want, known := statuses[p.Code]; !known || want != status {
		return nil, false
	}
	switch {
	case p.Code == codeFenced && (p.Reason < escrow.Replaced || p.Reason > escrow.Restored || p.BootNumber < 0),
		p.Code == codeInvalid && p.Why == "":
		return nil, false
	}
	return p.err(), true
}

// foreign is what an answer says that is not in our words: who sits in between may be
// overloaded, but where something else answers in our place nothing must be guessed.
func foreign(status int) error {
	switch {
	case status >= 500, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		return fmt.Errorf("%w: something in between answered with status %d", escrow.ErrUnavailable, status)
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusProxyAuthRequired:
		return fmt.Errorf("%w: something in between answered with status %d", ErrDenied, status)
	case status >= 300 && status < 400:
		return fmt.Errorf("%w: it sends elsewhere, and a heartbeat does not follow", escrow.ErrIncompatible)
	}
	return fmt.Errorf("%w: what answered with status %d does not speak %s", escrow.ErrIncompatible, status, escrow.Protocol)
}

// unanswered is no answer at all. The error of net/http names the URL; only its cause is kept.
func unanswered(err error) error {
	for _, cause := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, cause) {
			return fmt.Errorf("%w: %w", escrow.ErrUnavailable, cause)
		}
	}
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return fmt.Errorf("%w: %w", escrow.ErrUnavailable, err)
}
