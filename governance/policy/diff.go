package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/quota"
)

// Action is what a difference does to a rule.
type Action uint8

// The actions.
const (
	Added Action = iota + 1
	Removed
	Changed
)

func (a Action) String() string {
	switch a {
	case Added:
		return "added"
	case Removed:
		return "removed"
	case Changed:
		return "changed"
	}
	return "nothing"
}

// MarshalText writes the action's name.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// Change is one rule that differs between two sets.
type Change struct {
	Policy string `json:"policy"`
	Rule   string `json:"rule"`
	Action Action `json:"action"`
	Kind   Kind   `json:"kind"` // the newer one
	// Account says that what the rule counts goes on elsewhere: the subject, the kind or the
	// period is another one, so counting starts at zero in another account, and what was
	// counted stays in the older one. Whatever else changes, the account is the same.
	Account bool          `json:"another_account,omitempty"`
	Fields  []FieldChange `json:"fields,omitempty"` // of a changed rule
}

// FieldChange is one field that differs. A value that is not there is empty.
type FieldChange struct {
	Field string `json:"field"`
	Old   string `json:"old"`
	New   string `json:"new"`
	// Account marks the fields that lead to another account.
	Account bool `json:"another_account,omitempty"`
}

// String is the change in words, a line for the rule and one for each field.
func (c Change) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s: %s (%s)", c.Policy, c.Rule, c.Action, c.Kind)
	switch {
	case c.Action == Removed && c.Kind.counts():
		b.WriteString("; its account stays, and goes on if the rule comes back")
	case c.Action == Added && c.Kind.counts():
		b.WriteString("; its account goes on if there was such a rule before")
	}
	for _, f := range c.Fields {
		fmt.Fprintf(&b, "\n  %s: %s -> %s", f.Field, said(f.Old), said(f.New))
		switch {
		case f.Account:
			b.WriteString("; counting starts at zero in another account")
		case calendarField(f.Field) && !c.Account && f.Old != "" && f.New != "":
			b.WriteString("; the same account, from the next end of a window on")
		}
	}
	return b.String()
}

func said(value string) string {
	if value == "" {
		return "(none)"
	}
	return value
}

func calendarField(field string) bool {
	return slices.Contains([]string{"timezone", "weekStart", "resetHour", "monthDay"}, field)
}

// counts reports whether rules of the kind have accounts, buckets or slots.
func (k Kind) counts() bool { return k != KindModelAccess && k != KindRouting && k != 0 }

// Diff lists the rules that differ, by policy and rule: what to show before an edit is made.
func Diff(before, after *Set) []Change {
	var out []Change
	names := map[string]bool{}
	for _, s := range []*Set{before, after} {
		for i := range s.Len() {
			names[s.entries[i].document.Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, b := before.find(name), after.find(name)
		switch {
		case a != nil && b != nil && a.digest == b.digest:
		case a == nil:
			out = append(out, diffDocuments(&Document{}, &b.document)...)
		case b == nil:
			out = append(out, diffDocuments(&a.document, &Document{})...)
		default:
			out = append(out, diffDocuments(&a.document, &b.document)...)
		}
	}
	return out
}

func diffDocuments(before, after *Document) []Change {
	var out []Change
	name := cmp.Or(after.Name, before.Name)
	old, now := rulesOf(before), rulesOf(after)
	all := maps.Clone(old)
	maps.Copy(all, now)
	for _, rule := range slices.Sorted(maps.Keys(all)) {
		a, b := old[rule], now[rule]
		c := Change{Policy: name, Rule: rule, Action: Changed}
		switch {
		case a == nil:
			c.Action, c.Kind = Added, b.Kind()
		case b == nil:
			c.Action, c.Kind = Removed, a.Kind()
		default:
			c.Kind = b.Kind()
			if c.compare(before.Subject, after.Subject, a, b); len(c.Fields) == 0 {
				continue
			}
		}
		out = append(out, c)
	}
	return out
}

func rulesOf(d *Document) map[string]*Rule {
	out := make(map[string]*Rule, len(d.Rules))
	for i := range d.Rules {
		out[d.Rules[i].Name] = &d.Rules[i]
	}
	return out
}

func (c *Change) compare(was, is Subject, a, b *Rule) {
	counts := a.Kind().counts() && b.Kind().counts()
	c.field("subject", was.Scope().String()+" "+was.String(), is.Scope().String()+" "+is.String(), counts)
	c.field("kind", a.Kind().String(), b.Kind().String(), counts)
	old, now := a.fields(), b.fields()
	if a.Kind() != b.Kind() { // they have nothing else in common
		c.field("failurePolicy", old["failurePolicy"], now["failurePolicy"], false)
		return
	}
	all := maps.Clone(old)
	maps.Copy(all, now)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		// A budget that had no period, being unlimited, had no account either.
		account := name == "period" && counts && old[name] != "" && now[name] != ""
		c.field(name, old[name], now[name], account)
	}
}

func (c *Change) field(name, old, now string, account bool) {
	if old == now {
		return
	}
	c.Fields = append(c.Fields, FieldChange{Field: name, Old: old, New: now, Account: account})
	c.Account = c.Account || account
}

// fields are a rule's fields in words, under the names that they have in a document.
func (r *Rule) fields() map[string]string {
	out := map[string]string{"failurePolicy": r.FailurePolicy.String()}
	number := func(name string, n int64) { out[name] = strconv.FormatInt(n, 10) }
	switch {
	case r.Budget != nil:
		b := r.Budget
		if !b.Unlimited {
			number("limitMilliUSD", b.LimitMilliUSD)
		}
		out["hardCap"], out["unlimited"] = strconv.FormatBool(b.HardCap), strconv.FormatBool(b.Unlimited)
		out["adminContact"] = b.AdminContact
		calendarFields(out, b.Calendar)
		if b.Lease != nil {
			number("lease.grantMilliUSD", b.Lease.GrantMilliUSD)
			out["lease.renewInterval"] = interval(b.Lease.RenewInterval)
		}
		var tiers []string
		for _, t := range b.Tiers {
			tiers = append(tiers, fmt.Sprint(t.Threshold))
		}
		out["tiers"] = strings.Join(tiers, ", ")
	case r.Rate != nil:
		if r.Rate.RPM != nil {
			number("rpm", *r.Rate.RPM)
		}
		if r.Rate.TPM != nil {
			number("tpm", *r.Rate.TPM)
		}
		out["unlimited"] = strconv.FormatBool(r.Rate.Unlimited)
	case r.TokenQuota != nil:
		number("limitTokens", r.TokenQuota.LimitTokens)
		calendarFields(out, r.TokenQuota.Calendar)
	case r.ModelAccess != nil:
		out["allow"] = strings.Join(r.ModelAccess.Allow, ", ")
	case r.Concurrency != nil:
		number("permits", r.Concurrency.Permits)
	case r.Routing != nil:
		out["budget"] = r.Routing.Budget
		for _, t := range r.Routing.Tiers {
			text := "optional"
			if t.Strict {
				text = "strict"
			}
			for _, from := range slices.Sorted(maps.Keys(t.Substitutions)) {
				text += fmt.Sprintf(", %s to %s", from, t.Substitutions[from])
			}
			out[fmt.Sprintf("budgetTiers at %d", t.Threshold)] = text
		}
	}
	return out
}

func interval(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func calendarFields(out map[string]string, c quota.Calendar) {
	if c.Period == 0 {
		return
	}
	out["period"] = c.Period.String()
	out["timezone"] = cmp.Or(c.Zone, "UTC")
	switch c.Period {
	case quota.Week:
		out["weekStart"] = weekdays[max(c.WeekStart, 1)]
	case quota.Month:
		out["monthDay"] = strconv.Itoa(max(c.MonthDay, 1))
	}
	out["resetHour"] = strconv.Itoa(c.ResetHour)
}
