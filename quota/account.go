package quota

import (
	"errors"
	"fmt"

	"github.com/tallystick-go/tallystick/governance/amount"
)

// The errors of accounts. Nothing changed when one is returned.
var (
	// ErrOverLimit: the amount does not fit.
	ErrOverLimit = errors.New("quota: over the limit")
	// ErrFrozen: the account takes nothing until it is unfrozen.
	ErrFrozen = errors.New("quota: account is frozen")
	// ErrUnderflow: more is given back than is held. The caller's books are wrong.
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
	Observed  int64 // what was seen of uncertain attempts; never charged by itself
	Frozen    bool  // takes nothing until an operator looked at it
}

// Verdict says whether an amount fits.
type Verdict struct {
	OK        bool
	Frozen    bool  // refused because the account is frozen
	Never     bool  // refused because the amount is larger than the limit
	Pending   bool  // refused only because of what is reserved, which may be returned at any moment
	Remaining int64 // what could be reserved, never below zero
}

// Check judges an amount against a limit and changes nothing. A negative limit or
// amount never fits.
func (a Account) Check(limit, need int64) Verdict {
	if limit < 0 || need < 0 {
		return Verdict{Never: true}
	}
	settled, err := amount.Sum(a.Consumed, a.Uncertain, a.Granted)
	if err != nil {
		return Verdict{Frozen: a.Frozen, Never: need > limit}
	}
	v := Verdict{Frozen: a.Frozen, Never: need > limit}
	held, err := amount.Add(settled, a.Reserved)
	if err == nil && held < limit {
		v.Remaining = limit - held
	}
	fits := err == nil && held <= limit && need <= limit-held
	v.OK = fits && !a.Frozen
	v.Pending = !fits && !v.Never && !a.Frozen && settled <= limit && need <= limit-settled
	return v
}

// Reserve takes an amount that fits. Errors: ErrFrozen, ErrOverLimit, ErrInvalid.
func (a Account) Reserve(limit, need int64) (Account, error) {
	switch v := a.Check(limit, need); {
	case need < 0 || limit < 0:
		return a, fmt.Errorf("%w: limit and amount must not be negative", ErrInvalid)
	case v.Frozen:
		return a, ErrFrozen
	case !v.OK:
		return a, ErrOverLimit
	}
	a.Reserved += need
	return a, nil
}

// Settle gives back what was reserved and consumes what was used; an overrun is
// recorded in full, above any limit. Errors: ErrInvalid, ErrUnderflow,
// amount.ErrOverflow.
func (a Account) Settle(reserved, used int64) (Account, error) {
	out, err := a.Cancel(reserved)
	if err != nil || used < 0 {
		return a, errors.Join(err, negative(used))
	}
	if out.Consumed, err = amount.Add(a.Consumed, used); err != nil {
		return a, err
	}
	return out, nil
}

// Hold keeps what was reserved as uncertain, and what was seen apart.
// Errors: ErrInvalid, ErrUnderflow, amount.ErrOverflow.
func (a Account) Hold(reserved, observed int64) (Account, error) {
	out, err := a.Cancel(reserved)
	if err != nil || observed < 0 {
		return a, errors.Join(err, negative(observed))
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
		return a, ErrUnderflow
	}
	a.Reserved -= reserved
	return a, nil
}

// Resolve replaces an uncertain amount by what an operator found to be used.
// Errors: ErrInvalid, ErrUnderflow, amount.ErrOverflow.
func (a Account) Resolve(uncertain, used int64) (Account, error) {
	switch {
	case uncertain < 0 || used < 0:
		return a, negative(min(uncertain, used))
	case uncertain > a.Uncertain:
		return a, ErrUnderflow
	}
	consumed, err := amount.Add(a.Consumed, used)
	if err != nil {
		return a, err
	}
	a.Uncertain -= uncertain
	a.Consumed = consumed
	return a, nil
}

// Freeze stops the account from taking anything.
func (a Account) Freeze() Account { a.Frozen = true; return a }

// Unfreeze lets the account take again.
func (a Account) Unfreeze() Account { a.Frozen = false; return a }

func negative(n int64) error {
	if n >= 0 {
		return nil
	}
	return fmt.Errorf("%w: an amount must not be negative", ErrInvalid)
}
