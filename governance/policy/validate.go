package policy

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tallystick-go/tallystick/quota"
)

// What documents and sets may hold at most.
const (
	MaxDocuments     = 10_000
	MaxRules         = 64 // of a document
	MaxNameBytes     = 128
	MaxUserBytes     = 256
	MaxModelBytes    = 256
	MaxContactBytes  = 256
	MaxModels        = 256 // of a list, or substitutions of a tier
	MaxTiers         = 16
	MaxPercent       = Percent(1000)
	MaxMilliUSD      = math.MaxInt64 / microPerMilli
	MaxDocumentBytes = 64 << 10 // encoded
	MaxInputBytes    = 8 << 20  // of one call of a decoder

	minRenew, maxRenew = time.Second, 24 * time.Hour
)

// Validate holds a document to the rules that decoding holds it to. Errors: *Error.
func (d *Document) Validate() error {
	if err := validName("metadata.name", d.Name); err != nil {
		return err
	}
	if err := d.Subject.validate(); err != nil {
		return within("spec.subject", err)
	}
	if len(d.Rules) == 0 {
		return refuse("spec.rules", "must have at least one rule")
	}
	if len(d.Rules) > MaxRules {
		return refuse("spec.rules", fmt.Sprintf("must have at most %d rules", MaxRules))
	}
	names := make(map[string]bool, len(d.Rules))
	for i := range d.Rules {
		r, path := &d.Rules[i], index("spec.rules", i)
		if err := r.validate(); err != nil {
			return within(path, err)
		}
		if names[r.Name] {
			return refuse(path+".name", "must not be the name of another rule of the document: they would share an account")
		}
		names[r.Name] = true
	}
	for i := range d.Rules {
		if d.Rules[i].Routing != nil {
			if err := d.validateRouting(d.Rules[i].Routing); err != nil {
				return within(index("spec.rules", i)+".routing", err)
			}
		}
	}
	return nil
}

func (s Subject) validate() error {
	if s.Team == "" && s.User == "" {
		return refuse("", "must name a team, a user, or both")
	}
	if s.Team != "" {
		if err := validName("team", s.Team); err != nil {
			return err
		}
	}
	return validText("user", s.User, MaxUserBytes)
}

func (r *Rule) validate() error {
	if err := validName("name", r.Name); err != nil {
		return err
	}
	if r.FailurePolicy != FailOpen && r.FailurePolicy != FailClosed {
		return refuse("failurePolicy", "must be FailOpen or FailClosed")
	}
	kind := r.Kind()
	var err error
	switch kind {
	case KindBudget:
		err = r.Budget.validate()
		if err == nil && r.Budget.HardCap && r.FailurePolicy != FailClosed {
			return refuse("failurePolicy", "must be FailClosed for a budget with hardCap")
		}
	case KindRate:
		err = r.Rate.validate()
	case KindTokenQuota:
		err = r.TokenQuota.validate()
		if err == nil && r.FailurePolicy != FailClosed {
			return refuse("failurePolicy", "must be FailClosed for a tokenQuota")
		}
	case KindModelAccess:
		err = r.ModelAccess.validate()
	case KindConcurrency:
		err = notNegative("permits", r.Concurrency.Permits)
	case KindRouting:
		err = r.Routing.validate()
	default:
		return refuse("", "must have exactly one of budget, rate, tokenQuota, modelAccess, concurrency and routing")
	}
	return within(kind.String(), err)
}

func (b *Budget) validate() error {
	if err := validText("adminContact", b.AdminContact, MaxContactBytes); err != nil {
		return err
	}
	if b.Unlimited {
		switch {
		case b.LimitMilliUSD != 0:
			return refuse("limitMilliUSD", "must not stand beside unlimited")
		case b.HardCap:
			return refuse("hardCap", "must not stand beside unlimited")
		case b.Lease != nil:
			return refuse("lease", "must not stand beside unlimited")
		case len(b.Tiers) > 0:
			return refuse("tiers", "must not stand beside unlimited: there is no limit to have a share of")
		case b.Calendar == quota.Calendar{}:
			return nil
		}
		return validCalendar(b.Calendar)
	}
	if err := validMoney("limitMilliUSD", b.LimitMilliUSD); err != nil {
		return err
	}
	if err := validCalendar(b.Calendar); err != nil {
		return err
	}
	if l := b.Lease; l != nil {
		switch err := validMoney("grantMilliUSD", l.GrantMilliUSD); {
		case err != nil:
			return within("lease", err)
		case l.GrantMilliUSD == 0:
			return refuse("lease.grantMilliUSD", "must be more than zero")
		case l.GrantMilliUSD > b.LimitMilliUSD:
			return refuse("lease.grantMilliUSD", "must not be more than the limit: such a grant could never be given")
		case l.RenewInterval != 0 && (l.RenewInterval < minRenew || l.RenewInterval > maxRenew):
			return refuse("lease.renewInterval", "must be between 1s and 24h")
		}
	}
	if len(b.Tiers) > MaxTiers {
		return refuse("tiers", fmt.Sprintf("must have at most %d entries", MaxTiers))
	}
	seen := map[Percent]bool{}
	for i, t := range b.Tiers {
		path := index("tiers", i) + ".thresholdPercent"
		if err := b.validThreshold(path, t.Threshold); err != nil {
			return err
		}
		if seen[t.Threshold] {
			return refuse(path, "must not stand in the list twice")
		}
		seen[t.Threshold] = true
	}
	return nil
}

func (b *Budget) validThreshold(path string, p Percent) error {
	most := MaxPercent
	if b.HardCap {
		most = 100
	}
	if p < 1 || p > most {
		return refuse(path, fmt.Sprintf("must be between 1 and %d", most))
	}
	return nil
}

func (r *Rate) validate() error {
	switch {
	case r.Unlimited && r.RPM != nil:
		return refuse("rpm", "must not stand beside unlimited")
	case r.Unlimited && r.TPM != nil:
		return refuse("tpm", "must not stand beside unlimited")
	case r.Unlimited:
		return nil
	case r.RPM == nil && r.TPM == nil:
		return refuse("", "must have rpm, tpm or both, or unlimited")
	}
	if r.RPM != nil {
		if err := notNegative("rpm", *r.RPM); err != nil {
			return err
		}
	}
	if r.TPM != nil {
		return notNegative("tpm", *r.TPM)
	}
	return nil
}

func (q *TokenQuota) validate() error {
	if err := notNegative("limitTokens", q.LimitTokens); err != nil {
		return err
	}
	return validCalendar(q.Calendar)
}

func (a *ModelAccess) validate() error {
	if len(a.Allow) == 0 {
		return refuse("allow", "must name at least one model; leave the rule out to allow all")
	}
	if len(a.Allow) > MaxModels {
		return refuse("allow", fmt.Sprintf("must have at most %d entries", MaxModels))
	}
	seen := make(map[string]bool, len(a.Allow))
	for i, model := range a.Allow {
		path := index("allow", i)
		if err := validModel(path, model); err != nil {
			return err
		}
		if seen[model] {
			return refuse(path, "must not stand in the list twice")
		}
		seen[model] = true
	}
	return nil
}

// validCalendar checks a calendar and says which of its fields is at fault.
func validCalendar(c quota.Calendar) error {
	probe := quota.Calendar{Period: c.Period}
	if probe.Validate() != nil {
		return refuse("period", "must be day, week or month")
	}
	probe.Zone = c.Zone
	if err := probe.Validate(); err != nil {
		return refuse("timezone", strings.TrimPrefix(err.Error(), quota.ErrInvalid.Error()+": "))
	}
	switch {
	case c.WeekStart < 0 || c.WeekStart > 7:
		return refuse("weekStart", "must be a day from monday to sunday")
	case c.WeekStart != 0 && c.Period != quota.Week:
		return refuse("weekStart", "must stand beside the period week only")
	case c.ResetHour < 0 || c.ResetHour > 23:
		return refuse("resetHour", "must be between 0 and 23")
	case c.MonthDay < 0 || c.MonthDay > 31:
		return refuse("monthDay", "must be between 1 and 31")
	case c.MonthDay != 0 && c.Period != quota.Month:
		return refuse("monthDay", "must stand beside the period month only")
	}
	return nil
}

func validMoney(path string, milli int64) error {
	if err := notNegative(path, milli); err != nil {
		return err
	}
	if milli > MaxMilliUSD {
		return refuse(path, fmt.Sprintf("must be at most %d: it is counted in millionths of a dollar", int64(MaxMilliUSD)))
	}
	return nil
}

func notNegative(path string, n int64) error {
	if n < 0 {
		return refuse(path, "must not be negative")
	}
	return nil
}

// validName refuses what is no identifier. Teams have the same form in package keys: another
// one could never match.
func validName(path, s string) error {
	if s == "" {
		return refuse(path, "must not be empty")
	}
	if len(s) > MaxNameBytes {
		return refuse(path, fmt.Sprintf("must be at most %d bytes", MaxNameBytes))
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z':
		case i > 0 && (c == '.' || c == '_' || c == ':' || c == '-'):
		default:
			return refuse(path, "must be letters, digits and . _ : - and begin with a letter or digit")
		}
	}
	return nil
}

func validModel(path, s string) error {
	if s == "" {
		return refuse(path, "must not be empty")
	}
	if strings.Contains(s, "*") {
		return refuse(path, "must be the whole name of a model: there are no patterns")
	}
	return validText(path, s, MaxModelBytes)
}

func validText(path, s string, limit int) error {
	if len(s) > limit {
		return refuse(path, fmt.Sprintf("must be at most %d bytes", limit))
	}
	if !utf8.ValidString(s) {
		return refuse(path, "must be UTF-8")
	}
	if !printable(s) {
		return refuse(path, "must not contain control or replacement characters")
	}
	return nil
}

// printable reports that a text shows what it holds. U+FFFD is what decoders put for a
// broken character: two different broken texts would become the same one.
func printable(s string) bool {
	for _, r := range s {
		if r == utf8.RuneError || r == '\u2028' || r == '\u2029' || unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return false
		}
	}
	return true
}
