package policy_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/quota"
)

var (
	names   = rapid.StringMatching(`[a-zA-Z0-9][a-zA-Z0-9._:-]{0,6}`)
	users   = rapid.OneOf(rapid.SampledFrom([]string{"ann", "Ann", "bob"}), rapid.StringMatching(`[ -~é漢😀]{1,6}`))
	models  = rapid.OneOf(rapid.SampledFrom([]string{"large", "small", "tiny", "gpt-4.1", `o"dd\`}), rapid.StringMatching(`[ -)+-~é]{1,5}`))
	amounts = rapid.OneOf(rapid.Int64Range(1, 100), rapid.Int64Range(1, policy.MaxMilliUSD), rapid.Just(int64(policy.MaxMilliUSD)))
)

func calendars(t *rapid.T) quota.Calendar {
	c := quota.Calendar{Period: rapid.SampledFrom([]quota.Period{quota.Day, quota.Week, quota.Month}).Draw(t, "period")}
	c.Zone = rapid.SampledFrom([]string{"", "", "UTC"}).Draw(t, "zone")
	c.ResetHour = rapid.IntRange(0, 23).Draw(t, "hour")
	switch c.Period {
	case quota.Week:
		c.WeekStart = rapid.IntRange(0, 7).Draw(t, "start")
	case quota.Month:
		c.MonthDay = rapid.IntRange(0, 31).Draw(t, "day")
	}
	return c
}

// aRule draws a rule that is no routing rule.
func aRule(t *rapid.T, name string) policy.Rule {
	r := policy.Rule{Name: name, FailurePolicy: rapid.SampledFrom([]policy.FailurePolicy{policy.FailOpen, policy.FailClosed}).Draw(t, "failure")}
	limit := rapid.OneOf(rapid.Int64Range(0, 9), rapid.Int64Range(0, math.MaxInt64))
	switch rapid.IntRange(1, 5).Draw(t, "kind") {
	case 1:
		r.Budget = aBudget(t, r.FailurePolicy)
	case 2:
		r.Rate = &policy.Rate{}
		switch what := rapid.IntRange(0, 3).Draw(t, "rate"); what {
		case 0:
			r.Rate.Unlimited = true
		default:
			n, m := limit.Draw(t, "rpm"), limit.Draw(t, "tpm")
			if what&1 != 0 {
				r.Rate.RPM = &n
			}
			if what&2 != 0 {
				r.Rate.TPM = &m
			}
		}
	case 3:
		r.FailurePolicy = policy.FailClosed
		r.TokenQuota = &policy.TokenQuota{LimitTokens: limit.Draw(t, "tokens"), Calendar: calendars(t)}
	case 4:
		r.ModelAccess = &policy.ModelAccess{Allow: rapid.SliceOfNDistinct(models, 1, 4, rapid.ID).Draw(t, "allow")}
	case 5:
		r.Concurrency = &policy.Concurrency{Permits: limit.Draw(t, "permits")}
	}
	return r
}

func aBudget(t *rapid.T, p policy.FailurePolicy) *policy.Budget {
	b := &policy.Budget{AdminContact: rapid.SampledFrom([]string{"", "<ops> & co"}).Draw(t, "contact")}
	if rapid.IntRange(0, 4).Draw(t, "unlimited") == 0 {
		b.Unlimited = true
		return b
	}
	b.LimitMilliUSD, b.Calendar = amounts.Draw(t, "limit"), calendars(t)
	b.HardCap = p == policy.FailClosed && rapid.Bool().Draw(t, "hard")
	if rapid.Bool().Draw(t, "lease") {
		b.Lease = &policy.Lease{GrantMilliUSD: rapid.Int64Range(1, b.LimitMilliUSD).Draw(t, "grant")}
		b.Lease.RenewInterval = time.Duration(rapid.SampledFrom([]int64{0, int64(time.Second), int64(90 * time.Second), 1_500_000_001, int64(24 * time.Hour)}).Draw(t, "renew"))
	}
	for _, p := range rapid.SliceOfNDistinct(rapid.Int32Range(1, 100), 0, 3, rapid.ID).Draw(t, "tiers") {
		b.Tiers = append(b.Tiers, policy.Tier{Threshold: policy.Percent(p)})
	}
	return b
}

func aDocument(t *rapid.T, name string) policy.Document {
	d := policy.Document{Name: name}
	scope := rapid.IntRange(1, 3).Draw(t, "scope")
	if scope&1 != 0 {
		d.Subject.Team = rapid.SampledFrom([]string{"red", "Red", "blue"}).Draw(t, "team")
	}
	if scope&2 != 0 {
		d.Subject.User = users.Draw(t, "user")
	}
	var budgets []string
	for _, name := range rapid.SliceOfNDistinct(names, 1, 4, rapid.ID).Draw(t, "rules") {
		r := aRule(t, name)
		d.Rules = append(d.Rules, r)
		if r.Budget != nil && !r.Budget.Unlimited {
			budgets = append(budgets, name)
		}
	}
	if len(budgets) > 0 && rapid.Bool().Draw(t, "routed") {
		r := policy.Rule{Name: "zz-route-by-budget", FailurePolicy: policy.FailOpen, Routing: &policy.Routing{Budget: rapid.SampledFrom(budgets).Draw(t, "by")}}
		for _, p := range rapid.SliceOfNDistinct(rapid.Int32Range(1, 100), 1, 3, rapid.ID).Draw(t, "thresholds") {
			r.Routing.Tiers = append(r.Routing.Tiers, policy.RoutingTier{
				Threshold: policy.Percent(p), Strict: rapid.Bool().Draw(t, "strict"),
				Substitutions: map[string]string{models.Draw(t, "from"): fmt.Sprint("cheap", p)},
			})
		}
		d.Rules = append(d.Rules, r)
	}
	return d
}

func aSet(t *rapid.T) []policy.Document {
	var out []policy.Document
	for _, name := range rapid.SliceOfNDistinct(names, 0, 6, rapid.ID).Draw(t, "documents") {
		out = append(out, aDocument(t, name))
	}
	return out
}

func mustSet(t rapid.TB, documents []policy.Document) *policy.Set {
	t.Helper()
	s, err := policy.NewSet(documents)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What is encoded is read back as the same documents and the same generation, by whatever order
// they came in.
func TestPropertyEncodingIsCanonical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		documents := aSet(t)
		s := mustSet(t, documents)
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		back, err := policy.Decode(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for i := range documents { // another order
			slices.Reverse(documents[i].Rules)
			for j := range documents[i].Rules {
				switch r := &documents[i].Rules[j]; {
				case r.ModelAccess != nil:
					slices.Reverse(r.ModelAccess.Allow)
				case r.Routing != nil:
					slices.Reverse(r.Routing.Tiers)
				case r.Budget != nil:
					slices.Reverse(r.Budget.Tiers)
				}
			}
		}
		slices.Reverse(documents)
		for _, again := range [][]policy.Document{back, documents, s.Documents()} {
			other := mustSet(t, again)
			if other.Generation() != s.Generation() {
				t.Fatalf("%s became another generation", text)
			}
			if b, err := json.Marshal(other); err != nil || string(b) != string(text) {
				t.Fatalf("%s became %s", text, b)
			}
			if len(policy.Diff(s, other)) > 0 {
				t.Fatalf("%v", policy.Diff(s, other))
			}
		}
		if !slices.IsSortedFunc(s.Documents(), func(a, b policy.Document) int { return cmp.Compare(a.Name, b.Name) }) {
			t.Fatalf("%s is not in order", text)
		}
	})
}

// Whatever differs in what is encoded has another generation and shows in the difference.
func TestPropertyDifferencesShow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := mustSet(t, aSet(t)), mustSet(t, aSet(t))
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		same := string(x) == string(y)
		if (a.Generation() == b.Generation()) != same || (len(policy.Diff(a, b)) == 0) != same {
			t.Fatalf("%s\n%s\n%v", x, y, policy.Diff(a, b))
		}
		put, remove := policy.Difference(a, b)
		rows := map[string]string{}
		for _, d := range a.Documents() {
			text, _ := json.Marshal(d)
			rows[d.Name] = string(text)
		}
		for _, name := range remove {
			delete(rows, name)
		}
		for _, row := range put {
			rows[row.Name] = row.Text
		}
		var list []policy.Row
		for name, text := range rows {
			list = append(list, policy.Row{Name: name, Text: text})
		}
		restored, err := policy.Restore(a, policy.Mark{Generation: b.Generation()}, list)
		if err != nil || restored.Generation() != b.Generation() {
			t.Fatal(err)
		}
	})
}

// naive is Match as one would say it.
func naive(documents []policy.Document, team, user string) []string {
	var out []string
	for _, scope := range []policy.Scope{policy.ScopeTeam, policy.ScopeUser, policy.ScopeTeamUser} {
		for _, d := range documents {
			if d.Subject.Scope() != scope || (d.Subject.Team != "" && d.Subject.Team != team) || (d.Subject.User != "" && d.Subject.User != user) {
				continue
			}
			for _, r := range d.Rules {
				out = append(out, d.Name+"/"+r.Name)
			}
		}
	}
	return out
}

func written(matches []policy.Match) []string {
	var out []string
	for _, m := range matches {
		out = append(out, m.Policy+"/"+m.Rule.Name)
	}
	return out
}

func TestPropertyMatchIsTheNaiveScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := mustSet(t, aSet(t))
		all := s.Enforce(policy.Shared, policy.Enforcing{})
		for range 4 {
			team := rapid.SampledFrom([]string{"", "red", "Red", "blue", "green"}).Draw(t, "whose team")
			user := rapid.OneOf(rapid.Just(""), users).Draw(t, "who")
			want := naive(s.Documents(), team, user)
			matches := s.Match(team, user)
			if !slices.Equal(written(matches), want) {
				t.Fatalf("%q, %q: %v, want %v", team, user, written(matches), want)
			}
			if !slices.Equal(written(all.Match(team, user)), want) {
				t.Fatal("shared does not enforce everything")
			}
			for _, m := range matches {
				if m.Subject.Team != "" && m.Subject.Team != team || m.Subject.User != "" && m.Subject.User != user || m.Scope != m.Subject.Scope() {
					t.Fatalf("%+v for %q, %q", m, team, user)
				}
			}
		}
	})
}

// In every profile each rule is enforced, or left out and said to be, or gates everybody whom it
// would have matched. None vanishes.
func TestPropertyNoMandatoryRuleVanishes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := mustSet(t, aSet(t))
		e := s.Enforce(rapid.SampledFrom([]policy.Profile{0, policy.Local, policy.Node, policy.Shared, 9}).Draw(t, "profile"),
			policy.Enforcing{NoAuthority: rapid.Bool().Draw(t, "no authority"), NoRouter: rapid.Bool().Draw(t, "no router")})
		verdicts := map[string]policy.Verdict{}
		for _, v := range e.Verdicts() {
			if v.Enforced == (v.Reason != "") {
				t.Fatalf("%+v", v)
			}
			verdicts[v.Policy+"/"+v.Rule] = v
		}
		team := rapid.SampledFrom([]string{"", "red", "Red"}).Draw(t, "whose team")
		user := rapid.OneOf(rapid.Just(""), users).Draw(t, "who")
		enforced := written(e.Match(team, user))
		_, gated := e.Gated(team, user)
		should := false
		for _, m := range s.Match(team, user) {
			name := m.Policy + "/" + m.Rule.Name
			v, said := verdicts[name]
			if !said || v.Enforced != slices.Contains(enforced, name) {
				t.Fatalf("%s: %+v, enforced %v", name, v, enforced)
			}
			should = should || (!v.Enforced && m.Rule.FailurePolicy == policy.FailClosed)
		}
		if gated != should || (gated && len(e.Gates()) == 0) {
			t.Fatalf("gated %v, %+v", gated, e.Verdicts())
		}
	})
}

// A tier never falls within a window, in whatever order the states are seen, and is what the
// shares say in big integers.
func TestPropertyTierLatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &policy.Budget{LimitMilliUSD: rapid.OneOf(rapid.Int64Range(0, 5), amounts).Draw(t, "limit"), HardCap: rapid.Bool().Draw(t, "hard")}
		var thresholds []policy.Percent
		for _, p := range rapid.SliceOfNDistinct(rapid.Int32Range(1, 1000), 0, 4, rapid.ID).Draw(t, "thresholds") {
			thresholds = append(thresholds, policy.Percent(p))
		}
		limit := big.NewInt(int64(b.Limit()))
		part := rapid.OneOf(rapid.Int64Range(0, 6000), rapid.Int64Range(0, int64(b.Limit())), rapid.Just(int64(math.MaxInt64)))
		var latch, highest policy.Percent
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			a := quota.Account{
				Consumed: part.Draw(t, "consumed"), Uncertain: part.Draw(t, "uncertain"), Reserved: part.Draw(t, "reserved"), Granted: part.Draw(t, "granted"),
			}
			taken := new(big.Int).Add(big.NewInt(a.Consumed), big.NewInt(a.Uncertain))
			if b.HardCap {
				taken.Add(taken, big.NewInt(a.Reserved)).Add(taken, big.NewInt(a.Granted))
			}
			var want policy.Percent
			for _, p := range thresholds {
				have := new(big.Int).Mul(taken, big.NewInt(100))
				if have.Cmp(new(big.Int).Mul(limit, big.NewInt(int64(p)))) >= 0 {
					want = max(want, p)
				}
			}
			got := b.Reached(a, thresholds)
			saturated := !taken.IsInt64() || taken.Int64() == math.MaxInt64
			if got != want && (!saturated || got < want) {
				t.Fatalf("%+v of %v reached %d, want %d of %v", a, limit, got, want, thresholds)
			}
			highest = max(highest, got)
			next := b.Tier(a, thresholds, latch)
			if next < latch || next != highest {
				t.Fatalf("the tier went from %d to %d, and %d was reached", latch, next, highest)
			}
			latch = next
		}
	})
}

// Of several rules, what strict tiers forbid is never chosen, nothing leads back, and the order of
// matches does not decide whether the strict ones hold.
func TestPropertySubstitutionsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		var routes []policy.Route
		for i := range rapid.IntRange(0, 4).Draw(t, "rules") {
			r := &policy.Rule{Name: fmt.Sprint("r", i), Routing: &policy.Routing{}}
			for j := range rapid.IntRange(1, 2).Draw(t, "tiers") {
				from, to := few.Draw(t, "from"), few.Draw(t, "to")
				if from == to {
					to = "e"
				}
				r.Routing.Tiers = append(r.Routing.Tiers, policy.RoutingTier{
					Threshold: policy.Percent(10 * (j + 1)), Strict: rapid.Bool().Draw(t, "strict"), Substitutions: map[string]string{from: to},
				})
			}
			routes = append(routes, policy.Route{Match: &policy.Match{Policy: "p", Rule: r}, Reached: policy.Percent(rapid.IntRange(0, 25).Draw(t, "reached"))})
		}
		asked := few.Draw(t, "asked")
		c := policy.Substitute(routes, asked)
		seen, now := []string{asked}, asked
		for _, s := range c.Steps {
			if s.From != now || slices.Contains(seen, s.To) {
				t.Fatalf("%+v", c)
			}
			now, seen = s.To, append(seen, s.To)
		}
		if now != c.Model || !slices.Contains(seen, c.Required) {
			t.Fatalf("%+v", c)
		}
		alone := false // one strict tier says something of what was asked for
		for _, r := range routes {
			for _, tier := range r.Match.Rule.Routing.Tiers {
				_, says := tier.Substitutions[asked]
				alone = alone || (says && tier.Strict && tier.Threshold <= r.Reached)
			}
		}
		if alone && len(routes) == 1 && len(routes[0].Match.Rule.Routing.Tiers) == 1 && c.Required == asked {
			t.Fatalf("a strict tier was passed over: %+v", c)
		}
		if !alone && c.Required != asked {
			t.Fatalf("nothing strict asked for that: %+v", c)
		}
	})
}
