package usage

import (
	"errors"
	"strconv"
	"strings"
)

// ErrProtocol reports a protocol that this package does not know.
var ErrProtocol = errors.New("usage: unknown protocol")

// ProviderError is what a provider said instead of an answer, or in the middle
// of one. It holds no message: a message may quote the prompt.
type ProviderError struct {
	Status int    // HTTP status; in a stream derived from the type, 0 if it says nothing
	Type   string // such as "rate_limit_error"
	Code   string // such as "insufficient_quota"
}

// Error names the status, the type and the code.
func (e *ProviderError) Error() string {
	var b strings.Builder
	b.WriteString("provider error: status ")
	b.WriteString(strconv.Itoa(e.Status))
	if e.Type != "" {
		b.WriteString(", type " + strconv.Quote(e.Type))
	}
	if e.Code != "" {
		b.WriteString(", code " + strconv.Quote(e.Code))
	}
	return b.String()
}

// ParseError reads a provider's error body. The second result says whether the
// body is one complete error envelope of the protocol: half a body, HTML of
// some proxy on the way and JSON of another shape are not, whatever the status.
func ParseError(p Protocol, status int, body []byte) (*ProviderError, bool) {
	return ParseNamedError(p, status, "", body)
}

// ParseNamedError is ParseError for a protocol that names the error in a header:
// Bedrock's X-Amzn-Errortype. Without a name, there or in the body, a message is no
// envelope: anything on the way may have written it.
func ParseNamedError(p Protocol, status int, name string, body []byte) (*ProviderError, bool) {
	e := &ProviderError{Status: status}
	if p.framed() {
		return e, e.parseException(name, body)
	}
	enveloped, typed, twice := false, p != AnthropicMessages, false
	whole := members(body, func(name, value []byte) {
		switch string(name) {
		case "error":
			twice = twice || enveloped
			enveloped = e.parse(value)
		case "type":
			typed = typed || label(value, maxLabel) == "error"
		}
	})
	if e.Status == 0 {
		e.Status = statusOf(e)
	}
	return e, p.known() && whole && enveloped && typed && !twice
}

// parse takes the error object and reports whether it has the shape of one.
func (e *ProviderError) parse(raw []byte) bool {
	shaped := false
	object := members(raw, func(name, value []byte) {
		switch string(name) {
		case "type":
			e.Type = label(value, maxLabel)
			shaped = shaped || isString(value)
		case "message":
			shaped = shaped || isString(value)
		case "code":
			if c := parseCount(value); c.State == Known {
				e.Code = strconv.FormatInt(c.N, 10)
			} else {
				e.Code = label(value, maxLabel)
			}
		}
	})
	return object && shaped
}

// parseException takes Bedrock's error body, and reports whether it is one.
func (e *ProviderError) parseException(name string, body []byte) bool {
	e.Type = errorName(name)
	message, twice := false, false
	whole := members(body, func(name, value []byte) {
		switch string(name) {
		case "message", "Message":
			twice = twice || message
			message = isString(value)
		case "__type", "code":
			if e.Type == "" {
				e.Type = errorName(label(value, maxModel))
			}
		}
	})
	if e.Status == 0 {
		e.Status = statusOf(e)
	}
	return whole && message && !twice && e.Type != ""
}

// statusOf finds the HTTP status that an error inside a stream stands for.
func statusOf(e *ProviderError) int {
	if n, err := strconv.Atoi(e.Code); err == nil && n >= 400 && n <= 599 {
		return n
	}
	for _, name := range [...]string{e.Code, e.Type} {
		switch name {
		case "invalid_request_error", "context_length_exceeded", "content_filter":
			return 400
		case "authentication_error", "invalid_api_key":
			return 401
		case "billing_error":
			return 402
		case "permission_error":
			return 403
		case "not_found_error", "model_not_found":
			return 404
		case "request_too_large":
			return 413
		case "rate_limit_error", "rate_limit_exceeded", "insufficient_quota":
			return 429
		case "api_error", "server_error":
			return 500
		case "timeout_error":
			return 504
		case "overloaded_error":
			return 529
		}
		if status, ok := exceptions[strings.ToLower(name)]; ok {
			return status
		}
	}
	return 0
}

// ProvesNothingUsed reports whether an error answer proves that the provider
// charged nothing: a complete error envelope, before any data, with a status in
// this table.
//
//	OpenAI     400 401 403 404 413 422 429
//	Anthropic  400 401 403 404 413 422 429 529
//	Bedrock    400 401 403 404 413 422 429
//
// Every other status proves nothing: the call may have run and failed late.
//
// Source: internal/docs/guarantees.md "Nothing is refunded by accident".
func ProvesNothingUsed(p Protocol, status int, complete, dataSeen bool) bool {
	if !complete || dataSeen || !p.known() {
		return false
	}
	switch status {
	case 400, 401, 403, 404, 413, 422, 429:
		return true
	case 529:
		return p == AnthropicMessages
	default:
		return false
	}
}

// ProvesNothingUsed is the function of that name for a complete envelope. It
// also knows the errors that are charged in spite of their status: a prompt
// that a content filter looked at and refused.
func (e *ProviderError) ProvesNothingUsed(p Protocol, dataSeen bool) bool {
	return e.Code != "content_filter" && e.Type != "content_filter" &&
		ProvesNothingUsed(p, e.Status, true, dataSeen)
}
