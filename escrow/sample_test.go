package escrow_test

import (
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/quota"
)

var noon = time.Date(2026, time.March, 14, 12, 0, 0, 0, time.UTC)

// budgets makes a set of one document for team a: a hard budget and a soft one per day.
func budgets(t testing.TB, hard, soft int64) *policy.Set {
	t.Helper()
	day := quota.Calendar{Period: quota.Day}
	set, err := policy.NewSet([]policy.Document{{Name: "p", Subject: policy.Subject{Team: "a"}, Rules: []policy.Rule{
		{Name: "hard", FailurePolicy: policy.FailClosed, Budget: &policy.Budget{LimitMilliUSD: hard, HardCap: true, Calendar: day, Lease: &policy.Lease{GrantMilliUSD: max(hard/10, 1), RenewInterval: time.Second}}},
		{Name: "soft", FailurePolicy: policy.FailOpen, Budget: &policy.Budget{LimitMilliUSD: soft, Calendar: day, Tiers: []policy.Tier{{Threshold: 50}, {Threshold: 90}}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func definitions(t testing.TB, set *policy.Set, now time.Time) []escrow.Definition {
	t.Helper()
	list, err := escrow.Definitions(set, now.UnixMicro())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// grantID is the n-th id of a test.
func grantID(n int) escrow.GrantID {
	id := escrow.NewGrantID(noon)
	clear(id[7:8])
	clear(id[9:])
	id[6], id[14], id[15] = 0x70, byte(n>>8), byte(n)
	id[8] = 0x80
	return id
}

func bootID(n int) escrow.BootID { return escrow.BootID{15: byte(n)} }

// sample is a heartbeat with everything in it, and its answer.
func sample(t testing.TB) (*escrow.Heartbeat, *escrow.Answer) {
	t.Helper()
	set := budgets(t, 1000, 1000)
	defs := definitions(t, set, noon)
	hard, soft := defs[0].Account, defs[1].Account
	mark := policy.Mark{Namespace: policy.Namespace{1}, Generation: set.Generation(), Revision: 7}
	odd := hard
	odd.Subject = policy.Subject{User: `"quoted" \ user <é>`}
	h := &escrow.Heartbeat{
		Node: "node-1", Boot: bootID(1), BootNumber: 3, Sequence: 9, Answered: 8, Mark: mark,
		Reports: []escrow.Report{{Grant: grantID(1), Consumed: 10, Uncertain: 20, Observed: 5}, {Grant: grantID(2), Ending: escrow.Closed}, {Grant: grantID(3), Ending: escrow.Burned}},
		Meters:  []escrow.Meter{{ID: grantID(4), Account: soft, Consumed: 1, Uncertain: 2, Observed: 3, Pending: 4}},
		Requests: []escrow.Request{
			{ID: grantID(5), Account: hard, Amount: 50, Least: 5}, {ID: grantID(6), Account: odd, Amount: 1, Least: 1},
		},
	}
	a := &escrow.Answer{
		Mark: mark, Documents: set, Now: noon.UnixMicro(), Definitions: defs,
		Budgets:  []escrow.Budget{{Consumed: 1, Uncertain: 2, Reserved: 3, Granted: 4, Latch: 90, Frozen: true}, {}},
		Grants:   []escrow.Grant{{ID: grantID(5), Account: hard, Amount: 50, ExpiresAt: noon.UnixMicro() + 5}},
		Denials:  []escrow.Denial{{ID: grantID(6), Reason: escrow.Unknown, Left: 4}},
		Receipts: []escrow.Receipt{{Grant: grantID(1)}, {Grant: grantID(2), Ending: escrow.Closed}, {Grant: grantID(3), Ending: escrow.Closed, Late: true}, {Grant: grantID(4)}},
	}
	return h, a
}

func usd(n int64) amount.MicroUSD { return amount.MicroUSD(n) }
