package pricing_test

import (
	"testing"

	"github.com/tallystick-go/tallystick/governance/pricing"
	"github.com/tallystick-go/tallystick/governance/usage"
)

func BenchmarkBound(b *testing.B) {
	row := price(b, realCatalogue(b, nil), "gpt-5.6")
	s := pricing.Shape{InputTokens: 5000, Output: 1000, TextInput: true, TextOutput: true}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := row.Bound(s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCost(b *testing.B) {
	row := price(b, realCatalogue(b, nil), "claude-sonnet-4-5")
	u := with(known(5000, 1000), func(u *usage.Usage) { u.CacheRead, u.CacheWrite5m = usage.Of(20_000), usage.Of(500) })
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := row.Cost(u); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPrice(b *testing.B) {
	c := realCatalogue(b, nil)
	for _, name := range []string{"gpt-5.6", "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Price(name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendBinary(b *testing.B) {
	row := price(b, realCatalogue(b, nil), "gpt-5.6")
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = row.AppendBinary(buf[:0])
	}
}

func BenchmarkUnmarshalBinary(b *testing.B) {
	enc, _ := price(b, realCatalogue(b, nil), "gpt-5.6").MarshalBinary()
	b.ReportAllocs()
	for b.Loop() {
		var row pricing.Row
		if err := row.UnmarshalBinary(enc); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	path := realFile(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := pricing.LoadLiteLLM(path); err != nil {
			b.Fatal(err)
		}
	}
}
