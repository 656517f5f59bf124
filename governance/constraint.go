package governance

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
	"github.com/tallystick-go/tallystick/ratelimit"
)

// Kind says what a constraint counts and how.
type Kind uint8

// The kinds of constraint. The numbers are stored and never change.
const (
	KindRequestRate Kind = iota + 1 // requests per minute
	KindTokenRate                   // tokens per minute
	KindTokenQuota                  // tokens per calendar window
	KindMoney                       // microUSD per calendar window
	KindConcurrency                 // permits at the same time
)

func (k Kind) String() string {
	switch k {
	case KindRequestRate:
		return "requests_per_minute"
	case KindTokenRate:
		return "tokens_per_minute"
	case KindTokenQuota:
		return "token_quota"
	case KindMoney:
		return "money"
	case KindConcurrency:
		return "concurrency"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// MarshalText writes the kind's name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// isRate reports whether the state is a token bucket.
func (k Kind) isRate() bool { return k == KindRequestRate || k == KindTokenRate }

// isAccount reports whether the state is an account of a calendar window.
func (k Kind) isAccount() bool { return k == KindTokenQuota || k == KindMoney }

// Scope says whose use a constraint counts.
type Scope uint8

// The scopes. The numbers are part of every ConstraintID and never change.
const (
	ScopeKey Scope = iota + 1
	ScopeTeam
	ScopeUser
	ScopeTeamUser
)

func (s Scope) String() string {
	switch s {
	case ScopeKey:
		return "key"
	case ScopeTeam:
		return "team"
	case ScopeUser:
		return "user"
	case ScopeTeamUser:
		return "team_user"
	}
	return fmt.Sprintf("scope(%d)", uint8(s))
}

// MarshalText writes the scope's name.
func (s Scope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Constraint is one limit on one subject, as it is in force.
//
// Units: Limit is requests or tokens per minute, tokens per window, microUSD per
// window, or permits, by Kind. A limit of zero is a limit of zero.
//
// Source: internal/docs/architecture.md "State".
type Constraint struct {
	ID       ConstraintID
	Kind     Kind
	Scope    Scope
	Subject  string // team, key or user id; "team/user" for ScopeTeamUser
	Policy   string // empty for the limits of keys and teams
	Rule     string // the limit's name
	Calendar quota.Calendar
	Limit    int64
	Soft     bool // a meter: it counts, and refuses nothing unless it is frozen

	budget     *policy.Budget   // of a policy's budget
	thresholds []policy.Percent // shares of it that are noticed
}

// ceiling is what may be reserved in an account.
func (c *Constraint) ceiling() int64 {
	if c.Soft {
		return math.MaxInt64
	}
	return c.Limit
}

// rate is the bucket's limit. What is beyond the largest rate counts as that.
func (c *Constraint) rate() ratelimit.Limit {
	return ratelimit.Per(min(c.Limit, ratelimit.MaxPerMinute))
}

// identify computes the ID. Every part is preceded by its length, so that no two
// lists of parts have the same bytes.
func (c *Constraint) identify() {
	buf := make([]byte, 0, 256)
	buf = append(buf, "tallystick constraint 1"...)
	buf = append(buf, byte(c.Scope), byte(c.Kind), byte(c.Calendar.Period))
	for _, part := range [...]string{c.Subject, c.Policy, c.Rule} {
		buf = binary.AppendUvarint(buf, uint64(len(part)))
		buf = append(buf, part...)
	}
	sum := sha256.Sum256(buf)
	copy(c.ID[:], sum[:16])
}

// constraintSet is what applies to one principal, sorted by ID: the lock order.
type constraintSet struct {
	keyID    string
	revision keys.Revision
	list     []Constraint
	ids      []ConstraintID
	budgets  []Constraint                // of policies, where a node reserves them in its journal; else they are in list
	keys     []string                    // keyID alone
	rules    *rules                      // the policies among them are of these
	matches  []policy.Match              // what applies of the policies
	access   policy.Access               // the models that they allow
	routed   bool                        // they replace models
	tiered   bool                        // accounts in list notice thresholds
	recent   atomic.Pointer[sharedTerms] // what the last request captured
}

// constraintsOf lists every limit that the principal's key and team and the rules define.
func constraintsOf(p *keys.Principal, r *rules) *constraintSet {
	set := &constraintSet{keyID: p.KeyID, keys: []string{p.KeyID}, revision: p.Revision(), rules: r, matches: r.match(p)}
	set.add(ScopeKey, p.KeyID, p.Key.Limits)
	set.add(ScopeTeam, p.TeamID, p.Team.Limits)
	set.govern()
	for _, list := range [...][]Constraint{set.list, set.budgets} {
		slices.SortFunc(list, func(a, b Constraint) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	}
	set.ids = make([]ConstraintID, len(set.list))
	for i := range set.list {
		set.ids[i] = set.list[i].ID
	}
	return set
}

func (s *constraintSet) add(scope Scope, subject string, l keys.Limits) {
	one := func(kind Kind, rule string, period quota.Period, limit *int64) {
		if limit == nil {
			return // unlimited is absent
		}
		c := Constraint{Kind: kind, Scope: scope, Subject: subject, Rule: rule, Limit: *limit}
		c.Calendar.Period = period
		c.identify()
		s.list = append(s.list, c)
	}
	one(KindRequestRate, "requests_per_minute", 0, l.RequestsPerMinute)
	one(KindTokenRate, "tokens_per_minute", 0, l.TokensPerMinute)
	one(KindTokenQuota, "tokens_per_day", quota.Day, l.TokensPerDay)
	one(KindMoney, "cost_per_day", quota.Day, (*int64)(l.CostPerDay))
	one(KindMoney, "cost_per_month", quota.Month, (*int64)(l.CostPerMonth))
	one(KindConcurrency, "concurrency", 0, l.Concurrency)
}

// govern adds what the policies say. Each limit is a constraint of its own, so the
// tightest decides and a meter takes nothing from a cap.
func (s *constraintSet) govern() {
	s.access = policy.AccessOf(s.matches)
	for i := range s.matches {
		m := &s.matches[i]
		s.routed = s.routed || m.Rule.Routing != nil
		for _, l := range m.Rule.Limits() {
			c := Constraint{
				Kind: Kind(l.Kind), Scope: Scope(m.Scope), Subject: m.Subject.String(), Policy: m.Policy, Rule: m.Rule.Name,
				Calendar: l.Calendar, Limit: l.Amount, Soft: !l.Hard, budget: m.Rule.Budget, thresholds: m.Thresholds,
			}
			c.identify()
			if s.rules.node && c.budget != nil {
				s.budgets = append(s.budgets, c)
				continue
			}
			s.tiered = s.tiered || len(c.thresholds) > 0
			s.list = append(s.list, c)
		}
	}
}

// budget finds the constraint of a budget among the matches; nil where it has no limit.
func (s *constraintSet) budget(m *policy.Match) *Constraint {
	for _, list := range [...][]Constraint{s.list, s.budgets} {
		for i := range list {
			if c := &list[i]; c.budget != nil && c.Policy == m.Policy && c.Rule == m.Rule.Name {
				return c
			}
		}
	}
	return nil
}

// find returns the constraint with the id, or nil.
func (s *constraintSet) find(id ConstraintID) *Constraint {
	i, ok := slices.BinarySearchFunc(s.ids, id, func(a, b ConstraintID) int { return bytes.Compare(a[:], b[:]) })
	if !ok {
		return nil
	}
	return &s.list[i]
}

// allTime is the window of state that no calendar divides: rates and slots.
var allTime = quota.Window{Start: 0, End: 1<<63 - 1}
