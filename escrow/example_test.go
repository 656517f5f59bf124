package escrow_test

import (
	"fmt"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/policy"
)

// Both sides compute the budgets from the same documents.
func ExampleDefinitions() {
	documents, err := policy.Decode([]byte(`{
		"apiVersion": "tallystick.dev/v1alpha1", "kind": "GovernancePolicy", "metadata": {"name": "research"},
		"spec": {"subject": {"team": "research"}, "rules": [
			{"name": "cap", "failurePolicy": "FailClosed", "budget": {"limitMilliUSD": 50000, "hardCap": true, "period": "day"}},
			{"name": "meter", "failurePolicy": "FailOpen", "budget": {"limitMilliUSD": 900000, "period": "month",
				"lease": {"grantMilliUSD": 1000, "renewInterval": "30s"}}}
		]}}`))
	if err != nil {
		panic(err)
	}
	set, err := policy.NewSet(documents)
	if err != nil {
		panic(err)
	}
	now := time.Date(2026, time.March, 14, 15, 9, 26, 0, time.UTC)
	definitions, err := escrow.Definitions(set, now.UnixMicro())
	if err != nil {
		panic(err)
	}
	for _, d := range definitions {
		end := time.UnixMicro(d.Account.Window.End).UTC().Format(time.DateTime)
		fmt.Println(d.Account.Rule, d.Hard, d.Limit, "until", end, "in grants of", d.Grant, "every", d.Renew)
	}
	// Output:
	// cap true $50.000000 until 2026-03-15 00:00:00 in grants of $1.000000 every 10s
	// meter false $900.000000 until 2026-04-01 00:00:00 in grants of $1.000000 every 30s
}

// A node that comes back says goodbye to what it had: what it proves to be unused is there again.
func ExampleHeld_Apply() {
	held, given := escrow.Granting(1_000_000)
	fmt.Println("granted:", given.Granted)

	closing := &escrow.Report{Consumed: 250_000, Uncertain: 50_000, Ending: escrow.Closed}
	held, change, late, err := held.Apply(closing)
	if err != nil {
		panic(err)
	}
	fmt.Println("consumed:", change.Consumed, "uncertain:", change.Uncertain, "given back:", -change.Granted-change.Consumed-change.Uncertain, late)

	// A copy of the journal burns the same grant later. That refunds nothing, and charges nothing twice.
	_, change, late, err = held.Apply(&escrow.Report{Consumed: 250_000, Ending: escrow.Burned})
	fmt.Println(change.IsZero(), late, err)
	// Output:
	// granted: $1.000000
	// consumed: $0.250000 uncertain: $0.050000 given back: $0.700000 false
	// true true <nil>
}
