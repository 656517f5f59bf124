// Package policy holds GovernancePolicy documents: limits, budgets, model lists and
// routing for a team, a user, or a user within a team. It decides; it does no I/O.
//
//	apiVersion: tallystick.dev/v1alpha1
//	kind: GovernancePolicy
//	metadata: {name: research}
//	spec:
//	  subject: {team: research}
//	  rules:
//	    - name: month
//	      failurePolicy: FailClosed
//	      budget: {limitMilliUSD: 500000, hardCap: true, period: month, timezone: Europe/Amsterdam}
//	    - name: thrift
//	      failurePolicy: FailOpen
//	      routing:
//	        budget: month
//	        budgetTiers:
//	          - {thresholdPercent: 80, substitutions: {large: small}}
//
// [Decode] reads JSON, package policyyaml YAML; both are strict, give the same
// documents and the same errors, and name the place of a mistake. A document can as well be
// built in Go: [NewSet] holds it to the same rules.
//
// # Sets
//
// A [Set] is immutable and in canonical order. Its [Generation] is a digest of everything that
// it says and of nothing else: not of the order of documents and rules, not of the format, not
// of defaults that are written out. Two processes that show the same generation govern alike.
//
// [Set.Match] lists the rules that apply to a principal. All of them apply: each limit is a
// constraint of its own, so the tightest decides, a soft budget takes nothing from a hard one, and a
// rule that says unlimited adds nothing and erases nothing. Lists of models are intersected
// ([AccessOf]); of several substitutions the strict ones go first ([Substitute]).
//
// # Profiles
//
// Not every deployment can keep every rule. [Set.Enforce] says which rules are enforced in a
// [Profile]. A rule with failurePolicy FailClosed that cannot be enforced rejects its document, and
// gates everybody whom the document is about: they are refused rather than let through
// ungoverned. One with FailOpen is reported and left out.
//
// # Stores
//
// A [Store] keeps one set and compares the generation before it changes it. [NewMemory] is the
// store of a single process; policypg shares one between any number of gateways.
//
// Source: ADR-046 "Policy and runtime binding"; design "Words".
package policy
