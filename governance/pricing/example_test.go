package pricing_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tallystick-go/tallystick/governance/pricing"
	"github.com/tallystick-go/tallystick/governance/usage"
)

func Example() {
	c, err := pricing.Bundled()
	if err != nil {
		panic(err)
	}
	row, err := c.Price("demo-small")
	if err != nil {
		panic(err)
	}
	body := []byte(`{"model":"demo-small","max_tokens":200,"messages":[{"role":"user","content":"Hello"}]}`)
	bound, err := row.Bound(pricing.Shape{InputTokens: pricing.InputBound(body, 1, 0), Output: 200, TextInput: true, TextOutput: true})
	if err != nil {
		panic(err)
	}
	fmt.Println("at most", bound.Tokens, "tokens,", bound.Cost)

	captured, _ := row.MarshalBinary() // kept with the permit

	u, _ := usage.FromJSON(usage.OpenAIChat, []byte(`{"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}`))
	var settled pricing.Row
	if err := settled.UnmarshalBinary(captured); err != nil {
		panic(err)
	}
	cost, state, err := settled.Cost(u)
	fmt.Println(state, cost, err)
	// Output:
	// at most 366 tokens, $0.000732
	// known $0.000033 <nil>
}

func ExampleCatalogue_Price() {
	c, _ := pricing.Bundled()
	for _, model := range []string{"openai/gpt-4o-mini", "us.anthropic.claude-haiku-4-5-v1:0", "demo-free", "demo-fre"} {
		row, err := c.Price(model)
		if errors.Is(err, pricing.ErrNoPrice) {
			fmt.Println(err)
			continue
		}
		fmt.Println(row.Model(), "free:", row.Free())
	}
	// Output:
	// gpt-4o-mini free: false
	// claude-haiku-4-5 free: false
	// demo-free free: true
	// pricing: model "demo-fre" is not in the catalogue: add it, an alias, or name it free
}

func ExampleParseLiteLLM() {
	_, report, err := pricing.ParseLiteLLM(strings.NewReader(`{
		"house-model": {"mode": "chat", "input_cost_per_token": 1.5e-07, "output_cost_per_token": 6e-07, "max_input_tokens": 32768, "max_output_tokens": 4096, "input_cost_per_image": 0.001},
		"reranker": {"mode": "rerank", "input_cost_per_query": 0.002}
	}`), nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(report.Priced, "of", report.Entries)
	for _, f := range report.Findings {
		fmt.Println(f)
	}
	// Output:
	// 1 of 2
	// refused: "reranker": mode: calls of mode "rerank" are not charged by tokens alone
	// unpriced: "house-model": input_cost_per_image: images are not in a token count
}
