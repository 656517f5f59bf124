package keys

import (
	"github.com/tallystick-go/tallystick/governance/amount"
)

// Limits of a team or key. An absent (nil) limit is unlimited; zero is a limit
// of zero and lets nothing through. Both the team's and the key's apply.
//
// Units: requests, tokens and calls in flight are counts; costs are microUSD.
type Limits struct {
	RequestsPerMinute *int64           `json:"requests_per_minute,omitempty"`
	TokensPerMinute   *int64           `json:"tokens_per_minute,omitempty"`
	TokensPerDay      *int64           `json:"tokens_per_day,omitempty"`
	Concurrency       *int64           `json:"concurrency,omitempty"`
	CostPerDay        *amount.MicroUSD `json:"cost_per_day_microusd,omitempty"`
	CostPerMonth      *amount.MicroUSD `json:"cost_per_month_microusd,omitempty"`
}

// Limit returns n as a limit, for struct literals.
func Limit(n int64) *int64 { return &n }

// Cost returns m as a limit, for struct literals.
func Cost(m amount.MicroUSD) *amount.MicroUSD { return &m }

// Validate refuses negative limits. Errors: *FieldError.
func (l Limits) Validate() error {
	counts := []struct {
		field string
		limit *int64
	}{
		{"requests_per_minute", l.RequestsPerMinute},
		{"tokens_per_minute", l.TokensPerMinute},
		{"tokens_per_day", l.TokensPerDay},
		{"concurrency", l.Concurrency},
		{"cost_per_day_microusd", (*int64)(l.CostPerDay)},
		{"cost_per_month_microusd", (*int64)(l.CostPerMonth)},
	}
	for _, c := range counts {
		if c.limit != nil && *c.limit < 0 {
			return refuse(c.field, "must not be negative; leave it out for unlimited")
		}
	}
	return nil
}

// UnmarshalJSON decodes strictly: an unknown or repeated field, a fraction or a
// negative number is refused. null says unlimited. Errors: *FieldError.
func (l *Limits) UnmarshalJSON(data []byte) error {
	var out Limits
	if err := decodeObject(data, map[string]any{
		"requests_per_minute":     &out.RequestsPerMinute,
		"tokens_per_minute":       &out.TokensPerMinute,
		"tokens_per_day":          &out.TokensPerDay,
		"concurrency":             &out.Concurrency,
		"cost_per_day_microusd":   &out.CostPerDay,
		"cost_per_month_microusd": &out.CostPerMonth,
	}); err != nil {
		return err
	}
	if err := out.Validate(); err != nil {
		return err
	}
	*l = out
	return nil
}

// LimitsChange changes single limits: an unset field leaves its limit alone,
// Set[*int64](nil) makes it unlimited.
type LimitsChange struct {
	RequestsPerMinute Change[*int64]           `json:"requests_per_minute,omitzero"`
	TokensPerMinute   Change[*int64]           `json:"tokens_per_minute,omitzero"`
	TokensPerDay      Change[*int64]           `json:"tokens_per_day,omitzero"`
	Concurrency       Change[*int64]           `json:"concurrency,omitzero"`
	CostPerDay        Change[*amount.MicroUSD] `json:"cost_per_day_microusd,omitzero"`
	CostPerMonth      Change[*amount.MicroUSD] `json:"cost_per_month_microusd,omitzero"`
}

// UnmarshalJSON decodes strictly: an absent field leaves the limit alone, null
// makes it unlimited. Errors: *FieldError.
func (c *LimitsChange) UnmarshalJSON(data []byte) error {
	var out LimitsChange
	if err := decodeObject(data, map[string]any{
		"requests_per_minute":     &out.RequestsPerMinute,
		"tokens_per_minute":       &out.TokensPerMinute,
		"tokens_per_day":          &out.TokensPerDay,
		"concurrency":             &out.Concurrency,
		"cost_per_day_microusd":   &out.CostPerDay,
		"cost_per_month_microusd": &out.CostPerMonth,
	}); err != nil {
		return err
	}
	var probe Limits
	out.apply(&probe)
	if err := probe.Validate(); err != nil {
		return err
	}
	*c = out
	return nil
}

func (c LimitsChange) apply(l *Limits) (changed bool) {
	return anyOf(
		assign(&l.RequestsPerMinute, c.RequestsPerMinute, samePtr),
		assign(&l.TokensPerMinute, c.TokensPerMinute, samePtr),
		assign(&l.TokensPerDay, c.TokensPerDay, samePtr),
		assign(&l.Concurrency, c.Concurrency, samePtr),
		assign(&l.CostPerDay, c.CostPerDay, samePtr),
		assign(&l.CostPerMonth, c.CostPerMonth, samePtr),
	)
}

func (c LimitsChange) validate() error {
	var probe Limits
	c.apply(&probe)
	return within("limits", probe.Validate())
}
