// Package wire writes the answers that the gateway itself gives, in the protocol
// of the route: what httpgov does for refusals, for everything around them.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/governance/usage"
	"github.com/tallystick-go/tallystick/keys"
)

// Error is an answer that is an error.
type Error struct {
	Status     int
	Code       string
	Message    string
	RetryAfter time.Duration // zero: no header
	Retryable  bool          // clients may repeat the request by themselves; RetryAfter says so too
}

// Of says what a client is told of an error of the key store or the Governor.
// Nothing of the error's own text is repeated.
func Of(err error) Error {
	switch {
	case errors.Is(err, httpgov.ErrNoPrincipal):
		return unauthorized("missing_api_key", "no API key was presented")
	case errors.Is(err, keys.ErrUnknown):
		return unauthorized("invalid_api_key", "the API key is not known")
	case errors.Is(err, keys.ErrRevoked):
		return unauthorized("revoked_api_key", "the API key was revoked")
	case errors.Is(err, keys.ErrExpired):
		return unauthorized("expired_api_key", "the API key has expired")
	}
	e := Error{
		Status: http.StatusServiceUnavailable, Code: "unavailable",
		Message: "the accounting store does not answer; try again", RetryAfter: time.Second,
	}
	if status := governance.StatusOf(err); status.Code != http.StatusInternalServerError {
		e.Status, e.RetryAfter = status.Code, status.RetryAfter
	}
	return e
}

func unauthorized(code, message string) Error {
	return Error{Status: http.StatusUnauthorized, Code: code, Message: message}
}

// Write answers a request.
func (e Error) Write(w http.ResponseWriter, p usage.Protocol) {
	body := e.body(p)
	e.header(w.Header(), p, len(body))
	w.WriteHeader(e.Status)
	_, _ = w.Write(body)
}

// Response is the answer as a RoundTripper returns it.
func (e Error) Response(r *http.Request, p usage.Protocol) *http.Response {
	body := e.body(p)
	resp := &http.Response{
		StatusCode: e.Status, Status: strconv.Itoa(e.Status) + " " + http.StatusText(e.Status),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		Request: r, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}
	e.header(resp.Header, p, len(body))
	return resp
}

func (e Error) header(h http.Header, p usage.Protocol, size int) {
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(size))
	h.Set("Cache-Control", "no-store")
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((e.RetryAfter+time.Second-1)/time.Second), 10))
	} else if !e.Retryable {
		h.Set("X-Should-Retry", "false")
	}
	if bedrock(p) {
		h.Set("X-Amzn-Errortype", e.bedrockType())
	}
	if e.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
}

func (e Error) body(p usage.Protocol) []byte {
	var document any
	switch {
	case p == usage.AnthropicMessages:
		document = map[string]any{"type": "error", "error": map[string]string{"type": e.anthropicType(), "message": e.Message}}
	case bedrock(p):
		document = map[string]string{"message": e.Message}
	default:
		document = map[string]any{"error": map[string]any{"message": e.Message, "type": e.openaiType(), "param": nil, "code": e.Code}}
	}
	return encode(document)
}

func bedrock(p usage.Protocol) bool { return p == usage.BedrockConverse || p == usage.BedrockInvoke }

// bedrockType is the exception that AWS's SDKs make of the answer.
func (e Error) bedrockType() string {
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "AccessDeniedException"
	case http.StatusNotFound:
		return "ResourceNotFoundException"
	case http.StatusServiceUnavailable:
		return "ServiceUnavailableException"
	case http.StatusGatewayTimeout:
		return "ModelTimeoutException"
	}
	if e.Status >= 500 {
		return "InternalServerException"
	}
	return "ValidationException"
}

func (e Error) openaiType() string {
	switch {
	case e.Status == http.StatusUnauthorized:
		return "authentication_error"
	case e.Status == http.StatusForbidden:
		return "permission_error"
	case e.Status >= 500:
		return "server_error"
	}
	return "invalid_request_error"
}

func (e Error) anthropicType() string {
	switch e.Status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusGatewayTimeout:
		return "timeout_error"
	}
	if e.Status >= 500 {
		return "api_error"
	}
	return "invalid_request_error"
}

// JSON answers with a document.
func JSON(w http.ResponseWriter, status int, document any) {
	body := encode(document)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func encode(document any) []byte {
	body, err := json.Marshal(document)
	if err != nil {
		panic("wire: an answer does not encode: " + err.Error())
	}
	return append(body, '\n')
}
