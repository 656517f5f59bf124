package keysimport

import (
	"errors"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

// epoch stands for a time that the other system did not keep.
var epoch = time.Unix(0, 0).UTC()

// carrier collects a plan.
type carrier struct {
	plan   Plan
	teams  map[string]bool
	keys   map[string]bool
	hashes map[keys.Hash]bool
}

func newCarrier(source string) *carrier {
	return &carrier{plan: Plan{Report: newReport(source)}, teams: map[string]bool{}, keys: map[string]bool{}, hashes: map[keys.Hash]bool{}}
}

// row is a row on its way: what is read of it, and whether it must stay refused.
type row struct {
	c      *carrier
	table  string
	rec    record
	id     string // here
	refuse bool
	found  []Finding
}

func (r *row) note(column string, effect Effect, why string) {
	r.found = append(r.found, Finding{Table: r.table, Line: r.rec.line, ID: r.id, Column: column, Effect: effect, Why: why})
}

// report tells what was found. Nothing is wider for whom nobody lets in.
func (r *row) report(refused bool) {
	for _, f := range r.found {
		if f.Effect != Wider || !refused {
			r.c.plan.Report.add(f)
		}
	}
	r.found = nil
}

// stop makes sure that the row stays refused.
func (r *row) stop(column, why string) {
	r.refuse = true
	r.note(column, Narrower, why)
}

// present notes an effect for every given column that says something.
func (r *row) present(effect Effect, why string, columns ...string) {
	for _, name := range columns {
		if !empty(r.rec.fields[name]) {
			r.note(name, effect, why)
		}
	}
}

// strangers notes columns that this package knows nothing of.
func (r *row) strangers(known map[string]bool) {
	for name, text := range r.rec.fields {
		if !known[name] && !empty(text) {
			r.note("(others)", Wider, "a column that is not known here says something: it may be a restriction")
			return
		}
	}
}

func (r *row) bool(column string) bool {
	v, err := parseBool(r.rec.fields[column])
	if err != nil {
		r.stop(column, "cannot be read")
	}
	return v
}

func (r *row) time(column string) *time.Time {
	at, err := parseTime(r.rec.fields[column])
	if err != nil {
		r.stop(column, "cannot be read")
	}
	return at
}

// limit reads a count. What enforces nothing because it is negative is zero here.
func (r *row) limit(column string) *int64 {
	text := r.rec.fields[column]
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		r.stop(column, "cannot be read")
	}
	if n < 0 {
		r.note(column, Narrower, "is negative: carried as zero")
		n = 0
	}
	return &n
}

// text reads a text that people see.
func (r *row) text(column string) string {
	text := r.rec.fields[column]
	if _, err := (keys.CreateTeam{ID: "x", Name: text}).Prepare(); err != nil {
		r.note(column, Lost, "is too long, or has characters that are not kept")
		return ""
	}
	return text
}

func (r *row) times() (created, updated time.Time) {
	created, updated = epoch, epoch
	if at := r.time("created_at"); at != nil {
		created, updated = *at, *at
	}
	if at := r.time("updated_at"); at != nil && at.After(updated) {
		updated = *at
	}
	return created, updated
}

// stricter is the smaller of two limits, of which none is unlimited.
func stricter[T ~int64](a, b *T) *T {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}

// budget is an amount per period as LiteLLM keeps it.
type budget struct {
	max      string // USD
	spent    string // USD
	duration string
}

// cost carries a budget. Whatever cannot be said per calendar day or month is said
// per the next longer one, which is less; what has no period or a longer one comes
// back each month, which is more.
func (r *row) cost(b budget, column string) (day, month *amount.MicroUSD) {
	switch strings.ToLower(b.max) {
	case "", "infinity", "+infinity", "inf":
		return nil, nil
	}
	most, err := parseDecimal(b.max)
	if err != nil {
		r.stop(column, "cannot be read")
		return nil, nil
	}
	spent, err := parseDecimal(b.spent)
	if b.spent == "" {
		spent, err = new(big.Rat), nil
	}
	if err != nil {
		r.stop("spend", "cannot be read")
		return nil, nil
	}
	if spent.Cmp(most) >= 0 {
		r.note(column, Narrower, "is used up: carried as zero, so that it stays refused until it is given a limit again")
		return nil, keys.Cost(0)
	}
	if spent.Sign() > 0 {
		r.note("spend", Restarts, "what was spent in the running period is not carried")
	}
	whole := keys.Cost(microUSD(most))
	switch kind, err := periodOf(b.duration); {
	case err != nil:
		r.stop("budget_duration", "cannot be read")
		return nil, nil
	case kind == aDay:
		return whole, nil
	case kind == aMonth:
		return nil, whole
	case kind == belowDay:
		r.note("budget_duration", Narrower, "is shorter than a day: carried per day")
		return whole, nil
	case kind == belowMonth:
		r.note("budget_duration", Narrower, "is no calendar day or month: carried per month")
		return nil, whole
	}
	left := keys.Cost(microUSD(new(big.Rat).Sub(most, spent)))
	r.note("budget_duration", Wider, "is longer than a month, or for good: what is left is carried, and comes back each month")
	return nil, left
}

type period int

const (
	belowDay period = iota + 1
	aDay
	belowMonth
	aMonth
	longer
)

// periodOf reads a duration: a number and s, m, h, d, w or mo. 24h and 1d end at
// midnight and 30d and 1mo with the month, as the other system documents it.
func periodOf(text string) (period, error) {
	if text == "" {
		return longer, nil
	}
	end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if end < 1 {
		return 0, errValue
	}
	n, err := strconv.ParseInt(text[:end], 10, 32)
	if err != nil || n < 1 {
		return 0, errValue
	}
	seconds := map[string]int64{"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "mo": 30 * 86400}[text[end:]]
	const day = 86400
	switch total := n * seconds; {
	case seconds == 0:
		return 0, errValue
	case total < day:
		return belowDay, nil
	case total == day:
		return aDay, nil
	case total == 30*day:
		return aMonth, nil
	case total < 30*day:
		return belowMonth, nil
	}
	return longer, nil
}

// team adds a team, once.
func (c *carrier) team(r *row, t keys.Team) {
	if c.teams[t.ID] {
		r.skip("is there twice")
		return
	}
	if r.refuse && t.DeletedAt == nil {
		t.DeletedAt = &t.UpdatedAt
	}
	if err := (keys.Rows{Teams: []keys.Team{t}}).Validate(); err != nil {
		r.skip(whyNot(err))
		return
	}
	r.report(t.DeletedAt != nil)
	c.teams[t.ID] = true
	c.plan.Rows.Teams = append(c.plan.Rows.Teams, t.Clone())
}

// key adds a key with its secret.
func (c *carrier) key(r *row, k keys.Key, hash keys.Hash) {
	if c.hashes[hash] || c.keys[k.ID] {
		r.skip("is there twice")
		return
	}
	if r.refuse && k.RevokedAt == nil {
		k.RevokedAt = &k.UpdatedAt
	}
	secret := keys.Secret{Hash: hash, KeyID: k.ID, CreatedAt: k.CreatedAt}
	if err := (keys.Rows{Keys: []keys.Key{k}, Secrets: []keys.Secret{secret}}).Validate(); err != nil {
		r.skip(whyNot(err))
		return
	}
	r.report(k.RevokedAt != nil)
	c.hashes[hash], c.keys[k.ID] = true, true
	if spent := k.Limits.CostPerMonth; k.RevokedAt != nil || spent != nil && *spent == 0 {
		c.plan.Report.Refused++
	}
	c.plan.Rows.Keys = append(c.plan.Rows.Keys, k.Clone())
	c.plan.Rows.Secrets = append(c.plan.Rows.Secrets, secret)
}

// skip leaves the row out. Nobody is let in with an unknown key.
func (r *row) skip(why string) {
	r.c.plan.Report.Skipped++
	r.note("", Narrower, "left out: "+why)
	r.report(true)
}

func whyNot(err error) string {
	var field *keys.FieldError
	if errors.As(err, &field) {
		_, name, _ := strings.Cut(field.Field, "].")
		return name + " " + field.Why
	}
	return "cannot be kept"
}

func (c *carrier) done() Plan {
	c.plan.Report.Carried = c.plan.Rows.Count()
	return c.plan
}

func columns(names string) map[string]bool {
	out := map[string]bool{}
	for _, name := range strings.Fields(names) {
		out[name] = true
	}
	return out
}
