package policy_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/governance/policy/policytest"
)

// wrap makes a document of one rule.
func wrap(rule string) string {
	return `{"apiVersion":"tallystick.dev/v1alpha1","kind":"GovernancePolicy","metadata":{"name":"p"},"spec":{"subject":{"team":"t"},"rules":[` + rule + `]}}`
}

// budget makes a document of one budget with these fields.
func budget(fields string) string {
	return wrap(`{"name":"r","failurePolicy":"FailClosed","budget":{` + fields + `}}`)
}

func rule(kind string) string { return wrap(`{"name":"r","failurePolicy":"FailClosed",` + kind + `}`) }

// routed makes a document of one budget and one routing rule.
func routed(routing string) string {
	return wrap(`{"name":"b","failurePolicy":"FailClosed","budget":{"limitMilliUSD":1,"period":"day"}},{"name":"r","failurePolicy":"FailOpen","routing":{` + routing + `}}`)
}

func TestDecodeNamesThePlace(t *testing.T) {
	for _, c := range policytest.Mistakes() {
		t.Run(c.Name, func(t *testing.T) {
			documents, err := policy.Decode([]byte(c.Input))
			require.ErrorIs(t, err, policy.ErrInvalid)
			require.Nil(t, documents)
			var e *policy.Error
			require.True(t, errors.As(err, &e))
			require.Equal(t, c.Path, e.Path, "%v", err)
			require.NotEmpty(t, e.Why)
		})
	}
}

func TestDecodeIsBounded(t *testing.T) {
	_, err := policy.Decode(make([]byte, policy.MaxInputBytes+1))
	require.ErrorIs(t, err, policy.ErrInvalid)
	_, err = policy.Decode([]byte("[" + strings.Repeat("1,", 500_000) + "1]"))
	require.ErrorIs(t, err, policy.ErrInvalid)
}

func TestDecodeSaysWhichLine(t *testing.T) {
	_, err := policy.Decode([]byte("{\n\"kind\": x}"))
	var e *policy.Error
	require.True(t, errors.As(err, &e))
	require.Equal(t, 2, e.Line)
}

func TestDecodeTakesTheExtremes(t *testing.T) {
	for _, c := range []struct {
		input string
		want  int64
	}{
		{budget(`"limitMilliUSD":0,"hardCap":true,"period":"day"`), 0},
		{budget(`"limitMilliUSD":9223372036854775,"period":"day"`), 9223372036854775000},
		{rule(`"tokenQuota":{"limitTokens":9223372036854775807,"period":"month"}`), math.MaxInt64},
		{rule(`"concurrency":{"permits":0}`), 0},
		{rule(`"rate":{"rpm":0}`), 0},
	} {
		documents, err := policy.Decode([]byte(c.input))
		require.NoError(t, err)
		limits := documents[0].Rules[0].Limits()
		require.Len(t, limits, 1)
		require.Equal(t, c.want, limits[0].Amount)
	}
}

func TestTheAliasIsTheSameDocument(t *testing.T) {
	input := budget(`"limitMilliUSD":5,"period":"day"`)
	a := setOf(t, input)
	b := setOf(t, strings.Replace(input, "tallystick.dev/", "inferplane.dev/", 1))
	require.Equal(t, a.Generation(), b.Generation())
	text, err := json.Marshal(b)
	require.NoError(t, err)
	require.NotContains(t, string(text), "inferplane")
}

// What only says the same in another way is the same generation, and whatever says something else
// is another one.
func TestGenerationIsTheMeaning(t *testing.T) {
	full := `"limitMilliUSD":5,"hardCap":false,"period":"month","timezone":"UTC","resetHour":0,"monthDay":1,"tiers":[{"thresholdPercent":90},{"thresholdPercent":50}],"unlimited":false`
	short := `"tiers":[{"thresholdPercent":50},{"thresholdPercent":90}],"period":"month","limitMilliUSD":5`
	require.Equal(t, setOf(t, budget(full)).Generation(), setOf(t, budget(short)).Generation())
	require.Equal(t,
		setOf(t, rule(`"modelAccess":{"allow":["b","a"]}`)).Generation(),
		setOf(t, rule(`"modelAccess":{"allow":["a","b"]}`)).Generation())
	require.Equal(t,
		setOf(t, routed(`"budget":"b","budgetTiers":[{"thresholdPercent":9,"strict":false,"substitutions":{"x":"y","v":"w"}}]`)).Generation(),
		setOf(t, routed(`"budgetTiers":[{"thresholdPercent":9,"substitutions":{"v":"w","x":"y"}}]`)).Generation())

	seen := map[policy.Generation]string{}
	for _, input := range []string{
		`[]`, budget(`"unlimited":true`), budget(short), strings.Replace(budget(short), `"name":"p"`, `"name":"q"`, 1),
		strings.Replace(budget(short), `"name":"r"`, `"name":"s"`, 1), strings.Replace(budget(short), `"team":"t"`, `"user":"t"`, 1),
		strings.Replace(budget(short), `"team":"t"`, `"team":"t","user":"t"`, 1), strings.Replace(budget(short), `FailClosed`, `FailOpen`, 1),
		budget(short + `,"hardCap":true`), budget(short + `,"timezone":"Europe/Paris"`), budget(short + `,"resetHour":1`), budget(short + `,"monthDay":2`),
		budget(short + `,"adminContact":"x"`), budget(short + `,"lease":{"grantMilliUSD":1}`), budget(short + `,"lease":{"grantMilliUSD":1,"renewInterval":"60s"}`),
		budget(strings.Replace(short, "month", "day", 1)), budget(strings.Replace(short, "month", "week", 1)), budget(strings.Replace(short, "month", "week", 1) + `,"weekStart":"sunday"`),
		budget(strings.Replace(short, ":5,", ":6,", 1)[:len(short)-1] + `6`), budget(strings.Replace(short, "50", "51", 1)),
		rule(`"rate":{"rpm":1}`), rule(`"rate":{"tpm":1}`), rule(`"rate":{"rpm":1,"tpm":1}`), rule(`"rate":{"unlimited":true}`), rule(`"concurrency":{"permits":1}`),
		rule(`"tokenQuota":{"limitTokens":1,"period":"day"}`), rule(`"modelAccess":{"allow":["a"]}`), rule(`"modelAccess":{"allow":["a","b"]}`), rule(`"modelAccess":{"allow":["a,b"]}`),
		routed(`"budgetTiers":[{"thresholdPercent":9,"substitutions":{"v":"w"}}]`), routed(`"budgetTiers":[{"thresholdPercent":9,"strict":true,"substitutions":{"v":"w"}}]`),
		routed(`"budgetTiers":[{"thresholdPercent":9,"substitutions":{"w":"v"}}]`), routed(`"budgetTiers":[{"thresholdPercent":8,"substitutions":{"v":"w"}}]`),
	} {
		g := setOf(t, input).Generation()
		require.NotContains(t, seen, g, "%s and %s", input, seen[g])
		seen[g] = input
	}
}

// The generation is compared between programs that were built apart, so it must not change.
func TestGenerationIsFixed(t *testing.T) {
	require.Equal(t, "50b5da85b5e3949540f8f9e3896bdb5c35bbe74472c3485d6f629c04454e5274", setOf(t, `[]`).Generation().String())
	require.Equal(t, "6f5426ec2833c94a28e3974260b10a627cad598335f27ec9da9a52c2305a72d8", setOf(t, research).Generation().String())
	var none *policy.Set
	require.Equal(t, setOf(t, `[]`).Generation(), none.Generation())
}

func TestParseGeneration(t *testing.T) {
	g := setOf(t, `[]`).Generation()
	for _, bad := range []string{"", "50b5", g.String() + "00", strings.ToUpper(g.String()), " " + g.String()[1:]} {
		_, err := policy.ParseGeneration(bad)
		require.ErrorIs(t, err, policy.ErrInvalid)
	}
	var again policy.Generation
	require.NoError(t, again.UnmarshalText([]byte(g.String())))
	require.Equal(t, g, again)
}

func TestValuesBuiltInGoAreHeldToTheSame(t *testing.T) {
	good := func() policy.Document {
		documents, err := policy.Decode([]byte(budget(`"limitMilliUSD":5,"period":"day"`)))
		require.NoError(t, err)
		return documents[0]
	}
	for path, spoil := range map[string]func(*policy.Document){
		"documents[1].metadata.name":                      func(d *policy.Document) { d.Name = "a b" },
		"documents[1].spec.subject":                       func(d *policy.Document) { d.Subject = policy.Subject{} },
		"documents[1].spec.subject.user":                  func(d *policy.Document) { d.Subject.User = "\xff" },
		"documents[1].spec.rules":                         func(d *policy.Document) { d.Rules = nil },
		"documents[1].spec.rules[0]":                      func(d *policy.Document) { d.Rules[0].Rate = &policy.Rate{} },
		"documents[1].spec.rules[0].failurePolicy":        func(d *policy.Document) { d.Rules[0].FailurePolicy = 7 },
		"documents[1].spec.rules[0].budget.limitMilliUSD": func(d *policy.Document) { d.Rules[0].Budget.LimitMilliUSD = policy.MaxMilliUSD + 1 },
		"documents[1].spec.rules[0].budget.period":        func(d *policy.Document) { d.Rules[0].Budget.Calendar.Period = 9 },
		"documents[1].spec.rules[0].budget.resetHour":     func(d *policy.Document) { d.Rules[0].Budget.Calendar.ResetHour = -1 },
		"documents[1].spec.rules[0].budget.adminContact":  func(d *policy.Document) { d.Rules[0].Budget.AdminContact = strings.Repeat("x", 257) },
		"documents[1].spec.rules[0].budget.lease.renewInterval": func(d *policy.Document) {
			d.Rules[0].Budget.Lease = &policy.Lease{GrantMilliUSD: 1, RenewInterval: 1}
		},
	} {
		d := good()
		d.Name = "q"
		spoil(&d)
		_, err := policy.NewSet([]policy.Document{good(), d})
		var e *policy.Error
		require.True(t, errors.As(err, &e), "%s: %v", path, err)
		require.Equal(t, path, e.Path)
		_, err = json.Marshal(d)
		require.ErrorIs(t, err, policy.ErrInvalid)
	}
	_, err := policy.NewSet([]policy.Document{good(), good()})
	var e *policy.Error
	require.True(t, errors.As(err, &e))
	require.Equal(t, "documents[1].metadata.name", e.Path)
	_, err = policy.NewSet(make([]policy.Document, policy.MaxDocuments+1))
	require.ErrorIs(t, err, policy.ErrInvalid)
}

func setOf(t testing.TB, input string) *policy.Set {
	t.Helper()
	documents, err := policy.Decode([]byte(input))
	require.NoError(t, err, "%s", input)
	set, err := policy.NewSet(documents)
	require.NoError(t, err)
	return set
}
