package policy

import (
	"maps"
	"slices"
	"strconv"

	"github.com/tallystick-go/tallystick/quota"
)

// MarshalJSON writes the canonical form. Errors: *Error.
func (d Document) MarshalJSON() ([]byte, error) {
	e, err := prepare(&d)
	if err != nil {
		return nil, err
	}
	return []byte(e.text), nil
}

// encoder writes JSON in one way only, whatever the version of the standard library: the
// generation is a digest of it, and programs built apart must agree. Texts are valid and
// printable, so quotes and backslashes are all that is escaped. A field that is added to
// documents must be left out where it is not set, else every older program would find
// another generation.
type encoder struct {
	out   []byte
	inner bool // something stands before in the same object or list
}

func (e *encoder) open(c byte)  { e.out, e.inner = append(e.out, c), false }
func (e *encoder) close(c byte) { e.out, e.inner = append(e.out, c), true }

func (e *encoder) next() {
	if e.inner {
		e.out = append(e.out, ',')
	}
	e.inner = true
}

func (e *encoder) key(name string) {
	e.next()
	e.quote(name)
	e.out = append(e.out, ':')
}

func (e *encoder) quote(s string) {
	e.out = append(e.out, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			e.out = append(e.out, '\\')
		}
		e.out = append(e.out, s[i])
	}
	e.out = append(e.out, '"')
}

func (e *encoder) text(name, s string) {
	if s != "" {
		e.key(name)
		e.quote(s)
	}
}

func (e *encoder) number(name string, n int64) {
	e.key(name)
	e.out = strconv.AppendInt(e.out, n, 10)
}

func (e *encoder) optional(name string, n int64) {
	if n != 0 {
		e.number(name, n)
	}
}

func (e *encoder) flag(name string, set bool) {
	if set {
		e.key(name)
		e.out = append(e.out, "true"...)
	}
}

// document writes a document that is valid and canonical.
func (e *encoder) document(d *Document) {
	e.open('{')
	e.text("apiVersion", APIVersion)
	e.text("kind", Resource)
	e.key("metadata")
	e.open('{')
	e.text("name", d.Name)
	e.close('}')
	e.key("spec")
	e.open('{')
	e.key("subject")
	e.open('{')
	e.text("team", d.Subject.Team)
	e.text("user", d.Subject.User)
	e.close('}')
	e.key("rules")
	e.open('[')
	for i := range d.Rules {
		e.next()
		e.rule(&d.Rules[i])
	}
	e.close(']')
	e.close('}')
	e.close('}')
}

func (e *encoder) rule(r *Rule) {
	e.open('{')
	e.text("name", r.Name)
	e.text("failurePolicy", r.FailurePolicy.String())
	e.key(r.Kind().String())
	e.open('{')
	switch {
	case r.Budget != nil:
		e.budget(r.Budget)
	case r.Rate != nil:
		if r.Rate.RPM != nil {
			e.number("rpm", *r.Rate.RPM)
		}
		if r.Rate.TPM != nil {
			e.number("tpm", *r.Rate.TPM)
		}
		e.flag("unlimited", r.Rate.Unlimited)
	case r.TokenQuota != nil:
		e.number("limitTokens", r.TokenQuota.LimitTokens)
		e.calendar(r.TokenQuota.Calendar)
	case r.ModelAccess != nil:
		e.key("allow")
		e.open('[')
		for _, model := range r.ModelAccess.Allow {
			e.next()
			e.quote(model)
		}
		e.close(']')
	case r.Concurrency != nil:
		e.number("permits", r.Concurrency.Permits)
	case r.Routing != nil:
		e.routing(r.Routing)
	}
	e.close('}')
	e.close('}')
}

func (e *encoder) budget(b *Budget) {
	if !b.Unlimited {
		e.number("limitMilliUSD", b.LimitMilliUSD)
	}
	e.flag("hardCap", b.HardCap)
	e.calendar(b.Calendar)
	if b.Lease != nil {
		e.key("lease")
		e.open('{')
		e.number("grantMilliUSD", b.Lease.GrantMilliUSD)
		if b.Lease.RenewInterval != 0 {
			e.text("renewInterval", b.Lease.RenewInterval.String())
		}
		e.close('}')
	}
	if len(b.Tiers) > 0 {
		e.key("tiers")
		e.open('[')
		for _, t := range b.Tiers {
			e.next()
			e.open('{')
			e.number("thresholdPercent", int64(t.Threshold))
			e.close('}')
		}
		e.close(']')
	}
	e.text("adminContact", b.AdminContact)
	e.flag("unlimited", b.Unlimited)
}

func (e *encoder) routing(r *Routing) {
	e.text("budget", r.Budget)
	e.key("budgetTiers")
	e.open('[')
	for i := range r.Tiers {
		t := &r.Tiers[i]
		e.next()
		e.open('{')
		e.number("thresholdPercent", int64(t.Threshold))
		e.flag("strict", t.Strict)
		e.key("substitutions")
		e.open('{')
		for _, from := range slices.Sorted(maps.Keys(t.Substitutions)) {
			e.text(from, t.Substitutions[from])
		}
		e.close('}')
		e.close('}')
	}
	e.close(']')
}

func (e *encoder) calendar(c quota.Calendar) {
	if c.Period != 0 {
		e.text("period", c.Period.String())
	}
	e.text("timezone", c.Zone)
	if c.WeekStart != 0 {
		e.text("weekStart", weekdays[c.WeekStart])
	}
	e.optional("resetHour", int64(c.ResetHour))
	e.optional("monthDay", int64(c.MonthDay))
}

// weekdays are counted as ISO 8601 does.
var weekdays = [...]string{1: "monday", 2: "tuesday", 3: "wednesday", 4: "thursday", 5: "friday", 6: "saturday", 7: "sunday"}
