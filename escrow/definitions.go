package escrow

import (
	"time"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
)

// What holds for a budget whose rule has no lease, or one without an interval.
const (
	// DefaultShare is the part of the limit that one grant is, rounded up.
	DefaultShare = 50
	// DefaultRenew is how often a node asks.
	DefaultRenew = 10 * time.Second
)

// Definitions lists the budgets of a set, by policy and rule, in the windows of their
// calendars at an instant: hard ones, for which nodes need grants, and soft ones, which they
// meter. Budgets that say unlimited have no account and are left out; so are those whose
// windows end by another clock than UTC, which the profile node rejects (see
// policy.Set.Enforce) and nobody therefore asks for.
//
// The size of a grant and the interval are those of the rule's lease, else DefaultShare of
// the limit and DefaultRenew.
//
// Units: now is µs. Errors: quota.ErrInvalid for an instant that is not between the years 1 and 9999.
//
// Source: ADR-045 "Accounts, windows and reports".
func Definitions(set *policy.Set, now int64) ([]Definition, error) {
	var out []Definition
	for doc, rule := range set.Rules() {
		b := rule.Budget
		if b == nil || b.Unlimited || b.Calendar.Zone != "" {
			continue
		}
		window, err := b.Calendar.Window(now)
		if err != nil {
			return nil, err
		}
		d := Definition{
			Account: Account{Policy: doc.Name, Rule: rule.Name, Subject: doc.Subject, Period: b.Calendar.Period, Window: window},
			Limit:   b.Limit(), Hard: b.HardCap, Renew: DefaultRenew,
		}
		d.Grant, err = amount.MulDivUp(d.Limit, 1, DefaultShare)
		if err != nil {
			return nil, err // a valid limit always divides
		}
		if b.Lease != nil {
			d.Grant = b.Lease.Grant()
			if b.Lease.RenewInterval > 0 {
				d.Renew = b.Lease.RenewInterval.Round(time.Millisecond)
			}
		}
		out = append(out, d)
	}
	return out, nil
}
