package policy

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tallystick-go/tallystick/quota"
)

// canonical is a deep copy in which everything is written in one way: lists whose order
// means nothing are sorted, defaults are left out. The document must be valid.
func (d *Document) canonical() Document {
	out := Document{Name: d.Name, Subject: d.Subject, Rules: make([]Rule, len(d.Rules))}
	for i := range d.Rules {
		out.Rules[i] = d.Rules[i].canonical()
		if r := out.Rules[i].Routing; r != nil {
			if b, err := d.budgetOf(r); err == nil {
				r.Budget = b.Name
			}
		}
	}
	slices.SortFunc(out.Rules, func(a, b Rule) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (r *Rule) canonical() Rule {
	out := Rule{Name: r.Name, FailurePolicy: r.FailurePolicy}
	switch r.Kind() {
	case KindBudget:
		b := *r.Budget
		b.Calendar = canonicalCalendar(b.Calendar)
		if b.Lease != nil {
			lease := *b.Lease
			b.Lease = &lease
		}
		b.Tiers = slices.Clone(b.Tiers)
		slices.SortFunc(b.Tiers, func(a, b Tier) int { return cmp.Compare(a.Threshold, b.Threshold) })
		if len(b.Tiers) == 0 {
			b.Tiers = nil
		}
		out.Budget = &b
	case KindRate:
		out.Rate = &Rate{RPM: copied(r.Rate.RPM), TPM: copied(r.Rate.TPM), Unlimited: r.Rate.Unlimited}
	case KindTokenQuota:
		out.TokenQuota = &TokenQuota{LimitTokens: r.TokenQuota.LimitTokens, Calendar: canonicalCalendar(r.TokenQuota.Calendar)}
	case KindModelAccess:
		out.ModelAccess = &ModelAccess{Allow: slices.Sorted(slices.Values(r.ModelAccess.Allow))}
	case KindConcurrency:
		c := *r.Concurrency
		out.Concurrency = &c
	case KindRouting:
		routing := &Routing{Budget: r.Routing.Budget}
		for _, i := range r.Routing.ascending() {
			t := r.Routing.Tiers[i]
			t.Substitutions = maps.Clone(t.Substitutions)
			routing.Tiers = append(routing.Tiers, t)
		}
		out.Routing = routing
	}
	return out
}

func canonicalCalendar(c quota.Calendar) quota.Calendar {
	if c.Zone == "UTC" {
		c.Zone = ""
	}
	if c.WeekStart == 1 {
		c.WeekStart = 0
	}
	if c.MonthDay == 1 {
		c.MonthDay = 0
	}
	return c
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
