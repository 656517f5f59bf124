package fleet_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/governance/policy/policyyaml"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
)

// policyOf writes a policy; rules are in YAML's flow style.
func policyOf(name, subject string, rules ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: tallystick.dev/v1alpha1\nkind: GovernancePolicy\nmetadata: {name: %s}\nspec:\n  subject: {%s}\n  rules:\n", name, subject)
	for _, r := range rules {
		fmt.Fprintf(&b, "    - {%s}\n", r)
	}
	return b.String()
}

// edit makes an edit of the policies through one gateway, by the generation in force.
func (g *gateway) edit(edit object) report.Policies {
	g.f.Helper()
	var diff report.PolicyDiff
	g.do(http.MethodPost, "policies/diff", edit, &diff)
	edit["expect"], edit["actor"], edit["reason"] = diff.Expect, "ops", "a test"
	var now report.Policies
	g.do(http.MethodPost, "policies", edit, &now)
	require.Equal(g.f, diff.After.Generation, now.Generation, "what was shown is what was made")
	return now
}

func (g *gateway) apply(texts ...string) report.Policies {
	g.f.Helper()
	documents, err := policyyaml.Decode([]byte(strings.Join(texts, "---\n")))
	require.NoError(g.f, err)
	return g.edit(object{"documents": documents})
}

// TestPoliciesAreOneLimit spends every kind of limit that policies know through two and
// through four gateways at once, for a team, a user in two teams, and a user in one.
func TestPoliciesAreOneLimit(t *testing.T) {
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	for _, n := range []int{2, 4} {
		f.start(n - len(f.gateways))
		t.Run(fmt.Sprintf("%d gateways", n), func(t *testing.T) {
			f := f.at(t)
			for i, c := range []struct {
				name, rule string
				limit      int64
				end        string
				perMin     bool
				counts     func(s *spent, prompt string) int64
			}{
				{"budget by day", "failurePolicy: FailClosed, budget: {limitMilliUSD: 2, hardCap: true, period: day}", 2000, "402 money", false, money},
				{"budget by week", "failurePolicy: FailClosed, budget: {limitMilliUSD: 2, hardCap: true, period: week, timezone: Asia/Kolkata}", 2000, "402 money", false, money},
				{"budget by month", "failurePolicy: FailClosed, budget: {limitMilliUSD: 2, hardCap: true, period: month}", 2000, "402 money", false, money},
				{"quota by day", "failurePolicy: FailClosed, tokenQuota: {limitTokens: 1200, period: day}", 1200, "429 quota", false, tokens},
				{"quota by month", "failurePolicy: FailClosed, tokenQuota: {limitTokens: 1200, period: month}", 1200, "429 quota", false, tokens},
				{"requests", "failurePolicy: FailOpen, rate: {rpm: 20}", 20, "429 rate", true, calls},
				{"tokens", "failurePolicy: FailOpen, rate: {tpm: 1200}", 1200, "429 rate", true, tokens},
			} {
				for j, scope := range []struct{ name, of string }{
					{"team", "team: team-%[1]s-a"}, {"user", "user: user-%[1]s"}, {"team and user", "team: team-%[1]s-a, user: user-%[1]s"},
				} {
					if (i+j+n/2)%3 != 0 { // each kind for each scope, over both sizes of the fleet and the other kinds
						continue
					}
					t.Run(c.name+" of "+scope.name, func(t *testing.T) {
						f := f.at(t)
						id := fmt.Sprintf("p%d-%d-%d", n, i, j)
						user := object{"owner": "user-" + id}
						who := []string{f.gateways[0].key(id+"-a", keys.Limits{}, user)}
						if scope.name == "user" { // whichever team it is in
							who = append(who, f.gateways[1].key(id+"-b", keys.Limits{}, user))
						}
						f.gateways[n-1].apply(policyOf(id, fmt.Sprintf(scope.of, id), "name: only, "+c.rule))
						prompt := says(id)
						s := f.spend(prompt, who...)
						f.settled()
						require.Equal(t, map[string]int{c.end: n * callers}, s.last)
						require.EqualValues(t, s.calls, f.reached(prompt))
						used, most := c.counts(s, prompt), c.limit
						if c.perMin {
							most += c.limit*s.elapsed.Milliseconds()/60_000 + 1
						}
						require.LessOrEqual(t, used, most)
						require.Greater(t, 2*used, c.limit, "the limit was worth something")
						for _, g := range f.gateways {
							u := constraint(t, g.usage(who[0]), "only")
							require.Equal(t, [3]any{id, c.limit, true}, [3]any{u.Policy, u.Limit, u.Hard})
							if !c.perMin {
								require.Equal(t, used, u.Consumed)
							}
						}
					})
				}
			}
			f.balanced()
		})
	}
}

func money(s *spent, prompt string) int64 { return s.calls * costOf(prompt) }
func tokens(s *spent, _ string) int64     { return s.tokens }
func calls(s *spent, _ string) int64      { return s.calls }

// TestPolicySlots: what policies allow at once, all gateways allow together.
func TestPolicySlots(t *testing.T) {
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	f.start(2)
	f.gateways[0].apply(policyOf("slots", "user: zelda", "name: slots, failurePolicy: FailOpen, concurrency: {permits: 3}"))
	f.slots("policy", keys.Limits{}, "slots")
	f.settled()
	f.balanced()
}

// TestPolicyEditsUnderLoad edits a policy about one team once per second at two
// gateways, deletes it and brings it back. Whoever else calls notices nothing; the team
// is held to what an edit said as soon as it returned, by both.
func TestPolicyEditsUnderLoad(t *testing.T) {
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	f.start(2)
	others := f.gateways[0].key("others", keys.Limits{TokensPerDay: keys.Limit(100_000_000), CostPerMonth: keys.Cost(1_000_000_000)})
	edited := f.gateways[0].key("edited", keys.Limits{})
	f.gateways[0].apply(policyOf("all", "user: zelda", "name: month, failurePolicy: FailOpen, budget: {limitMilliUSD: 100000, period: month}"))
	busy := f.load(1, f.gateways[1].key("busy", keys.Limits{}), says("busy"))
	l := f.load(4, others, says("others"))
	l.more(http.StatusOK, 20)
	const day = "name: day, failurePolicy: FailClosed, budget: {limitMilliUSD: %d, hardCap: true, period: day}"

	const enough, edits = 3000, 9
	var slowest time.Duration
	var spentBefore int64
	for i := 0; i < edits || l.count(http.StatusOK) < enough; i++ {
		g := f.gateways[i%2]
		want, code := http.StatusOK, ""
		began := time.Now()
		switch i % 3 {
		case 0:
			g.apply(policyOf("edited", "team: team-edited", fmt.Sprintf(day, 100)), policyOf("busy", "team: team-busy", fmt.Sprintf(day, 1000)))
		case 1:
			g.apply(policyOf("edited", "team: team-edited", fmt.Sprintf(day, 100), "name: none, failurePolicy: FailClosed, modelAccess: {allow: [demo-large]}"),
				policyOf("busy", "team: team-busy", fmt.Sprintf(day, 2000)))
			want, code = http.StatusForbidden, "model"
		case 2:
			g.edit(object{"delete": []string{"edited", "busy"}})
		}
		slowest = max(slowest, time.Since(began))
		for _, a := range f.everywhere(edited, says("edited")) {
			require.Equal(t, fmt.Sprint(want, code), fmt.Sprint(a.status, a.code), "edit %d", i)
		}
		if i%3 == 0 { // the account of a policy that was deleted goes on
			f.eventuallySettled("team-edited", "day")
			c := constraint(t, f.gateways[1].usage(edited), "day")
			require.Equal(t, spentBefore+2*costOf(says("edited")), c.Consumed, "edit %d", i)
			spentBefore = c.Consumed
		}
		pause(t.Context(), time.Second-time.Since(began))
	}
	l.stop()
	busy.stop()
	for status := range busy.seen { // whose own target changes may be told to come back
		require.Contains(t, []int{http.StatusOK, http.StatusServiceUnavailable}, status)
	}
	total, failed := 0, 0
	for status, n := range l.seen {
		total += n
		if status != http.StatusOK {
			failed += n
		}
	}
	t.Logf("%d calls of others, %d answered otherwise than 200 (%v); the slowest edit took %v", total, failed, l.seen, slowest)
	require.GreaterOrEqual(t, total, enough)
	require.LessOrEqual(t, 1000*failed, total)
	f.settled()
	f.balanced()
}

// eventuallySettled waits until an account holds nothing for calls under way.
func (f *fleet) eventuallySettled(subject, rule string) {
	f.Helper()
	require.Eventually(f, func() bool {
		for _, c := range f.windows(subject, rule) {
			if c.Account.Reserved != 0 {
				return false
			}
		}
		return true
	}, patience, tick)
}

// TestStrictTier: when a budget has reached a strict threshold, both gateways replace
// the model, and not one attempt more of the dear one is admitted.
func TestStrictTier(t *testing.T) {
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	f.start(2)
	const limit = 100_000 // microUSD
	f.gateways[0].apply(policyOf("thrift", "team: team-app",
		"name: day, failurePolicy: FailClosed, budget: {limitMilliUSD: 100, hardCap: true, period: day}",
		"name: route, failurePolicy: FailOpen, routing: {budgetTiers: [{thresholdPercent: 50, strict: true, substitutions: {demo-large: demo-small}}]}"))
	token := f.gateways[1].key("app", keys.Limits{})
	prompt := says("app")
	var mu sync.Mutex
	replaced := map[*gateway]int{}
	var wait sync.WaitGroup
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	for _, g := range f.gateways {
		for range callers {
			wait.Go(func() {
				for ctx.Err() == nil {
					a := g.ask(t.Context(), token, "demo-large", prompt)
					if a.status != http.StatusOK && a.code != "reserved" {
						t.Errorf("answered %d %s %v", a.status, a.code, a.err)
						return
					}
					mu.Lock()
					if a.model == "demo-small" {
						replaced[g]++
					}
					if replaced[f.gateways[0]] >= 20 && replaced[f.gateways[1]] >= 20 {
						enough()
					}
					mu.Unlock()
				}
			})
		}
	}
	wait.Wait()
	f.settled()
	large, small := f.asked("demo-large", prompt), f.asked("demo-small", prompt)
	require.GreaterOrEqual(t, small, 40)
	// demo-large: 10 microUSD a token in, 30 a token out.
	each := 10*(tokensOf(prompt)-reply) + 30*reply
	consumed := int64(large) * each
	require.LessOrEqual(t, consumed, int64(limit/2)+each, "each was admitted below the threshold")
	// A hard budget goes by what is reserved too, so calls under way hasten the tier.
	require.Greater(t, consumed, int64(limit/4), "and it was not replaced long before")
	for _, g := range f.gateways {
		require.Equal(t, "demo-small", g.ask(t.Context(), token, "demo-large", prompt).model)
		require.EqualValues(t, 50, constraint(t, g.usage(token), "day").Tier)
	}
	f.settled()
	f.balanced()
}

// TestPolicyCommands goes the way of an operator: look, apply, be overtaken, delete.
func TestPolicyCommands(t *testing.T) {
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	f.start(2)
	file := f.path("policies.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	run := func(g *gateway, want int, args ...string) string {
		t.Helper()
		cmd := f.command(append(args, "-admin", g.admin.Base, "-token", "env:ADMIN")...)
		out, _ := cmd.CombinedOutput()
		require.Equal(t, want, cmd.ProcessState.ExitCode(), string(out))
		return string(out)
	}
	first, second := f.gateways[0], f.gateways[1]
	write(policyOf("research", "team: team-app", "name: spend, failurePolicy: FailClosed, budget: {limitMilliUSD: 10, hardCap: true, period: day}"))
	out := run(first, 0, "policies", "diff", "-f", file)
	require.Contains(t, out, "research/spend: added")
	require.Contains(t, run(first, 0, "policies", "list"), "GENERATION")
	require.NotContains(t, run(first, 0, "policies", "list"), "research", "a difference changes nothing")
	_, generation, _ := strings.Cut(out, "decided on generation")
	generation = strings.TrimSpace(generation)

	out = run(second, 0, "policies", "apply", "-f", file, "-actor", "ann", "-reason", "research begins")
	require.Less(t, strings.Index(out, "added"), strings.Index(out, "in force"), "it is shown before it is made")
	require.Contains(t, run(first, 0, "policies", "list"), "research")
	require.Contains(t, run(first, 0, "policies", "diff", "-f", file), "no difference")
	write(policyOf("research", "team: team-app", "name: spend, failurePolicy: FailClosed, budget: {limitMilliUSD: 20, hardCap: true, period: month}"))
	require.Contains(t, run(first, 1, "policies", "apply", "-f", file, "-expect", generation, "-actor", "ann", "-reason", "too late"), "stale", "somebody else was faster")
	out = run(first, 0, "policies", "apply", "-f", file, "-actor", "ann", "-reason", "research begins")
	require.Contains(t, out, "another account", "another period counts elsewhere")

	write(strings.Replace(policyOf("research", "team: team-app", "name: spend, failurePolicy: FailOpen, rate: {rpm: -1}"), "spec", "spec", 1))
	require.Contains(t, run(first, 1, "policies", "apply", "-f", file, "-actor", "ann", "-reason", "research begins"), "documents[0].spec.rules[0].rate.rpm")
	run(first, 2, "policies", "apply")
	require.Contains(t, run(first, 1, "policies", "delete", "research"), "actor", "nobody does it")
	require.Contains(t, run(first, 1, "policies", "delete", "nothing", "-actor", "ann", "-reason", "why"), "not_found")
	require.Contains(t, run(second, 0, "policies", "delete", "research", "-actor", "ann", "-reason", "research ends"), "research/spend: removed")
	require.NotContains(t, run(first, 0, "policies", "list"), "research")
	require.Contains(t, run(first, 0, "status"), "TOPOLOGY")
	notes := run(first, 0, "notes")
	require.Equal(t, 2, strings.Count(notes, "research ends"), "meant and made: "+notes)
	require.NotContains(t, notes, "too late")

	dsn := []string{"-postgres", "env:DSN", "-schema", f.schema}
	write(policyOf("direct", "team: team-app", "name: none, failurePolicy: FailClosed, modelAccess: {allow: [demo-large]}"))
	direct, err := f.command(append([]string{"policies", "apply", "-f", file, "-actor", "ann", "-reason", "past the gateways"}, dsn...)...).CombinedOutput()
	require.NoError(t, err, string(direct))
	token := first.key("app", keys.Limits{})
	for _, a := range f.everywhere(token, says("direct")) {
		require.Equal(t, "403 model", fmt.Sprint(a.status, " ", a.code), "an edit past the gateways holds at both")
	}
	f.balanced()
}
