package lease

import (
	"errors"
	"fmt"
	"time"
)

// The errors of this package. Compare with errors.Is; none of them ever carries a
// statement or a connection string.
var (
	// ErrHeld: another holder has the lease. See HeldError.
	ErrHeld = errors.New("lease: held by another")
	// ErrLost: the tenure is over, because another took the lease, because it lapsed, or because it was
	// released. Stop what depends on it; acquire again to go on. See LostError.
	ErrLost = errors.New("lease: lost")
	// ErrNotHeld: this process does not hold the lease, or does not trust that it does. Do nothing in this cycle.
	ErrNotHeld = errors.New("lease: not held by this process")
	// ErrGivenUp is the cause of a context that ended because no renewal was confirmed within the deadline.
	ErrGivenUp = errors.New("lease: given up, no renewal was confirmed in time")
	// ErrClosed: the keeper was closed, or is about to be.
	ErrClosed = errors.New("lease: the keeper was closed")
	// ErrHistoryRegressed: the store shows less than this process has seen. See HistoryError.
	ErrHistoryRegressed = errors.New("lease: the store's history went back")
	// ErrInvalid: refused before anything was read or written. See FieldError.
	ErrInvalid = errors.New("lease: invalid")
	// ErrUnavailable: the store could not answer, and nothing changed. It is not an answer: a tenure goes on,
	// and ends, by the store's clock.
	ErrUnavailable = errors.New("lease: store unavailable")
	// ErrUnknownOutcome: the change may have been made or not. Repeat the call.
	ErrUnknownOutcome = errors.New("lease: outcome unknown")
	// ErrNotShared: the store serves one machine. See Leaser.Shared and KeeperOptions.OneMachine.
	ErrNotShared = errors.New("lease: the store cannot be shared by several machines: each would grant itself the lease")
	// ErrBusy: Close ended before the work had stopped. See BusyError.
	ErrBusy = errors.New("lease: not released, its work has not stopped")
)

// FieldError says which field of the input was refused and why. It is ErrInvalid.
type FieldError struct {
	Field string
	Why   string
}

func (e *FieldError) Error() string { return "lease: invalid " + e.Field + ": " + e.Why }

// Is makes errors.Is(err, ErrInvalid) hold.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

func refuse(field, why string) error { return &FieldError{Field: field, Why: why} }

// HeldError says who has a lease that was asked for. It is ErrHeld.
type HeldError struct {
	Name string
	// Row is what the store showed when the statement began: others may have come first since then, so that
	// it need not be held any more. It is zero with Fenced.
	Row Row
	// Fenced says that the tenure is over and that a transaction which was fenced with it is still open. It is
	// waited for; ask again.
	Fenced bool
}

func (e *HeldError) Error() string {
	switch {
	case e.Fenced:
		return fmt.Sprintf("%s: %s, whose last fenced transaction has not ended", ErrHeld, e.Name)
	case e.Row.Held():
		return fmt.Sprintf("%s: %s, by %s in generation %d for another %s", ErrHeld, e.Name, e.Row.Holder, e.Row.Generation, e.Row.Remaining().Round(time.Millisecond))
	}
	return fmt.Sprintf("%s: %s", ErrHeld, e.Name)
}

// Is makes errors.Is(err, ErrHeld) hold.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// LostError says what a store shows in place of a tenure. It is ErrLost.
type LostError struct {
	Held Lease // what was presented
	Row  Row   // what is there
}

func (e *LostError) Error() string {
	why := "it was released"
	switch {
	case e.Row.Generation == 0:
		why = "the store does not say to whom"
	case e.Row.Generation != e.Held.Generation:
		why = fmt.Sprintf("generation %d was acquired since", e.Row.Generation)
	case e.Row.Holder != "" && e.Row.Holder != e.Held.Holder:
		why = "another holder has this generation"
	case e.Row.Holder != "":
		why = "it lapsed"
	}
	return fmt.Sprintf("%s: %s, generation %d: %s", ErrLost, e.Held.Name, e.Held.Generation, why)
}

// Is makes errors.Is(err, ErrLost) hold.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// HistoryError says that a store shows less than this process has seen of it: a restored backup, a failover
// to a replica that lacked acknowledged commits, or another database. It is ErrHistoryRegressed. Nothing was
// changed.
//
// Two processes may each have been told that they hold the lease. Find out which history is right. A process
// that is started again takes the store as it is; one that goes on does so once the store shows more
// than it has seen.
type HistoryError struct {
	Name   string
	Seen   Generation // the highest that this process has seen
	Shown  Generation // what the store shows; 0: no such row
	Origin bool       // the data is of another origin
}

func (e *HistoryError) Error() string {
	if e.Origin {
		return fmt.Sprintf("%s: %s: this is another database than before, or it was made anew; nothing was changed; see which one is right, then restart this process", ErrHistoryRegressed, e.Name)
	}
	return fmt.Sprintf("%s: %s was at generation %d and is at %d; nothing was changed; see which history is right, then restart this process", ErrHistoryRegressed, e.Name, e.Seen, e.Shown)
}

// Is makes errors.Is(err, ErrHistoryRegressed) hold.
func (e *HistoryError) Is(target error) bool { return target == ErrHistoryRegressed }

// BusyError lists what a Keeper did not release. It is ErrBusy, and wraps the context's error.
type BusyError struct {
	Names []string
	Cause error
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%s: %q; others wait until the tenures have lapsed", ErrBusy, e.Names)
}

// Unwrap returns ErrBusy and the context's error.
func (e *BusyError) Unwrap() []error { return []error{ErrBusy, e.Cause} }
