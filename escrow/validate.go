package escrow

import (
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/quota"
)

// What messages may hold at most.
const (
	MaxNodeBytes      = 128
	MaxReports        = 1000
	MaxMeters         = 1000
	MaxRequests       = 1000
	MaxHeartbeatBytes = 4 << 20  // encoded
	MaxAnswerBytes    = 64 << 20 // encoded; documents are bounded by policy.MaxInputBytes
)

// ValidNode refuses what cannot be a node's name. It must be the same after every restart, and
// another one on every node. Errors: *Error.
func ValidNode(name string) error { return validName("node", name, MaxNodeBytes) }

// Validate refuses a heartbeat that no node can mean. An authority must call it before
// anything else. Errors: *Error.
func (h *Heartbeat) Validate() error {
	if err := ValidNode(h.Node); err != nil {
		return err
	}
	switch {
	case h.Boot.IsZero():
		return refuse("boot", "must not be zero")
	case h.BootNumber < 1:
		return refuse("boot_number", "must be 1 or more")
	case h.Sequence < 1:
		return refuse("sequence", "must be 1 or more")
	case h.Answered < 0 || h.Answered >= h.Sequence:
		return refuse("answered", "must be zero or more, and below the sequence")
	}
	if h.Mark != (policy.Mark{}) {
		if err := validMark(h.Mark); err != nil {
			return within("mark", err)
		}
	}
	seen := map[GrantID]bool{}
	if err := list("reports", h.Reports, MaxReports, seen, func(r *Report) (GrantID, error) { return r.Grant, r.validate() }); err != nil {
		return err
	}
	if err := list("meters", h.Meters, MaxMeters, seen, func(m *Meter) (GrantID, error) { return m.ID, m.validate() }); err != nil {
		return err
	}
	if h.Bye && len(h.Requests) > 0 {
		return refuse("requests", "must be empty in the last heartbeat")
	}
	return list("requests", h.Requests, MaxRequests, seen, func(r *Request) (GrantID, error) { return r.ID, r.validate() })
}

// list checks a list whose entries have ids of which none may stand in the message twice.
func list[T any](name string, entries []T, most int, seen map[GrantID]bool, check func(*T) (GrantID, error)) error {
	if len(entries) > most {
		return refuse(name, fmt.Sprintf("must have at most %d entries", most))
	}
	for i := range entries {
		id, err := check(&entries[i])
		if err != nil {
			return within(index(name, i), err)
		}
		if !id.Valid() {
			return refuse(index(name, i), "must have an id that is a version 7 UUID")
		}
		if seen[id] {
			return refuse(index(name, i), "must not have the id of another entry of the message")
		}
		seen[id] = true
	}
	return nil
}

func (r *Report) validate() error {
	if r.Ending > Burned {
		return refuse("ending", "must be open, closed or burned")
	}
	return validUse(r.Consumed, r.Uncertain, r.Observed, 0)
}

func (m *Meter) validate() error {
	if err := m.Account.validate(); err != nil {
		return within("account", err)
	}
	return validUse(m.Consumed, m.Uncertain, m.Observed, m.Pending)
}

func (r *Request) validate() error {
	if err := r.Account.validate(); err != nil {
		return within("account", err)
	}
	switch {
	case r.Amount < 1:
		return refuse("amount_microusd", "must be more than zero")
	case r.Least < 1:
		return refuse("least_microusd", "must be more than zero")
	case r.Least > r.Amount:
		return refuse("least_microusd", "must not be more than the amount")
	}
	return nil
}

func validUse(consumed, uncertain, observed, pending amount.MicroUSD) error {
	for _, sum := range [...]struct {
		name  string
		value amount.MicroUSD
	}{{"consumed", consumed}, {"uncertain", uncertain}, {"observed", observed}, {"pending", pending}} {
		if sum.value < 0 {
			return refuse(sum.name+"_microusd", "must not be negative")
		}
	}
	if _, err := amount.Sum(consumed, uncertain, pending); err != nil {
		return refuse("", "must have sums that fit 63 bits together")
	}
	return nil
}

func (a *Account) validate() error {
	if err := validName("policy", a.Policy, policy.MaxNameBytes); err != nil {
		return err
	}
	if err := validName("rule", a.Rule, policy.MaxNameBytes); err != nil {
		return err
	}
	if a.Subject.Team == "" && a.Subject.User == "" {
		return refuse("team", "or user must be there")
	}
	if a.Subject.Team != "" {
		if err := validName("team", a.Subject.Team, policy.MaxNameBytes); err != nil {
			return err
		}
	}
	if err := validText("user", a.Subject.User, policy.MaxUserBytes); err != nil {
		return err
	}
	if a.Period < quota.Day || a.Period > quota.Month {
		return refuse("period", "must be day, week or month")
	}
	return validWindow(a.Window, a.Period)
}

// longest is what no window of the period exceeds in UTC, also where an edit of the
// calendar made the one after it a long one.
func longest(p quota.Period) int64 {
	const day = 24 * int64(time.Hour/time.Microsecond)
	switch p {
	case quota.Day:
		return 2 * day
	case quota.Week:
		return 2 * 7 * day
	default:
		return 2 * 31 * day
	}
}

// maxMoment is the year 10000; minMoment is the epoch. No authority has such a clock.
const (
	minMoment = 0
	maxMoment = 253_402_300_800_000_000
)

func validWindow(w quota.Window, p quota.Period) error {
	switch {
	case w.Start < minMoment || w.Start >= maxMoment:
		return refuse("start_us", "must be between the years 1970 and 9999")
	case w.End <= w.Start:
		return refuse("end_us", "must be after the start")
	case w.End-w.Start > longest(p):
		return refuse("end_us", "must not be more than two periods after the start")
	}
	return nil
}

func validMark(m policy.Mark) error {
	switch {
	case m.Namespace.IsZero():
		return refuse("namespace", "must not be zero")
	case m.Generation.IsZero():
		return refuse("generation", "must not be zero")
	case m.Revision < 1:
		return refuse("revision", "must be 1 or more")
	}
	return nil
}

// Validate refuses an answer that no authority can mean. What it says must be held against
// the heartbeat besides: see Verify. Errors: *Error.
func (a *Answer) Validate() error {
	if err := validMark(a.Mark); err != nil {
		return within("mark", err)
	}
	switch {
	case a.Documents == nil:
		return refuse("documents", "is missing")
	case a.Now < minMoment || a.Now >= maxMoment:
		return refuse("now_us", "must be between the years 1970 and 9999")
	case len(a.Budgets) != len(a.Definitions):
		return refuse("budgets", "must have one entry for each definition")
	case len(a.Receipts) > MaxReports+MaxMeters:
		return refuse("receipts", fmt.Sprintf("must have at most %d entries", MaxReports+MaxMeters))
	}
	for i := range a.Definitions {
		if err := a.Definitions[i].validate(); err != nil {
			return within(index("definitions", i), err)
		}
		if err := a.Budgets[i].validate(); err != nil {
			return within(index("budgets", i), err)
		}
	}
	seen := map[GrantID]bool{}
	if err := list("grants", a.Grants, MaxRequests, seen, func(g *Grant) (GrantID, error) { return g.ID, g.validate() }); err != nil {
		return err
	}
	if err := list("denials", a.Denials, MaxRequests, seen, func(d *Denial) (GrantID, error) { return d.ID, d.validate() }); err != nil {
		return err
	}
	return list("receipts", a.Receipts, MaxReports+MaxMeters, seen, func(r *Receipt) (GrantID, error) {
		if r.Ending > Burned {
			return r.Grant, refuse("ending", "must be open, closed or burned")
		}
		return r.Grant, nil
	})
}

func (d *Definition) validate() error {
	if err := d.Account.validate(); err != nil {
		return within("account", err)
	}
	switch {
	case d.Limit < 0:
		return refuse("limit_microusd", "must not be negative")
	case d.Grant < 0:
		return refuse("grant_microusd", "must not be negative")
	case d.Renew < time.Millisecond || d.Renew > 24*time.Hour || d.Renew%time.Millisecond != 0:
		return refuse("renew_ms", "must be between 1 ms and a day")
	}
	return nil
}

func (b *Budget) validate() error {
	for _, sum := range [...]amount.MicroUSD{b.Consumed, b.Uncertain, b.Reserved, b.Granted} {
		if sum < 0 {
			return refuse("", "must not have a negative sum")
		}
	}
	if b.Latch < 0 || b.Latch > policy.MaxPercent {
		return refuse("latch_percent", fmt.Sprintf("must be 0 to %d", policy.MaxPercent))
	}
	return nil
}

func (g *Grant) validate() error {
	if err := g.Account.validate(); err != nil {
		return within("account", err)
	}
	switch {
	case g.Amount < 1:
		return refuse("amount_microusd", "must be more than zero")
	case g.ExpiresAt <= g.Account.Window.Start || g.ExpiresAt > g.Account.Window.End:
		return refuse("expires_at_us", "must lie in the window")
	}
	return nil
}

func (d *Denial) validate() error {
	switch {
	case d.Reason < NoRoom || d.Reason > Over:
		return refuse("reason", "must be one that is known")
	case d.Left < 0:
		return refuse("left_microusd", "must not be negative")
	}
	return nil
}

// validName refuses what is no identifier: names have the form of those in documents.
func validName(path, s string, most int) error {
	switch {
	case s == "":
		return refuse(path, "must not be empty")
	case len(s) > most:
		return refuse(path, fmt.Sprintf("must be at most %d bytes", most))
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

func validText(path, s string, most int) error {
	switch {
	case len(s) > most:
		return refuse(path, fmt.Sprintf("must be at most %d bytes", most))
	case !utf8.ValidString(s):
		return refuse(path, "must be UTF-8")
	}
	for _, r := range s {
		if r == utf8.RuneError || r == '\u2028' || r == '\u2029' || unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return refuse(path, "must not contain control or replacement characters")
		}
	}
	return nil
}
