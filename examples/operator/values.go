package operator

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"

	"github.com/tallystick-go/tallystick/keys"
)

var quiet = slog.New(slog.DiscardHandler)

// limit is a flag that knows whether it was given: a number, or none.
type limit struct {
	given bool
	value *int64
	money bool
}

func (l *limit) String() string { return "" }

func (l *limit) Set(text string) error {
	l.given = true
	if text == "none" {
		l.value = nil
		return nil
	}
	n, err := l.number(text)
	if err != nil {
		return err
	}
	l.value = &n
	return nil
}

func (l *limit) number(text string) (int64, error) {
	if dollars, ok := strings.CutPrefix(text, "$"); ok && l.money {
		return microUSD(dollars)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, errors.New("must be a whole number that is not negative, or none")
	}
	return n, nil
}

// microUSD reads dollars exactly, with at most six decimals.
func microUSD(text string) (int64, error) {
	whole, part, _ := strings.Cut(text, ".")
	if len(part) > 6 {
		return 0, errors.New("must not have more than six decimals")
	}
	n, err := strconv.ParseUint(whole+part+strings.Repeat("0", 6-len(part)), 10, 64)
	if err != nil || whole == "" || n > math.MaxInt64 {
		return 0, errors.New("must be an amount such as $12.50")
	}
	return int64(n), nil
}

// dollars writes microUSD for people.
func dollars(micro int64) string { return fmt.Sprintf("$%d.%06d", micro/1_000_000, micro%1_000_000) }

// many is a flag that may be given several times. One empty value is an empty list.
type many struct {
	given bool
	list  []string
}

func (m *many) String() string { return "" }

func (m *many) Set(text string) error {
	m.given = true
	if text == "" {
		m.list = []string{}
		return nil
	}
	m.list = append(m.list, text)
	return nil
}

// text is a flag that knows whether it was given.
type text struct {
	given bool
	value string
}

func (t *text) String() string { return "" }

func (t *text) Set(value string) error {
	t.given, t.value = true, value
	return nil
}

// definition are the flags that teams and keys have in common.
type definition struct {
	id, name                    text
	limits                      map[string]*limit
	models, regions             many
	defaultMax                  limit
	team, owner, expires, guard text
	ifRevision                  int64
}

func (d *definition) flags(set *flag.FlagSet) {
	set.Var(&d.name, "name", "a `name` for people")
	d.limits = map[string]*limit{}
	for _, l := range []struct {
		flag, field, what string
		money             bool
	}{
		{"rpm", "requests_per_minute", "requests per minute", false},
		{"tpm", "tokens_per_minute", "tokens per minute", false},
		{"tokens-per-day", "tokens_per_day", "tokens per day", false},
		{"concurrency", "concurrency", "requests at the same time", false},
		{"cost-per-day", "cost_per_day_microusd", "microUSD per day, or dollars like $5", true},
		{"cost-per-month", "cost_per_month_microusd", "microUSD per month, or dollars like $100", true},
	} {
		value := &limit{money: l.money}
		d.limits[l.field] = value
		set.Var(value, l.flag, "at most `N` "+l.what+"; none: unlimited, as when never given")
	}
	set.Var(&d.models, "model", "a `model` that is allowed, may be repeated; \"\": none at all")
	set.Var(&d.regions, "region", "a `region` that is allowed, may be repeated; \"\": none at all")
	set.Var(&d.defaultMax, "default-max-tokens", "the `maximum` of output tokens for requests that name none; none: the model's own")
}

func (d *definition) teamFlags(set *flag.FlagSet) {
	d.flags(set)
	set.Var(&d.guard, "guardrail", "a `reference` that routing reads")
}

func (d *definition) keyFlags(set *flag.FlagSet) {
	d.flags(set)
	set.Var(&d.owner, "owner", "the `user` that the key counts for")
	set.Var(&d.expires, "expires", "when it expires, an RFC 3339 `time`; none: never")
}

func (d *definition) revisionFlag(set *flag.FlagSet) {
	set.Int64Var(&d.ifRevision, "if-revision", 0, "the `revision` that the edit is based on, as show prints it; required to update and rotate, elsewhere 0 takes any")
}

// document is the body that creates or updates.
func (d *definition) document(string) (any, error) {
	out := map[string]any{}
	for name, t := range map[string]text{"id": d.id, "name": d.name, "team_id": d.team, "owner": d.owner, "guardrail": d.guard} {
		if t.given {
			out[name] = t.value
		}
	}
	if d.expires.given {
		if out["expires_at"] = any(d.expires.value); d.expires.value == "none" {
			out["expires_at"] = nil
		}
	}
	limits := map[string]any{}
	for name, l := range d.limits {
		if l.given {
			limits[name] = l.value
		}
	}
	if len(limits) > 0 {
		out["limits"] = limits
	}
	if d.models.given {
		out["allowed_models"] = d.models.list
	}
	if d.regions.given {
		out["allowed_regions"] = d.regions.list
	}
	if d.defaultMax.given {
		out["default_max_tokens"] = d.defaultMax.value
	}
	if d.ifRevision != 0 {
		out["if_revision"] = d.ifRevision
	}
	return out, nil
}

// limitsText writes limits for people.
func limitsText(l keys.Limits) string {
	var parts []string
	add := func(n *int64, format string) {
		if n != nil {
			parts = append(parts, fmt.Sprintf(format, *n))
		}
	}
	add(l.RequestsPerMinute, "%d rpm")
	add(l.TokensPerMinute, "%d tpm")
	add(l.TokensPerDay, "%d tokens/day")
	add(l.Concurrency, "%d at once")
	if l.CostPerDay != nil {
		parts = append(parts, dollars(int64(*l.CostPerDay))+"/day")
	}
	if l.CostPerMonth != nil {
		parts = append(parts, dollars(int64(*l.CostPerMonth))+"/month")
	}
	if len(parts) == 0 {
		return "unlimited"
	}
	return strings.Join(parts, ", ")
}

// into decodes an answer.
func into[T any](answer json.RawMessage) (T, error) {
	var v T
	err := json.Unmarshal(answer, &v)
	return v, err
}
