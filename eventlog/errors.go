package eventlog

import (
	"errors"
	"fmt"
)

// The errors of this package. Compare with errors.Is; none of them carries a statement, a
// connection string or an event's data.
var (
	// ErrInvalid: refused before anything was read or written. See FieldError.
	ErrInvalid = errors.New("eventlog: invalid")
	// ErrConflict: the stream is at another version than expected. Nothing was appended; read the
	// stream and decide again. See ConflictError.
	ErrConflict = errors.New("eventlog: the stream is at another version")
	// ErrDuplicate: an event's id is taken by another event. Nothing was appended; ids are unique in the log.
	ErrDuplicate = errors.New("eventlog: the id belongs to another event")
	// ErrUnavailable: the store could not answer, and nothing was appended or saved. Try again.
	ErrUnavailable = errors.New("eventlog: store unavailable")
	// ErrUnknownOutcome: it may have been appended or saved, or not. Repeat it with the same ids: what was
	// done is not done twice.
	ErrUnknownOutcome = errors.New("eventlog: outcome unknown")
	// ErrResync: the cursor belongs to another history than the database's. See ResyncError, which says
	// why and what to do.
	ErrResync = errors.New("eventlog: the cursor is of another history")
	// ErrHistoryRegressed: the database shows less than was seen of it before. It was restored, or a replica
	// that lacked commits took over. Nothing is read from it until that is accepted.
	ErrHistoryRegressed = errors.New("eventlog: history went back")
	// ErrPruned: retention removed events that the cursor has not delivered. Start from a fresh
	// state and its cursor, or from what is left (Store.At).
	ErrPruned = errors.New("eventlog: events were pruned before they were delivered")
	// ErrStandby: the database is a standby, whose snapshots do not list what is running. Connect to the primary.
	ErrStandby = errors.New("eventlog: the log is read on the primary only")
	// ErrInTransaction: a cursor was asked for in a transaction that has written, or whose statements do not share
	// a snapshot. Use one that only reads, at repeatable read or above.
	ErrInTransaction = errors.New("eventlog: a cursor needs a repeatable-read transaction that has written nothing")
	// ErrTooManyOpen: more transactions are open in the cluster than a cursor holds (MaxOpen).
	ErrTooManyOpen = errors.New("eventlog: too many transactions are open for a cursor")
	// ErrFuture: rows are written by transactions that this cluster has not had yet: they were restored or
	// replicated from another. They would be hidden for a long time; Store.Repair renumbers them.
	ErrFuture = errors.New("eventlog: rows from another cluster's transactions: run Repair once, with nobody appending")
	// ErrTaken: another process has taken the checkpoint over. Claim it again to go on from where that came to.
	ErrTaken = errors.New("eventlog: the checkpoint was taken over")
	// ErrNotFound: there is no such checkpoint or event.
	ErrNotFound = errors.New("eventlog: not found")
	// ErrMayNotAppend: a projection or a local view tried to append. Append from an effect, or from outside.
	ErrMayNotAppend = errors.New("eventlog: a projection may not append")
	// ErrDeclined is what a handler returns, wrapped, for an event that it cannot act on because a record is
	// missing: it declines rather than invents. The event is set aside at once and can be retried.
	ErrDeclined = errors.New("eventlog: declined")
	// ErrPoison is what a handler returns, wrapped, for an event that no repetition will help.
	ErrPoison = errors.New("eventlog: poison")
)

// FieldError says which field of the input was refused and why. It never repeats the value.
type FieldError struct {
	Field string
	Why   string
}

func (e *FieldError) Error() string { return "eventlog: invalid " + e.Field + ": " + e.Why }

// Is makes errors.Is(err, ErrInvalid) hold.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

func refuse(field, why string) error { return &FieldError{Field: field, Why: why} }

// ConflictError says which append met a stream at another version. It is ErrConflict.
type ConflictError struct {
	Index    int   // of the append among those of the call
	Expected int64 // the version that it expected; -1 where it expected none and lost a race
	Actual   int64 // the stream's; -1 where another append of the same call is in the way
}

func (e *ConflictError) Error() string {
	switch {
	case e.Expected < 0:
		return "eventlog: others kept appending to the stream"
	case e.Actual < 0:
		return fmt.Sprintf("eventlog: the stream is at another version than %d after an append of the same call", e.Expected)
	}
	return fmt.Sprintf("eventlog: the stream is at version %d, not %d", e.Actual, e.Expected)
}

// Is makes errors.Is(err, ErrConflict) hold.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// Reason says why a cursor cannot go on.
type Reason int

// The reasons.
const (
	ForeignCluster  Reason = iota + 1 // it was made in another cluster
	ForeignLog                        // it was made in another log: another schema or file, or this one before it was restored or repaired
	TimelineChanged                   // another server took over; what it lacked of the old one is not known
	Regressed                         // the log ends before what was delivered
)

func (r Reason) String() string {
	switch r {
	case ForeignCluster:
		return "it was made in another cluster"
	case ForeignLog:
		return "it was made in another log, or before this one was restored or repaired"
	case TimelineChanged:
		return "another server took over since"
	case Regressed:
		return "the log ends before what it has delivered"
	}
	return "no reason"
}

// ResyncError refuses a cursor. It is ErrResync, and ErrHistoryRegressed where the log ends too early.
//
// There are three ways to go on: a fresh state together with its cursor (eventlogpg's HeadTx); the beginning (the zero Cursor);
// or Store.At with a position that was certainly delivered in both histories, which delivers what comes after it again. A
// checkpoint kept in the log's own database went the same way as the events: Claim gives it, fit to go on.
type ResyncError struct {
	Reason  Reason
	Through int64 // up to which position the cursor had delivered
	Head    int64 // the last position of the log as it is now
}

func (e *ResyncError) Error() string {
	return fmt.Sprintf("eventlog: the cursor cannot go on: %s (it was at position %d, the log is at %d); take a fresh state and its cursor, or start from an earlier position", e.Reason, e.Through, e.Head)
}

// Is makes errors.Is hold for ErrResync and, where history went back, ErrHistoryRegressed.
func (e *ResyncError) Is(target error) bool {
	return target == ErrResync || target == ErrHistoryRegressed && e.Reason == Regressed
}
