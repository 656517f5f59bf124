package governance

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/quota"
)

// Reason says why a request was refused.
type Reason uint8

// The reasons. When several constraints bind, the earliest in this order is
// reported first.
const (
	ReasonUnauthenticated Reason = iota + 1 // the key is unknown, revoked or expired
	ReasonModel                             // the model is not allowed
	ReasonRegion                            // the region is not allowed
	ReasonGuardrail                         // the team's guardrail is not applied
	ReasonGated                             // a mandatory rule cannot be enforced here
	ReasonUnpriced                          // nothing bounds the cost, and money is limited
	ReasonFrozen                            // an account is frozen until an operator looked at it
	ReasonNeverFits                         // the request is larger than the limit itself
	ReasonMoney                             // consumed, uncertain and granted money leave too little
	ReasonQuota                             // too few tokens are left in the window
	ReasonRate                              // too many requests or tokens per minute
	ReasonConcurrency                       // too many permits at the same time
	ReasonReserved                          // only pending reservations are in the way
	ReasonCredit                            // this node has too little credit of a budget, and has asked for more
	ReasonQueueFull                         // too many requests wait for a decision
)

var reasonNames = [...]string{
	ReasonUnauthenticated: "unauthenticated", ReasonModel: "model", ReasonRegion: "region", ReasonGuardrail: "guardrail", ReasonGated: "gated",
	ReasonUnpriced: "unpriced", ReasonFrozen: "frozen", ReasonNeverFits: "never_fits", ReasonMoney: "money", ReasonQuota: "quota",
	ReasonRate: "rate", ReasonConcurrency: "concurrency", ReasonReserved: "reserved", ReasonCredit: "missing_credit", ReasonQueueFull: "queue_full",
}

func (r Reason) String() string {
	if int(r) < len(reasonNames) && r > 0 {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// MarshalText writes the reason's name.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// reservedWait is the nominal wait when only pending reservations are in the way:
// they may be returned at any moment, and nothing says when.
const reservedWait = time.Second

// Verdict is one constraint's answer to one request.
//
// Units: by the constraint's kind: requests, tokens, microUSD or permits. For a
// rate, Reserved is what the bucket holds, rounded up.
type Verdict struct {
	Constraint *Constraint
	Window     quota.Window // of an account; zero otherwise
	Limit      int64
	Need       int64
	Consumed   int64
	Uncertain  int64
	Reserved   int64
	Granted    int64
	Frozen     bool
	// Node says that Consumed, Uncertain and Reserved are this node's alone: what it has of
	// grants and meters that are open. Held is what it could still reserve of them.
	Node       bool
	Held       int64
	Tier       policy.Percent // the highest threshold of a budget that its window has reached
	Reason     Reason         // zero: the constraint has room
	RetryAfter time.Duration  // when it may fit, by the clock alone; zero when unknown or never
}

// Remaining is what could still be reserved, never below zero. Of a hard budget on a
// node that is what the node holds: the limit is the fleet's.
func (v *Verdict) Remaining() int64 {
	if v.Node && !v.Constraint.Soft {
		return max(v.Held, 0)
	}
	left := v.Limit - v.Consumed - v.Uncertain - v.Reserved - v.Granted
	return max(left, 0)
}

// Refusal is the answer to a request that was not admitted: nothing was changed
// anywhere, and the request's id is not remembered.
//
// Verdict is that of the constraint which decided; All lists every constraint that
// had no room. Verdict.Constraint is nil when no constraint decided.
//
// Source: internal/docs/guarantees.md "All or none".
type Refusal struct {
	Reason     Reason
	Gate       *policy.Gate // the rule that cannot be enforced here, for ReasonGated
	Verdict    Verdict
	All        []Verdict
	RetryAfter time.Duration // the longest over all retryable constraints that bind; zero: none known
	Retryable  bool          // whether trying again later can help
}

func (r *Refusal) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "governance: refused (%s)", r.Reason)
	if c := r.Verdict.Constraint; c != nil {
		v := &r.Verdict
		fmt.Fprintf(&b, ": %s of %s %s: limit %d, need %d, consumed %d, uncertain %d, reserved %d, granted %d",
			c.Rule, c.Scope, c.Subject, v.Limit, v.Need, v.Consumed, v.Uncertain, v.Reserved, v.Granted)
	}
	if r.Verdict.Node {
		fmt.Fprintf(&b, " on this node, which holds %d", r.Verdict.Held)
	}
	if r.Gate != nil {
		fmt.Fprintf(&b, ": rule %s of policy %s: %s", r.Gate.Rule, r.Gate.Policy, r.Gate.Reason)
	}
	if r.Retryable && r.RetryAfter > 0 {
		fmt.Fprintf(&b, "; retry after %s", r.RetryAfter)
	}
	return b.String()
}

// retryable says whether waiting can help, by reason.
func (r Reason) retryable() bool {
	switch r {
	case ReasonQuota, ReasonRate, ReasonConcurrency, ReasonReserved, ReasonCredit, ReasonQueueFull:
		return true
	}
	return false
}

// worse reports whether a decides rather than b. Between equals the order of the
// constraints' definitions does, so that Explain names the same one as Admit.
func (a *Verdict) worse(b *Verdict) bool {
	return cmp.Or(
		cmp.Compare(a.Reason, b.Reason), cmp.Compare(b.RetryAfter, a.RetryAfter),
		cmp.Compare(a.Constraint.Scope, b.Constraint.Scope), cmp.Compare(a.Constraint.Kind, b.Constraint.Kind),
		bytes.Compare(a.Constraint.ID[:], b.Constraint.ID[:]),
	) < 0
}

// refuse combines the verdicts that bind into one refusal.
func refuse(binding []Verdict) *Refusal {
	first := 0
	for i := range binding {
		if binding[i].worse(&binding[first]) {
			first = i
		}
	}
	r := &Refusal{Reason: binding[first].Reason, Verdict: binding[first], All: binding}
	r.Retryable = r.Reason.retryable()
	if r.Retryable {
		for i := range binding {
			r.RetryAfter = max(r.RetryAfter, binding[i].RetryAfter)
		}
	}
	return r
}
