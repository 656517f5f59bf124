package policyyaml_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/governance/policy/policytest"
	"github.com/tallystick-go/tallystick/governance/policy/policyyaml"
)

const head = `apiVersion: tallystick.dev/v1alpha1
kind: GovernancePolicy
metadata: {name: p}
spec:
  subject: {team: t}
  rules:
`

// Every mistake is refused as in JSON, in the same words: written as JSON, and written as YAML
// that looks like it.
func TestMistakesAreThoseOfJSON(t *testing.T) {
	for _, c := range policytest.Mistakes() {
		t.Run(c.Name, func(t *testing.T) {
			if c.Input == "" {
				return // an empty stream has no documents
			}
			_, err := policyyaml.Decode([]byte(c.Input))
			require.ErrorIs(t, err, policy.ErrInvalid)
			if !json.Valid([]byte(c.Input)) || !utf8.ValidString(c.Input) || strings.Contains(c.Input, `\ud800`) {
				return
			}
			var a, b *policy.Error
			_, inJSON := policy.Decode([]byte(c.Input))
			require.True(t, errors.As(inJSON, &a))
			_, err = policyyaml.Decode([]byte("---\n" + c.Input))
			require.True(t, errors.As(err, &b), "%v", err)
			require.Equal(t, a.Path, b.Path)
			require.Equal(t, a.Why, b.Why)
			require.NotZero(t, b.Line)
		})
	}
}

// Whatever makes YAML mean something else than it shows is refused, with its line.
func TestTraps(t *testing.T) {
	const where = "documents[0].spec.rules[0]"
	for name, c := range map[string]struct {
		rule string // from line 7 on
		path string
		line int
	}{
		"an anchor":           {"    - &r {name: r, failurePolicy: FailOpen, rate: {rpm: 1}}", where, 7},
		"an alias":            {"    - name: &n r\n      failurePolicy: *n", where + ".name", 7},
		"an alias alone":      {"    - *r", "documents", 0},
		"a merge key":         {"    - name: r\n      <<: {rate: {rpm: 1}}", where, 8},
		"a tag":               {"    - name: !!str r", where + ".name", 7},
		"a tag of one's own":  {"    - name: !secret r", where + ".name", 7},
		"a binary":            {"    - name: !!binary cg==", where + ".name", 7},
		"yes":                 {"    - name: r\n      budget: {unlimited: yes}", where + ".budget.unlimited", 8},
		"On":                  {"    - name: r\n      budget: {unlimited: On}", where + ".budget.unlimited", 8},
		"True":                {"    - name: r\n      budget: {unlimited: True}", where + ".budget.unlimited", 8},
		"n as a name":         {"    - name: n", where + ".name", 7},
		"an octal":            {"    - rate: {rpm: 010}", where + ".rate.rpm", 7},
		"another octal":       {"    - rate: {rpm: 0o10}", where + ".rate.rpm", 7},
		"a hexadecimal":       {"    - rate: {rpm: 0x10}", where + ".rate.rpm", 7},
		"a binary number":     {"    - rate: {rpm: 0b10}", where + ".rate.rpm", 7},
		"underscores":         {"    - rate: {rpm: 1_000}", where + ".rate.rpm", 7},
		"a plus":              {"    - rate: {rpm: +1}", where + ".rate.rpm", 7},
		"an exponent":         {"    - rate: {rpm: 1e3}", where + ".rate.rpm", 7},
		"a fraction":          {"    - rate: {rpm: 1.0}", where + ".rate.rpm", 7},
		"a point":             {"    - rate: {rpm: 1.}", where + ".rate.rpm", 7},
		"infinity":            {"    - rate: {rpm: .inf}", where + ".rate.rpm", 7},
		"not a number":        {"    - rate: {rpm: .nan}", where + ".rate.rpm", 7},
		"sixties":             {"    - rate: {rpm: 1:30}", where + ".rate.rpm", 7},
		"sixties as a name":   {"    - name: 12:30:45", where + ".name", 7},
		"a date":              {"    - name: 2026-01-01", where + ".name", 7},
		"a number in quotes":  {"    - rate: {rpm: '1'}", where + ".rate.rpm", 7},
		"a tilde":             {"    - rate: ~", where + ".rate", 7},
		"Null":                {"    - rate: Null", where + ".rate", 7},
		"nothing":             {"    - name:", where + ".name", 7},
		"a number as a name":  {"    - name: 5", where + ".name", 7},
		"a number as a model": {"    - name: r\n      modelAccess:\n        allow: [gpt, 4.1]", where + ".modelAccess.allow[1]", 9},
		"a number as a key":   {"    - routing:\n        budgetTiers:\n          - substitutions: {4.1: a}", where + `.routing.budgetTiers[0].substitutions["4.1"]`, 9},
		"no as a key":         {"    - routing:\n        budgetTiers:\n          - substitutions: {no: a}", where + `.routing.budgetTiers[0].substitutions.no`, 9},
		"a list as a key":     {"    - [a]: b", where, 7},
		"an object as a key":  {"    - {{a: b}: c}", where, 7},
		"a key twice":         {"    - name: r\n      rate: {rpm: 1}\n      name: r", where + ".name", 9},
		"an unknown field":    {"    - name: r\n      nmae: r", where + ".nmae", 8},
		"what is missing":     {"    - name: r\n      failurePolicy: FailOpen\n      budget:\n        period: day", where + ".budget.limitMilliUSD", 9},
		"wrong indentation":   {"    - name: r\n   rate: x", "documents", 0},
		"a tabulator":         {"    - name: r\n\trate: x", "documents", 0},
		"too deep":            {"    - " + strings.Repeat("[", 30) + strings.Repeat("]", 30), "documents[0].spec.rules[0]" + strings.Repeat("[0]", 12), 7},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := policyyaml.Decode([]byte(head + c.rule + "\n"))
			var e *policy.Error
			require.True(t, errors.As(err, &e), "%v", err)
			require.Equal(t, c.path, e.Path, "%v", err)
			if c.line > 0 {
				require.Equal(t, c.line, e.Line, "%v", err)
			}
			require.NotContains(t, e.Why, "yaml")
		})
	}
}

// Aliases that multiply are refused before anything is multiplied.
func TestBombs(t *testing.T) {
	laughs := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for _, c := range "bcdefghi" {
		laughs += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+string(c-1)+", ", 8) + "*" + string(c-1) + "]\n"
	}
	for name, input := range map[string]string{
		"laughs":   laughs,
		"itself":   "a: &a [*a]\n",
		"nesting":  strings.Repeat("[", 100_000),
		"brackets": "x: " + strings.Repeat("{a: ", 20_000),
		"values":   "[" + strings.Repeat("1,", 510_000) + "1]\n# no JSON",
		"marks":    "[" + strings.Repeat("1,", 1_010_000) + "1]\n# no JSON",
		"dashes":   strings.Repeat("- \n", 1_010_000),
		"large":    strings.Repeat("#", policy.MaxInputBytes+1),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := policyyaml.Decode([]byte(input))
			require.ErrorIs(t, err, policy.ErrInvalid)
		})
	}
}

func TestStreams(t *testing.T) {
	one := func(name string) string {
		return strings.Replace(head, "{name: p}", "{name: "+name+"}", 1) + "    - {name: r, failurePolicy: FailOpen, rate: {rpm: 1}}\n"
	}
	listed := func(s string) string {
		return "- " + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n  ") + "\n"
	}
	for name, c := range map[string]struct {
		input string
		want  []string
	}{
		"nothing":           {"", nil},
		"a comment":         {"# nothing\n", nil},
		"separators":        {"---\n---\n...\n", nil},
		"one":               {one("a"), []string{"a"}},
		"two":               {one("a") + "---\n" + one("b"), []string{"a", "b"}},
		"empty ones":        {"---\n" + one("a") + "---\n---\n# x\n---\n" + one("b") + "---\n", []string{"a", "b"}},
		"a list":            {listed(one("a")) + listed(one("b")), []string{"a", "b"}},
		"a list and one":    {listed(one("a")) + "---\n" + one("b"), []string{"a", "b"}},
		"a directive":       {"%YAML 1.1\n---\n" + one("a"), []string{"a"}},
		"windows":           {strings.ReplaceAll(one("a"), "\n", "\r\n"), []string{"a"}},
		"a byte order mark": {"\ufeff" + one("a"), []string{"a"}},
	} {
		documents, err := policyyaml.Decode([]byte(c.input))
		require.NoError(t, err, name)
		var got []string
		for _, d := range documents {
			got = append(got, d.Name)
		}
		require.Equal(t, c.want, got, name)
	}
	_, err := policyyaml.Decode([]byte(one("a") + "---\n" + strings.Replace(one("b"), "rpm: 1", "rpm: -1", 1)))
	require.EqualError(t, err, "policy: line 15: documents[1].spec.rules[0].rate.rpm: must not be negative")
	_, err = policyyaml.Decode([]byte("---\n[]\n# no JSON"))
	require.ErrorIs(t, err, policy.ErrInvalid)
	_, err = policyyaml.Decode([]byte("a\x00b"))
	require.ErrorIs(t, err, policy.ErrInvalid)
}

// What is written as YAML is the generation of what is written as JSON.
func TestYAMLAndJSONAreOneGeneration(t *testing.T) {
	inYAML, err := policyyaml.Decode([]byte(head + `
    - name: month
      failurePolicy: FailClosed
      budget:
        limitMilliUSD: 500000
        hardCap: true
        period: week
        weekStart: sunday
        timezone: "Europe/Amsterdam"
        lease: {grantMilliUSD: 1000, renewInterval: 90s}
        tiers: [{thresholdPercent: 95}, {thresholdPercent: 80}]
        adminContact: >-
          ops
          team
    - name: thrift
      failurePolicy: FailOpen
      routing: {budgetTiers: [{thresholdPercent: 80, substitutions: {'4.1': "no", gpt-4.1: small}}]}
`))
	require.NoError(t, err)
	inJSON, err := policy.Decode([]byte(`{"spec":{"rules":[
		{"routing":{"budget":"month","budgetTiers":[{"substitutions":{"gpt-4.1":"small","4.1":"no"},"thresholdPercent":80}]},"failurePolicy":"FailOpen","name":"thrift"},
		{"budget":{"adminContact":"ops team","tiers":[{"thresholdPercent":80},{"thresholdPercent":95}],"lease":{"grantMilliUSD":1000,"renewInterval":"1m30s"},
		"timezone":"Europe/Amsterdam","weekStart":"sunday","period":"week","hardCap":true,"limitMilliUSD":500000},"failurePolicy":"FailClosed","name":"month"}],
		"subject":{"team":"t"}},"metadata":{"name":"p"},"kind":"GovernancePolicy","apiVersion":"inferplane.dev/v1alpha1"}`))
	require.NoError(t, err)
	a, err := policy.NewSet(inYAML)
	require.NoError(t, err)
	b, err := policy.NewSet(inJSON)
	require.NoError(t, err)
	require.Equal(t, a.Generation(), b.Generation())
	require.Equal(t, inYAML, inJSON)
}

// Whatever the input, it is refused with a place, or is what JSON would have made of it.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(head + "    - {name: r, failurePolicy: FailOpen, rate: {rpm: 1}}\n"))
	f.Add([]byte("a: &a [*a]\n---\n<<: *a"))
	f.Add([]byte("%TAG ! tag:x,2000:\n--- !y {? [a] : b}"))
	f.Add([]byte("\xff\xfea\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		documents, err := policyyaml.Decode(data)
		if err != nil {
			if !errors.Is(err, policy.ErrInvalid) || documents != nil {
				t.Fatal(documents, err)
			}
			return
		}
		text, err := json.Marshal(documents)
		if err != nil {
			t.Fatal(err)
		}
		again, err := policyyaml.Decode(append([]byte("---\n"), text...))
		if err != nil || len(again) != len(documents) {
			if string(text) == "null" || string(text) == "[]" {
				return
			}
			t.Fatalf("%s: %v", text, err)
		}
		if other, err := json.Marshal(again); err != nil || string(other) != string(text) {
			t.Fatalf("%s became %s", text, other)
		}
	})
}
