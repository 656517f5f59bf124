package governance_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancemem"
	"github.com/tallystick-go/tallystick/keys"
)

// open makes a Governor over a database in memory whose clock stands still, with
// one key of a team with the limits.
func open(limits keys.Limits) (*governance.Governor, *keys.Principal) {
	ctx := context.Background()
	db, err := governancemem.New(&governancemem.Options{
		Now: func() time.Time { return time.Date(2026, 3, 10, 18, 0, 0, 0, time.UTC) },
	})
	if err != nil {
		log.Fatal(err)
	}
	gov, err := governance.New(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Keys.CreateTeam(ctx, keys.CreateTeam{ID: "search", Limits: limits}); err != nil {
		log.Fatal(err)
	}
	created, err := db.Keys.CreateKey(ctx, keys.CreateKey{ID: "search-ci", TeamID: "search", Owner: "ann"})
	if err != nil {
		log.Fatal(err)
	}
	principal, err := db.Keys.Resolve(ctx, created.Token.Reveal())
	if err != nil {
		log.Fatal(err)
	}
	return gov, &principal
}

func Example() {
	ctx := context.Background()
	gov, principal := open(keys.Limits{CostPerDay: keys.Cost(1_000_000)}) // one dollar
	defer gov.Close(ctx)

	permit, err := gov.Admit(ctx, governance.Request{
		Principal: principal,
		Model:     "small-1",
		Bound:     governance.Bound{Tokens: 4_000, Cost: 600_000},
	})
	if err != nil {
		log.Fatal(err)
	}
	// ... the call, which turns out to cost less ...
	if err := permit.Settle(ctx, governance.Used(1_200, 180_000)); err != nil {
		log.Fatal(err)
	}
	usage, err := gov.Usage(ctx, governance.UsageQuery{Principal: principal})
	if err != nil {
		log.Fatal(err)
	}
	for _, v := range usage.Verdicts {
		fmt.Printf("%s of %s: consumed %d, reserved %d, left %d\n", v.Constraint.Rule, v.Constraint.Subject, v.Consumed, v.Reserved, v.Remaining())
	}
	// Output:
	// cost_per_day of search: consumed 180000, reserved 0, left 820000
}

func ExampleDo() {
	ctx := context.Background()
	gov, principal := open(keys.Limits{TokensPerDay: keys.Limit(10_000)})
	defer gov.Close(ctx)

	request := governance.Request{Principal: principal, Bound: governance.Bound{Tokens: 4_000}}
	reply, err := governance.Do(ctx, gov, request, func(ctx context.Context, permit *governance.Permit) (string, governance.Outcome, error) {
		return "the provider's answer", governance.Used(1_200, 0), nil
	})
	fmt.Println(reply, err)

	// A bare error says nothing about what was used, so the bound is kept.
	_, err = governance.Do(ctx, gov, request, func(ctx context.Context, permit *governance.Permit) (string, governance.Outcome, error) {
		return "", governance.Outcome{}, errors.New("connection reset")
	})
	fmt.Println(err)

	usage, err := gov.Usage(ctx, governance.UsageQuery{Principal: principal})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("consumed %d, uncertain %d, left %d\n", usage.Verdicts[0].Consumed, usage.Verdicts[0].Uncertain, usage.Verdicts[0].Remaining())
	// Output:
	// the provider's answer <nil>
	// connection reset
	// consumed 1200, uncertain 4000, left 4800
}

func ExampleRefusal() {
	ctx := context.Background()
	gov, principal := open(keys.Limits{TokensPerDay: keys.Limit(10_000), CostPerMonth: keys.Cost(5_000_000)})
	defer gov.Close(ctx)

	admit := func(bound governance.Bound) {
		permit, err := gov.Admit(ctx, governance.Request{Principal: principal, Bound: bound})
		var refused *governance.Refusal
		switch {
		case err == nil:
			fmt.Println("admitted")
			_ = permit.Settle(ctx, governance.Used(bound.Tokens, bound.Cost))
		case errors.As(err, &refused):
			status := governance.StatusOf(err)
			fmt.Printf("%d %s: %d of %d left, retry %v %v\n", status.Code, refused.Reason, refused.Verdict.Remaining(), refused.Verdict.Limit, status.Retryable, status.RetryAfter)
		default:
			log.Fatal(err)
		}
	}
	admit(governance.Bound{Tokens: 7_000, Cost: 3_000_000})
	admit(governance.Bound{Tokens: 7_000, Cost: 1_000_000})
	admit(governance.Bound{Tokens: 1_000, Cost: 3_000_000})
	admit(governance.Bound{Tokens: 20_000})
	// Output:
	// admitted
	// 429 quota: 3000 of 10000 left, retry true 6h0m0s
	// 402 money: 2000000 of 5000000 left, retry false 0s
	// 429 never_fits: 3000 of 10000 left, retry false 0s
}

func ExampleGovernor_Explain() {
	ctx := context.Background()
	gov, principal := open(keys.Limits{
		RequestsPerMinute: keys.Limit(60), TokensPerDay: keys.Limit(10_000), CostPerMonth: keys.Cost(5_000_000), Concurrency: keys.Limit(1),
	})
	defer gov.Close(ctx)

	request := governance.Request{Principal: principal, Bound: governance.Bound{Tokens: 4_000, Cost: 100_000}}
	if _, err := gov.Admit(ctx, request); err != nil {
		log.Fatal(err)
	}
	explanation, err := gov.Explain(ctx, request) // decides and reserves nothing
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("admitted:", explanation.Admitted)
	for _, v := range explanation.Verdicts {
		fmt.Printf("%-20s limit %7d need %6d left %7d", v.Constraint.Rule, v.Limit, v.Need, v.Remaining())
		if v.Reason != 0 {
			fmt.Printf(" (%s, at the latest in %s)", v.Reason, v.RetryAfter)
		}
		fmt.Println()
	}
	// Output:
	// admitted: false
	// requests_per_minute  limit      60 need      1 left      59
	// tokens_per_day       limit   10000 need   4000 left    6000
	// cost_per_month       limit 5000000 need 100000 left 4900000
	// concurrency          limit       1 need      1 left       0 (concurrency, at the latest in 1m0s)
}

func ExampleGovernor_Resolve() {
	ctx := context.Background()
	gov, principal := open(keys.Limits{CostPerDay: keys.Cost(1_000_000)})
	defer gov.Close(ctx)

	permit, err := gov.Admit(ctx, governance.Request{Principal: principal, Model: "small-1", Bound: governance.Bound{Cost: 600_000}})
	if err != nil {
		log.Fatal(err)
	}
	if err := permit.Settle(ctx, governance.Unknown()); err != nil { // the provider cut the connection
		log.Fatal(err)
	}
	holds, err := gov.Holds(ctx, governance.HoldQuery{Team: "search"})
	if err != nil {
		log.Fatal(err)
	}
	for _, hold := range holds {
		fmt.Printf("%s %s of %s: %s held\n", hold.State, hold.Model, hold.KeyID, hold.Bound.Cost)
		if _, err := gov.Resolve(ctx, governance.Evidence{
			ID: hold.ID, Outcome: governance.Used(0, 20_000), Actor: "operator@example.com", Reason: "the provider's invoice",
		}); err != nil {
			log.Fatal(err)
		}
	}
	verification, err := gov.Verify(ctx, governance.VerifyQuery{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d accounts, %d differences\n", verification.Accounts, len(verification.Differences))
	// Output:
	// settled small-1 of search-ci: $0.600000 held
	// 1 accounts, 0 differences
}
