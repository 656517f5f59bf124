package journal_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/journal/journaltest"
	"github.com/tallystick-go/tallystick/quota"
)

// A node counts what a soft budget uses, and is refused credit that it was not granted.
func Example() {
	ctx := context.Background()
	j, err := journal.Open(ctx, journaltest.NewMemory(), nil) // in a gateway: journalsqlite
	if err != nil {
		fmt.Println(err)
		return
	}
	defer j.Close()

	month := quota.Window{Start: 1_785_542_400_000_000, End: 1_788_220_800_000_000} // August 2026
	meter := escrow.Account{Policy: "research", Rule: "watched", Subject: policy.Subject{Team: "lab"}, Period: quota.Month, Window: month}
	budget := meter
	budget.Rule = "capped"

	one := journal.Reservation{ID: journal.NewID(), Needs: []journal.Need{{Account: meter, Amount: 5_000, Soft: true}}}
	fmt.Println(j.Reserve(ctx, one))
	fmt.Println(j.Settle(ctx, one.ID, journal.Used(1_200)))

	err = j.Reserve(ctx, journal.Reservation{ID: journal.NewID(), Needs: []journal.Need{{Account: budget, Amount: 5_000}}})
	var short *journal.Shortage
	if errors.As(err, &short) {
		fmt.Println(err, "- come back in", short.RetryAfter)
	}
	// Output:
	// <nil>
	// <nil>
	// journal: missing credit; policy "research" rule "capped" needs $0.005000 and has $0.000000 - come back in 1s
}
