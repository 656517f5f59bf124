package governance

import (
	"context"
	"fmt"

	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/quota"
)

// balance compares what a node's journal has reserved with its reservations, and those with the
// permits that they belong to.
func (g *Governor) balance(ctx context.Context, v *VerifyReport) error {
	if g.credit == nil {
		return nil
	}
	loaded, err := g.store.View(ctx, &Plan{Journal: &journal.Plan{Everything: true, OnTheirWay: true}})
	if err != nil {
		return err
	}
	list, err := journal.Audit(loaded.Journal)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	for i := range list {
		grant := &list[i].Grant
		key := AccountKey{constraintOf(&grant.Account).ID, grant.Account.Window.Start}
		v.Differences = append(v.Differences, Difference{
			Account: key, Kind: KindMoney, Why: "in the journal, " + list[i].String(),
			Stored: quota.Account{Reserved: int64(grant.Reserved)}, Computed: quota.Account{Reserved: int64(list[i].Computed)},
		})
	}
	records := loaded.Journal.Records
	for len(records) > 0 {
		page := records[:min(len(records), verifyPage)]
		if err := g.balancePermits(ctx, page, v); err != nil {
			return err
		}
		records = records[len(page):]
	}
	return nil
}

// balancePermits looks at reservations and permits of the same ids at one moment.
func (g *Governor) balancePermits(ctx context.Context, page []journal.Record, v *VerifyReport) error {
	plan := &Plan{Journal: &journal.Plan{}, NoTerms: true}
	for i := range page {
		plan.Journal.Reservations = append(plan.Journal.Reservations, page[i].ID)
		plan.Permits = append(plan.Permits, PermitID(page[i].ID))
	}
	sortPermits(plan.Permits)
	loaded, err := g.store.View(ctx, plan)
	if err != nil {
		return err
	}
	permits := make(map[PermitID]*Record, len(plan.Permits))
	for i := range loaded.Permits {
		permits[plan.Permits[i]] = &loaded.Permits[i]
	}
	for i := range loaded.Journal.Records {
		r := &loaded.Journal.Records[i]
		if r.State != journal.Reserved {
			continue // it has ended meanwhile
		}
		v.Reservations++
		// Whoever resolves beside the owner leaves the reservation to the next opening.
		if p := permits[PermitID(r.ID)]; p.Flags&FlagJournal == 0 || (p.State != StateOpen && p.State != StateResolved) {
			v.Differences = append(v.Differences, Difference{
				Kind: KindMoney, Why: fmt.Sprintf("the journal has reservation %s on its way, and its permit is %s", r.ID, p.State),
			})
		}
	}
	return nil
}
