package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

func (r *Routing) validate() error {
	if r.Budget != "" {
		if err := validName("budget", r.Budget); err != nil {
			return err
		}
	}
	if len(r.Tiers) == 0 {
		return refuse("budgetTiers", "must have at least one tier")
	}
	if len(r.Tiers) > MaxTiers {
		return refuse("budgetTiers", fmt.Sprintf("must have at most %d entries", MaxTiers))
	}
	seen := map[Percent]bool{}
	for i := range r.Tiers {
		t, path := &r.Tiers[i], index("budgetTiers", i)
		if seen[t.Threshold] {
			return refuse(path+".thresholdPercent", "must not stand in the list twice")
		}
		seen[t.Threshold] = true
		if err := t.validate(); err != nil {
			return within(path, err)
		}
	}
	return r.validCircle()
}

func (t *RoutingTier) validate() error {
	if len(t.Substitutions) == 0 {
		return refuse("substitutions", "must have at least one entry")
	}
	if len(t.Substitutions) > MaxModels {
		return refuse("substitutions", fmt.Sprintf("must have at most %d entries", MaxModels))
	}
	for _, from := range slices.Sorted(maps.Keys(t.Substitutions)) {
		to := t.Substitutions[from]
		path := Member("substitutions", from)
		if err := validModel(path, from); err != nil {
			return err
		}
		if err := validModel(path, to); err != nil {
			return err
		}
		if from == to {
			return refuse(path, "must be another model than the one that it replaces")
		}
		if _, chained := t.Substitutions[to]; chained {
			return refuse(path, "must be a model that the same tier does not replace: say where it ends")
		}
	}
	return nil
}

// validCircle refuses tiers that lead back to the model that was asked for.
func (r *Routing) validCircle() error {
	var so []*RoutingTier
	for _, i := range r.ascending() {
		so = append(so, &r.Tiers[i])
		for _, t := range so {
			for from := range t.Substitutions {
				if replaceAll(so, from, false) == from {
					return refuse(index("budgetTiers", i)+".substitutions", "must not lead back to a model that a lower tier replaces")
				}
			}
		}
	}
	return nil
}

// ascending lists the places of the tiers, the lowest threshold first.
func (r *Routing) ascending() []int {
	order := make([]int, len(r.Tiers))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(r.Tiers[a].Threshold, r.Tiers[b].Threshold) })
	return order
}

// replaceAll applies tiers, the lowest first: each replaces what was asked for or, if it says
// nothing of that, what the ones below made of it.
func replaceAll(tiers []*RoutingTier, asked string, strictOnly bool) string {
	now := asked
	for _, t := range tiers {
		if strictOnly && !t.Strict {
			continue
		}
		if to, ok := t.Substitutions[asked]; ok {
			now = to
		} else if to, ok := t.Substitutions[now]; ok {
			now = to
		}
	}
	return now
}

// validateRouting checks what a routing rule says of the document's budgets.
func (d *Document) validateRouting(r *Routing) error {
	b, err := d.budgetOf(r)
	if err != nil {
		return err
	}
	for i := range r.Tiers {
		if err := b.Budget.validThreshold(index("budgetTiers", i)+".thresholdPercent", r.Tiers[i].Threshold); err != nil {
			return err
		}
	}
	return nil
}

// budgetOf finds the budget whose tiers a routing rule follows.
func (d *Document) budgetOf(r *Routing) (*Rule, error) {
	var found *Rule
	for i := range d.Rules {
		b := &d.Rules[i]
		switch {
		case b.Budget == nil || (r.Budget != "" && b.Name != r.Budget):
		case found != nil:
			return nil, refuse("budget", "must name one of the document's budgets: there are several")
		default:
			found = b
		}
	}
	switch {
	case found == nil && r.Budget == "":
		return nil, refuse("budget", "must be a budget of the same document: there is none")
	case found == nil:
		return nil, refuse("budget", "must be the name of a budget of the same document")
	case found.Budget.Unlimited:
		return nil, refuse("budget", "must be a budget with a limit: the tiers are shares of it")
	}
	return found, nil
}

// Route is a routing rule at the threshold that its budget has reached.
type Route struct {
	Match   *Match
	Reached Percent
}

// RoutesOf pairs each routing rule among the matches with what the budget that it follows
// has reached: reached is asked for that budget, which is among the matches as well.
func RoutesOf(matches []Match, reached func(budget *Match) Percent) []Route {
	var out []Route
	for i := range matches {
		m := &matches[i]
		if m.Rule.Routing == nil {
			continue
		}
		for j := range matches {
			if b := &matches[j]; b.Policy == m.Policy && b.Rule.Name == m.Follows {
				out = append(out, Route{Match: m, Reached: reached(b)})
			}
		}
	}
	return out
}

// Step is one replacement, and the rule that made it.
type Step struct {
	Policy, Rule string
	From, To     string
	Strict       bool
}

// Choice is the model to use for one that was asked for.
type Choice struct {
	// Model is the one to use.
	Model string
	// Required is what strict tiers alone make of the request. A router may use it in
	// place of Model, when that one cannot be had, and nothing that strict tiers replace.
	Required string
	Steps    []Step // what led to Model
}

// Substitute says which model takes the place of the one that was asked for, by all the
// rules that apply to a principal. Routes at a threshold of zero, and matches that are no
// routing rules, replace nothing.
//
// Strict tiers are asked before the others, so that an optional one never undoes them; among
// equals the rule with the higher threshold goes first, then the order of the matches. Each
// rule is asked once, about what the rules before it made of the request, and none leads
// back to a model that was replaced already. So several rules save as much as they
// can together, and the order of documents does not matter.
func Substitute(routes []Route, asked string) Choice {
	order := make([]*Route, 0, len(routes))
	for i := range routes {
		if m := routes[i].Match; m != nil && m.Rule.Routing != nil && routes[i].Reached > 0 {
			order = append(order, &routes[i])
		}
	}
	slices.SortStableFunc(order, func(a, b *Route) int { return cmp.Compare(b.Reached, a.Reached) })
	c := Choice{Model: asked, Required: asked}
	left := map[string]bool{asked: true}
	c.apply(order, left, true)
	c.Required = c.Model
	c.apply(order, left, false)
	return c
}

// apply asks the rules, in order and again from the start while one of them replaces
// something, each at most once.
func (c *Choice) apply(order []*Route, left map[string]bool, strict bool) {
	asked := make([]bool, len(order))
	for i := 0; i < len(order); i++ {
		if asked[i] {
			continue
		}
		to := order[i].replace(c.Model, strict)
		if to == c.Model || left[to] {
			continue
		}
		asked[i] = true
		m := order[i].Match
		c.Steps = append(c.Steps, Step{Policy: m.Policy, Rule: m.Rule.Name, From: c.Model, To: to, Strict: strict})
		c.Model, left[to] = to, true
		i = -1
	}
}

// replace is what the reached tiers of one rule make of a model.
func (r *Route) replace(model string, strictOnly bool) string {
	routing := r.Match.Rule.Routing
	var reached []*RoutingTier
	for _, i := range routing.ascending() {
		if routing.Tiers[i].Threshold <= r.Reached {
			reached = append(reached, &routing.Tiers[i])
		}
	}
	return replaceAll(reached, model, strictOnly)
}
