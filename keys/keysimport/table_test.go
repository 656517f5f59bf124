package keysimport

import (
	"bytes"
	"errors"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/governancemem"
	"github.com/tallystick-go/tallystick/keys"
)

func TestTablesThatCannotBeRead(t *testing.T) {
	long := strings.Repeat("x", MaxRowBytes+2*readAhead)
	for name, text := range map[string]string{
		"nothing":         "",
		"only a quote":    "\"",
		"only a newline":  "\n",
		"no column":       "b\n1\n",
		"a column twice":  "a,a\n1,2\n",
		"a field missing": "a,b\n1\n",
		"a bare quote":    "a,b\n1,x\"y\n",
		"an open quote":   "a,b\n1,\"y\n",
		"not UTF-8":       "a\n\xff\n",
		"a long field":    "a\n" + long + "\n",
		"a long header":   long + "\n",
		"many columns":    "a" + strings.Repeat(",c", maxColumns) + "\n",
		"json: no column": `{"b":1}`,
		"json: a list":    `{"a":1}` + "\n[1]",
		"json: twice":     `{"a":1,"a":2}`,
		"json: two":       `{"a":1}{"a":2}`,
		"json: open":      `{"a":1`,
		"json: long":      `{"a":"` + long + `"}`,
		"json: not UTF-8": "{\"a\":\"\xff\"}",
	} {
		err := readTable("t", strings.NewReader(text), []string{"a"}, func(record) error { return nil })
		var table *TableError
		require.ErrorAs(t, err, &table, name)
		require.ErrorIs(t, err, keys.ErrInvalid, name)
		require.NotContains(t, err.Error(), "xxx", name)
	}
	broken := io.MultiReader(strings.NewReader("a\n1\n"), failing{})
	var table *TableError
	require.ErrorAs(t, readTable("t", broken, []string{"a"}, func(record) error { return nil }), &table)
	require.NotContains(t, table.Error(), "secret path")
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("secret path") }

func TestTablesOfEveryForm(t *testing.T) {
	for _, text := range []string{
		"\ufeffa,b,c\n1,,\"x\ny\"\n", "a,b,c\r\n1,\\N,\"x\ny\"\r\n", `{"a":1,"b":null,"c":"x\ny"}` + "\n\n", "\ufeff" + `{"a": 1, "b": "", "c": "x\ny"}`,
	} {
		var got []map[string]string
		require.NoError(t, readTable("t", strings.NewReader(text), []string{"a", "b"}, func(r record) error {
			got = append(got, r.fields)
			return nil
		}))
		require.Equal(t, []map[string]string{{"a": "1", "c": "x\ny"}}, got, "%q", text)
	}
	var got []string
	require.NoError(t, readTable("t", strings.NewReader(`{"a":{"x":[1]},"b":["y",null]}`), nil, func(r record) error {
		got = append(got, r.fields["a"], r.fields["b"])
		return nil
	}))
	require.Equal(t, []string{`{"x":[1]}`, `["y",null]`}, got)
}

func TestParseList(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil, "{}": {}, "[]": {}, "{a}": {"a"}, "{a,b}": {"a", "b"}, `{"a,b",c}`: {"a,b", "c"}, `{"a\"b\\",""}`: {`a"b\`, ""}, `["a","b c"]`: {"a", "b c"},
	} {
		got, err := parseList(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"a", "{a", "a}", "{a,}", "{,a}", "{NULL}", `{"a}`, `{"a"b}`, `{"a\`, "{{a}}", "[1]", "[", `{"a",}`} {
		_, err := parseList(text)
		require.Error(t, err, text)
	}
}

func TestParseTime(t *testing.T) {
	want := time.Date(2025, 11, 1, 10, 0, 0, 250_000_000, time.UTC)
	for _, text := range []string{
		"2025-11-01 10:00:00.25", "2025-11-01T10:00:00.25", "2025-11-01T10:00:00.250Z", "2025-11-01 12:00:00.25+02", "2025-11-01 12:00:00.25+02:00", "2025-11-01T05:00:00.25-05:00",
	} {
		got, err := parseTime(text)
		require.NoError(t, err, text)
		require.Equal(t, want, *got, text)
	}
	for _, text := range []string{"soon", "2025-11-01", "1969-12-31 00:00:00", "0000-00-00 00:00:00", "2025-13-01 00:00:00", "infinity"} {
		_, err := parseTime(text)
		require.Error(t, err, text)
	}
}

func TestMoneyIsExact(t *testing.T) {
	for text, want := range map[string]amount.MicroUSD{
		"0": 0, "12.5": 12_500_000, "0.0005": 500, "1e-06": 1, "1.9999e-06": 1, "-3": 0, "1E2": 100_000_000, "0.1": 100_000,
		"1e300": 1<<63 - 1, "9223372036854.775807": 1<<63 - 1, "9223372036854.775806": 1<<63 - 2,
	} {
		r, err := parseDecimal(text)
		require.NoError(t, err, text)
		require.Equal(t, want, microUSD(r), text)
	}
	for _, text := range []string{"", "x", "1/2", "0x10", "1e9999999", "1e", "NaN", "Infinity", "1_000", "1.2.3", ".", strings.Repeat("9", 500)} {
		_, err := parseDecimal(text)
		require.Error(t, err, text)
	}
	n := NewAPI{QuotaPerUSD: 500_000}
	require.Equal(t, amount.MicroUSD(2), microUSD(n.usd(big.NewRat(1, 1))), "one unit of quota is two microUSD")
}

func TestPeriods(t *testing.T) {
	for text, want := range map[string]period{
		"": longer, "30s": belowDay, "59m": belowDay, "1h": belowDay, "23h": belowDay, "24h": aDay, "1d": aDay, "1440m": aDay, "25h": belowMonth, "7d": belowMonth,
		"1w": belowMonth, "29d": belowMonth, "30d": aMonth, "1mo": aMonth, "31d": longer, "2mo": longer, "365d": longer,
	} {
		got, err := periodOf(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"d", "1", "0d", "-1d", "1y", "monthly", "99999999999d", "1.5h"} {
		_, err := periodOf(text)
		require.Error(t, err, text)
	}
}

// What stands in a row and cannot be read keeps its key out; it never opens it.
func TestWhatCannotBeReadIsRefused(t *testing.T) {
	header := strings.Join(litellmKeyNeeds, ",")
	for column, text := range map[string]string{
		"expires": "soon", "models": "{a", "blocked": "perhaps", "rpm_limit": "many", "tpm_limit": "1e3", "max_parallel_requests": "99999999999999999999",
		"max_budget": "NaN", "budget_duration": "1y", "user_id": strings.Repeat("u", 300),
	} {
		fields := map[string]string{"token": "sk-abcdefghijklmnop", column: text}
		if column == "budget_duration" {
			fields["max_budget"] = "1"
		}
		var row []string
		for _, name := range litellmKeyNeeds {
			row = append(row, fields[name])
		}
		p, err := LiteLLM{Keys: strings.NewReader(header + "\n" + strings.Join(row, ",") + "\n")}.Read()
		require.NoError(t, err, column)
		require.Len(t, p.Rows.Keys, 1, column)
		require.NotNil(t, p.Rows.Keys[0].RevokedAt, column)
		require.Equal(t, 1, p.Report.Refused, column)
	}
}

func TestAColumnThatIsNotKnownMayRestrict(t *testing.T) {
	header := strings.Join(litellmKeyNeeds, ",")
	blank := strings.Repeat(",", len(litellmKeyNeeds)-1)
	p, err := LiteLLM{Keys: strings.NewReader(header + ",only_on_mondays\nsk-abcdefghijklmnop" + blank + ",t\n")}.Read()
	require.NoError(t, err)
	require.Equal(t, 1, p.Report.Wider())
	p, err = LiteLLM{Keys: strings.NewReader(header + ",only_on_mondays\nsk-abcdefghijklmnop" + blank + ",f\n")}.Read()
	require.NoError(t, err)
	require.Zero(t, p.Report.Wider(), "one that says nothing does not")
}

func TestExportsThatAreNone(t *testing.T) {
	header := strings.Join(newapiTokenNeeds, ",")
	blank := strings.Repeat(",", len(newapiTokenNeeds)-3)
	for name, text := range map[string]string{
		"masked keys": header + "\n1,1,abcd**********wxyz" + blank + "\n",
		"no key":      header + "\n1,1," + blank + "\n",
		"no id":       header + "\nx,1,abcdefghijklmnop" + blank + "\n",
	} {
		_, err := NewAPI{Tokens: strings.NewReader(text)}.Read()
		var table *TableError
		require.ErrorAs(t, err, &table, name)
		require.NotContains(t, err.Error(), "wxyz")
	}
	_, err := NewAPI{}.Read()
	require.ErrorIs(t, err, keys.ErrInvalid)
	_, err = LiteLLM{}.Read()
	require.ErrorIs(t, err, keys.ErrInvalid)
	_, err = LiteLLM{Team: "no spaces please"}.Read()
	require.ErrorIs(t, err, keys.ErrInvalid)
	_, err = NewAPI{QuotaPerUSD: -1, Tokens: strings.NewReader("")}.Read()
	require.ErrorIs(t, err, keys.ErrInvalid)
}

// TestReportsAreBounded counts on beyond the bound.
func TestReportsAreBounded(t *testing.T) {
	r := newReport("x")
	for range mostFindings + 3 {
		r.add(Finding{Effect: Lost})
	}
	require.Len(t, r.Findings, mostFindings)
	require.Equal(t, 3, r.Omitted)
	require.Equal(t, mostFindings+3, r.Effects["lost"])
	var out bytes.Buffer
	require.NoError(t, r.WriteTable(&out))
	require.Contains(t, out.String(), "and 3 more")
}

// Whatever an export holds: no panic, and a plan that a store takes, twice.
func takes(t *testing.T, p Plan, err error) {
	if err != nil {
		require.ErrorIs(t, err, keys.ErrInvalid)
		return
	}
	db, err := governancemem.New(nil)
	require.NoError(t, err)
	require.NoError(t, p.Import(t.Context(), db.Keys, &Options{AllowWider: true}))
	require.Equal(t, p.Rows.Count(), p.Report.Imported.Added)
	require.NoError(t, p.Import(t.Context(), db.Keys, &Options{AllowWider: true}))
	require.Equal(t, p.Rows.Count(), p.Report.Imported.Same)
}

// seed is the beginning of a file: the fuzzer gets further with a few rows.
func seed(f *testing.F, name string) []byte {
	data, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(f, err)
	lines := bytes.SplitAfter(data, []byte("\n"))
	return bytes.Join(lines[:min(3, len(lines))], nil)
}

func FuzzLiteLLM(f *testing.F) {
	f.Add(seed(f, "litellm-1.72/keys.csv"), seed(f, "litellm-1.72/teams.csv"), seed(f, "litellm-1.72/budgets.csv"))
	f.Add(seed(f, "litellm-1.81/keys.jsonl"), seed(f, "litellm-1.81/teams.jsonl"), seed(f, "litellm-1.81/budgets.jsonl"))
	f.Fuzz(func(t *testing.T, keys, teams, budgets []byte) {
		p, err := LiteLLM{Keys: bytes.NewReader(keys), Teams: bytes.NewReader(teams), Budgets: bytes.NewReader(budgets)}.Read()
		takes(t, p, err)
	})
}

func FuzzNewAPI(f *testing.F) {
	f.Add(seed(f, "newapi-0.10/tokens.jsonl"), seed(f, "newapi-0.10/users.jsonl"))
	f.Add(seed(f, "newapi-0.8/tokens.csv"), seed(f, "newapi-0.10/users.jsonl"))
	f.Fuzz(func(t *testing.T, tokens, users []byte) {
		p, err := NewAPI{Tokens: bytes.NewReader(tokens), Users: bytes.NewReader(users)}.Read()
		takes(t, p, err)
	})
}

func FuzzParseList(f *testing.F) {
	for _, text := range []string{`{a,"b c",""}`, `["a"]`, "{", `{"\`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseList(text)
		if err != nil || !strings.HasPrefix(text, "{") {
			return
		}
		var out []string
		for _, item := range list {
			out = append(out, `"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(item)+`"`)
		}
		again, err := parseList("{" + strings.Join(out, ",") + "}")
		require.NoError(t, err)
		require.Equal(t, list, again, "what is read is written back as the same")
	})
}
