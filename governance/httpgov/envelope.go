package httpgov

import (
	"encoding/json"
	"net/http"

	"github.com/tallystick-go/tallystick/governance/usage"
)

// openaiError is OpenAI's envelope. All four members are always there.
type openaiError struct {
	Error openaiDetail `json:"error"`
}

type openaiDetail struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// anthropicError is Anthropic's envelope.
type anthropicError struct {
	Type  string          `json:"type"`
	Error anthropicDetail `json:"error"`
}

type anthropicDetail struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// envelope writes an answer the way the route's protocol writes errors.
func envelope(p usage.Protocol, a answer) []byte {
	var document any
	if p == usage.AnthropicMessages {
		document = anthropicError{Type: "error", Error: anthropicDetail{Type: anthropicType(a.status.Code), Message: a.message}}
	} else {
		d := openaiDetail{Message: a.message, Type: openaiType(a.status.Code), Code: &a.code}
		if a.param != "" {
			d.Param = &a.param
		}
		document = openaiError{Error: d}
	}
	body, err := json.Marshal(document)
	if err != nil {
		panic("httpgov: an envelope of strings cannot be encoded: " + err.Error())
	}
	return append(body, '\n')
}

func openaiType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusPaymentRequired:
		return "insufficient_quota"
	case http.StatusForbidden, http.StatusLocked:
		return "permission_error"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	}
	if status >= 500 {
		return "server_error"
	}
	return "invalid_request_error"
}

func anthropicType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusPaymentRequired:
		return "billing_error"
	case http.StatusForbidden, http.StatusLocked:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable:
		return "overloaded_error"
	}
	if status >= 500 {
		return "api_error"
	}
	return "invalid_request_error"
}
