package governance

import (
	"errors"
	"fmt"
	"time"
)

// The errors that any call may return, beside *Refusal. Match them with errors.Is.
var (
	// ErrInvalid: the call itself is wrong; nothing changed. See *FieldError.
	ErrInvalid = errors.New("governance: invalid")
	// ErrConflict: the permit id was used with other terms, or settled with another outcome.
	ErrConflict = errors.New("governance: conflict")
	// ErrInFlight: the permit id is open and belongs to another call.
	ErrInFlight = errors.New("governance: permit is in flight")
	// ErrTerminal: the permit id has ended. See *TerminalError for how.
	ErrTerminal = errors.New("governance: permit has ended")
	// ErrPruned: the permit id is older than what the store still remembers.
	ErrPruned = errors.New("governance: permit id is older than the prune horizon")
	// ErrNotFound: there is no such permit or account.
	ErrNotFound = errors.New("governance: not found")
	// ErrStale: what selection read (model, region, guardrail) changed while the
	// request was on its way; nothing was reserved; retry with a fresh selection.
	ErrStale = errors.New("governance: definitions changed during the request")
	// ErrUnavailable: the store cannot be reached or did not answer in time; nothing was reserved.
	ErrUnavailable = errors.New("governance: store is unavailable")
	// ErrNotReady: this node must not spend: it has not heard its authority yet, was fenced, is
	// leaving, or an overrun waits for an operator. Nothing was reserved; another node may do it.
	ErrNotReady = errors.New("governance: node is not ready")
	// ErrUnknownOutcome: a commit was sent and its answer was lost, and the truth
	// could not be learned in time. Treat the amounts as reserved.
	ErrUnknownOutcome = errors.New("governance: outcome of the commit is unknown")
	// ErrClosed: the Governor was closed.
	ErrClosed = errors.New("governance: governor is closed")
	// ErrCorrupt: the store returned a value that no version of this library writes.
	ErrCorrupt = errors.New("governance: stored value is corrupt")
	// ErrUnbalanced: the account does not count what its permits add up to. See *UnbalancedError.
	ErrUnbalanced = errors.New("governance: account is not what its permits add up to")
	// ErrNoSlot: the permit's concurrency slot expired and could not be had again; the work may go on without it.
	ErrNoSlot = errors.New("governance: concurrency slot was lost")
)

// Errors that only a Store returns, and only to the Governor.
var (
	// ErrRetry: the transaction provably did not commit and may succeed when repeated
	// (a deadlock, a serialization failure, a lost race on a unique key).
	ErrRetry = errors.New("governance: transaction must be repeated")
	// ErrLockTimeout: some row lock did not come in time; nothing was committed. The
	// Governor repeats the plan with SkipLocked.
	ErrLockTimeout = errors.New("governance: lock was not granted in time")
	// ErrPoison: the database refused the values of this transaction; nothing was
	// committed. The Governor splits the batch to find the request that caused it.
	ErrPoison = errors.New("governance: transaction was refused by the database")
)

// ErrSpendable: the grant may still be spent by its node. See *SpendableError for how long.
var ErrSpendable = errors.New("governance: the grant may still be spent")

// SpendableError says until when a node may spend from a grant that somebody wants to
// resolve, or report on a meter. It wraps ErrSpendable.
type SpendableError struct {
	ID    PermitID
	Until int64 // µs since the Unix epoch, the store's clock
}

func (e *SpendableError) Error() string {
	return fmt.Sprintf("%v: grant %s, until %s; resolve it then", ErrSpendable, e.ID, time.UnixMicro(e.Until).UTC().Format(time.RFC3339))
}
func (e *SpendableError) Unwrap() error { return ErrSpendable }

// FieldError says which field of a call is wrong and what would be right. It wraps ErrInvalid.
type FieldError struct {
	Field string // path in the call or document
	Why   string // what is wrong and what is allowed
}

func (e *FieldError) Error() string { return fmt.Sprintf("governance: invalid %s: %s", e.Field, e.Why) }
func (e *FieldError) Unwrap() error { return ErrInvalid }

func invalid(field, why string) error { return &FieldError{Field: field, Why: why} }

// TerminalError says how a permit ended. It wraps ErrTerminal.
type TerminalError struct {
	ID    PermitID
	State State
}

func (e *TerminalError) Error() string {
	return fmt.Sprintf("governance: permit %s is %s", e.ID, e.State)
}
func (e *TerminalError) Unwrap() error { return ErrTerminal }

// UnbalancedError says in what an account differs from its permits. It wraps ErrUnbalanced.
type UnbalancedError struct{ Difference Difference }

func (e *UnbalancedError) Error() string {
	return fmt.Sprintf("%v: %s at %d: %s", ErrUnbalanced, e.Difference.Account.Constraint, e.Difference.Account.WindowStart, e.Difference.Why)
}
func (e *UnbalancedError) Unwrap() error { return ErrUnbalanced }

// SettleError reports that a permit's outcome could not be recorded. The
// reservation stands (nothing is refunded) and the Governor goes on trying until
// it is closed, unless Err says that another outcome was recorded or that the
// permit is gone; the reply that came with this error is good.
type SettleError struct {
	ID  PermitID
	Err error
}

func (e *SettleError) Error() string {
	return fmt.Sprintf("governance: permit %s is not settled yet: %v", e.ID, e.Err)
}
func (e *SettleError) Unwrap() error { return e.Err }

// creditWait is the nominal wait for credit: the node asks its authority at once.
const creditWait = time.Second

// retryUnavailable is the nominal wait after a storage failure.
const retryUnavailable = time.Second
