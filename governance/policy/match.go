package policy

import (
	"maps"
	"slices"

	"github.com/tallystick-go/tallystick/quota"
)

// Match is a rule that applies to a principal.
type Match struct {
	Policy  string
	Rule    *Rule // the set's own: it must not be changed
	Scope   Scope
	Subject Subject // as the document has it
	// Thresholds are the shares of a budget that are noticed: its own tiers and those of
	// the routing rules that follow it, rising. Other rules have none.
	Thresholds []Percent
	// Follows names, for a routing rule, the budget rule of the same policy.
	Follows string
}

// matchesOf lists the rules of a canonical document.
func matchesOf(d *Document) []Match {
	out := make([]Match, len(d.Rules))
	for i := range d.Rules {
		r := &d.Rules[i]
		out[i] = Match{Policy: d.Name, Rule: r, Scope: d.Subject.Scope(), Subject: d.Subject}
		switch {
		case r.Budget != nil:
			out[i].Thresholds = d.thresholds(r)
		case r.Routing != nil:
			out[i].Follows = r.Routing.Budget
		}
	}
	return out
}

func (d *Document) thresholds(budget *Rule) []Percent {
	all := map[Percent]bool{}
	for _, t := range budget.Budget.Tiers {
		all[t.Threshold] = true
	}
	for i := range d.Rules {
		if r := d.Rules[i].Routing; r != nil && r.Budget == budget.Name {
			for _, t := range r.Tiers {
				all[t.Threshold] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Match lists every rule that applies to a principal: those about the team, about the
// user in whichever team, and about the user within the team, each by policy and rule. A
// principal without a user matches no document that names one, and likewise for teams.
//
// Concurrency: safe; it costs three look-ups, however many documents there are.
func (s *Set) Match(team, user string) []Match {
	if s == nil {
		return nil
	}
	return matchIn(s.index, team, user)
}

// add appends to an index. The first list of a subject is taken as it is, and never grown in place.
func add(index map[Subject][]Match, subject Subject, matches []Match) {
	if before := index[subject]; before != nil {
		matches = append(before, matches...)
	}
	index[subject] = slices.Clip(matches)
}

func matchIn(index map[Subject][]Match, team, user string) []Match {
	var lists [3][]Match
	size := 0
	for i, subject := range subjectsOf(team, user) {
		if subject != (Subject{}) {
			lists[i] = index[subject]
			size += len(lists[i])
		}
	}
	if size == 0 {
		return nil
	}
	out := make([]Match, 0, size)
	for _, list := range lists {
		out = append(out, list...)
	}
	return out
}

// subjectsOf lists the subjects that a principal belongs to, empty ones where there is none.
func subjectsOf(team, user string) [3]Subject {
	out := [3]Subject{{Team: team}, {User: user}}
	if team != "" && user != "" {
		out[2] = Subject{Team: team, User: user}
	}
	return out
}

// LimitKind is what a limit counts.
type LimitKind uint8

// The kinds of limit. The numbers are those of governance.Kind.
const (
	LimitRequestRate LimitKind = iota + 1 // requests per minute
	LimitTokenRate                        // tokens per minute
	LimitTokenQuota                       // tokens per calendar window
	LimitMoney                            // microUSD per calendar window
	LimitConcurrency                      // permits at the same time
)

var limitNames = [...]string{
	LimitRequestRate: "requests_per_minute", LimitTokenRate: "tokens_per_minute", LimitTokenQuota: "token_quota",
	LimitMoney: "money", LimitConcurrency: "concurrency",
}

func (k LimitKind) String() string {
	if k < LimitRequestRate || k > LimitConcurrency {
		return "no limit"
	}
	return limitNames[k]
}

// Limit is one constraint that a rule makes.
//
// Units: by Kind; money is microUSD.
type Limit struct {
	Kind     LimitKind
	Amount   int64
	Calendar quota.Calendar // of quotas and money
	Hard     bool           // refuses what does not fit; false for a budget that is a meter
}

// Limits are the constraints that a rule makes: two at most, and none for rules that only say
// unlimited, list models or route. Constraints of several rules stand beside one another;
// they are never merged.
func (r *Rule) Limits() []Limit {
	switch {
	case r.unlimited():
		return nil
	case r.Budget != nil:
		return []Limit{{Kind: LimitMoney, Amount: int64(r.Budget.Limit()), Calendar: r.Budget.Calendar, Hard: r.Budget.HardCap}}
	case r.TokenQuota != nil:
		return []Limit{{Kind: LimitTokenQuota, Amount: r.TokenQuota.LimitTokens, Calendar: r.TokenQuota.Calendar, Hard: true}}
	case r.Concurrency != nil:
		return []Limit{{Kind: LimitConcurrency, Amount: r.Concurrency.Permits, Hard: true}}
	case r.Rate != nil:
		var out []Limit
		if r.Rate.RPM != nil {
			out = append(out, Limit{Kind: LimitRequestRate, Amount: *r.Rate.RPM, Hard: true})
		}
		if r.Rate.TPM != nil {
			out = append(out, Limit{Kind: LimitTokenRate, Amount: *r.Rate.TPM, Hard: true})
		}
		return out
	}
	return nil
}

// Access is what all lists of models that apply leave. The zero Access allows everything.
type Access struct {
	lists [][]string
}

// AccessOf gathers the lists of models among the matches.
func AccessOf(matches []Match) Access {
	var a Access
	for i := range matches {
		if m := matches[i].Rule.ModelAccess; m != nil {
			a.lists = append(a.lists, m.Allow)
		}
	}
	return a
}

// Restricted reports whether any list applies: a request must then name its model.
func (a Access) Restricted() bool { return len(a.lists) > 0 }

// Allows reports whether every list has the model. Names are compared byte by byte: pass
// the canonical one, or use AllowsAs.
func (a Access) Allows(model string) bool {
	for _, list := range a.lists {
		if _, ok := slices.BinarySearch(list, model); !ok {
			return false
		}
	}
	return true
}

// AllowsAs is Allows with canonical applied to the asked name and to every name in the
// lists, so that an alias neither locks out nor lets through.
func (a Access) AllowsAs(canonical func(string) string, model string) bool {
	model = canonical(model)
	for _, list := range a.lists {
		if !slices.ContainsFunc(list, func(name string) bool { return canonical(name) == model }) {
			return false
		}
	}
	return true
}

// Models lists what is allowed, sorted, and nil where everything is.
func (a Access) Models() []string {
	if !a.Restricted() {
		return nil
	}
	out := []string{}
	for _, model := range a.lists[0] {
		if a.Allows(model) {
			out = append(out, model)
		}
	}
	return out
}
