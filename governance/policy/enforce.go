package policy

import (
	"fmt"
	"slices"
)

// Profile is a way to deploy gateways. It decides which rules can be enforced.
type Profile uint8

// The profiles. No other one enforces anything.
const (
	Local  Profile = iota + 1 // one gateway with a store of its own
	Node                      // many gateways, each with its own store and a journal of money granted to it
	Shared                    // many gateways on one database
)

func (p Profile) String() string {
	switch p {
	case Local:
		return "local"
	case Node:
		return "node"
	case Shared:
		return "shared"
	}
	return "no profile"
}

// Enforcing says what a program can do, where it can do less than its profile. The zero
// value can do all of it.
type Enforcing struct {
	NoAuthority bool // a node that is granted no money: no budgets
	NoRouter    bool // nobody asks for substitutions: no routing
}

// Reach says what a limit counts.
type Reach uint8

// The reaches.
const (
	ReachGateway Reach = iota + 1 // one gateway, which is the only one
	ReachNode                     // each node for itself
	ReachFleet                    // all gateways together
)

func (r Reach) String() string {
	switch r {
	case ReachGateway:
		return "gateway"
	case ReachNode:
		return "node"
	case ReachFleet:
		return "fleet"
	}
	return "nothing"
}

// MarshalText writes the reach's name.
func (r Reach) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Verdict says what becomes of one rule.
type Verdict struct {
	Policy    string `json:"policy"`
	Rule      string `json:"rule"`
	Kind      Kind   `json:"kind"`
	Mandatory bool   `json:"mandatory"` // FailClosed
	Enforced  bool   `json:"enforced"`
	Reach     Reach  `json:"reach,omitempty"`  // of an enforced rule that counts
	Reason    string `json:"reason,omitempty"` // why it is not enforced
}

// Gate refuses everybody whom a document is about, because a mandatory rule of it cannot be
// enforced.
type Gate struct {
	Policy  string  `json:"policy"`
	Rule    string  `json:"rule"` // the first such rule
	Subject Subject `json:"subject"`
	Reason  string  `json:"reason"`
}

// Enforcement is what a profile makes of a set. It is immutable and safe for concurrent use.
type Enforcement struct {
	set      *Set
	verdicts []Verdict
	gates    []Gate
	index    map[Subject][]Match
	gated    map[Subject]Gate
}

// Enforce says which rules are enforced in a profile.
//
// A document with a mandatory rule that cannot be enforced is rejected as a whole and gates
// its subject; a rule that is not mandatory is left out alone. A limit counts as
// the table of profiles says, concurrency as rates do. Lists of models hold everywhere;
// routing holds where the budget that it follows does; what says unlimited always holds.
//
// Source: ADR-046 "Policy and runtime binding".
func (s *Set) Enforce(p Profile, o Enforcing) *Enforcement {
	e := &Enforcement{set: s, index: map[Subject][]Match{}, gated: map[Subject]Gate{}}
	for i := range s.Len() {
		d := &s.entries[i].document
		verdicts, gate := d.enforce(p, o)
		e.verdicts = append(e.verdicts, verdicts...)
		if gate != nil {
			e.gates = append(e.gates, *gate)
			if _, already := e.gated[d.Subject]; !already {
				e.gated[d.Subject] = *gate
			}
			continue
		}
		matches := s.entries[i].matches
		if slices.ContainsFunc(verdicts, func(v Verdict) bool { return !v.Enforced }) {
			var kept []Match
			for j, m := range matches {
				if verdicts[j].Enforced {
					kept = append(kept, m)
				}
			}
			matches = kept
		}
		add(e.index, d.Subject, matches)
	}
	return e
}

func (d *Document) enforce(p Profile, o Enforcing) ([]Verdict, *Gate) {
	verdicts := make([]Verdict, len(d.Rules))
	var gate *Gate
	for i := range d.Rules {
		r := &d.Rules[i]
		v := Verdict{Policy: d.Name, Rule: r.Name, Kind: r.Kind(), Mandatory: r.FailurePolicy == FailClosed}
		v.Reach, v.Reason = d.judge(r, p, o)
		v.Enforced = v.Reason == ""
		if !v.Enforced && v.Mandatory && gate == nil {
			gate = &Gate{Policy: d.Name, Rule: r.Name, Subject: d.Subject, Reason: v.Reason}
		}
		verdicts[i] = v
	}
	if gate != nil {
		for i := range verdicts {
			if v := &verdicts[i]; v.Enforced {
				v.Enforced, v.Reach = false, 0
				v.Reason = fmt.Sprintf("the document is rejected for its rule %q", gate.Rule)
			}
		}
	}
	return verdicts, gate
}

// judge says what a rule counts, or why it cannot be enforced.
func (d *Document) judge(r *Rule, p Profile, o Enforcing) (Reach, string) {
	if p < Local || p > Shared {
		return 0, "there is no such profile"
	}
	switch kind := r.Kind(); {
	case r.unlimited(), kind == KindModelAccess:
		return 0, ""
	case kind == KindRate, kind == KindConcurrency:
		return judgeRate(d.Subject.Scope(), p)
	case kind == KindTokenQuota:
		if p != Shared {
			return 0, "the profile " + p.String() + " keeps no token quotas of policies; shared does"
		}
		return ReachFleet, ""
	case kind == KindBudget:
		return judgeBudget(r.Budget, p, o)
	case kind == KindRouting:
		if o.NoRouter {
			return 0, "this program does not route"
		}
		b, err := d.budgetOf(r.Routing)
		if err != nil {
			return 0, "the budget that it follows is not there"
		}
		if _, why := judgeBudget(b.Budget, p, o); why != "" {
			return 0, "the budget that it follows cannot be enforced: " + why
		}
		return 0, ""
	}
	return 0, "the rule is of no kind"
}

func judgeRate(s Scope, p Profile) (Reach, string) {
	switch {
	case p == Shared:
		return ReachFleet, ""
	case s != ScopeTeam:
		return 0, "the profile " + p.String() + " limits rates and concurrency of teams, not of users; shared does"
	case p == Node:
		return ReachNode, ""
	}
	return ReachGateway, ""
}

func judgeBudget(b *Budget, p Profile, o Enforcing) (Reach, string) {
	switch {
	case p == Local:
		return ReachGateway, ""
	case p == Shared:
		return ReachFleet, ""
	case o.NoAuthority:
		return 0, "no authority grants money to this node"
	case b.Calendar.Zone != "":
		return 0, "the profile node has budgets in UTC only, not in " + b.Calendar.Zone
	}
	return ReachFleet, ""
}

// Set is the set that was asked about.
func (e *Enforcement) Set() *Set { return e.set }

// Verdicts lists every rule of the set, by policy and rule.
func (e *Enforcement) Verdicts() []Verdict { return slices.Clone(e.verdicts) }

// Gates lists the documents that gate their subjects.
func (e *Enforcement) Gates() []Gate { return slices.Clone(e.gates) }

// Match is [Set.Match] without the rules that are not enforced.
func (e *Enforcement) Match(team, user string) []Match { return matchIn(e.index, team, user) }

// Gated reports whether a principal is refused for a document that cannot be enforced. It is
// whoever that document would match.
func (e *Enforcement) Gated(team, user string) (Gate, bool) {
	for _, subject := range subjectsOf(team, user) {
		if g, ok := e.gated[subject]; ok && subject != (Subject{}) {
			return g, true
		}
	}
	return Gate{}, false
}
