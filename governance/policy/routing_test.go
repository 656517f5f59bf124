package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/quota"
)

func tier(threshold policy.Percent, strict bool, substitutions ...string) policy.RoutingTier {
	t := policy.RoutingTier{Threshold: threshold, Strict: strict, Substitutions: map[string]string{}}
	for i := 0; i < len(substitutions); i += 2 {
		t.Substitutions[substitutions[i]] = substitutions[i+1]
	}
	return t
}

func TestTiersBuildOnOneAnother(t *testing.T) {
	rule := thrift(policy.FailOpen, "meter", tier(95, true, "sonnet", "haiku", "opus-1", "tiny"), tier(80, false, "opus", "sonnet", "opus-1", "opus"))
	m := &policy.Match{Policy: "p", Rule: &rule}
	for _, c := range []struct {
		reached                policy.Percent
		asked, model, required string
	}{
		{0, "opus", "opus", "opus"}, {79, "opus", "opus", "opus"},
		{80, "opus", "sonnet", "opus"}, {94, "opus", "sonnet", "opus"},
		{95, "opus", "haiku", "opus"}, {1000, "opus", "haiku", "opus"}, // strict about sonnet, not about opus
		{80, "sonnet", "sonnet", "sonnet"}, {95, "sonnet", "haiku", "haiku"},
		{80, "opus-1", "opus", "opus-1"}, {95, "opus-1", "tiny", "tiny"}, // what was asked for comes first
		{95, "other", "other", "other"},
	} {
		choice := policy.Substitute([]policy.Route{{Match: m, Reached: c.reached}}, c.asked)
		require.Equal(t, c.model, choice.Model, "%+v", c)
		require.Equal(t, c.required, choice.Required, "%+v", c)
	}
}

func TestStrictRulesGoFirst(t *testing.T) {
	route := func(name string, reached policy.Percent, tiers ...policy.RoutingTier) policy.Route {
		rule := thrift(policy.FailOpen, "meter", tiers...)
		rule.Name = name
		return policy.Route{Match: &policy.Match{Policy: "p", Rule: &rule}, Reached: reached}
	}
	for name, c := range map[string]struct {
		routes          []policy.Route
		model, required string
	}{
		"an optional rule that is further does not undo a strict one": {[]policy.Route{route("a", 99, tier(50, false, "large", "medium")), route("b", 80, tier(80, true, "large", "small"))}, "small", "small"},
		"of two strict ones the further":                              {[]policy.Route{route("a", 80, tier(80, true, "large", "medium")), route("b", 90, tier(80, true, "large", "small"))}, "small", "small"},
		"of two optional ones the further":                            {[]policy.Route{route("a", 80, tier(80, false, "large", "medium")), route("b", 90, tier(80, false, "large", "small"))}, "small", "large"},
		"of equals the first":                                         {[]policy.Route{route("a", 80, tier(80, false, "large", "medium")), route("b", 80, tier(80, false, "large", "small"))}, "medium", "large"},
		"rules add up":                                                {[]policy.Route{route("a", 80, tier(80, false, "large", "medium")), route("b", 90, tier(80, false, "medium", "small"))}, "small", "large"},
		"nothing leads back":                                          {[]policy.Route{route("a", 80, tier(80, true, "large", "medium")), route("b", 90, tier(80, false, "medium", "large"))}, "medium", "medium"},
		"strict on what a strict one made":                            {[]policy.Route{route("a", 80, tier(80, true, "large", "medium")), route("b", 80, tier(80, true, "medium", "small"))}, "small", "small"},
		"an unreached one says nothing":                               {[]policy.Route{route("a", 79, tier(80, true, "large", "medium"))}, "large", "large"},
		"none":                                                        {nil, "large", "large"},
	} {
		choice := policy.Substitute(c.routes, "large")
		require.Equal(t, c.model, choice.Model, name)
		require.Equal(t, c.required, choice.Required, name)
	}
}

func TestRoutesFollowTheirBudget(t *testing.T) {
	s := mustSet(t, []policy.Document{
		of("a", team, meter(policy.FailOpen, ""), capped(""), thrift(policy.FailOpen, "meter", tier(90, false, "large", "small"), tier(70, false, "huge", "large"))),
		of("b", team, capped(""), thrift(policy.FailOpen, "")),
	})
	matches := s.Match("red", "")
	var asked []string
	routes := policy.RoutesOf(matches, func(m *policy.Match) policy.Percent {
		asked = append(asked, m.Policy+"/"+m.Rule.Name)
		return policy.Percent(len(asked))
	})
	require.Equal(t, []string{"a/meter", "b/cap"}, asked)
	require.Len(t, routes, 2)
	require.Equal(t, policy.Percent(2), routes[1].Reached)
	for _, m := range matches {
		switch m.Policy + "/" + m.Rule.Name {
		case "a/meter":
			require.Equal(t, []policy.Percent{70, 90}, m.Thresholds)
		case "b/cap":
			require.Equal(t, []policy.Percent{80}, m.Thresholds)
		default:
			require.Empty(t, m.Thresholds)
		}
	}
}

// What is pending binds capacity and flips no tier of a meter; of a hard cap
// it does.
func TestPendingMoneySwitchesNoMeter(t *testing.T) {
	at := []policy.Percent{50, 80}
	soft, hard := meter(policy.FailOpen, "").Budget, capped("").Budget // 1 000 000 µUSD
	for name, c := range map[string]struct {
		account    quota.Account
		soft, hard policy.Percent
	}{
		"nothing":          {quota.Account{}, 0, 0},
		"one short":        {quota.Account{Consumed: 499_999}, 0, 0},
		"half consumed":    {quota.Account{Consumed: 500_000}, 50, 50},
		"half uncertain":   {quota.Account{Uncertain: 500_000}, 50, 50},
		"both":             {quota.Account{Consumed: 300_000, Uncertain: 500_000}, 80, 80},
		"pending":          {quota.Account{Reserved: 900_000}, 0, 80},
		"granted":          {quota.Account{Granted: 600_000}, 0, 50},
		"all four":         {quota.Account{Consumed: 200_000, Uncertain: 200_000, Reserved: 200_000, Granted: 200_000}, 0, 80},
		"observed is none": {quota.Account{Observed: 900_000}, 0, 0},
		"overrun":          {quota.Account{Consumed: 9_000_000}, 80, 80},
		"damaged":          {quota.Account{Consumed: -1}, 80, 80},
		"frozen":           {quota.Account{Consumed: 600_000, Frozen: true}, 50, 50},
	} {
		require.Equal(t, c.soft, soft.Reached(c.account, at), name)
		require.Equal(t, c.hard, hard.Reached(c.account, at), name)
	}
	none := &policy.Budget{HardCap: true}
	require.Equal(t, policy.Percent(80), none.Reached(quota.Account{}, at), "a limit of zero is full")
	third := &policy.Budget{LimitMilliUSD: 1} // 1000 µUSD
	require.Equal(t, policy.Percent(0), third.Reached(quota.Account{Consumed: 329}, []policy.Percent{33}))
	require.Equal(t, policy.Percent(33), third.Reached(quota.Account{Consumed: 330}, []policy.Percent{33}))
}

func TestALatchOutlivesItsCause(t *testing.T) {
	b := capped("").Budget
	at := []policy.Percent{50, 80}
	latch := b.Tier(quota.Account{Reserved: 800_000}, at, 0)
	require.Equal(t, policy.Percent(80), latch)
	require.Equal(t, policy.Percent(80), b.Tier(quota.Account{}, at, latch), "a refund")
	b.LimitMilliUSD *= 10
	require.Equal(t, policy.Percent(80), b.Tier(quota.Account{Consumed: 800_000}, at, latch), "a higher limit")
	require.Equal(t, policy.Percent(80), b.Tier(quota.Account{}, nil, latch), "a rule that is gone")
	require.Equal(t, policy.Percent(0), b.Tier(quota.Account{}, at, 0), "another window")
	require.Equal(t, policy.Latch(50, 80), policy.Latch(80, 50))
}
