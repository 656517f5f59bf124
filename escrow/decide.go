package escrow

import (
	"time"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/quota"
)

// Decide answers one request from the account of its budget. A grant is sized by demand: it
// is what was asked for, but not more than one grant of the budget (or Least, where a single
// attempt needs more than that) nor than what is left. Where less than Least is left there is none.
// It lasts for ttl, or until the window ends.
//
// D is the budget's definition in force, nil where there is none.
//
// Units: now is µs.
func Decide(r *Request, d *Definition, a quota.Account, now int64, ttl time.Duration) (Grant, *Denial) {
	if d == nil || !d.Hard || r.Account != d.Account || !d.Account.Window.Contains(now) {
		return Grant{}, &Denial{ID: r.ID, Reason: Unknown}
	}
	left := amount.MicroUSD(a.Check(int64(d.Limit), 0).Remaining)
	if a.Frozen {
		return Grant{}, &Denial{ID: r.ID, Reason: Frozen}
	}
	granted := min(r.Amount, max(d.Grant, r.Least), left)
	if granted < r.Least {
		reason := NoRoom
		back := a
		back.Reserved, back.Granted = 0, 0
		if back.Check(int64(d.Limit), 0).Remaining < int64(r.Least) {
			reason = Spent
		}
		return Grant{}, &Denial{ID: r.ID, Reason: reason, Left: left}
	}
	expires := d.Account.Window.End
	if life := max(ttl.Microseconds(), 1); life < expires-now {
		expires = now + life
	}
	return Grant{ID: r.ID, Account: r.Account, Amount: granted, ExpiresAt: expires}, nil
}
