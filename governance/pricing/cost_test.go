package pricing_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/pricing"
	"github.com/tallystick-go/tallystick/governance/usage"
)

// known is a complete usage of fresh input and output.
func known(in, out int64) usage.Usage {
	zero := usage.Of(0)
	return usage.Usage{
		Input: usage.Of(in), Output: usage.Of(out), CacheRead: zero, CacheWrite5m: zero, CacheWrite1h: zero, CacheWriteUnknownTTL: zero, Complete: true,
	}
}

func with(u usage.Usage, change func(*usage.Usage)) usage.Usage {
	change(&u)
	return u
}

func TestCostGoldenVectors(t *testing.T) {
	real := realCatalogue(t, nil)
	p1 := parse(t, `{"m":{"litellm_provider":"openai","mode":"chat","input_cost_per_token":1.25e-06,"cache_read_input_token_cost":6.25e-07,"output_cost_per_token":1e-05}}`, nil)
	for _, c := range []struct {
		name  string
		row   pricing.Row
		p     usage.Protocol
		usage string
		cost  amount.MicroUSD
		state usage.State
	}{
		{"replay P1", price(t, p1, "m"), usage.OpenAIChat, `{"prompt_tokens":262960,"completion_tokens":1744,"prompt_tokens_details":{"cached_tokens":257955}}`, 184_919, usage.Known},
		{"replay P2, declared exclusive", price(t, real, "claude-haiku-4-5"), usage.AnthropicMessages, `{"input_tokens":56322,"cache_read_input_tokens":72960,"output_tokens":87}`, 64_053, usage.Known},
		{"replay P2, declared inclusive: never negative", price(t, real, "claude-haiku-4-5"), usage.OpenAIChat, `{"prompt_tokens":56322,"completion_tokens":87,"prompt_tokens_details":{"cached_tokens":72960}}`, 0, usage.Invalid},
		{"replay S2", price(t, real, "gpt-4o"), usage.OpenAIChat, `{"prompt_tokens":0,"completion_tokens":0}`, 0, usage.Known},
		{"replay P6: no usage", price(t, real, "gpt-4o"), usage.OpenAIChat, `null`, 0, usage.Unknown},
		{"one token rounds up", price(t, real, "gpt-4o-mini"), usage.OpenAIChat, `{"prompt_tokens":1,"completion_tokens":0}`, 1, usage.Known},
		{"lifetimes", price(t, real, "claude-sonnet-4-5"), usage.AnthropicMessages, `{"input_tokens":10,"cache_creation_input_tokens":300,"cache_creation":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":200},"cache_read_input_tokens":1000,"output_tokens":20}`, 30 + 375 + 1200 + 300 + 300, usage.Known},
		{"unknown lifetime", price(t, real, "claude-sonnet-4-5"), usage.AnthropicMessages, `{"input_tokens":10,"cache_creation_input_tokens":300,"output_tokens":20}`, 30 + 1125 + 300, usage.Unknown},
		{"one lifetime only", price(t, real, "gpt-5.6"), usage.OpenAIChat, `{"prompt_tokens":1000,"completion_tokens":10,"prompt_tokens_details":{"cache_write_tokens":400}}`, 600*5 + 2500 + 300, usage.Known},
		{"200k exactly", price(t, real, "claude-sonnet-4-5"), usage.AnthropicMessages, `{"input_tokens":1,"cache_read_input_tokens":199999,"output_tokens":1}`, 3 + 60_000 + 15, usage.Known},
		{"above 200k, by cached tokens", price(t, real, "claude-sonnet-4-5"), usage.AnthropicMessages, `{"input_tokens":1,"cache_read_input_tokens":200000,"output_tokens":1}`, 120_000 + 6 + 23, usage.Known},
		{"above 200k, lifetime without a price there", price(t, real, "claude-4-sonnet-20250514"), usage.AnthropicMessages, `{"input_tokens":200001,"cache_creation":{"ephemeral_1h_input_tokens":5},"output_tokens":0}`, 1_200_006, usage.Unknown},
		{"above 272k (G2)", price(t, real, "gpt-5.4"), usage.OpenAIChat, `{"prompt_tokens":300000,"completion_tokens":1000}`, 300_000*5 + 22_500, usage.Known},
		{"web searches", price(t, real, "claude-sonnet-4-5"), usage.AnthropicMessages, `{"input_tokens":10,"output_tokens":20,"server_tool_use":{"web_search_requests":3}}`, 330 + 30_000, usage.Known},
		{"web searches of unknown size", price(t, real, "gpt-4o-mini-2024-07-18"), usage.AnthropicMessages, `{"input_tokens":10,"output_tokens":0,"server_tool_use":{"web_search_requests":1}}`, 25_002, usage.Unknown},
		{"web searches without a fee", price(t, real, "gpt-4o"), usage.AnthropicMessages, `{"input_tokens":2,"output_tokens":0,"server_tool_use":{"web_search_requests":1}}`, 5, usage.Unknown},
		{"other tools", price(t, real, "claude-sonnet-4-5"), usage.AnthropicMessages, `{"input_tokens":1,"output_tokens":0,"server_tool_use":{"code_execution_requests":1}}`, 3, usage.Unknown},
		{"fast", price(t, real, "claude-opus-4-6"), usage.AnthropicMessages, `{"input_tokens":100,"output_tokens":10,"speed":"fast"}`, 6 * 750, usage.Known},
		{"fast without a price", price(t, real, "claude-sonnet-4-5"), usage.AnthropicMessages, `{"input_tokens":1,"output_tokens":0,"speed":"fast"}`, 3, usage.Unknown},
		{"region", price(t, real, "claude-opus-4-6"), usage.AnthropicMessages, `{"input_tokens":100,"output_tokens":10,"inference_geo":"us"}`, 825, usage.Known},
		{"fast in a region, rounded once", price(t, real, "claude-opus-4-6"), usage.AnthropicMessages, `{"input_tokens":1,"output_tokens":0,"speed":"fast","inference_geo":"us"}`, 33, usage.Known},
		{"region without a price", price(t, real, "claude-opus-4-6"), usage.AnthropicMessages, `{"input_tokens":100,"output_tokens":10,"inference_geo":"jp"}`, 750, usage.Unknown},
		{"any region of a model that has one price", price(t, real, "claude-haiku-4-5"), usage.AnthropicMessages, `{"input_tokens":100,"output_tokens":10,"inference_geo":"us"}`, 150, usage.Known},
		{"search fees are not multiplied", price(t, real, "claude-opus-4-6"), usage.AnthropicMessages, `{"input_tokens":100,"output_tokens":10,"inference_geo":"us","server_tool_use":{"web_search_requests":2}}`, 825 + 20_000, usage.Known},
		{"video tokens", price(t, real, "gemini-omni-flash-preview"), usage.OpenAIChat, `{"prompt_tokens":2,"completion_tokens":4,"completion_tokens_details":{"video_tokens":2}}`, 39, usage.Unknown},
		{"audio", price(t, real, "gpt-4o-audio-preview"), usage.OpenAIChat, `{"prompt_tokens":100,"completion_tokens":50,"prompt_tokens_details":{"audio_tokens":40,"cached_tokens":0},"completion_tokens_details":{"audio_tokens":30}}`, 60*5/2 + 40*40 + 20*10 + 30*80, usage.Known},
		{"audio and cached, overlap unknown", price(t, real, "gemini-2.5-flash"), usage.OpenAIChat, `{"prompt_tokens":100,"completion_tokens":0,"prompt_tokens_details":{"audio_tokens":40,"cached_tokens":50}}`, 17, usage.Unknown},
		{"images out", price(t, real, "gemini-2.5-flash-image"), usage.OpenAIChat, `{"prompt_tokens":10,"completion_tokens":100,"prompt_tokens_details":{"audio_tokens":0,"image_tokens":0},"completion_tokens_details":{"image_tokens":90,"audio_tokens":0,"reasoning_tokens":0}}`, 3 + 25 + 2700, usage.Known},
		{"images out, not broken out", price(t, real, "gemini-2.5-flash-image"), usage.OpenAIChat, `{"prompt_tokens":10,"completion_tokens":100}`, 253, usage.Unknown},
		{"reasoning at the price of output", price(t, real, "gemini-2.5-flash"), usage.OpenAIChat, `{"prompt_tokens":10,"completion_tokens":100,"completion_tokens_details":{"reasoning_tokens":90}}`, 253, usage.Known},
		{"reasoning beside the completion", price(t, real, "grok-4.20-0309-non-reasoning"), usage.OpenAIChat, `{"prompt_tokens":10,"completion_tokens":5,"total_tokens":115,"completion_tokens_details":{"reasoning_tokens":100}}`, 275, usage.Known},
		{"embeddings", price(t, real, "gemini-embedding-001"), usage.OpenAIEmbeddings, `{"prompt_tokens":10,"total_tokens":10}`, 2, usage.Known},
		{"free, whatever was used", price(t, real, "deepseek-v3-2-251201"), usage.OpenAIChat, `null`, 0, usage.Known},
		{"free, but invalid", price(t, real, "deepseek-v3-2-251201"), usage.OpenAIChat, `{"prompt_tokens":-1}`, 0, usage.Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, err := usage.FromJSON(c.p, []byte(`{"usage":`+c.usage+`}`))
			require.NoError(t, err)
			cost, state, err := c.row.Cost(u)
			require.NoError(t, err)
			require.Equal(t, c.state, state)
			require.Equal(t, c.cost, cost)
		})
	}
}

func TestCostByServiceTier(t *testing.T) {
	c := realCatalogue(t, nil)
	for _, k := range []struct {
		model, tier string
		cost        amount.MicroUSD
		state       usage.State
	}{
		{"gpt-5.6", "", 1000*5 + 100*30, usage.Known},
		{"gpt-5.6", "default", 1000*5 + 100*30, usage.Known},
		{"gpt-5.6", "auto", 1000*5 + 100*30, usage.Known},
		{"gpt-5.6", "priority", 1000*10 + 100*60, usage.Known},
		{"gpt-5.6", "flex", 2500 + 1500, usage.Known},
		{"gpt-5.6", "batch", 2500 + 1500, usage.Known},
		{"gpt-5.6", "scale", 8000, usage.Unknown},
		{"gpt-5.6", "fast", 8000, usage.Unknown},
		{"gpt-4-0125-preview", "flex", 10_000 + 3000, usage.Known},  // a discount that is not stated is not given
		{"gpt-4-0125-preview", "priority", 0, usage.Unknown},        // a surcharge that is not stated is not guessed
		{"gpt-5-nano", "priority", 2500, usage.Unknown},             // only the input has a priority price
		{"claude-sonnet-4-5", "priority", 3000 + 1500, usage.Known}, // capacity bought ahead
		{"claude-sonnet-4-5", "standard", 3000 + 1500, usage.Known},
	} {
		row := price(t, c, k.model)
		cost, state, err := row.Cost(with(known(1000, 100), func(u *usage.Usage) { u.ServiceTier = k.tier }))
		require.NoError(t, err)
		require.Equal(t, k.state, state, "%s %s", k.model, k.tier)
		if k.model == "gpt-5-nano" {
			continue
		}
		require.Equal(t, k.cost, cost, "%s %s", k.model, k.tier)
	}
}

func TestCostOfWhatHasNoPriceOfItsOwn(t *testing.T) {
	cached := with(known(100, 10), func(u *usage.Usage) { u.CacheRead = usage.Of(50) })
	cost, state, err := one(t, plain).Cost(cached)
	require.NoError(t, err)
	require.Equal(t, usage.Known, state)
	require.EqualValues(t, 200, cost, "a cache read without a price is input")

	written := with(known(100, 10), func(u *usage.Usage) { u.CacheWrite5m = usage.Of(50) })
	cost, state, err = one(t, plain).Cost(written)
	require.NoError(t, err)
	require.Equal(t, usage.Unknown, state, "a cache write without a price may be dearer")
	require.EqualValues(t, 150, cost)

	for _, change := range []func(*usage.Usage){
		func(u *usage.Usage) { u.Complete = false },
		func(u *usage.Usage) { u.Input.State = usage.Unknown },
		func(u *usage.Usage) { u.Output.State = usage.Unknown },
		func(u *usage.Usage) { u.CacheRead = usage.Count{} },
		func(u *usage.Usage) { u.Other = usage.Of(1) },
	} {
		cost, state, err = one(t, plain).Cost(with(known(100, 10), change))
		require.NoError(t, err)
		require.Equal(t, usage.Unknown, state)
		require.EqualValues(t, 150, cost, "what is certain is still observed")
	}
}

func TestCostOfWhatATierLeavesOpen(t *testing.T) {
	flexOnly := one(t, plain+`,"input_cost_per_token_flex":5e-07,"output_cost_per_token_flex":2e-06`)
	cost, state, err := flexOnly.Cost(with(known(100, 10), func(u *usage.Usage) { u.CacheRead, u.ServiceTier = usage.Of(50), "flex" }))
	require.NoError(t, err)
	require.Equal(t, usage.Known, state)
	require.EqualValues(t, 95, cost, "a cache read without a price is input of the tier")

	audio := with(known(100, 0), func(u *usage.Usage) { u.AudioInput, u.ServiceTier = usage.Of(50), "priority" })
	const dearer = plain + `,"input_cost_per_audio_token":3e-06,"input_cost_per_token_priority":2e-06,"output_cost_per_token_priority":9e-06`
	_, state, err = one(t, dearer).Cost(audio)
	require.NoError(t, err)
	require.Equal(t, usage.Unknown, state, "audio is dearer than text, by how much in this tier is not stated")
	cost, state, err = one(t, strings.Replace(dearer, "3e-06", "1e-06", 1)).Cost(audio)
	require.NoError(t, err)
	require.Equal(t, usage.Known, state, "audio costs what text costs")
	require.EqualValues(t, 200, cost)
}

func TestCostOverflowIsAnError(t *testing.T) {
	row := one(t, `"input_cost_per_token":1000,"output_cost_per_token":1000`)
	_, state, err := row.Cost(known(math.MaxInt64, 0))
	require.ErrorIs(t, err, amount.ErrOverflow)
	require.Equal(t, usage.Unknown, state)
	_, state, err = row.Cost(known(math.MaxInt64, 1))
	require.NoError(t, err)
	require.Equal(t, usage.Invalid, state)
	_, state, err = pricing.Row{}.Cost(known(1, 1))
	require.ErrorIs(t, err, pricing.ErrNoPrice)
	require.Equal(t, usage.Unknown, state)
}

func TestCostOfMadeUpUsageNeverPanicsOrGoesNegative(t *testing.T) {
	row := price(t, realCatalogue(t, nil), "gpt-4o-audio-preview")
	bad := usage.Count{State: usage.Known, N: -5}
	for _, change := range []func(*usage.Usage){
		func(u *usage.Usage) { u.Input = bad },
		func(u *usage.Usage) { u.AudioInput = bad },
		func(u *usage.Usage) { u.AudioOutput = bad },
		func(u *usage.Usage) { u.WebSearches = bad },
		func(u *usage.Usage) { u.Other = bad },
		func(u *usage.Usage) { u.AudioInput = usage.Of(1000) },
		func(u *usage.Usage) { u.AudioOutput = usage.Of(1000) },
	} {
		cost, state, err := row.Cost(with(known(100, 10), change))
		require.NoError(t, err)
		require.NotEqual(t, usage.Known, state)
		require.GreaterOrEqual(t, cost, amount.MicroUSD(0))
	}
}

func TestPricesAreExact(t *testing.T) {
	// 0.1 + 0.2 in floats, as published catalogues sometimes have it.
	row := one(t, `"input_cost_per_token":2.9999999999999997e-07,"output_cost_per_token":1e-05`)
	for n, want := range map[int64]amount.MicroUSD{1: 1, 10: 3, 1_000_000: 300_000, 100_000_000_000_000_000: 29_999_999_999_999_997} {
		cost, state, err := row.Cost(known(n, 0))
		require.NoError(t, err)
		require.Equal(t, usage.Known, state)
		require.Equal(t, want, cost, "%d tokens", n)
	}
	small := one(t, `"input_cost_per_token":1e-24,"output_cost_per_token":1e-24`)
	cost, _, err := small.Cost(known(1_000_000_000_000_000_000, 0))
	require.NoError(t, err)
	require.EqualValues(t, 1, cost)
	require.Equal(t, strings.Repeat("x", 128), one128(t).Model())
}

func one128(t *testing.T) pricing.Row {
	name := strings.Repeat("x", 128)
	return price(t, parse(t, `{"`+name+`":{`+plain+`}}`, nil), name)
}
