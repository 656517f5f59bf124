package policy_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/quota"
)

const research = `{
  "apiVersion": "tallystick.dev/v1alpha1",
  "kind": "GovernancePolicy",
  "metadata": {"name": "research"},
  "spec": {
    "subject": {"team": "research"},
    "rules": [
      {"name": "month", "failurePolicy": "FailClosed",
       "budget": {"limitMilliUSD": 500000, "hardCap": true, "period": "month"}},
      {"name": "thrift", "failurePolicy": "FailOpen",
       "routing": {"budgetTiers": [{"thresholdPercent": 80, "substitutions": {"large": "small"}}]}},
      {"name": "models", "failurePolicy": "FailClosed",
       "modelAccess": {"allow": ["large", "small"]}}
    ]
  }
}`

func Example() {
	documents, err := policy.Decode([]byte(research))
	if err != nil {
		fmt.Println(err)
		return
	}
	set, err := policy.NewSet(documents)
	if err != nil {
		fmt.Println(err)
		return
	}
	matches := set.Enforce(policy.Shared, policy.Enforcing{}).Match("research", "ann@example.com")
	for _, m := range matches {
		fmt.Println(m.Policy, m.Rule.Name, m.Rule.Kind(), m.Rule.Limits())
	}
	fmt.Println(policy.AccessOf(matches).Allows("medium"))

	// 400 of 500 dollars are taken.
	account := quota.Account{Consumed: 390_000_000, Reserved: 10_000_000}
	routes := policy.RoutesOf(matches, func(m *policy.Match) policy.Percent {
		return m.Rule.Budget.Tier(account, m.Thresholds, 0)
	})
	choice := policy.Substitute(routes, "large")
	fmt.Println(routes[0].Reached, choice.Model, choice.Required)
	// Output:
	// research models modelAccess []
	// research month budget [{money 500000000 {month  0 0 0} true}]
	// research thrift routing []
	// false
	// 80 small large
}

// A mistake is named with its place.
func ExampleDecode() {
	_, err := policy.Decode([]byte(`[{"apiVersion": "tallystick.dev/v1alpha1", "kind": "GovernancePolicy",
		"metadata": {"name": "a"}, "spec": {"subject": {"team": "a"},
		"rules": [{"name": "r", "failurePolicy": "FailClosed", "budget": {"limitMilliUSD": 9223372036854776, "period": "day"}}]}}]`))
	fmt.Println(err)
	fmt.Println(errors.Is(err, policy.ErrInvalid))
	// Output:
	// policy: documents[0].spec.rules[0].budget.limitMilliUSD: must be at most 9223372036854775: it is counted in millionths of a dollar
	// true
}

// Before an edit is made, its consequences can be shown.
func ExampleDiff() {
	week := func(limit int64, period quota.Period) *policy.Set {
		set, err := policy.NewSet([]policy.Document{{
			Name: "research", Subject: policy.Subject{Team: "research"},
			Rules: []policy.Rule{{Name: "cap", FailurePolicy: policy.FailClosed, Budget: &policy.Budget{
				LimitMilliUSD: limit, HardCap: true, Calendar: quota.Calendar{Period: period},
			}}},
		}})
		if err != nil {
			fmt.Println(err)
		}
		return set
	}
	for _, change := range policy.Diff(week(500, quota.Day), week(800, quota.Week)) {
		fmt.Println(change)
	}
	// Output:
	// research/cap: changed (budget)
	//   limitMilliUSD: 500 -> 800
	//   period: day -> week; counting starts at zero in another account
	//   weekStart: (none) -> monday
}

// An edit names the generation that it was decided on.
func ExampleMemory() {
	ctx := context.Background()
	store := policy.NewMemory()
	documents, err := policy.Decode([]byte(research))
	if err != nil {
		fmt.Println(err)
		return
	}
	empty, err := store.Load(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	now, err := store.Apply(ctx, policy.Apply{Documents: documents, Expect: empty.Generation})
	fmt.Println(now.Set.Len(), now.Revision, err)

	_, err = store.Delete(ctx, policy.Delete{Names: []string{"research"}, Expect: empty.Generation})
	var conflict *policy.ConflictError
	fmt.Println(errors.As(err, &conflict) && conflict.Now == now.Mark)
	// Output:
	// 1 2 <nil>
	// true
}
