package governance

import (
	"errors"
	"net/http"
	"time"
)

// Status is the answer that an HTTP gateway gives for an error of this package.
type Status struct {
	Code       int           // HTTP status
	RetryAfter time.Duration // rounded up to seconds in a header; zero: no header
	Retryable  bool          // false: tell clients not to try again by themselves
}

// StatusOf is the table of refusals. An error that is none of ours is 500.
//
// Source: internal/docs/guarantees.md "Availability".
func StatusOf(err error) Status {
	var refusal *Refusal
	switch {
	case err == nil:
		return Status{Code: http.StatusOK}
	case errors.As(err, &refusal):
		return Status{Code: refusal.Reason.code(), RetryAfter: refusal.RetryAfter, Retryable: refusal.Retryable}
	case errors.Is(err, ErrInvalid):
		return Status{Code: http.StatusBadRequest}
	case errors.Is(err, ErrNotFound):
		return Status{Code: http.StatusNotFound}
	case errors.Is(err, ErrConflict), errors.Is(err, ErrInFlight), errors.Is(err, ErrTerminal), errors.Is(err, ErrPruned), errors.Is(err, ErrUnbalanced):
		return Status{Code: http.StatusConflict}
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrStale), errors.Is(err, ErrUnknownOutcome), errors.Is(err, ErrClosed), errors.Is(err, ErrNotReady):
		return Status{Code: http.StatusServiceUnavailable, RetryAfter: retryUnavailable, Retryable: true}
	}
	return Status{Code: http.StatusInternalServerError}
}

func (r Reason) code() int {
	switch r {
	case ReasonUnauthenticated:
		return http.StatusUnauthorized
	case ReasonModel, ReasonRegion, ReasonGuardrail, ReasonGated, ReasonUnpriced:
		return http.StatusForbidden
	case ReasonMoney:
		return http.StatusPaymentRequired
	case ReasonFrozen:
		return http.StatusLocked
	case ReasonCredit:
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}
