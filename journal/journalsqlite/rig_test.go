package journalsqlite_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/quota"
)

var anAccount = escrow.Account{
	Policy: "p", Rule: "r", Subject: policy.Subject{Team: "t"}, Period: quota.Month,
	Window: quota.Window{Start: 1_785_542_400_000_000, End: 1_788_220_800_000_000},
}

// grantAll is an authority that grants what it is asked for.
func grantAll(h *escrow.Heartbeat) *escrow.Answer {
	a := &escrow.Answer{Now: anAccount.Window.Start, Definitions: []escrow.Definition{{Account: anAccount, Hard: true, Limit: 1 << 40, Grant: 1000, Renew: time.Second}}}
	for _, r := range h.Requests {
		a.Grants = append(a.Grants, escrow.Grant{ID: r.ID, Account: r.Account, Amount: r.Amount, ExpiresAt: anAccount.Window.End})
	}
	for _, r := range h.Reports {
		a.Receipts = append(a.Receipts, escrow.Receipt{Grant: r.Grant, Ending: r.Ending})
	}
	for _, m := range h.Meters {
		a.Receipts = append(a.Receipts, escrow.Receipt{Grant: m.ID})
	}
	return a
}

func beat(ctx context.Context, j *journal.Journal) error {
	h, err := j.Next(ctx, false)
	if err != nil {
		return err
	}
	return j.Take(ctx, h, grantAll(h), time.Now())
}

// credit gets so much, or more.
func credit(ctx context.Context, j *journal.Journal, n int64) error {
	if err := beat(ctx, j); err != nil {
		return err
	}
	if err := j.Reserve(ctx, journal.Reservation{ID: journal.NewID(), Needs: []journal.Need{hard(n)}}); !errors.Is(err, journal.ErrShortage) {
		return fmt.Errorf("nothing is short: %w", err)
	}
	return beat(ctx, j)
}

func hard(n int64) journal.Need {
	return journal.Need{Account: anAccount, Amount: amount.MicroUSD(n)}
}
