package pricing_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/pricing"
)

// realFile is the public catalogue, cut down; TALLYSTICK_PRICES names another
// to run the same tests on.
func realFile(t testing.TB) string {
	if path := os.Getenv("TALLYSTICK_PRICES"); path != "" {
		return path
	}
	return filepath.Join("testdata", "litellm_prices.json")
}

func realCatalogue(t testing.TB, o *pricing.Options) *pricing.Catalogue {
	f, err := os.Open(realFile(t))
	require.NoError(t, err)
	defer f.Close()
	c, _, err := pricing.ParseLiteLLM(f, o)
	require.NoError(t, err)
	return c
}

// rawEntries reads the file the plain way, for comparison.
func rawEntries(t testing.TB) map[string]map[string]any {
	data, err := os.ReadFile(realFile(t))
	require.NoError(t, err)
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var raw map[string]map[string]any
	require.NoError(t, d.Decode(&raw))
	return raw
}

func parse(t testing.TB, text string, o *pricing.Options) *pricing.Catalogue {
	c, _, err := pricing.ParseLiteLLM(strings.NewReader(text), o)
	require.NoError(t, err)
	return c
}

// one is a catalogue of the model "m" with plain prices and these fields.
func one(t testing.TB, fields string) pricing.Row {
	c := parse(t, `{"m":{`+fields+`}}`, nil)
	row, err := c.Price("m")
	require.NoError(t, err)
	return row
}

const plain = `"litellm_provider":"p","mode":"chat","max_input_tokens":1000,"max_output_tokens":100,"input_cost_per_token":1e-06,"output_cost_per_token":5e-06`

func price(t testing.TB, c *pricing.Catalogue, model string) pricing.Row {
	row, err := c.Price(model)
	require.NoError(t, err)
	return row
}

// Every entry and every occurrence of every cost field is accounted for.
func TestReportDropsNothing(t *testing.T) {
	c, raw := realCatalogue(t, nil), rawEntries(t)
	r := c.Report()
	require.Equal(t, len(raw), r.Entries)
	require.Equal(t, len(c.Models()), r.Priced)

	occurs := map[string]int{}
	for model, fields := range raw {
		refused := false
		named := map[string]bool{}
		for _, f := range r.Of(model) {
			refused = refused || f.Kind == pricing.Refused
			named[f.Field] = true
			require.NotEmpty(t, f.Reason)
		}
		_, err := c.Price(model)
		require.Equal(t, refused, err != nil, model)
		for name := range fields {
			if strings.Contains(name, "cost") || strings.Contains(name, "multiplier") || name == "provider_specific_entry" {
				occurs[name]++
			}
		}
	}
	require.Len(t, r.Fields, len(occurs))
	costs := 0
	unpriced := map[string]int{}
	for _, f := range r.Findings {
		if f.Kind == pricing.Unpriced {
			unpriced[f.Field]++
		}
	}
	for _, u := range r.Fields {
		require.Equal(t, occurs[u.Field], u.Priced+u.Unpriced+u.Refused, u.Field)
		require.Equal(t, u.Unpriced, unpriced[u.Field], "%s: each one that is not used is a finding", u.Field)
		if strings.Contains(u.Field, "cost") {
			costs++
		}
	}
	require.Equal(t, 45, costs)
}

func TestRefusedEntriesSayWhy(t *testing.T) {
	c := realCatalogue(t, nil)
	for model, reason := range map[string]string{
		"gpt-realtime-whisper":                  "input_cost_per_token is missing",
		"gpt-image-1":                           "output_cost_per_token is missing",
		"gpt-4o-search-preview":                 "searches on every call",
		"gemini-2.0-flash-exp-image-generation": "not charged by tokens",
	} {
		_, err := c.Price(model)
		require.ErrorIs(t, err, pricing.ErrNoPrice)
		var missing *pricing.MissingPriceError
		require.ErrorAs(t, err, &missing)
		require.Contains(t, missing.Reason, reason)
		require.Contains(t, err.Error(), model)
	}
	// Zero per token beside a price per image is not free: it is refused.
	free := map[string]bool{}
	for _, m := range c.Models() {
		if price(t, c, m).Free() {
			free[m] = true
		}
	}
	require.Equal(t, map[string]bool{"deepseek-v3-2-251201": true, "gemini-flash-experimental": true}, free)
}

func TestPriceFindsNamesThatSayWhereTheyRun(t *testing.T) {
	entry := func(provider, more string) string {
		return `{"litellm_provider":"` + provider + `","mode":"chat","input_cost_per_token":1e-06,"output_cost_per_token":1e-06` + more + `}`
	}
	c := parse(t, `{
		"gpt-x":`+entry("openai", "")+`,
		"claude-a-20250101":`+entry("anthropic", `,"provider_specific_entry":{"us":1.1}`)+`,
		"claude-b-20250101-v1:0":`+entry("bedrock", "")+`,
		"eu.anthropic.claude-c-v1:0":`+entry("bedrock_converse", "")+`,
		"anthropic.claude-d-v2:0":`+entry("bedrock", "")+`,
		"gemini-x":`+entry("vertex_ai-language-models", "")+`,
		"openai/gpt-y":`+entry("openrouter", "")+`,
		"mistral-x":`+entry("mistral", "")+`}`,
		&pricing.Options{Aliases: map[string]string{"fast": "gpt-x", "mistral-x": "gpt-x"}})
	for name, want := range map[string]string{
		"gpt-x":                               "gpt-x",
		"openai/gpt-x":                        "gpt-x",
		"azure/gpt-x":                         "", // another provider, perhaps another price
		"anthropic/gpt-x":                     "",
		"foo/gpt-x":                           "",
		"openai/openai/gpt-x":                 "",
		"openai/gpt-y":                        "openai/gpt-y",
		"fast":                                "gpt-x",
		"mistral-x":                           "gpt-x", // an alias comes first
		"mistral/mistral-x":                   "mistral-x",
		"GPT-X":                               "",
		"gpt-x ":                              "",
		"gpt-x-2025-01-01":                    "",
		"":                                    "",
		"/":                                   "",
		"openai/":                             "",
		".":                                   "",
		"us.":                                 "",
		"us.anthropic.":                       "",
		"anthropic/claude-a-20250101":         "claude-a-20250101",
		"us.anthropic.claude-a-20250101-v1:0": "claude-a-20250101",
		"bedrock/us.anthropic.claude-a-20250101-v1:0":                                  "claude-a-20250101",
		"bedrock/us-east-1/anthropic.claude-a-20250101-v1:0":                           "claude-a-20250101",
		"bedrock/converse/us-gov.anthropic.claude-a-20250101-v1:0":                     "claude-a-20250101",
		"vertex_ai/claude-a@20250101":                                                  "claude-a-20250101",
		"vertex_ai/gemini-x":                                                           "gemini-x",
		"gemini/gemini-x":                                                              "gemini-x",
		"arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-a-20250101-v1:0": "claude-a-20250101",
		"arn:aws-us-gov:bedrock:us-gov-west-1:123456789012:inference-profile/us.anthropic.claude-d-v2:0":        "anthropic.claude-d-v2:0",
		"arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/anthropic.claude-a-20250101-v1:0": "", // whatever its maker called it
		"arn:aws:bedrock:us-east-1:123456789012:provisioned-model/abc":                                          "",
		"arn:aws:sagemaker:us-east-1:123456789012:foundation-model/anthropic.claude-a-20250101-v1:0":            "",
		"arn:aws:bedrock:us-east-1::foundation-model/":                                                          "",
		"bedrock/gemini-x":                        "",
		"us.anthropic.gpt-x":                      "",
		"xx.anthropic.claude-a-20250101-v1:0":     "",
		"global.anthropic.claude-b-20250101-v1:0": "claude-b-20250101-v1:0",
		"eu.anthropic.claude-c-v1:0":              "eu.anthropic.claude-c-v1:0",
		"us.anthropic.claude-c-v1:0":              "",
		"us.anthropic.claude-d-v2:0":              "anthropic.claude-d-v2:0",
		"bedrock/anthropic.claude-d-v2:0":         "anthropic.claude-d-v2:0",
		strings.Repeat("x", 1000):                 "",
	} {
		row, err := c.Price(name)
		if want == "" {
			require.ErrorIs(t, err, pricing.ErrNoPrice, name)
			require.True(t, row.IsZero())
			require.Less(t, len(err.Error()), 400)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, want, row.Model(), name)
	}

	// Bedrock's priority tier is no capacity that was bought before: it has a price of
	// its own, which the list may not state.
	plain, err := price(t, c, "claude-a-20250101").Bound(pricing.Shape{InputTokens: 1, Output: 1, ServiceTier: "priority", TextInput: true, TextOutput: true})
	require.NoError(t, err)
	require.Positive(t, plain.Cost)
	for _, name := range []string{"anthropic.claude-a-20250101-v1:0", "anthropic.claude-d-v2:0"} {
		_, err = price(t, c, name).Bound(pricing.Shape{InputTokens: 1, Output: 1, ServiceTier: "priority", TextInput: true, TextOutput: true})
		require.ErrorIs(t, err, pricing.ErrNoPrice, name)
	}

	// A name that fixes a region with a multiplier fixes the price.
	plainRow, us := price(t, c, "claude-a-20250101"), price(t, c, "us.anthropic.claude-a-20250101-v1:0")
	require.False(t, plainRow.Equal(us))
	cost, _, err := us.Cost(known(1000, 0))
	require.NoError(t, err)
	require.EqualValues(t, 1100, cost)
}

// Edge case: region-prefixed model ids missed the price table.
func TestPriceOfRegionalIDsInTheRealCatalogue(t *testing.T) {
	c := realCatalogue(t, nil)
	for _, id := range []string{"us.anthropic.claude-sonnet-4-5-20250929-v1:0", "bedrock/eu.anthropic.claude-sonnet-4-5-20250929-v1:0", "openai/gpt-5.4", "vertex_ai/gemini-2.5-flash"} {
		_, err := c.Price(id)
		require.NoError(t, err, id)
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	good := `{"m":{` + plain + `}}`
	for name, text := range map[string]string{
		"empty":              ``,
		"cut":                good[:len(good)-1],
		"array":              `[]`,
		"null":               `null`,
		"no models":          `{}`,
		"model is a number":  `{"m":1}`,
		"model is null":      `{"m":null}`,
		"something after":    good + `{}`,
		"model twice":        `{"m":{` + plain + `},"m":{` + plain + `}}`,
		"twice by an escape": `{"m":{` + plain + `},"\u006d":{` + plain + `}}`,
		"not utf-8":          `{"m` + "\xff" + `":{` + plain + `}}`,
		"nested too deep":    `{"m":{"a":` + strings.Repeat(`[`, 50) + strings.Repeat(`]`, 50) + `}}`,
		"not a number":       `{"m":{"input_cost_per_token":01}}`,
		"NaN":                `{"m":{"input_cost_per_token":NaN}}`,
	} {
		c, r, err := pricing.ParseLiteLLM(strings.NewReader(text), nil)
		require.ErrorIs(t, err, pricing.ErrCatalogue, name)
		require.Nil(t, c)
		require.Nil(t, r)
	}
	_, _, err := pricing.ParseLiteLLM(strings.NewReader(good), &pricing.Options{MaxBytes: int64(len(good)) - 1})
	require.ErrorIs(t, err, pricing.ErrCatalogue)
	_, _, err = pricing.ParseLiteLLM(strings.NewReader(good), &pricing.Options{MaxBytes: int64(len(good))})
	require.NoError(t, err)
	_, err = pricing.LoadLiteLLM(filepath.Join(t.TempDir(), "none.json"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = pricing.LoadLiteLLM(realFile(t))
	require.NoError(t, err)
}

func TestEntriesThatAreRefused(t *testing.T) {
	for name, fields := range map[string]string{
		"negative price":             `"input_cost_per_token":-1e-06,"output_cost_per_token":1e-06`,
		"string price":               `"input_cost_per_token":"1e-06","output_cost_per_token":1e-06`,
		"boolean price":              `"input_cost_per_token":true,"output_cost_per_token":1e-06`,
		"null price":                 `"input_cost_per_token":null,"output_cost_per_token":1e-06`,
		"no output price":            `"input_cost_per_token":1e-06`,
		"nothing":                    ``,
		"field twice":                plain + `,"mode":"chat"`,
		"price twice":                plain + `,"input_cost_per_token":1e-06`,
		"25 decimals":                `"input_cost_per_token":1e-25,"output_cost_per_token":1e-06`,
		"out of range":               `"input_cost_per_token":1e-999999999,"output_cost_per_token":1e-06`,
		"huge":                       `"input_cost_per_token":1e999999999,"output_cost_per_token":1e-06`,
		"too far apart":              `"input_cost_per_token":1e-24,"output_cost_per_token":1`,
		"too long":                   `"input_cost_per_token":0.` + strings.Repeat("0", 60) + `,"output_cost_per_token":1e-06`,
		"unknown cost":               plain + `,"input_cost_per_query":0.002`,
		"unknown object of costs":    plain + `,"tiered_pricing":[{"range":[0,1000]}]`,
		"unknown mode":               `"mode":"rerank","input_cost_per_token":1e-06,"output_cost_per_token":1e-06`,
		"mode is a number":           `"mode":7,"input_cost_per_token":1e-06,"output_cost_per_token":1e-06`,
		"window is a string":         `"max_input_tokens":"1000","input_cost_per_token":1e-06,"output_cost_per_token":1e-06`,
		"window is negative":         `"max_input_tokens":-1,"input_cost_per_token":1e-06,"output_cost_per_token":1e-06`,
		"window is half a token":     `"max_input_tokens":0.5,"input_cost_per_token":1e-06,"output_cost_per_token":1e-06`,
		"window is huge":             `"max_input_tokens":1e18,"input_cost_per_token":1e-06,"output_cost_per_token":1e-06`,
		"multiplier is zero":         plain + `,"provider_specific_entry":{"us":0}`,
		"multiplier is unknown":      plain + `,"provider_specific_entry":{"turbo":2}`,
		"multiplier is no object":    plain + `,"provider_specific_entry":2`,
		"uplift is negative":         plain + `,"regional_processing_uplift_multiplier_eu":-1`,
		"search fee is unknown":      plain + `,"search_context_cost_per_query":{"search_context_size_xl":1}`,
		"search fee lacks a size":    plain + `,"search_context_cost_per_query":{"search_context_size_low":1}`,
		"search fee is a number":     plain + `,"search_context_cost_per_query":0.01`,
		"synonyms differ":            plain + `,"cache_read_input_token_cost":1e-07,"input_cost_per_token_cache_hit":2e-07`,
		"threshold of zero":          plain + `,"input_cost_per_token_above_0k_tokens":1e-06`,
		"speaks but makes no tokens": `"mode":"audio_speech","input_cost_per_token":1e-06,"output_cost_per_token":1e-06,"output_cost_per_second":1`,
	} {
		t.Run(name, func(t *testing.T) {
			c := parse(t, `{"m":{`+fields+`},"other":{`+plain+`}}`, nil)
			_, err := c.Price("m")
			require.ErrorIs(t, err, pricing.ErrNoPrice)
			require.Len(t, c.Report().Of("m"), 1)
			require.Equal(t, pricing.Refused, c.Report().Of("m")[0].Kind)
			require.Equal(t, []string{"other"}, c.Models(), "the others stay")
		})
	}
	for _, name := range []string{"", "sample_spec", strings.Repeat("x", 129), "a b", "a\\nb"} {
		c := parse(t, `{"`+name+`":{`+plain+`},"other":{`+plain+`}}`, nil)
		require.Equal(t, []string{"other"}, c.Models())
		require.Len(t, c.Report().Findings, 1)
	}
}

func TestFieldsThatAreOnlyReported(t *testing.T) {
	for name, fields := range map[string]string{
		"unknown but zero":     `"input_cost_per_query":0`,
		"unknown but null":     `"input_cost_per_query":null`,
		"unknown but a switch": `"supports_pricing":true`,
		"fee of a tool":        `"file_search_cost_per_1k_calls":0.0025`,
		"medium":               `"input_cost_per_image":0.001`,
		"null price":           `"cache_read_input_token_cost":null`,
	} {
		t.Run(name, func(t *testing.T) {
			c := parse(t, `{"m":{`+plain+`,`+fields+`}}`, nil)
			require.Equal(t, []string{"m"}, c.Models())
			found := c.Report().Of("m")
			require.Len(t, found, 1)
			require.Equal(t, pricing.Unpriced, found[0].Kind)
			require.NotEmpty(t, found[0].String())
		})
	}
	c := parse(t, `{"m":{`+plain+`,"input_cost_per_query":0.002}}`, &pricing.Options{Ignore: []string{"input_cost_per_query"}})
	require.Equal(t, []string{"m"}, c.Models())
	require.Equal(t, pricing.Unpriced, c.Report().Of("m")[0].Kind)
}

func TestOptionsThatAreRefused(t *testing.T) {
	for name, o := range map[string]pricing.Options{
		"alias to nothing":   {Aliases: map[string]string{"a": "b"}},
		"alias to itself":    {Aliases: map[string]string{"m": "m"}},
		"empty alias":        {Aliases: map[string]string{"": "m"}},
		"bound of nothing":   {Bound: map[string]pricing.BoundBy{"typo": pricing.BoundByContext}},
		"unknown bound":      {Bound: map[string]pricing.BoundBy{"m": "exact"}},
		"window of nothing":  {Windows: map[string]int64{"typo": 5}},
		"window of zero":     {Windows: map[string]int64{"m": 0}},
		"window is negative": {Windows: map[string]int64{"m": -5}},
		"unknown region":     {Region: "mars"},
		"unknown tier":       {AutoTier: "priority"},
		"negative size":      {MaxBytes: -1},
		"free without name":  {Free: []string{""}},
	} {
		_, _, err := pricing.ParseLiteLLM(strings.NewReader(`{"m":{`+plain+`}}`), &o)
		require.ErrorIs(t, err, pricing.ErrCatalogue, name)
	}
}

func TestGenerationIsOfTheContent(t *testing.T) {
	a := parse(t, `{"m":{`+plain+`},"n":{`+plain+`}}`, nil)
	same := parse(t, `{"n":{"supports_vision":true,`+strings.Replace(plain, "1e-06", "0.0000010", 1)+`},`+"\n"+`"m":{`+plain+`}}`, nil)
	require.Equal(t, a.Generation(), same.Generation())
	require.Len(t, a.Generation(), len("sha256:")+64)
	seen := map[string]string{a.Generation(): "a"}
	for name, c := range map[string]*pricing.Catalogue{
		"price":    parse(t, `{"m":{`+plain+`},"n":{`+strings.Replace(plain, "1e-06", "1.1e-06", 1)+`}}`, nil),
		"window":   parse(t, `{"m":{`+plain+`},"n":{`+strings.Replace(plain, "1000", "1001", 1)+`}}`, nil),
		"provider": parse(t, `{"m":{`+plain+`},"n":{`+strings.Replace(plain, `"p"`, `"q"`, 1)+`}}`, nil),
		"model":    parse(t, `{"m":{`+plain+`}}`, nil),
		"alias":    parse(t, `{"m":{`+plain+`},"n":{`+plain+`}}`, &pricing.Options{Aliases: map[string]string{"x": "m"}}),
		"free":     parse(t, `{"m":{`+plain+`},"n":{`+plain+`}}`, &pricing.Options{Free: []string{"m"}}),
		"tier":     parse(t, `{"m":{`+plain+`},"n":{`+plain+`}}`, &pricing.Options{AutoTier: "standard"}),
		"bound":    parse(t, `{"m":{`+plain+`},"n":{`+plain+`}}`, &pricing.Options{Bound: map[string]pricing.BoundBy{"*": pricing.BoundByContext}}),
	} {
		require.Empty(t, seen[c.Generation()], name)
		seen[c.Generation()] = name
	}
}

func TestBundled(t *testing.T) {
	c, err := pricing.Bundled()
	require.NoError(t, err)
	for _, m := range []string{"demo-small", "demo-large", "demo-free", "demo-embedding", "gpt-4o-mini", "claude-sonnet-4-5", "text-embedding-3-small"} {
		row := price(t, c, m)
		require.Equal(t, m == "demo-free", row.Free(), m)
		_, ok := row.ContextTokens()
		require.True(t, ok, m)
		_, ok = row.MaxOutput()
		require.True(t, ok, m)
	}
	for _, f := range c.Report().Findings {
		require.Equal(t, pricing.Assumed, f.Kind, fmt.Sprint(f))
	}
	again, err := pricing.Bundled()
	require.NoError(t, err)
	require.Same(t, c, again)
}
