package httpgov

import (
	"errors"
	"net/http"
	"slices"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/pricing"
	"github.com/tallystick-go/tallystick/governance/usage"
	"github.com/tallystick-go/tallystick/keys"
)

// inputOverhead is what a provider may add to one text that it embeds.
const inputOverhead = 16

// bound works out the most that the request may use, and captures the price.
//
// What cannot be bounded in money is refused under a money budget. Without one it
// may pass, with a cost that fits no budget: should an edit bring a budget before
// the request is admitted, it is refused after all.
//
// Source: internal/docs/guarantees.md "Not promised".
func (t *Transport) bound(p *plan, output int64) error {
	a, request := p.ask, &p.request
	unpriced, hosted := anyBut(a.unpriced, t.fields), anyBut(a.hosted, t.tools)
	budget := hasBudget(request.Principal) && !p.row.Free()
	switch {
	case budget && p.row.IsZero():
		return unpriceable("model", "has no price here, so no budget can cover it", pricing.ErrNoPrice)
	case budget && hosted:
		return unpriceable("tools", "include one that the provider runs and charges for, which no budget here can cover", pricing.ErrUnbounded)
	case budget && unpriced:
		return unpriceable("", "the body has a member that this gateway has no price for, so no budget can cover it", pricing.ErrUnbounded)
	}
	s := pricing.Shape{
		InputTokens: pricing.InputBound(a.doc, a.messages, a.tools),
		Output:      output, N: a.n, Prediction: a.prediction,
		ServiceTier: a.tier, Speed: a.speed, Geo: a.geo,
		TextInput: !a.mediaInput, TextOutput: !a.mediaOutput,
	}
	if a.window || unpriced || len(a.hosted) > 0 {
		s.InputTokens = 0
	}
	tokens, cost, err := p.most(s)
	switch {
	case err == nil && (hosted || unpriced):
		cost = governance.MaxCost
	case err == nil:
	case budget || !errors.Is(err, pricing.ErrNoPrice) && !errors.Is(err, pricing.ErrUnbounded):
		return p.boundError(err)
	default:
		// Only the price is missing, and nobody's budget depends on it.
		if tokens, err = p.tokensOnly(s); err != nil {
			return p.boundError(err)
		}
		cost = governance.MaxCost
	}
	if tokens > governance.MaxTokens || cost > governance.MaxCost {
		return bad("", "the request may use more than any limit allows")
	}
	request.Bound = governance.Bound{Tokens: tokens, Cost: cost}
	if p.row.Free() {
		request.Bound.Cost, request.Bound.Free = 0, true
	}
	if !p.row.IsZero() {
		if request.Price, err = p.row.MarshalBinary(); err != nil {
			return p.boundError(err)
		}
	}
	return nil
}

// most asks the price row. Texts to embed are bounded one by one, since each of
// them may fill a window.
func (p *plan) most(s pricing.Shape) (amount.Tokens, amount.MicroUSD, error) {
	if p.route.Protocol != usage.OpenAIEmbeddings || len(p.ask.inputs) == 0 {
		b, err := p.row.Bound(s)
		return b.Tokens, b.Cost, err
	}
	var sum pricing.Bound
	whole := s.InputTokens == 0
	for _, size := range p.ask.inputs {
		if s.InputTokens = size + inputOverhead; whole {
			s.InputTokens = 0
		}
		b, err := p.row.Bound(s)
		if err != nil {
			return 0, 0, err
		}
		if sum.Tokens, err = amount.Add(sum.Tokens, b.Tokens); err != nil {
			return 0, 0, err
		}
		if sum.Cost, err = amount.Add(sum.Cost, b.Cost); err != nil {
			return 0, 0, err
		}
	}
	return sum.Tokens, sum.Cost, nil
}

// tokensOnly bounds the tokens of a request whose price is not known.
func (p *plan) tokensOnly(s pricing.Shape) (amount.Tokens, error) {
	in, out := s.InputTokens, s.Output
	if in == 0 {
		window, ok := p.row.ContextTokens()
		if !ok {
			return 0, &pricing.MissingPriceError{Field: "max_input_tokens"}
		}
		var err error
		if in, err = amount.Mul(window, int64(max(len(p.ask.inputs), 1))); err != nil {
			return 0, err
		}
	}
	if p.route.Protocol == usage.OpenAIEmbeddings {
		return amount.Tokens(in), nil
	}
	if out == 0 {
		most, ok := p.row.MaxOutput()
		if !ok {
			return 0, &pricing.MissingPriceError{Field: "max_output_tokens"}
		}
		out = most
	}
	out, err := amount.Add(out, s.Prediction)
	if err != nil {
		return 0, err
	}
	if out, err = amount.Mul(out, s.N); err != nil {
		return 0, err
	}
	total, err := amount.Add(in, out)
	return amount.Tokens(total), err
}

// hasBudget reports whether money limits this principal.
func hasBudget(p *keys.Principal) bool {
	return p.Key.Limits.CostPerDay != nil || p.Key.Limits.CostPerMonth != nil ||
		p.Team.Limits.CostPerDay != nil || p.Team.Limits.CostPerMonth != nil
}

// anyBut reports whether a name is not among the allowed ones.
func anyBut(names []string, allowed map[string]bool) bool {
	return slices.ContainsFunc(names, func(name string) bool { return !allowed[name] })
}

// boundError says what the client can do about a missing bound.
func (p *plan) boundError(err error) error {
	var missing *pricing.MissingPriceError
	switch {
	case errors.As(err, &missing) && missing.Field == "max_output_tokens":
		return unpriceable(p.outputField(), "is missing, and this model has no maximum here; name one", err)
	case errors.As(err, &missing) && missing.Field == "max_input_tokens":
		return unpriceable("model", "has no context window here, and nothing else bounds this request; send text alone", err)
	case errors.As(err, &missing):
		return unpriceable("model", "has no price here for what the request asks", err)
	case errors.Is(err, pricing.ErrUnbounded):
		return unpriceable("model", "has no price here that bounds this request", err)
	}
	return &RequestError{Status: http.StatusBadRequest, Why: "the request may use more than can be counted", Err: err}
}

func unpriceable(field, why string, err error) error {
	return &RequestError{Status: http.StatusForbidden, Field: field, Why: why, Err: err}
}
