package quota

import (
	"errors"
	"fmt"

	"github.com/tallystick-go/tallystick/governance/amount"
)

// The errors of accounts. Nothing changed when one is returned.
var (
	// ErrOverLimit reports an amount that does not fit.
	ErrOverLimit = errors.New("quota: over the limit")
	// ErrFrozen reports an account that takes nothing until it is unfrozen.
	ErrFrozen = errors.New("quota: account is frozen")
	// ErrUnderflow reports that more was to be given back than is held: the
	// caller's record and the account disagree.
	ErrUnderflow = errors.New("quota: more is given back than is held")
)

// Account counts one quantity in one window. The zero value is an account in which
// nothing happened.
//
// Units: tokens or microUSD, as the owner of the account says.
type Account struct {
	Consumed  int64 // used, known
	Uncertain int64 // perhaps used: bounds of attempts whose use is not known
	Reserved  int64 // bounds of attempts on their way
	Granted   int64 // authority that was handed out to nodes
	Observed  int64 // what was seen of uncertain attempts, in all; never charged by itself
	Frozen    bool  // takes nothing until an operator has looked at it
}

// Validate refuses an account that no history leads to. Errors: ErrInvalid.
func (a Account) Validate() error {
	if a.Consumed < 0 || a.Uncertain < 0 || a.Reserved < 0 || a.Granted < 0 || a.Observed < 0 {
		return fmt.Errorf("%w: an account has a negative sum: %+v", ErrInvalid, a)
	}
	return nil
}

// Verdict says whether an amount fits.
type Verdict struct {
	OK      bool
	Frozen  bool // refused because the account is frozen
	Never   bool // refused because the amount is above the limit: no settlement makes it fit
	Pending bool // refused only because of what is reserved, which may be returned at any moment
	// Remaining is what could be reserved if the account is not frozen; never negative.
	Remaining int64
}

// Check judges an amount against a limit and changes nothing. A negative limit or
// amount never fits, and nothing fits an account that is not valid.
func (a Account) Check(limit, need int64) Verdict {
	if limit < 0 || need < 0 {
		return Verdict{Never: true}
	}
	v := Verdict{Frozen: a.Frozen, Never: need > limit}
	if a.Validate() != nil {
		return v
	}
	settled, err := amount.Sum(a.Consumed, a.Uncertain, a.Granted)
	if err != nil || settled > limit {
		return v
	}
	fits := false
	if free := limit - settled; a.Reserved <= free {
		v.Remaining = free - a.Reserved
		fits = need <= v.Remaining
	}
	v.OK = fits && !a.Frozen
	v.Pending = !fits && !v.Never && !a.Frozen && need <= limit-settled
	return v
}

// Reserve takes an amount that fits. Errors: ErrFrozen, ErrOverLimit, ErrInvalid.
func (a Account) Reserve(limit, need int64) (Account, error) {
	if limit < 0 || need < 0 {
		return a, fmt.Errorf("%w: reserving %d under a limit of %d", ErrInvalid, need, limit)
	}
	if err := a.Validate(); err != nil {
		return a, err
	}
	switch v := a.Check(limit, need); {
	case v.Frozen:
		return a, ErrFrozen
	case !v.OK:
		return a, fmt.Errorf("%w: %d under a limit of %d, of which %d remains", ErrOverLimit, need, limit, v.Remaining)
	}
	a.Reserved += need
	return a, nil
}

// Settle gives back what was reserved and consumes what was used. An overrun is
// recorded in full, above any limit. A frozen account is settled like any other.
//
// Errors: ErrInvalid, ErrUnderflow, amount.ErrOverflow.
func (a Account) Settle(reserved, used int64) (Account, error) {
	out, err := a.Cancel(reserved)
	if err != nil {
		return a, err
	}
	if used < 0 {
		return a, negative(used)
	}
	if out.Consumed, err = amount.Add(a.Consumed, used); err != nil {
		return a, err
	}
	return out, nil
}

// Hold keeps what was reserved as uncertain, and what was seen apart.
//
// Errors: ErrInvalid, ErrUnderflow, amount.ErrOverflow.
func (a Account) Hold(reserved, observed int64) (Account, error) {
	out, err := a.Cancel(reserved)
	if err != nil {
		return a, err
	}
	if observed < 0 {
		return a, negative(observed)
	}
	if out.Uncertain, err = amount.Add(a.Uncertain, reserved); err != nil {
		return a, err
	}
	if out.Observed, err = amount.Add(a.Observed, observed); err != nil {
		return a, err
	}
	return out, nil
}

// Cancel gives back what was reserved. Errors: ErrInvalid, ErrUnderflow.
func (a Account) Cancel(reserved int64) (Account, error) {
	switch {
	case reserved < 0:
		return a, negative(reserved)
	case reserved > a.Reserved:
		return a, fmt.Errorf("%w: %d reserved, of which the account has %d", ErrUnderflow, reserved, a.Reserved)
	}
	a.Reserved -= reserved
	return a, nil
}

// Resolve replaces an uncertain amount by what an operator found to be used. What was
// observed stays on record.
//
// Errors: ErrInvalid, ErrUnderflow, amount.ErrOverflow.
func (a Account) Resolve(uncertain, used int64) (Account, error) {
	switch {
	case uncertain < 0 || used < 0:
		return a, negative(min(uncertain, used))
	case uncertain > a.Uncertain:
		return a, fmt.Errorf("%w: %d uncertain, of which the account has %d", ErrUnderflow, uncertain, a.Uncertain)
	}
	consumed, err := amount.Add(a.Consumed, used)
	if err != nil {
		return a, err
	}
	a.Uncertain -= uncertain
	a.Consumed = consumed
	return a, nil
}

// Freeze stops the account from taking anything. What it holds can still be settled.
func (a Account) Freeze() Account { a.Frozen = true; return a }

// Unfreeze lets the account take again.
func (a Account) Unfreeze() Account { a.Frozen = false; return a }

func negative(n int64) error {
	return fmt.Errorf("%w: the amount %d is negative", ErrInvalid, n)
}
