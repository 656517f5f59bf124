package pricing_test

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/pricing"
	"github.com/tallystick-go/tallystick/governance/usage"
)

// A captured row settles like the catalogue's, whatever becomes of that.
func TestRowsSurviveEncoding(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	c := realCatalogue(t, &pricing.Options{Free: []string{"own"}, Region: "eu", AutoTier: "standard", Windows: map[string]int64{"gpt-4": 9000}, Bound: map[string]pricing.BoundBy{"gpt-4o": pricing.BoundByContext}})
	for _, model := range append(c.Models(), "us.anthropic.claude-opus-4-6-v1") {
		row := price(t, c, model)
		b, err := row.MarshalBinary()
		require.NoError(t, err)
		require.LessOrEqual(t, len(b), 512)
		var back pricing.Row
		require.NoError(t, back.UnmarshalBinary(b))
		require.True(t, row.Equal(back))
		again, err := back.MarshalBinary()
		require.NoError(t, err)
		require.Equal(t, b, again)
		require.Equal(t, row.Model(), back.Model())
		require.Equal(t, row.Free(), back.Free())
		for _, limit := range []func(pricing.Row) (int64, bool){pricing.Row.ContextTokens, pricing.Row.MaxInput, pricing.Row.MaxOutput} {
			n, ok := limit(row)
			m, ok2 := limit(back)
			require.Equal(t, []any{n, ok}, []any{m, ok2})
		}
		for range 20 {
			s := randomShape(r)
			b1, err1 := row.Bound(s)
			b2, err2 := back.Bound(s)
			require.Equal(t, b1, b2)
			require.Equal(t, err1, err2)
			u := with(known(r.Int64N(1e6), r.Int64N(1e5)), func(u *usage.Usage) {
				u.CacheWriteUnknownTTL = usage.Of(r.Int64N(10))
				u.WebSearches = usage.Of(r.Int64N(2))
			})
			c1, s1, _ := row.Cost(u)
			c2, s2, _ := back.Cost(u)
			require.Equal(t, []any{c1, s1}, []any{c2, s2})
		}
	}
}

func TestRowsThatAreCutOrForeignAreRefused(t *testing.T) {
	row := price(t, realCatalogue(t, nil), "gpt-5.6")
	b, err := row.MarshalBinary()
	require.NoError(t, err)
	for i := range b {
		var back pricing.Row
		require.ErrorIs(t, back.UnmarshalBinary(b[:i]), pricing.ErrRow, "%d bytes", i)
		require.True(t, back.IsZero())
	}
	for name, bad := range map[string][]byte{
		"newer version":            append([]byte{2}, b[1:]...),
		"a field we must know":     append(b[:len(b):len(b)], 0x01, 1, 7),
		"an extension that is cut": append(b[:len(b):len(b)], 0x80, 5, 7),
		"too long":                 append(b[:len(b):len(b)], append([]byte{0x80, 0x90, 0x04}, make([]byte, 528)...)...),
		"text":                     []byte("a row"),
	} {
		require.ErrorIs(t, row.UnmarshalBinary(bad), pricing.ErrRow, name)
		require.Equal(t, "gpt-5.6", row.Model(), "left alone")
	}
	_, err = pricing.Row{}.MarshalBinary()
	require.ErrorIs(t, err, pricing.ErrNoPrice)
	require.True(t, pricing.Row{}.Equal(pricing.Row{}))
	require.False(t, row.Equal(pricing.Row{}))
}

// A row that a later version wrote with more in it is read, and written back
// with nothing lost.
func TestRowsOfLaterVersions(t *testing.T) {
	row := price(t, realCatalogue(t, nil), "gpt-4o")
	b, err := row.MarshalBinary()
	require.NoError(t, err)
	later := append(b, 0x80, 3, 'x', 'y', 'z', 0xff, 0)
	var back pricing.Row
	require.NoError(t, back.UnmarshalBinary(later))
	again, err := back.AppendBinary(nil)
	require.NoError(t, err)
	require.Equal(t, later, again)
	want, _, _ := row.Cost(known(1000, 10))
	got, _, _ := back.Cost(known(1000, 10))
	require.Equal(t, want, got)
}

func TestARowThatWouldBeTooLongIsRefused(t *testing.T) {
	var b strings.Builder
	b.WriteString(plain)
	for _, stem := range []string{"input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost", "cache_creation_input_token_cost", "output_cost_per_reasoning_token", "input_cost_per_audio_token"} {
		for _, above := range []string{"100k", "200k", "300k", "400k"} {
			for _, tier := range []string{"", "_priority", "_flex", "_batches"} {
				b.WriteString(`,"` + stem + "_above_" + above + "_tokens" + tier + `":1.23456789012345e-07`)
			}
		}
	}
	c := parse(t, `{"m":{`+b.String()+`}}`, nil)
	require.Empty(t, c.Models())
	require.Contains(t, c.Report().Findings[0].Reason, "at most 512")
}

func TestCatalogueIsSafeForConcurrentUse(t *testing.T) {
	c := realCatalogue(t, nil)
	models := c.Models()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				row, err := c.Price(models[(g*31+i)%len(models)])
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = row.Bound(pricing.Shape{InputTokens: 10, Output: 10})
				_, _, _ = row.Cost(known(10, 10))
				_, _ = c.Price("us.anthropic.claude-opus-4-6-v1")
			}
		})
	}
	wg.Wait()
}

func FuzzRow(f *testing.F) {
	c := realCatalogue(f, nil)
	for _, m := range c.Models() {
		row, _ := c.Price(m)
		b, _ := row.MarshalBinary()
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var row pricing.Row
		if row.UnmarshalBinary(b) != nil {
			require.True(t, row.IsZero())
			return
		}
		again, err := row.MarshalBinary()
		require.NoError(t, err)
		require.Equal(t, b, again, "one row, one encoding")
		s := pricing.Shape{InputTokens: 1000, Output: 10, ServiceTier: "default"}
		bound, err := row.Bound(s)
		if err != nil {
			require.Equal(t, pricing.Bound{}, bound)
			return
		}
		require.GreaterOrEqual(t, int64(bound.Cost), int64(0))
		cost, state, err := row.Cost(known(1000, 10))
		if in, _ := row.ContextTokens(); err == nil && state == usage.Known && int64(bound.Tokens) >= 1010 && (in == 0 || in >= 1000) {
			require.LessOrEqual(t, cost, bound.Cost)
		}
	})
}

func FuzzParseLiteLLM(f *testing.F) {
	f.Add([]byte(`{"m":{` + plain + `}}`))
	f.Add([]byte(`{"m":{` + plain + `,"search_context_cost_per_query":{"search_context_size_low":0.01,"search_context_size_medium":0.01,"search_context_size_high":0.02},"provider_specific_entry":{"us":1.1,"fast":6}}}`))
	f.Add([]byte(`{"m":{"input_cost_per_token":1e-7,"output_cost_per_token":1E-06,"input_cost_per_token_above_128k_tokens_priority":3.3333333333e-8}}`))
	f.Add([]byte(`{"us.anthropic.x":{"mode":"embedding","input_cost_per_token":0,"output_cost_per_image":[1]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, report, err := pricing.ParseLiteLLM(strings.NewReader(string(text)), &pricing.Options{MaxBytes: 1 << 16})
		if err != nil {
			require.ErrorIs(t, err, pricing.ErrCatalogue)
			require.Nil(t, c)
			return
		}
		require.Equal(t, report.Priced, len(c.Models()))
		for _, m := range c.Models() {
			row, err := c.Price(m)
			require.NoError(t, err)
			b, err := row.MarshalBinary()
			require.NoError(t, err)
			var back pricing.Row
			require.NoError(t, back.UnmarshalBinary(b))
			require.True(t, row.Equal(back))
			bound, err := row.Bound(pricing.Shape{InputTokens: 5000, Output: 5000})
			cost, state, errCost := row.Cost(known(5000, 5000))
			if window, ok := row.ContextTokens(); err == nil && errCost == nil && state == usage.Known && (!ok || window >= 5000) {
				if bound.Tokens >= 10_000 {
					require.LessOrEqual(t, cost, bound.Cost)
				}
			}
		}
	})
}
