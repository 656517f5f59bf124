package httpgov

import (
	"encoding/json"
	"net/http"

	"github.com/tallystick-go/tallystick/governance"
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

// bedrockError is Bedrock's envelope. Its name is in a header.
type bedrockError struct {
	Message string `json:"message"`
}

func isBedrock(p usage.Protocol) bool { return p == usage.BedrockConverse || p == usage.BedrockInvoke }

// envelope writes an answer the way the route's protocol writes errors.
func envelope(p usage.Protocol, a answer) []byte {
	var document any
	switch {
	case p == usage.AnthropicMessages:
		document = anthropicError{Type: "error", Error: anthropicDetail{Type: anthropicType(a.status.Code), Message: a.message}}
	case isBedrock(p):
		document = bedrockError{a.message}
	default:
		d := openaiDetail{Message: a.message, Type: openaiType(a.status.Code), Code: &a.reason}
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

// bedrockType is the exception that AWS's SDKs make of an answer. They read neither
// x-should-retry nor Retry-After: they repeat what is called ThrottlingException, and
// 500 to 504, by a delay of their own. What cannot succeed is therefore called
// ServiceQuotaExceededException, which no SDK repeats and which has a type in all of
// them: a budget that is used up, and a request that fits no limit.
func bedrockType(s governance.Status) string {
	switch s.Code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusLocked:
		return "AccessDeniedException"
	case http.StatusPaymentRequired:
		return "ServiceQuotaExceededException"
	case http.StatusNotFound:
		return "ResourceNotFoundException"
	case http.StatusConflict:
		return "ConflictException"
	case http.StatusTooManyRequests:
		if !s.Retryable {
			return "ServiceQuotaExceededException"
		}
		return "ThrottlingException"
	case http.StatusServiceUnavailable:
		return "ServiceUnavailableException"
	}
	if s.Code >= 500 {
		return "InternalServerException"
	}
	return "ValidationException"
}

// code is the status in a protocol. Some of AWS's SDKs repeat every 429, whatever it
// is called, so one that will never fit is the 400 that Bedrock itself gives it.
func (a answer) code(p usage.Protocol) int {
	if isBedrock(p) && a.status.Code == http.StatusTooManyRequests && !a.status.Retryable {
		return http.StatusBadRequest
	}
	return a.status.Code
}
