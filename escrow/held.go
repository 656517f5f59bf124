package escrow

import (
	"errors"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/quota"
)

// Held is what an authority knows of one grant or one meter. What it adds to its account is
// always its Share, so that an account is the sum of what is held in it.
type Held struct {
	Meter bool
	// Amount is what was granted; zero for a meter.
	Amount amount.MicroUSD
	// As it was reported. These never fall.
	Consumed, Uncertain, Observed amount.MicroUSD
	// Pending is a meter's, as it was reported last.
	Pending amount.MicroUSD
	Ending  Ending
	// Resolved is the part of Uncertain that operators have looked into, and Found what they
	// found to be used of it.
	Resolved, Found amount.MicroUSD
}

// Share is what a grant or meter adds to its account; a Delta is the difference of two.
type Share struct {
	Consumed  amount.MicroUSD
	Uncertain amount.MicroUSD
	Granted   amount.MicroUSD // still out, or a meter's pending money
	Observed  amount.MicroUSD
}

// Delta is a change of an account. Its parts may be negative.
type Delta Share

// errFell says that a sum was reported lower than before.
var errFell = &Error{Why: "must not report less than before"}

// Granting is what is held of a grant when it is made, and what its account takes.
func Granting(granted amount.MicroUSD) (Held, Delta) {
	return Held{Amount: granted}, Delta{Granted: granted}
}

// Share is what is in the account. Every grant that is valid has one.
func (h Held) Share() Share {
	return Share{Consumed: h.Consumed + h.Found, Uncertain: h.Uncertain - h.Resolved, Granted: h.out(), Observed: h.Observed}
}

// out is what may still be spent, and is spent for all that the account knows.
func (h Held) out() amount.MicroUSD {
	switch {
	case h.Ending != Open:
		return 0
	case h.Meter:
		return h.Pending
	}
	return max(h.Amount-h.Consumed-h.Uncertain, 0)
}

// Overrun is what a grant used beyond its amount. It is counted in full.
func (h Held) Overrun() amount.MicroUSD {
	if h.Meter {
		return 0
	}
	return max(h.Consumed+h.Uncertain-h.Amount, 0)
}

// Validate refuses what no history leads to. Errors: *Error.
func (h Held) Validate() error {
	for _, n := range [...]amount.MicroUSD{h.Amount, h.Consumed, h.Uncertain, h.Observed, h.Pending, h.Resolved, h.Found} {
		if n < 0 {
			return refuse("", "must not have a negative sum")
		}
	}
	_, err := amount.Sum(h.Consumed, h.Uncertain, h.Found, h.Pending)
	switch {
	case err != nil:
		return refuse("", "must have sums that fit 63 bits together")
	case h.Ending > Burned:
		return refuse("ending", "must be open, closed or burned")
	case h.Meter == (h.Amount > 0):
		return refuse("amount", "must be more than zero for a grant, and zero for a meter")
	case h.Resolved > h.Uncertain:
		return refuse("resolved", "must not be more than is uncertain")
	case h.Pending > 0 && (!h.Meter || h.Ending != Open):
		return refuse("pending", "must be zero for what is no open meter")
	case h.Ending == Burned && !h.Meter && h.Consumed+h.Uncertain < h.Amount:
		return refuse("uncertain", "must be all that is not consumed of a burned grant")
	}
	return nil
}

// Apply brings in a report of a grant. The first normal closure gives back what is proved
// unused; a burn makes all of it uncertain. A use beyond the amount is recorded in full.
// What has ended does not change: a report that says otherwise than what ended it is late.
//
// Errors: *Error for a report that falls below an earlier one or does not fit.
func (h Held) Apply(r *Report) (next Held, d Delta, late bool, err error) {
	if h.Meter {
		return h, Delta{}, false, refuse("grant", "must not be a meter")
	}
	next = h
	next.Consumed, next.Uncertain, next.Observed, next.Ending = r.Consumed, r.Uncertain, r.Observed, r.Ending
	if r.Ending == Burned {
		next.Uncertain = max(next.Uncertain, h.Amount-r.Consumed)
	}
	if h.Ending != Open {
		return h, Delta{}, next != h, nil
	}
	d, err = next.after(h)
	if err != nil {
		return h, Delta{}, false, err
	}
	return next, d, false, nil
}

// Measure brings in what a meter says. One that an operator has ended does not change.
//
// Errors: *Error for sums that fall or do not fit.
func (h Held) Measure(m *Meter) (next Held, d Delta, late bool, err error) {
	if !h.Meter {
		return h, Delta{}, false, refuse("id", "must not be a grant's")
	}
	if h.Ending != Open {
		return h, Delta{}, true, nil
	}
	next = h
	next.Consumed, next.Uncertain, next.Observed, next.Pending = m.Consumed, m.Uncertain, m.Observed, m.Pending
	d, err = next.after(h)
	if err != nil {
		return h, Delta{}, false, err
	}
	return next, d, false, nil
}

// after checks that h can follow an earlier state, and returns what that changes.
func (h Held) after(before Held) (Delta, error) {
	if h.Consumed < before.Consumed || h.Uncertain < before.Uncertain || h.Observed < before.Observed {
		return Delta{}, errFell
	}
	if err := h.Validate(); err != nil {
		return Delta{}, err
	}
	is, was := h.Share(), before.Share()
	return Delta{is.Consumed - was.Consumed, is.Uncertain - was.Uncertain, is.Granted - was.Granted, is.Observed - was.Observed}, nil
}

// Burn ends what is open on an operator's word, as a crash would: whatever is not known to be
// consumed becomes uncertain, and Resolve can look into it. What has ended does not change.
func (h Held) Burn() (Held, Delta, error) {
	if h.Ending != Open {
		return h, Delta{}, nil
	}
	next := h
	next.Uncertain, next.Pending, next.Ending = h.Uncertain+h.out(), 0, Burned
	d, err := next.after(h)
	if err != nil {
		return h, Delta{}, err
	}
	return next, d, nil
}

// Resolve replaces an uncertain amount by what an operator found to be used of it. The node
// may go on reporting the sums that it knows.
//
// Errors: *Error when less than that is uncertain.
func (h Held) Resolve(uncertain, used amount.MicroUSD) (Held, Delta, error) {
	if uncertain < 0 || used < 0 || uncertain > h.Uncertain-h.Resolved {
		return h, Delta{}, refuse("uncertain_microusd", "must not be more than is uncertain, nor negative")
	}
	found, err := amount.Add(h.Found, used)
	if err != nil {
		return h, Delta{}, refuse("used_microusd", "must fit 63 bits")
	}
	next := h
	next.Resolved += uncertain
	next.Found = found
	d, err := next.after(h)
	if err != nil {
		return h, Delta{}, err
	}
	return next, d, nil
}

// Add makes the change to an account. An account can be frozen and still takes it.
//
// Errors: quota.ErrUnderflow when more would be taken away than is there: account and
// grants disagree; *Error when a sum does not fit.
func (d Delta) Add(a quota.Account) (quota.Account, error) {
	for _, part := range [...]struct {
		to *int64
		by amount.MicroUSD
	}{{&a.Consumed, d.Consumed}, {&a.Uncertain, d.Uncertain}, {&a.Granted, d.Granted}, {&a.Observed, d.Observed}} {
		sum, err := amount.Add(*part.to, int64(part.by))
		if err != nil {
			return a, refuse("", "must leave the account's sums within 63 bits")
		}
		if sum < 0 {
			return a, quota.ErrUnderflow
		}
		*part.to = sum
	}
	return a, nil
}

// IsZero reports that nothing changes.
func (d Delta) IsZero() bool { return d == Delta{} }

// fell reports whether an error says that a sum fell.
func fell(err error) bool { return errors.Is(err, errFell) }
