package httpgov

import (
	"cmp"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/pricing"
	"github.com/tallystick-go/tallystick/governance/usage"
)

// outcome turns a finding into what is settled, at the price that the permit
// captured. Tokens and cost are certain or not each for itself.
//
// Source: internal/docs/guarantees.md "Settled exactly once".
func (f finding) outcome(price []byte, a *ask) governance.Outcome {
	if f.nothing {
		return governance.Used(0, 0)
	}
	u := f.usage
	// A provider that does not say in which tier it served did as it was asked.
	u.ServiceTier, u.Speed, u.Geo = cmp.Or(u.ServiceTier, a.tier), cmp.Or(u.Speed, a.speed), cmp.Or(u.Geo, a.geo)
	total := u.Total()
	return governance.Outcome{
		Tokens: measure(total.State, total.N, int64(governance.MaxTokens)),
		Cost:   cost(price, u),
	}
}

func cost(price []byte, u usage.Usage) governance.Measure {
	var row pricing.Row
	if row.UnmarshalBinary(price) != nil {
		return governance.Measure{} // no price was captured
	}
	amount, state, err := row.Cost(u)
	if err != nil {
		return governance.Measure{}
	}
	return measure(state, int64(amount), int64(governance.MaxCost))
}

// measure keeps what was seen of an unknown amount; it is never charged by itself.
func measure(s usage.State, n, most int64) governance.Measure {
	switch {
	case s == usage.Invalid || n < 0 || n > most:
		return governance.Measure{Certainty: governance.Impossible}
	case s == usage.Known:
		return governance.Measure{Certainty: governance.Known, Value: n}
	}
	return governance.Measure{Certainty: governance.Uncertain, Value: n}
}
