package httpgov

import (
	"errors"
	"net/http"
	"slices"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/pricing"
	"github.com/tallystick-go/tallystick/governance/usage"
)

// inputOverhead is what a provider may add to one text that it embeds.
const inputOverhead = 16

// bound works out the most that the request may use, and captures the price.
//
// What cannot be bounded in money passes where no money is limited. Whether any is, by a
// limit of the key or its team or by a policy, hard or soft, is known under the locks
// alone: the bound says so, and the plan keeps what the client is told if it is refused.
//
// Source: design "Bounds that let people work".
func (t *Transport) bound(p *plan, output int64) error {
	a, request := p.ask, &p.request
	unpriced, hosted := anyBut(a.unpriced, t.fields), anyBut(a.hosted, t.tools)
	if t.OneAnswer && a.n > 1 {
		return bad("n", "must be 1 here: one call is one answer")
	}
	s := pricing.Shape{
		InputTokens: pricing.InputBound(a.doc, a.messages, a.tools),
		Output:      output, N: a.n, Prediction: a.prediction,
		ServiceTier: a.tier, Speed: a.speed, Geo: a.geo,
		TextInput: !a.mediaInput, TextOutput: !a.mediaOutput,
	}
	if a.window || unpriced || len(a.hosted) > 0 || t.ContextBound {
		s.InputTokens = 0
	}
	tokens, cost, err := p.most(s)
	switch {
	case p.row.Free():
	case p.row.IsZero():
		p.unpriced = unpriceable("model", "has no price here, so no budget can cover it", pricing.ErrNoPrice)
	case hosted:
		p.unpriced = unpriceable("tools", "include one that the provider runs and charges for, which no budget here can cover", pricing.ErrUnbounded)
	case unpriced:
		p.unpriced = unpriceable("", "the body has a member that this gateway has no price for, so no budget can cover it", pricing.ErrUnbounded)
	case err != nil:
		p.unpriced = p.boundError(err)
	}
	switch {
	case err == nil:
	case errors.Is(err, pricing.ErrNoPrice), errors.Is(err, pricing.ErrUnbounded):
		if tokens, err = p.tokensOnly(s); err != nil {
			return p.boundError(err)
		}
	default:
		return p.boundError(err)
	}
	if tokens > governance.MaxTokens || cost > governance.MaxCost {
		return bad("", "the request may use more than any limit allows")
	}
	request.Bound = governance.Bound{Tokens: tokens, Cost: cost, Free: p.row.Free(), Unpriced: p.unpriced != nil}
	if request.Bound.Free || request.Bound.Unpriced {
		request.Bound.Cost = 0
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
