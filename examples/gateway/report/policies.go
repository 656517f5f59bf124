package report

import (
	"encoding/json"

	"github.com/tallystick-go/tallystick/governance/policy"
)

// Policies is what a gateway makes of a set of policies.
type Policies struct {
	Namespace  string `json:"namespace,omitempty"`
	Generation string `json:"generation"`
	Revision   int64  `json:"revision,omitempty"`
	Count      int    `json:"count"`
	// Gates refuse everybody whom a document is about: a mandatory rule of it cannot be
	// enforced. Rejected are all rules that are not enforced.
	Gates    []Gate         `json:"gates"`
	Rejected []RejectedRule `json:"rejected"`
}

// Gate is a document that nobody whom it is about gets past.
type Gate struct {
	Policy  string `json:"policy"`
	Rule    string `json:"rule"`
	Subject string `json:"subject"`
	Reason  string `json:"reason"`
}

// RejectedRule is a rule that is not enforced.
type RejectedRule struct {
	Policy    string `json:"policy"`
	Rule      string `json:"rule"`
	Kind      string `json:"kind"`
	Mandatory bool   `json:"mandatory"`
	Reason    string `json:"reason"`
}

// PoliciesOf writes what is enforced of the set under a mark.
func PoliciesOf(m policy.Mark, e *policy.Enforcement) Policies {
	out := Policies{
		Generation: m.Generation.String(), Revision: m.Revision, Count: e.Set().Len(), Gates: []Gate{}, Rejected: []RejectedRule{},
	}
	if !m.Namespace.IsZero() {
		out.Namespace = m.Namespace.String()
	}
	for _, g := range e.Gates() {
		out.Gates = append(out.Gates, GateOf(g))
	}
	for _, v := range e.Verdicts() {
		if !v.Enforced {
			out.Rejected = append(out.Rejected, RejectedRule{v.Policy, v.Rule, v.Kind.String(), v.Mandatory, v.Reason})
		}
	}
	return out
}

// GateOf writes a gate.
func GateOf(g policy.Gate) Gate {
	return Gate{g.Policy, g.Rule, g.Subject.Scope().String() + " " + g.Subject.String(), g.Reason}
}

// PolicySet is the set that is in force, with its documents.
type PolicySet struct {
	Policies
	Documents json.RawMessage `json:"documents"`
}

// PolicyChange is a rule that an edit would change.
type PolicyChange struct {
	Policy string `json:"policy"`
	Rule   string `json:"rule"`
	Action string `json:"action"`
	Kind   string `json:"kind"`
	// AnotherAccount says that what the rule counts begins at zero: what was counted stays
	// in the account that it had.
	AnotherAccount bool   `json:"another_account,omitempty"`
	Text           string `json:"text"`
}

// PolicyDiff is what an edit would do.
type PolicyDiff struct {
	// Expect is the generation that the edit is decided on: make it with that.
	Expect  string         `json:"expect"`
	Changes []PolicyChange `json:"changes"`
	After   Policies       `json:"after"`
}

// ChangesOf writes what differs.
func ChangesOf(changes []policy.Change) []PolicyChange {
	out := make([]PolicyChange, 0, len(changes))
	for _, c := range changes {
		out = append(out, PolicyChange{c.Policy, c.Rule, c.Action.String(), c.Kind.String(), c.Account, c.String()})
	}
	return out
}
