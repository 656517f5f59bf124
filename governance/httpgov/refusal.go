package httpgov

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/usage"
	"github.com/tallystick-go/tallystick/keys"
)

// PermitHeader names the permit in answers to governed requests.
const PermitHeader = "X-Tallystick-Permit"

// The errors of this package, beside those of governance and keys. All of them
// are answered as responses; see RefusalFrom.
var (
	// ErrRequest: the request cannot be governed as it is. See *RequestError.
	ErrRequest = errors.New("httpgov: request cannot be governed")
	// ErrRoute: the path stands for nothing that this gateway knows how to govern.
	ErrRoute = errors.New("httpgov: route is not governed")
	// ErrAmbiguousKey: two different keys were presented, or one in an unknown way.
	ErrAmbiguousKey = errors.New("httpgov: present exactly one key")
)

// RequestError says what about a request cannot be governed and what would be
// right. It wraps ErrRequest and never repeats what the client sent.
type RequestError struct {
	Status int    // HTTP status: 400, 403, 413 or 415
	Field  string // member of the request body, if one is to blame
	Why    string
	Err    error // what was missing, if that is an error of its own
}

func (e *RequestError) Error() string {
	if e.Field == "" {
		return "httpgov: " + e.Why
	}
	return fmt.Sprintf("httpgov: %s: %s", e.Field, e.Why)
}

// Unwrap makes errors.Is hold for ErrRequest and for what was missing.
func (e *RequestError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrRequest}
	}
	return []error{ErrRequest, e.Err}
}

func bad(field, why string) error {
	return &RequestError{Status: http.StatusBadRequest, Field: field, Why: why}
}

// refusalBody is the body of a response that we made: its type is the proof.
type refusalBody struct {
	bytes.Reader
	err error
}

func (*refusalBody) Close() error { return nil }

// RefusalFrom returns why a Transport refused to forward a request, or false for
// a response that came from a provider. It knows them by the Go type of the body,
// which no provider can forge with a header: a fallback above the Transport must
// neither retry a refusal nor open a circuit breaker for it.
//
// The body must not have been wrapped or replaced.
func RefusalFrom(resp *http.Response) (error, bool) { //nolint:revive // the error is a value here, not a failure
	if resp == nil {
		return nil, false
	}
	body, ok := resp.Body.(*refusalBody)
	if !ok {
		return nil, false
	}
	return body.err, true
}

// answer is what a client is told.
type answer struct {
	status  governance.Status
	message string
	param   string
	reason  string
}

// answerTo tells the client what it may know of an error. Only messages that this
// library wrote are repeated: a driver's text may hold a DSN or SQL.
func answerTo(err error) answer {
	var request *RequestError
	var refusal *governance.Refusal
	var field *governance.FieldError
	a := answer{status: governance.StatusOf(err)}
	switch {
	case errors.As(err, &request):
		a.status = governance.Status{Code: request.Status}
		a.message, a.param, a.reason = request.Why, request.Field, "invalid_request"
		if request.Field != "" {
			a.message = request.Field + ": " + request.Why
		}
		if request.Status == http.StatusForbidden {
			a.reason = "not_governable"
		}
	case errors.As(err, &refusal):
		a.message, a.reason = refusalText(refusal), refusal.Reason.String()
	case errors.Is(err, ErrRoute):
		a = answer{status: governance.Status{Code: http.StatusNotFound}, message: "this gateway does not serve this route", reason: "unknown_route"}
	case errors.Is(err, ErrAmbiguousKey):
		a = unauthorized("present exactly one key, as Authorization: Bearer or as x-api-key", "ambiguous_api_key")
	case errors.Is(err, ErrNoPrincipal):
		a = unauthorized("no API key was presented", "missing_api_key")
	case errors.Is(err, keys.ErrUnknown):
		a = unauthorized("the API key is not known", "invalid_api_key")
	case errors.Is(err, keys.ErrRevoked):
		a = unauthorized("the API key was revoked", "revoked_api_key")
	case errors.Is(err, keys.ErrExpired):
		a = unauthorized("the API key has expired", "expired_api_key")
	case errors.As(err, &field):
		a.message, a.param, a.reason = field.Field+" "+field.Why, field.Field, "invalid_request"
	case errors.Is(err, governance.ErrStale):
		a.message, a.reason = "what the key may do changed during the request; try again", "stale"
	case errors.Is(err, governance.ErrNotReady):
		a.message, a.reason = "this gateway is not ready to spend; try again", "not_ready"
	case errors.Is(err, governance.ErrConflict), errors.Is(err, governance.ErrInFlight),
		errors.Is(err, governance.ErrTerminal), errors.Is(err, governance.ErrPruned):
		a.message, a.reason = "the request's id was used before", "conflict"
	default:
		// Whatever it is, nothing says that the key is bad: never 401.
		a.status = governance.Status{Code: http.StatusServiceUnavailable, RetryAfter: time.Second, Retryable: true}
		a.message, a.reason = "the accounting store does not answer; try again", "unavailable"
	}
	return a
}

func unauthorized(message, reason string) answer {
	return answer{status: governance.Status{Code: http.StatusUnauthorized}, message: message, reason: reason}
}

func refusalText(r *governance.Refusal) string {
	var text string
	switch r.Reason {
	case governance.ReasonUnauthenticated:
		return "the API key is revoked, expired or unknown"
	case governance.ReasonModel:
		return "this key may not use this model"
	case governance.ReasonRegion:
		return "this key may not use this region"
	case governance.ReasonGuardrail:
		return "this team's guardrail is not applied here"
	case governance.ReasonGated:
		return "a rule for this key cannot be enforced by this gateway"
	case governance.ReasonUnpriced:
		text = "nothing here bounds what the request may cost, so no budget can cover it"
	case governance.ReasonQueueFull:
		text = "too many requests are waiting"
	case governance.ReasonFrozen:
		text = "an account is frozen until an operator has looked at it"
	case governance.ReasonNeverFits:
		text = "the request may use more than the limit allows at all"
	case governance.ReasonMoney:
		text = "the budget does not cover what the request may cost"
	case governance.ReasonCredit:
		text = "this gateway waits for its share of the budget"
	case governance.ReasonReserved:
		text = "requests in flight hold what is left"
	default:
		text = "the limit is reached"
	}
	if c := r.Verdict.Constraint; c != nil {
		text = fmt.Sprintf("%s: %s of the %s: limit %d, needed %d, left %d%s", text, c.Rule, c.Scope, r.Verdict.Limit, r.Verdict.Need, r.Verdict.Remaining(), unitText(c.Kind))
	}
	return text
}

// unitText is what the numbers of a constraint count, with a space before it.
func unitText(k governance.Kind) string {
	switch k {
	case governance.KindRequestRate, governance.KindConcurrency:
		return " requests"
	case governance.KindTokenRate, governance.KindTokenQuota:
		return " tokens"
	case governance.KindMoney:
		return " microUSD"
	}
	return ""
}

// header writes what goes with an answer beside its body.
func (a answer) header(h http.Header, p usage.Protocol, size int) {
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(size))
	h.Set("Cache-Control", "no-store")
	if a.status.RetryAfter > 0 && a.status.Retryable {
		h.Set("Retry-After", strconv.FormatInt(seconds(a.status.RetryAfter), 10))
		if isBedrock(p) { // the newest of AWS's SDKs wait for it, five seconds at most
			h.Set("X-Amz-Retry-After", strconv.FormatInt(1000*seconds(a.status.RetryAfter), 10))
		}
	}
	if isBedrock(p) {
		h.Set(errorTypeHeader, bedrockType(a.status))
	}
	if !a.status.Retryable {
		h.Set("X-Should-Retry", "false")
	}
	if a.status.Code == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
}

// WriteRefusal answers a request that was refused for an error of this package, of
// governance or of keys, as Middleware and Transport do: for the handlers that a
// gateway serves by itself. Any other error is answered as an outage.
func WriteRefusal(w http.ResponseWriter, p usage.Protocol, err error) { answerTo(err).write(w, p) }

func (a answer) write(w http.ResponseWriter, p usage.Protocol) {
	body := envelope(p, a)
	a.header(w.Header(), p, len(body))
	w.WriteHeader(a.code(p))
	_, _ = w.Write(body)
}

// seconds rounds up: a client that waits a second less comes too early.
func seconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}

// refuse answers a request in the protocol of its route.
func refuse(r *http.Request, p usage.Protocol, err error) *http.Response {
	a := answerTo(err)
	body, code := envelope(p, a), a.code(p)
	resp := &http.Response{
		StatusCode: code, Status: strconv.Itoa(code) + " " + http.StatusText(code),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Request: r, ContentLength: int64(len(body)),
	}
	a.header(resp.Header, p, len(body))
	rb := &refusalBody{err: err}
	rb.Reset(body)
	resp.Body = rb
	return resp
}

// gone reports whether an error only says that the client has left.
func gone(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}
