package journal

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
)

// The errors of a journal. Match them with errors.Is; nothing was reserved when one of
// them is returned by Reserve, ErrUnknownOutcome apart.
var (
	// ErrInvalid: the call itself is wrong. See *FieldError.
	ErrInvalid = errors.New("journal: invalid")
	// ErrShortage: what the node holds does not cover the need. See *Shortage.
	ErrShortage = errors.New("journal: missing credit")
	// ErrConflict: the id was used with other needs, or settled with another outcome.
	ErrConflict = errors.New("journal: conflict")
	// ErrEnded: the reservation has ended; it does not come back.
	ErrEnded = errors.New("journal: reservation has ended")
	// ErrNotFound: the journal does not know the reservation, or no more.
	ErrNotFound = errors.New("journal: no such reservation")
	// ErrFenced: another opening has taken the journal over. This one must stop.
	ErrFenced = errors.New("journal: another opening has taken over")
	// ErrPoisoned: more was used than was reserved. Nothing is reserved until an operator
	// has looked at it. See *PoisonedError.
	ErrPoisoned = errors.New("journal: poisoned by an overrun")
	// ErrUnavailable: the journal cannot be read or written; nothing was changed.
	ErrUnavailable = errors.New("journal: storage is unavailable")
	// ErrUnknownOutcome: a commit was begun and nobody can say whether it happened. Treat
	// it as reserved, and settle it.
	ErrUnknownOutcome = errors.New("journal: outcome of the commit is unknown")
	// ErrCorrupt: the store returned what no version of this library writes. Nothing is
	// reserved from it, and nothing replaces it.
	ErrCorrupt = errors.New("journal: stored value is corrupt")
	// ErrClosed: the journal was closed.
	ErrClosed = errors.New("journal: closed")
)

// FieldError says which part of a call is wrong. It wraps ErrInvalid.
type FieldError struct {
	Field string
	Why   string
}

func (e *FieldError) Error() string { return fmt.Sprintf("journal: %s %s", e.Field, e.Why) }

// Unwrap returns ErrInvalid.
func (e *FieldError) Unwrap() error { return ErrInvalid }

func invalid(field, why string) error { return &FieldError{field, why} }

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// Lack is one account whose credit does not cover a need.
type Lack struct {
	Account escrow.Account
	Need    amount.MicroUSD
	Free    amount.MicroUSD // what is held and could be reserved now
	// Denied is what the authority last said about asking for more; zero when it was
	// not asked, or has granted since. Left is what it could have granted then.
	Denied escrow.DenialReason
	Left   amount.MicroUSD
}

// Shortage reports that credit is missing on this node. The syncer knows and asks for
// it. It wraps ErrShortage.
type Shortage struct {
	Lacks      []Lack
	RetryAfter time.Duration // nominal
}

func (e *Shortage) Error() string {
	var b strings.Builder
	b.WriteString(ErrShortage.Error())
	for i, l := range e.Lacks {
		if i == 3 {
			fmt.Fprintf(&b, " and %d more", len(e.Lacks)-i)
			break
		}
		fmt.Fprintf(&b, "; policy %q rule %q needs %s and has %s", l.Account.Policy, l.Account.Rule, l.Need, l.Free)
	}
	return b.String()
}

// Unwrap returns ErrShortage.
func (e *Shortage) Unwrap() error { return ErrShortage }

// Spent reports whether some lacking account is spent or frozen for the rest of its
// window, as the authority said: coming back soon does not help.
func (e *Shortage) Spent() bool {
	for _, l := range e.Lacks {
		if l.Denied == escrow.Spent || l.Denied == escrow.Frozen {
			return true
		}
	}
	return false
}

// PoisonedError says what poisoned the journal. It wraps ErrPoisoned.
type PoisonedError struct{ Poison Poison }

func (e *PoisonedError) Error() string {
	return fmt.Sprintf("%s: reservation %s used %s of %s; an operator must release it", ErrPoisoned, e.Poison.Reservation, e.Poison.Used, e.Poison.Bound)
}

// Unwrap returns ErrPoisoned.
func (e *PoisonedError) Unwrap() error { return ErrPoisoned }

// FencedError says who took over, or why the authority refuses this boot: what is held must
// not be spent any more. It wraps ErrFenced.
type FencedError struct{ Fenced *escrow.Fenced }

func (e *FencedError) Error() string { return fmt.Sprintf("%s: %s", ErrFenced, e.Fenced) }

// Unwrap returns ErrFenced and what a Syncer knows it by.
func (e *FencedError) Unwrap() []error { return []error{ErrFenced, e.Fenced} }
