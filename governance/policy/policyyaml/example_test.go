package policyyaml_test

import (
	"fmt"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/governance/policy/policyyaml"
)

func Example() {
	documents, err := policyyaml.Decode([]byte(`
apiVersion: tallystick.dev/v1alpha1
kind: GovernancePolicy
metadata: {name: research}
spec:
  subject: {team: research}
  rules:
    - name: month
      failurePolicy: FailClosed
      budget: {limitMilliUSD: 500000, hardCap: true, period: month, timezone: Europe/Amsterdam}
---
apiVersion: tallystick.dev/v1alpha1
kind: GovernancePolicy
metadata: {name: ann}
spec:
  subject: {user: ann@example.com}
  rules:
    - {name: pace, failurePolicy: FailOpen, rate: {rpm: 60}}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	set, err := policy.NewSet(documents)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range set.Match("research", "ann@example.com") {
		fmt.Println(m.Policy, m.Rule.Name, m.Scope, m.Rule.Limits()[0].Amount)
	}
	// Output:
	// research month team 500000000
	// ann pace user 60
}

// A mistake is named with its line and its place.
func ExampleDecode() {
	_, err := policyyaml.Decode([]byte(`
apiVersion: tallystick.dev/v1alpha1
kind: GovernancePolicy
metadata: {name: research}
spec:
  subject: {team: research}
  rules:
    - name: month
      failurePolicy: FailClosed
      budget:
        limitMilliUSD: 500000
        hardCap: yes
        period: month
`))
	fmt.Println(err)
	// Output:
	// policy: line 12: documents[0].spec.rules[0].budget.hardCap: must be true or false, or stand in quotes if it is a text
}
