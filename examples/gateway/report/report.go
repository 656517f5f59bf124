// Package report writes what the Governor says as the documents of the gateway's
// API. It counts nothing.
package report

import (
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
)

// Constraint is one limit and how full it is.
type Constraint struct {
	Policy    string     `json:"policy,omitempty"` // that the rule is of; none: a limit of the key or team
	Rule      string     `json:"rule"`
	Scope     string     `json:"scope"`
	Subject   string     `json:"subject"`
	Kind      string     `json:"kind"`
	Unit      string     `json:"unit"`
	Limit     int64      `json:"limit"`
	Consumed  int64      `json:"consumed"`
	Uncertain int64      `json:"uncertain"`
	Reserved  int64      `json:"reserved"`
	Granted   int64      `json:"granted"`
	Remaining int64      `json:"remaining"`
	ResetsAt  *time.Time `json:"resets_at"` // null: it frees continuously
	Hard      bool       `json:"hard"`
	Tier      int32      `json:"tier_percent,omitempty"` // the threshold that a budget has reached
	Frozen    bool       `json:"frozen"`
}

// Usage is how full every limit of one caller is.
type Usage struct {
	Object      string       `json:"object"`
	KeyID       string       `json:"key_id"`
	TeamID      string       `json:"team_id"`
	User        string       `json:"user"`
	Constraints []Constraint `json:"constraints"`
}

// UsageOf writes verdicts about a principal.
func UsageOf(p *keys.Principal, verdicts []governance.Verdict) Usage {
	return Usage{Object: "usage", KeyID: p.KeyID, TeamID: p.TeamID, User: p.User, Constraints: constraints(verdicts)}
}

func constraints(verdicts []governance.Verdict) []Constraint {
	out := make([]Constraint, 0, len(verdicts))
	for i := range verdicts {
		out = append(out, constraint(&verdicts[i]))
	}
	return out
}

func constraint(v *governance.Verdict) Constraint {
	c := Constraint{
		Limit: v.Limit, Consumed: v.Consumed, Uncertain: v.Uncertain, Reserved: v.Reserved, Granted: v.Granted,
		Remaining: v.Remaining(), Hard: true, Tier: int32(v.Tier), Frozen: v.Frozen,
	}
	if in := v.Constraint; in != nil {
		c.Policy, c.Hard = in.Policy, !in.Soft
		c.Rule, c.Scope, c.Subject, c.Kind, c.Unit = in.Rule, in.Scope.String(), in.Subject, in.Kind.String(), Unit(in.Kind)
	}
	if micros, ok := v.ResetsAt(); ok {
		at := time.UnixMicro(micros).UTC()
		c.ResetsAt = &at
	}
	return c
}

// Unit is what a limit of a kind counts.
func Unit(k governance.Kind) string {
	switch k {
	case governance.KindRequestRate:
		return "requests"
	case governance.KindTokenRate, governance.KindTokenQuota:
		return "tokens"
	case governance.KindMoney:
		return "microusd"
	case governance.KindConcurrency:
		return "permits"
	}
	return ""
}

// Amount is tokens and money.
type Amount struct {
	Tokens       int64 `json:"tokens"`
	CostMicroUSD int64 `json:"cost_microusd"`
}

// Account is one window of one limit.
type Account struct {
	Constraint  string    `json:"constraint"`
	WindowStart time.Time `json:"window_start"`
}

// AccountOf writes an account's key.
func AccountOf(k governance.AccountKey) Account {
	return Account{Constraint: k.Constraint.String(), WindowStart: time.UnixMicro(k.WindowStart).UTC()}
}

// Hold is a permit that still holds something.
type Hold struct {
	ID       string     `json:"id"`
	State    string     `json:"state"`
	Why      []string   `json:"why"`
	KeyID    string     `json:"key_id"`
	TeamID   string     `json:"team_id"`
	User     string     `json:"user"`
	Model    string     `json:"model"`
	At       time.Time  `json:"admitted_at"`
	EndedAt  *time.Time `json:"ended_at"`
	Bound    Amount     `json:"bound"`
	Observed Amount     `json:"observed"`
	Accounts []Account  `json:"accounts"`
	Grant    *Grant     `json:"grant,omitempty"` // of a node; bound is what was granted
}

// HoldOf writes a hold.
func HoldOf(h *governance.Hold) Hold {
	out := Hold{
		ID: h.ID.String(), State: h.State.String(), Why: []string{}, KeyID: h.KeyID, TeamID: h.TeamID, User: h.User,
		Model: h.Model, At: time.UnixMicro(h.At).UTC(), Accounts: []Account{},
		Bound:    Amount{int64(h.Bound.Tokens), int64(h.Bound.Cost)},
		Observed: Amount{int64(h.Observed.Tokens), int64(h.Observed.Cost)}, Grant: grantOf(h.Grant),
	}
	if h.EndedAt != 0 {
		at := time.UnixMicro(h.EndedAt).UTC()
		out.EndedAt = &at
	}
	for _, flag := range []struct {
		bit  governance.Flags
		name string
	}{
		{governance.FlagTokensUncertain, "tokens_uncertain"},
		{governance.FlagCostUncertain, "cost_uncertain"},
		{governance.FlagOverrun, "overrun"},
		{governance.FlagInvalid, "invalid_report"},
		{governance.FlagUnpriced, "unpriced"},
	} {
		if h.Flags&flag.bit != 0 {
			out.Why = append(out.Why, flag.name)
		}
	}
	for _, a := range h.Accounts {
		out.Accounts = append(out.Accounts, AccountOf(a))
	}
	return out
}

// HoldPage is one page of holds, oldest first. An empty Next says that it is the last.
type HoldPage struct {
	Holds []Hold `json:"holds"`
	Next  string `json:"next,omitempty"`
}

// Frozen is an account that admits nothing until an operator releases it.
type Frozen struct {
	Account
	Kind      string `json:"kind"`
	Consumed  int64  `json:"consumed"`
	Uncertain int64  `json:"uncertain"`
	Reserved  int64  `json:"reserved"`
}

// FrozenPage is one page of frozen accounts.
type FrozenPage struct {
	Frozen []Frozen `json:"frozen"`
	Next   string   `json:"next,omitempty"`
}

// FrozenOf writes a frozen account.
func FrozenOf(c *governance.Cell) Frozen {
	return Frozen{
		Account: AccountOf(c.Key), Kind: c.Kind.String(),
		Consumed: c.Account.Consumed, Uncertain: c.Account.Uncertain, Reserved: c.Account.Reserved,
	}
}

// Verification is what an audit of all accounts found.
type Verification struct {
	Balanced     bool         `json:"balanced"`
	Accounts     int64        `json:"accounts"`
	Reservations int64        `json:"reservations"`
	Differences  []Difference `json:"differences"`
}

// Difference is an account that is not what its permits add up to.
type Difference struct {
	Account
	Why string `json:"why"`
}

// VerificationOf writes an audit.
func VerificationOf(v governance.VerifyReport) Verification {
	out := Verification{
		Balanced: len(v.Differences) == 0, Accounts: v.Accounts, Reservations: v.Permits, Differences: []Difference{},
	}
	for _, d := range v.Differences {
		out.Differences = append(out.Differences, Difference{AccountOf(d.Account), d.Why})
	}
	return out
}

// Explanation is the answer to a dry run.
type Explanation struct {
	Admitted    bool         `json:"admitted"`
	Refusal     *Refusal     `json:"refusal"`
	Constraints []Constraint `json:"constraints"`
}

// Refusal is why a request would not be admitted.
type Refusal struct {
	Reason       string      `json:"reason"`
	Retryable    bool        `json:"retryable"`
	RetryAfterMS int64       `json:"retry_after_ms"`
	Constraint   *Constraint `json:"constraint"`
}

// ExplanationOf writes a dry run.
func ExplanationOf(e *governance.Explanation) Explanation {
	out := Explanation{Admitted: e.Admitted, Constraints: constraints(e.Verdicts)}
	if r := e.Refusal; r != nil {
		out.Refusal = &Refusal{Reason: r.Reason.String(), Retryable: r.Retryable, RetryAfterMS: int64((r.RetryAfter + time.Millisecond - 1) / time.Millisecond)}
		if r.Verdict.Constraint != nil {
			c := constraint(&r.Verdict)
			out.Refusal.Constraint = &c
		}
	}
	return out
}
