package pricing_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/pricing"
	"github.com/tallystick-go/tallystick/governance/usage"
)

func bound(t testing.TB, row pricing.Row, s pricing.Shape) pricing.Bound {
	b, err := row.Bound(s)
	require.NoError(t, err)
	return b
}

func TestBoundGoldenVectors(t *testing.T) {
	c := realCatalogue(t, nil)
	text := pricing.Shape{InputTokens: 1000, Output: 100, TextInput: true, TextOutput: true}
	for _, k := range []struct {
		name, model string
		change      func(*pricing.Shape)
		tokens      amount.Tokens
		cost        amount.MicroUSD
	}{
		{"input and output", "gpt-4-0125-preview", func(*pricing.Shape) {}, 1100, 10_000 + 3000},
		{"cheaper cached input changes nothing", "gpt-4o", func(s *pricing.Shape) { s.ServiceTier = "default" }, 1100, 2500 + 1000},
		{"dearest lifetime, each token once", "claude-haiku-4-5", func(*pricing.Shape) {}, 1100, 2000 + 500},
		{"no cache writes", "claude-haiku-4-5", func(s *pricing.Shape) { s.NoCacheWrite = true }, 1100, 1000 + 500},
		{"n", "gpt-4o", func(s *pricing.Shape) { s.ServiceTier = "default"; s.N = 3 }, 1300, 2500 + 3000},
		{"prediction", "gpt-4o", func(s *pricing.Shape) { s.ServiceTier = "default"; s.Prediction = 50; s.N = 2 }, 1300, 2500 + 3000},
		{"model's maximum", "gpt-4o", func(s *pricing.Shape) { s.ServiceTier = "default"; s.Output = 0 }, 1000 + 16384, 2500 + 163_840},
		{"window", "gpt-4o", func(s *pricing.Shape) { s.ServiceTier = "default"; s.InputTokens = 0 }, 128_100, 320_000 + 1000},
		{"window cuts off", "gpt-4o", func(s *pricing.Shape) { s.ServiceTier = "default"; s.InputTokens = 1 << 30 }, 128_100, 320_000 + 1000},
		{"any tier", "gpt-5.6", func(*pricing.Shape) {}, 1100, 12_500 + 6000},
		{"named tier", "gpt-5.6", func(s *pricing.Shape) { s.ServiceTier = "default" }, 1100, 6250 + 3000},
		{"flex may be served as standard", "gpt-5.6", func(s *pricing.Shape) { s.ServiceTier = "flex" }, 1100, 6250 + 3000},
		{"G2: above the threshold", "gpt-5.4", func(s *pricing.Shape) { s.InputTokens, s.ServiceTier = 272_001, "default" }, 272_101, 1_360_005 + 2250},
		{"at the threshold", "gpt-5.4", func(s *pricing.Shape) { s.InputTokens, s.ServiceTier = 272_000, "default" }, 272_100, 680_000 + 1500},
		{"prices beyond the window: it does not cut off", "claude-sonnet-4-5", func(s *pricing.Shape) { s.InputTokens = 300_000 }, 300_100, 3_600_000 + 2250},
		{"fast", "claude-opus-4-6", func(s *pricing.Shape) { s.Speed, s.Geo = "fast", "global" }, 1100, 6 * (10_000 + 2500)},
		{"any region", "claude-opus-4-6", func(*pricing.Shape) {}, 1100, 11_000 + 2750},
		{"named region", "claude-opus-4-6", func(s *pricing.Shape) { s.Geo = "global" }, 1100, 10_000 + 2500},
		{"searches", "claude-sonnet-4-5", func(s *pricing.Shape) { s.WebSearches = 2 }, 1100, 7500 + 20_000},
		{"searches of any size", "gpt-4o-mini-2024-07-18", func(s *pricing.Shape) { s.WebSearches, s.Output, s.ServiceTier = 1, 1, "default" }, 1001, 150 + 1 + 30_000},
		{"audio", "gpt-4o-audio-preview", func(s *pricing.Shape) { s.TextInput, s.TextOutput = false, false }, 1100, 40_000 + 8000},
		{"audio model, text alone", "gpt-4o-audio-preview", func(*pricing.Shape) {}, 1100, 2500 + 1000},
		{"image model", "gemini-2.5-flash-image", func(*pricing.Shape) {}, 1100, 300 + 3000},
		{"embedding", "gemini-embedding-001", func(s *pricing.Shape) { s.Output = 5000 }, 1000, 150},
		{"embedding, window", "gemini-embedding-001", func(s *pricing.Shape) { s.InputTokens = 0 }, 2048, 308},
		{"embeddings, a window each", "gemini-embedding-001", func(s *pricing.Shape) { s.InputTokens, s.Inputs = 0, 100 }, 204_800, 30_720},
		{"embeddings cut off", "gemini-embedding-001", func(s *pricing.Shape) { s.InputTokens, s.Inputs = 1<<30, 2 }, 4096, 615},
		{"one embedding cut off", "gemini-embedding-001", func(s *pricing.Shape) { s.InputTokens = 50_000 }, 2048, 308},
		{"one prompt of a chat, whatever it says", "gpt-4o", func(s *pricing.Shape) { s.ServiceTier = "default"; s.InputTokens, s.Inputs = 0, 9 }, 128_100, 321_000},
		{"free", "deepseek-v3-2-251201", func(s *pricing.Shape) { s.TextInput = false }, 1100, 0},
	} {
		t.Run(k.name, func(t *testing.T) {
			s := text
			k.change(&s)
			require.Equal(t, pricing.Bound{Tokens: k.tokens, Cost: k.cost}, bound(t, price(t, c, k.model), s))
		})
	}
}

func TestBoundErrorsAreNeverZero(t *testing.T) {
	c := realCatalogue(t, nil)
	text := pricing.Shape{InputTokens: 1000, Output: 100, TextInput: true, TextOutput: true}
	for _, k := range []struct {
		name, model string
		change      func(*pricing.Shape)
		want        error
	}{
		{"negative input", "gpt-4o", func(s *pricing.Shape) { s.InputTokens = -1 }, pricing.ErrInvalid},
		{"negative output", "gpt-4o", func(s *pricing.Shape) { s.Output = -1 }, pricing.ErrInvalid},
		{"negative n", "gpt-4o", func(s *pricing.Shape) { s.N = -1 }, pricing.ErrInvalid},
		{"negative inputs", "gpt-4o", func(s *pricing.Shape) { s.Inputs = -1 }, pricing.ErrInvalid},
		{"inputs × window", "gemini-embedding-001", func(s *pricing.Shape) { s.InputTokens, s.Inputs = 0, math.MaxInt64 }, amount.ErrOverflow},
		{"negative prediction", "gpt-4o", func(s *pricing.Shape) { s.Prediction = -1 }, pricing.ErrInvalid},
		{"negative searches", "gpt-4o", func(s *pricing.Shape) { s.WebSearches = -1 }, pricing.ErrInvalid},
		{"replay P8: n × maximum", "gpt-4o", func(s *pricing.Shape) { s.Output, s.N = math.MaxInt64/2, 3 }, amount.ErrOverflow},
		{"input + output", "gpt-5.6", func(s *pricing.Shape) { s.Output, s.N = math.MaxInt64, 1 }, amount.ErrOverflow},
		{"prediction + output", "gpt-4o", func(s *pricing.Shape) { s.Output, s.Prediction = math.MaxInt64, 1 }, amount.ErrOverflow},
		{"cost", "gpt-4o", func(s *pricing.Shape) { s.Output = math.MaxInt64 / 2 }, amount.ErrOverflow},
		{"no window", "gpt-4o-mini-tts", func(s *pricing.Shape) { s.InputTokens = 0 }, pricing.ErrNoPrice},
		{"no maximum", "gpt-4o-mini-tts", func(s *pricing.Shape) { s.Output = 0 }, pricing.ErrNoPrice},
		{"tier without a price", "gpt-4o-2024-05-13", func(s *pricing.Shape) { s.ServiceTier = "turbo" }, pricing.ErrNoPrice},
		{"priority without a price", "gpt-4", func(s *pricing.Shape) { s.ServiceTier = "priority" }, pricing.ErrNoPrice},
		{"fast without a price", "gpt-4o", func(s *pricing.Shape) { s.Speed = "fast" }, pricing.ErrNoPrice},
		{"speed that nobody knows", "claude-opus-4-6", func(s *pricing.Shape) { s.Speed = "ludicrous" }, pricing.ErrNoPrice},
		{"searches without a fee", "gpt-4o", func(s *pricing.Shape) { s.WebSearches = 1 }, pricing.ErrNoPrice},
		{"hosted tools", "gpt-4o", func(s *pricing.Shape) { s.HostedTools = true }, pricing.ErrUnbounded},
		{"unknown fields", "gpt-4o", func(s *pricing.Shape) { s.UnknownFields = true }, pricing.ErrUnbounded},
		{"images by the piece", "gpt-realtime", func(s *pricing.Shape) { s.TextInput = false }, pricing.ErrUnbounded},
		{"video out", "gemini-omni-flash-preview", func(s *pricing.Shape) { s.TextOutput = false }, pricing.ErrUnbounded},
	} {
		t.Run(k.name, func(t *testing.T) {
			s := text
			k.change(&s)
			b, err := price(t, c, k.model).Bound(s)
			require.ErrorIs(t, err, k.want)
			require.Equal(t, pricing.Bound{}, b)
		})
	}
	_, err := pricing.Row{}.Bound(text)
	require.ErrorIs(t, err, pricing.ErrNoPrice)
}

func TestBoundOptions(t *testing.T) {
	s := pricing.Shape{InputTokens: 1000, Output: 100, TextInput: true, TextOutput: true}
	c := realCatalogue(t, &pricing.Options{AutoTier: "standard"})
	require.EqualValues(t, 6250+3000, bound(t, price(t, c, "gpt-5.6"), s).Cost)
	s.ServiceTier = "priority"
	require.EqualValues(t, 12_500+6000, bound(t, price(t, c, "gpt-5.6"), s).Cost)
	s.ServiceTier = ""

	c = realCatalogue(t, &pricing.Options{Region: "eu"})
	require.EqualValues(t, (12_500+6000)*11/10, bound(t, price(t, c, "gpt-5.6"), s).Cost)
	cost, _, err := price(t, c, "gpt-5.6").Cost(known(1000, 100))
	require.NoError(t, err)
	require.EqualValues(t, 8800, cost)

	c = realCatalogue(t, &pricing.Options{Bound: map[string]pricing.BoundBy{"*": pricing.BoundByContext, "gpt-4o": pricing.BoundByBytes}})
	require.EqualValues(t, 1100, bound(t, price(t, c, "gpt-4o"), s).Tokens)
	require.EqualValues(t, 8192+100, bound(t, price(t, c, "gpt-4"), s).Tokens)

	c = realCatalogue(t, &pricing.Options{Windows: map[string]int64{"claude-sonnet-4-5": 1_000_000}})
	row := price(t, c, "claude-sonnet-4-5")
	window, _ := row.ContextTokens()
	in, _ := row.MaxInput()
	require.EqualValues(t, []int64{1_000_000, 200_000}, []int64{window, in})
	s.InputTokens = 0
	require.EqualValues(t, 1_000_000*12+2250, bound(t, row, s).Cost)

	// Replays P4 and P5: a model is free if it is named, never because it is unknown.
	c = realCatalogue(t, &pricing.Options{Free: []string{"my-own-model", "gpt-4o"}})
	_, err = c.Price("my-other-model")
	require.ErrorIs(t, err, pricing.ErrNoPrice)
	for _, model := range []string{"my-own-model", "gpt-4o"} {
		s := pricing.Shape{InputTokens: 1000, Output: 100}
		require.True(t, price(t, c, model).Free())
		require.Equal(t, pricing.Bound{Tokens: 1100}, bound(t, price(t, c, model), s), "free of money, not of tokens")
	}
	require.False(t, price(t, realCatalogue(t, nil), "gpt-4o").Free())
}

func TestInputBound(t *testing.T) {
	require.EqualValues(t, 64, pricing.InputBound(nil, 0, 0))
	require.EqualValues(t, 100+64+3*16, pricing.InputBound(make([]byte, 100), 3, 0))
	require.EqualValues(t, 100+64+3*16+1024+2*64, pricing.InputBound(make([]byte, 100), 3, 2))
	require.EqualValues(t, 64, pricing.InputBound(nil, -5, -5))
}

// randomUsage makes a usage that fits the shape and the model's limits.
func randomUsage(r *rand.Rand, row pricing.Row, s pricing.Shape, tokens amount.Tokens) usage.Usage {
	n := max(s.N, 1)
	maxOut := s.Output
	if maxOut == 0 {
		maxOut, _ = row.MaxOutput()
	}
	maxOut = (maxOut + s.Prediction) * n
	maxIn := int64(tokens) - maxOut
	if _, embedding := row.MaxOutput(); embedding && maxIn < 0 {
		maxIn, maxOut = int64(tokens), 0
	}
	part := func(of int64) int64 {
		switch r.IntN(4) {
		case 0:
			return 0
		case 1:
			return of
		default:
			return r.Int64N(of + 1)
		}
	}
	left := part(maxIn)
	take := func() usage.Count {
		n := part(left)
		left -= n
		return usage.Of(n)
	}
	u := known(0, part(maxOut))
	u.CacheRead = take()
	if !s.NoCacheWrite {
		u.CacheWrite5m, u.CacheWrite1h, u.CacheWriteUnknownTTL = take(), take(), take()
	}
	u.Input = usage.Of(left)
	u.Reasoning = usage.Of(part(u.Output.N))
	if !s.TextInput {
		u.AudioInput = usage.Of(part(u.Input.N))
		u.ImageInput = usage.Of(part(u.Input.N - u.AudioInput.N))
	}
	u.AudioOutput, u.ImageOutput = usage.Of(0), usage.Of(part(u.Output.N-u.Reasoning.N))
	if !s.TextOutput {
		u.AudioOutput, u.ImageOutput = usage.Of(part(u.Output.N-u.Reasoning.N)), usage.Of(0)
	}
	u.ServiceTier = s.ServiceTier
	if s.ServiceTier == "" {
		u.ServiceTier = []string{"", "default", "priority", "flex", "batch", "scale"}[r.IntN(6)]
	}
	u.Speed, u.Geo = s.Speed, s.Geo
	if s.Geo == "" {
		u.Geo = []string{"", "us", "global", "eu"}[r.IntN(4)]
	}
	u.WebSearches = usage.Of(part(s.WebSearches))
	return u
}

func randomShape(r *rand.Rand) pricing.Shape {
	pick := func(n ...int64) int64 { return n[r.IntN(len(n))] }
	return pricing.Shape{
		InputTokens: pick(0, 1, 777, 100_000, 200_000, 200_001, 272_000, 272_001, 500_000, 3_000_000),
		Output:      pick(0, 1, 500, 100_000),
		N:           pick(0, 1, 2, 7),
		Inputs:      pick(0, 1, 5),
		Prediction:  pick(0, 0, 300),
		ServiceTier: []string{"", "", "default", "priority", "flex"}[r.IntN(5)],
		Speed:       []string{"", "", "", "fast"}[r.IntN(4)],
		Geo:         []string{"", "us", "global"}[r.IntN(3)],
		WebSearches: pick(0, 0, 0, 3),
		TextInput:   r.IntN(2) == 0, TextOutput: r.IntN(2) == 0, NoCacheWrite: r.IntN(2) == 0,
	}
}

// For every row of the real catalogue and every usage that fits inside the
// shape, the cost is at most the bound.
func TestCostIsWithinBound(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	knownCosts := 0
	for _, o := range []*pricing.Options{nil, {Region: "us", Bound: map[string]pricing.BoundBy{"*": pricing.BoundByContext}}} {
		c := realCatalogue(t, o)
		for _, model := range append(c.Models(), "us.anthropic.claude-opus-4-6-v1") {
			row := price(t, c, model)
			for range 200 {
				s := randomShape(r)
				b, err := row.Bound(s)
				if err != nil {
					continue
				}
				u := randomUsage(r, row, s, b.Tokens)
				total := u.Total()
				require.Equal(t, usage.Known, total.State)
				require.LessOrEqual(t, total.N, int64(b.Tokens), "%s %+v %+v", model, s, u)
				cost, state, err := row.Cost(u)
				require.NoError(t, err)
				require.NotEqual(t, usage.Invalid, state)
				if state == usage.Known {
					knownCosts++
					require.LessOrEqual(t, cost, b.Cost, "seed %d: %s %+v %+v", seed, model, s, u)
				}
			}
		}
	}
	require.Greater(t, knownCosts, 10_000, "the property was hardly tried")
}

// An oracle that shares nothing with the package: rationals, and the fields of
// the file looked up by name for each call.
func TestCostAgreesWithAnOracle(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	c, raw := realCatalogue(t, nil), rawEntries(t)
	compared := 0
	for _, model := range c.Models() {
		row, fields := price(t, c, model), raw[model]
		if row.Free() || fields["mode"] != "chat" && fields["mode"] != "responses" {
			continue
		}
		for range 50 {
			u := known(r.Int64N(300_000), r.Int64N(10_000))
			u.CacheRead = usage.Of(r.Int64N(100_000))
			if r.IntN(2) == 0 {
				u.CacheWrite5m, u.CacheWrite1h = usage.Of(r.Int64N(1000)), usage.Of(r.Int64N(1000))
			}
			want, ok := oracle(fields, u)
			cost, state, err := row.Cost(u)
			require.NoError(t, err)
			require.Equal(t, ok, state == usage.Known, "%s %+v", model, u)
			if ok {
				compared++
				require.Equal(t, want, int64(cost), "seed %d: %s %+v", seed, model, u)
			}
		}
	}
	require.Greater(t, compared, 3000)
}

func oracle(fields map[string]any, u usage.Usage) (int64, bool) {
	total := u.Input.N + u.CacheRead.N + u.CacheWrite5m.N + u.CacheWrite1h.N
	suffix := ""
	for name := range fields {
		var k int64
		if i := strings.Index(name, "_above_"); i >= 0 && !strings.HasSuffix(name, "_above_1hr") {
			name = strings.TrimPrefix(name[i:], "_above_1hr")
			if _, err := fmt.Sscanf(name, "_above_%dk_tokens", &k); err == nil && total > k*1000 {
				suffix = fmt.Sprintf("_above_%dk_tokens", k)
			}
		}
	}
	sum := new(big.Rat)
	ok := true
	add := func(n int64, names ...string) {
		if n == 0 {
			return
		}
		for _, name := range names {
			if literal, found := fields[name+suffix].(json.Number); found {
				p, _ := new(big.Rat).SetString(literal.String())
				sum.Add(sum, p.Mul(p, new(big.Rat).SetInt64(n)))
				return
			}
		}
		ok = false
	}
	add(u.Input.N, "input_cost_per_token")
	add(u.Output.N, "output_cost_per_token")
	add(u.CacheRead.N, "cache_read_input_token_cost", "input_cost_per_token")
	add(u.CacheWrite5m.N, "cache_creation_input_token_cost")
	add(u.CacheWrite1h.N, "cache_creation_input_token_cost_above_1hr")
	micro := sum.Mul(sum, new(big.Rat).SetInt64(1_000_000))
	q, rest := new(big.Int).QuoRem(micro.Num(), micro.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q.Int64(), ok
}
