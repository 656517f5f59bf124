package policy

import (
	"time"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/quota"
)

// What a document says it is. AliasVersion is read as APIVersion and never written.
const (
	APIVersion   = "tallystick.dev/v1alpha1"
	AliasVersion = "inferplane.dev/v1alpha1"
	Resource     = "GovernancePolicy"
)

// Document is one policy: rules for one subject. The name identifies it, in the store
// and in the accounts of its rules.
type Document struct {
	Name    string
	Subject Subject
	Rules   []Rule
}

// Subject says whom a document is about: every member of a team, a user in whichever
// team, or a user within one team. A user is the owner of a key as administrators
// set it, never something that a caller sends. Names compare byte by byte.
type Subject struct {
	Team string
	User string
}

// Rule is one rule of exactly one kind. Its name is unique in the document.
type Rule struct {
	Name          string
	FailurePolicy FailurePolicy

	Budget      *Budget
	Rate        *Rate
	TokenQuota  *TokenQuota
	ModelAccess *ModelAccess
	Concurrency *Concurrency
	Routing     *Routing
}

// FailurePolicy says what becomes of a rule that cannot be enforced where it is read. It has
// no say about outages: a gateway that cannot reach its store admits nothing.
type FailurePolicy uint8

// The failure policies.
const (
	FailOpen   FailurePolicy = iota + 1 // left out, and reported
	FailClosed                          // mandatory: its subjects are gated until it can be enforced
)

// Budget is money per calendar window. With HardCap it bounds what is reserved; it is then
// mandatory (FailClosed). Without, it is a meter: nothing is refused for it, and its
// tiers steer routing.
//
// Units: thousandths of a US dollar.
type Budget struct {
	LimitMilliUSD int64
	HardCap       bool
	// Calendar says where windows end. Its period is required beside a limit; the
	// start of the week belongs to weeks, the day of the month to months.
	Calendar quota.Calendar
	// Lease says how a fleet of nodes with journals of their own hands out this budget.
	// Profiles without such nodes ignore it.
	Lease *Lease
	// Tiers are shares of the limit that are noticed once per window when they are
	// reached. The thresholds of routing rules count by themselves.
	Tiers []Tier
	// AdminContact is shown to whoever is refused.
	AdminContact string
	// Unlimited says in writing that there is no budget here. It stands in place of
	// a limit and lifts no other one.
	Unlimited bool
}

// Lease is how much of a budget one node is granted at a time, and how often it asks.
type Lease struct {
	GrantMilliUSD int64
	RenewInterval time.Duration // 1 s to 24 h; zero is the authority's default
}

// Percent is a share of a limit, in hundredths. Shares above 100 are for budgets that
// are no hard caps.
type Percent int32

// Tier is a share of a budget that is noticed when it is reached.
type Tier struct {
	Threshold Percent
}

// Rate limits requests and tokens per minute. An absent (nil) one is not limited; zero
// is a limit of zero. Unlimited says so in writing, and lifts no other limit.
type Rate struct {
	RPM       *int64
	TPM       *int64
	Unlimited bool
}

// TokenQuota is tokens per calendar window. It is mandatory (FailClosed).
type TokenQuota struct {
	LimitTokens int64
	Calendar    quota.Calendar
}

// ModelAccess lists the models that may be used. Names are whole, there are no patterns.
// Of several lists a model must be on each.
type ModelAccess struct {
	Allow []string
}

// Concurrency limits the attempts on their way at the same time.
type Concurrency struct {
	Permits int64
}

// Routing replaces models as a budget fills.
type Routing struct {
	// Budget names a budget rule of the same document. It may be empty where the
	// document has one budget.
	Budget string
	Tiers  []RoutingTier
}

// RoutingTier says which model takes another's place from a threshold on. Tiers build on
// one another: a higher one replaces what a caller asked for, or what lower tiers made of it.
type RoutingTier struct {
	Threshold Percent
	// Strict says that the replaced model must not be used any more. Otherwise the
	// substitute is preferred, and a router may stay with the model where it has to.
	Strict        bool
	Substitutions map[string]string
}

// Kind is what a rule does.
type Kind uint8

// The kinds of rule.
const (
	KindBudget Kind = iota + 1
	KindRate
	KindTokenQuota
	KindModelAccess
	KindConcurrency
	KindRouting
)

var kindNames = [...]string{
	KindBudget: "budget", KindRate: "rate", KindTokenQuota: "tokenQuota",
	KindModelAccess: "modelAccess", KindConcurrency: "concurrency", KindRouting: "routing",
}

// String is the kind's field in a document.
func (k Kind) String() string {
	if k < KindBudget || k > KindRouting {
		return "no kind"
	}
	return kindNames[k]
}

// MarshalText writes the kind's field.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Kind is the kind of a valid rule, and zero of one that has none or several.
func (r *Rule) Kind() Kind {
	var kind Kind
	for k, set := range [...]bool{
		KindBudget: r.Budget != nil, KindRate: r.Rate != nil, KindTokenQuota: r.TokenQuota != nil,
		KindModelAccess: r.ModelAccess != nil, KindConcurrency: r.Concurrency != nil, KindRouting: r.Routing != nil,
	} {
		if set && kind != 0 {
			return 0
		}
		if set {
			kind = Kind(k)
		}
	}
	return kind
}

// unlimited reports whether the rule says in writing that it limits nothing.
func (r *Rule) unlimited() bool {
	return (r.Budget != nil && r.Budget.Unlimited) || (r.Rate != nil && r.Rate.Unlimited)
}

func (p FailurePolicy) String() string {
	switch p {
	case FailOpen:
		return "FailOpen"
	case FailClosed:
		return "FailClosed"
	}
	return "no failure policy"
}

// MarshalText writes "FailOpen" or "FailClosed".
func (p FailurePolicy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Limit is the budget in the unit of accounts. Budgets that are valid do not overflow.
func (b *Budget) Limit() amount.MicroUSD { return amount.MicroUSD(b.LimitMilliUSD) * microPerMilli }

// Grant is the size of one grant in the unit of accounts.
func (l *Lease) Grant() amount.MicroUSD { return amount.MicroUSD(l.GrantMilliUSD) * microPerMilli }

const microPerMilli = 1000

// Scope says whose use the limits of a document count.
type Scope uint8

// The scopes. The numbers are those of governance.Scope, whose first is for keys: no
// document is about a key.
const (
	ScopeTeam Scope = iota + 2
	ScopeUser
	ScopeTeamUser
)

func (s Scope) String() string {
	switch s {
	case ScopeTeam:
		return "team"
	case ScopeUser:
		return "user"
	case ScopeTeamUser:
		return "team_user"
	}
	return "no scope"
}

// MarshalText writes the scope's name.
func (s Scope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Scope is the scope of a subject that is not empty.
func (s Subject) Scope() Scope {
	switch {
	case s.User == "":
		return ScopeTeam
	case s.Team == "":
		return ScopeUser
	}
	return ScopeTeamUser
}

// String is the subject as constraints name it: the team, the user, or "team/user". A
// team's name has no slash, so within a scope no two subjects are written alike.
func (s Subject) String() string {
	if s.Team != "" && s.User != "" {
		return s.Team + "/" + s.User
	}
	return s.Team + s.User
}
