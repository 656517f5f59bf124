package policy_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/quota"
)

var (
	team     = policy.Subject{Team: "red"}
	user     = policy.Subject{User: "ann"}
	teamUser = policy.Subject{Team: "red", User: "ann"}
)

func one[T any](v T) *T { return &v }

// of makes a document of these rules.
func of(name string, s policy.Subject, rules ...policy.Rule) policy.Document {
	return policy.Document{Name: name, Subject: s, Rules: rules}
}

func rate(p policy.FailurePolicy) policy.Rule {
	return policy.Rule{Name: "pace", FailurePolicy: p, Rate: &policy.Rate{RPM: one(int64(60))}}
}

func slots(p policy.FailurePolicy) policy.Rule {
	return policy.Rule{Name: "slots", FailurePolicy: p, Concurrency: &policy.Concurrency{Permits: 2}}
}

func tokens() policy.Rule {
	return policy.Rule{Name: "tokens", FailurePolicy: policy.FailClosed, TokenQuota: &policy.TokenQuota{LimitTokens: 9, Calendar: quota.Calendar{Period: quota.Day}}}
}

func capped(zone string) policy.Rule {
	return policy.Rule{Name: "cap", FailurePolicy: policy.FailClosed, Budget: &policy.Budget{
		LimitMilliUSD: 1000, HardCap: true, Calendar: quota.Calendar{Period: quota.Month, Zone: zone}}}
}

func meter(p policy.FailurePolicy, zone string) policy.Rule {
	return policy.Rule{Name: "meter", FailurePolicy: p, Budget: &policy.Budget{LimitMilliUSD: 1000, Calendar: quota.Calendar{Period: quota.Month, Zone: zone}}}
}

func allow(models ...string) policy.Rule {
	return policy.Rule{Name: "models", FailurePolicy: policy.FailClosed, ModelAccess: &policy.ModelAccess{Allow: models}}
}

func thrift(p policy.FailurePolicy, budget string, tiers ...policy.RoutingTier) policy.Rule {
	if tiers == nil {
		tiers = []policy.RoutingTier{{Threshold: 80, Substitutions: map[string]string{"large": "small"}}}
	}
	return policy.Rule{Name: "thrift", FailurePolicy: p, Routing: &policy.Routing{Budget: budget, Tiers: tiers}}
}

// The table of profiles, line by line: what each counts, or nothing.
func TestProfiles(t *testing.T) {
	const none, here, node, fleet = policy.Reach(0), policy.ReachGateway, policy.ReachNode, policy.ReachFleet
	for name, c := range map[string]struct {
		rule                policy.Rule
		subject             policy.Subject
		local, node, shared policy.Reach
	}{
		"rate of a team":         {rate(policy.FailClosed), team, here, node, fleet},
		"rate of a user":         {rate(policy.FailClosed), user, none, none, fleet},
		"rate of a team's user":  {rate(policy.FailClosed), teamUser, none, none, fleet},
		"slots of a team":        {slots(policy.FailClosed), team, here, node, fleet},
		"slots of a user":        {slots(policy.FailClosed), user, none, none, fleet},
		"slots of a team's user": {slots(policy.FailClosed), teamUser, none, none, fleet},
		"quota of a team":        {tokens(), team, none, none, fleet},
		"quota of a user":        {tokens(), user, none, none, fleet},
		"quota of a team's user": {tokens(), teamUser, none, none, fleet},
		"cap of a team":          {capped(""), team, here, fleet, fleet},
		"cap of a user":          {capped("UTC"), user, here, fleet, fleet},
		"cap of a team's user":   {capped(""), teamUser, here, fleet, fleet},
		"cap in a zone":          {capped("Europe/Paris"), team, here, none, fleet},
		"meter of a team":        {meter(policy.FailClosed, ""), team, here, fleet, fleet},
		"meter in a zone":        {meter(policy.FailClosed, "Asia/Tokyo"), user, here, none, fleet},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustSet(t, []policy.Document{of("p", c.subject, c.rule)})
			for p, want := range map[policy.Profile]policy.Reach{policy.Local: c.local, policy.Node: c.node, policy.Shared: c.shared, 0: none, 9: none} {
				e := s.Enforce(p, policy.Enforcing{})
				v := e.Verdicts()
				require.Len(t, v, 1)
				require.Equal(t, want, v[0].Reach, "%s", p)
				require.Equal(t, want != none, v[0].Enforced, "%s", p)
				require.Equal(t, want == none, v[0].Reason != "", "%s", p)
				gate, gated := e.Gated("red", "ann")
				require.Equal(t, want == none, gated, "a mandatory rule is enforced or gates")
				if gated {
					require.Equal(t, policy.Gate{Policy: "p", Rule: c.rule.Name, Subject: c.subject, Reason: v[0].Reason}, gate)
					require.Equal(t, []policy.Gate{gate}, e.Gates())
					require.Empty(t, e.Match("red", "ann"))
				}
				require.Same(t, s, e.Set())
			}
		})
	}
}

// A mandatory rule that is rejected gates its subjects, all of them and nobody else.
func TestAGateIsForTheSubject(t *testing.T) {
	gated := func(s policy.Subject, team, user string) bool {
		_, is := mustSet(t, []policy.Document{of("p", s, tokens())}).Enforce(policy.Local, policy.Enforcing{}).Gated(team, user)
		return is
	}
	for _, c := range []struct {
		s          policy.Subject
		team, user string
		want       bool
	}{
		{team, "red", "", true}, {team, "red", "ann", true}, {team, "red", "bob", true}, {team, "blue", "ann", false}, {team, "", "ann", false}, {team, "Red", "", false},
		{user, "red", "ann", true}, {user, "blue", "ann", true}, {user, "", "ann", true}, {user, "red", "", false}, {user, "red", "Ann", false}, {user, "ann", "", false},
		{teamUser, "red", "ann", true}, {teamUser, "red", "bob", false}, {teamUser, "blue", "ann", false}, {teamUser, "red", "", false}, {teamUser, "", "ann", false},
	} {
		require.Equal(t, c.want, gated(c.s, c.team, c.user), "%+v", c)
	}
}

func TestAnOptionalRuleIsLeftOutAlone(t *testing.T) {
	s := mustSet(t, []policy.Document{of("p", user, rate(policy.FailOpen), capped(""))})
	e := s.Enforce(policy.Local, policy.Enforcing{})
	_, gated := e.Gated("red", "ann")
	require.False(t, gated)
	require.Equal(t, []string{"p/cap"}, written(e.Match("red", "ann")))
	require.Equal(t, []string{"p/cap", "p/pace"}, written(s.Match("red", "ann")))
	require.Contains(t, e.Verdicts()[1].Reason, "teams, not of users")
}

func TestADocumentIsRejectedAsAWhole(t *testing.T) {
	s := mustSet(t, []policy.Document{
		of("a", team, rate(policy.FailOpen), tokens(), capped("")),
		of("b", team, allow("small")),
	})
	e := s.Enforce(policy.Local, policy.Enforcing{})
	require.Equal(t, []string{"b/models"}, written(e.Match("red", "")), "another document goes on")
	require.Len(t, e.Gates(), 1)
	for _, v := range e.Verdicts()[:3] {
		require.False(t, v.Enforced)
		require.Zero(t, v.Reach)
		if v.Rule != "tokens" {
			require.Equal(t, `the document is rejected for its rule "tokens"`, v.Reason)
		}
	}
}

func TestWhatSaysUnlimitedAlwaysHolds(t *testing.T) {
	s := mustSet(t, []policy.Document{of("p", user,
		policy.Rule{Name: "a", FailurePolicy: policy.FailClosed, Rate: &policy.Rate{Unlimited: true}},
		policy.Rule{Name: "b", FailurePolicy: policy.FailClosed, Budget: &policy.Budget{Unlimited: true}},
		allow("small"),
	)})
	for _, p := range []policy.Profile{policy.Local, policy.Node, policy.Shared} {
		e := s.Enforce(p, policy.Enforcing{NoAuthority: true, NoRouter: true})
		require.Empty(t, e.Gates(), "%s", p)
		require.Len(t, e.Match("", "ann"), 3)
	}
}

// A rule that says unlimited erases no cap beside it.
func TestUnlimitedErasesNothing(t *testing.T) {
	s := mustSet(t, []policy.Document{
		of("a", team, policy.Rule{Name: "r", FailurePolicy: policy.FailOpen, Rate: &policy.Rate{Unlimited: true}}, policy.Rule{Name: "b", FailurePolicy: policy.FailOpen, Budget: &policy.Budget{Unlimited: true}}),
		of("b", team, rate(policy.FailOpen), capped("")),
		of("c", team, meter(policy.FailOpen, "")),
	})
	var got []string
	for _, m := range s.Match("red", "") {
		for _, l := range m.Rule.Limits() {
			got = append(got, fmt.Sprint(m.Policy, " ", l.Kind, " ", l.Amount, " ", l.Hard))
		}
	}
	require.Equal(t, []string{"b money 1000000 true", "b requests_per_minute 60 true", "c money 1000000 false"}, got)
}

func TestRoutingHoldsWhereItsBudgetDoes(t *testing.T) {
	for name, c := range map[string]struct {
		document policy.Document
		profile  policy.Profile
		can      policy.Enforcing
		want     []string
		gated    bool
	}{
		"with its budget":         {of("p", team, meter(policy.FailOpen, ""), thrift(policy.FailClosed, "")), policy.Local, policy.Enforcing{}, []string{"p/meter", "p/thrift"}, false},
		"without a router":        {of("p", team, meter(policy.FailOpen, ""), thrift(policy.FailOpen, "")), policy.Local, policy.Enforcing{NoRouter: true}, []string{"p/meter"}, false},
		"mandatory without one":   {of("p", team, meter(policy.FailOpen, ""), thrift(policy.FailClosed, "")), policy.Local, policy.Enforcing{NoRouter: true}, nil, true},
		"without its budget":      {of("p", team, meter(policy.FailOpen, "Asia/Tokyo"), thrift(policy.FailOpen, "")), policy.Node, policy.Enforcing{}, nil, false},
		"mandatory without its":   {of("p", team, meter(policy.FailOpen, "Asia/Tokyo"), thrift(policy.FailClosed, "")), policy.Node, policy.Enforcing{}, nil, true},
		"on a node":               {of("p", team, meter(policy.FailOpen, ""), thrift(policy.FailClosed, "")), policy.Node, policy.Enforcing{}, []string{"p/meter", "p/thrift"}, false},
		"on a node, ungranted":    {of("p", team, meter(policy.FailOpen, ""), thrift(policy.FailOpen, "")), policy.Node, policy.Enforcing{NoAuthority: true}, nil, false},
		"a cap, ungranted":        {of("p", team, capped("")), policy.Node, policy.Enforcing{NoAuthority: true}, nil, true},
		"no authority but shared": {of("p", team, capped("")), policy.Shared, policy.Enforcing{NoAuthority: true}, []string{"p/cap"}, false},
	} {
		e := mustSet(t, []policy.Document{c.document}).Enforce(c.profile, c.can)
		_, gated := e.Gated("red", "")
		require.Equal(t, c.gated, gated, name)
		require.Equal(t, c.want, written(e.Match("red", "")), name)
	}
}

func TestModelsAreIntersected(t *testing.T) {
	access := func(lists ...policy.Rule) policy.Access {
		var documents []policy.Document
		for i, r := range lists {
			documents = append(documents, of(fmt.Sprint("d", i), team, r))
		}
		return policy.AccessOf(mustSet(t, documents).Match("red", ""))
	}
	open := access()
	require.True(t, open.Allows("anything") && open.Allows("") && !open.Restricted() && open.Models() == nil)
	both := access(allow("small", "large", "tiny"), rate(policy.FailOpen), allow("tiny", "Large", "small"))
	require.Equal(t, []string{"small", "tiny"}, both.Models())
	require.True(t, both.Restricted())
	for model, want := range map[string]bool{"small": true, "tiny": true, "large": false, "Large": false, "": false, "other": false} {
		require.Equal(t, want, both.Allows(model), model)
	}
	none := access(allow("a"), allow("b"))
	require.Empty(t, none.Models())
	require.NotNil(t, none.Models(), "nothing is not everything")
	require.False(t, none.Allows("a") || none.Allows("b"))

	// An alias neither locks out nor lets through.
	canonical := func(s string) string {
		if s == "claude-latest" {
			return "claude-4"
		}
		return s
	}
	a := access(allow("claude-latest"), allow("claude-4", "small"))
	require.True(t, a.AllowsAs(canonical, "claude-4") && a.AllowsAs(canonical, "claude-latest"))
	require.False(t, a.AllowsAs(canonical, "small") || a.Allows("claude-4"))
}
