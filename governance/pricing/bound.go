package pricing

import (
	"fmt"

	"github.com/tallystick-go/tallystick/governance/amount"
)

// Shape is what is known of a request before it is sent. The zero value of
// each field but N and Inputs is the careful one.
type Shape struct {
	// InputTokens is an upper bound on the whole input, such as [InputBound]; 0
	// means that there is none and takes the model's context window: images,
	// files, stored prompts, earlier responses.
	InputTokens int64
	// Inputs is the number of texts that a request for embeddings holds; 0 means
	// one. Each of them may fill the window, so a list must say how long it is.
	Inputs int64
	// Output is the most tokens that the request asks for in one answer; 0 means
	// that it does not say and takes the model's maximum.
	Output int64
	// N is the number of answers that the request asks for; 0 means one.
	N int64
	// Prediction bounds the predicted text of a request; what does not match is
	// charged as output.
	Prediction int64

	ServiceTier string // as requested; empty and "auto": any that the model has, but see Options.AutoTier
	Speed       string // as requested: "", "standard", "fast"
	Geo         string // as requested (inference_geo); empty: any that the model has
	WebSearches int64  // the most searches that the request allows

	TextInput    bool // nothing but text goes in
	TextOutput   bool // nothing but text is asked for
	NoCacheWrite bool // nothing of the request can be written to a cache

	// HostedTools says that the provider runs tools of its own, UnknownFields that
	// the request has fields whose price is not known. Neither has a bound. A
	// caller that is configured to let them pass clears the flag.
	HostedTools   bool
	UnknownFields bool
}

// Bound is the most that one attempt may use.
type Bound struct {
	Tokens amount.Tokens
	Cost   amount.MicroUSD
}

// Bound returns the most that a request of the shape can use. Each input token
// is priced once, at the dearest class that it can fall in: cache reads and
// writes of every lifetime, service tiers and long-context prices included.
// Output is priced at its dearest class, times N.
//
// For every usage that fits the shape and has a known cost, [Row.Cost] is at
// most Bound.Cost. The context window cuts a larger InputTokens off where no
// price of the model reaches beyond it.
//
// Units: microUSD, rounded up once.
// Concurrency: safe; no allocation.
// Errors: *MissingPriceError (ErrNoPrice) names the missing price or window,
// *UnboundedError (ErrUnbounded), ErrInvalid, amount.ErrOverflow. An error is
// never a bound of zero.
// Source: internal/docs/architecture.md "Units".
func (r Row) Bound(s Shape) (Bound, error) {
	t := r.t
	if t == nil {
		return Bound{}, fmt.Errorf("%w: the zero Row bounds nothing", ErrNoPrice)
	}
	if s.InputTokens < 0 || s.Output < 0 || s.N < 0 || s.Inputs < 0 || s.Prediction < 0 || s.WebSearches < 0 {
		return Bound{}, fmt.Errorf("%w: negative numbers in a Shape", ErrInvalid)
	}
	if err := t.boundable(s); err != nil {
		return Bound{}, err
	}
	in, err := t.inputBound(s)
	if err != nil {
		return Bound{}, err
	}
	out, err := t.outputBound(s)
	if err != nil {
		return Bound{}, err
	}
	tokens, err := amount.Add(amount.Tokens(in), amount.Tokens(out))
	if err != nil {
		return Bound{}, err
	}
	b := Bound{Tokens: tokens}
	if t.flags&flagFree == 0 {
		b.Cost, err = t.costBound(s, in, out)
	}
	if err != nil {
		return Bound{}, err
	}
	return b, nil
}

func (t *table) boundable(s Shape) error {
	reason := ""
	switch {
	case s.HostedTools:
		reason = "it uses hosted tools, which add input and fees of their own"
	case s.UnknownFields:
		reason = "it has fields whose price is not known"
	case !s.TextInput && t.unpriced&mediaIn != 0 && t.flags&flagFree == 0:
		reason = "it is not text alone and the model charges input in a unit that tokens do not give"
	case !s.TextOutput && t.unpriced&mediaOut != 0 && t.flags&flagFree == 0:
		reason = "it may ask for other than text and the model charges output in a unit that tokens do not give"
	default:
		return nil
	}
	return &UnboundedError{t.model, reason}
}

func (t *table) inputBound(s Shape) (int64, error) {
	in := s.InputTokens
	if in == 0 || t.flags&flagContext != 0 {
		if t.window == 0 {
			return 0, &MissingPriceError{Model: t.model, Field: "max_input_tokens"}
		}
		return t.windows(s)
	}
	n := len(t.steps)
	beyond := n > 0 && t.steps[n-1] >= t.window // the catalogue itself says that more can go in
	if t.window == 0 || beyond {
		return in, nil
	}
	window, err := t.windows(s)
	if err != nil {
		return in, nil // more windows than can be counted cut nothing off
	}
	return min(in, window), nil
}

// windows returns the context window, once for each text to embed.
func (t *table) windows(s Shape) (int64, error) {
	if t.flags&flagNoOutput == 0 {
		return t.window, nil
	}
	return amount.Mul(t.window, max(s.Inputs, 1))
}

func (t *table) outputBound(s Shape) (int64, error) {
	if t.flags&flagNoOutput != 0 {
		return 0, nil
	}
	out := s.Output
	if out == 0 {
		out = t.maxOutput
	}
	if out == 0 {
		return 0, &MissingPriceError{Model: t.model, Field: "max_output_tokens"}
	}
	out, err := amount.Add(out, s.Prediction)
	if err != nil {
		return 0, err
	}
	return amount.Mul(out, max(s.N, 1))
}

func (t *table) costBound(s Shape, in, out int64) (amount.MicroUSD, error) {
	first, last, err := t.tierRange(s.ServiceTier)
	if err != nil {
		return 0, err
	}
	fast, err := t.speed(s.Speed)
	if err != nil {
		return 0, err
	}
	step := t.step(in)
	var dearIn, dearOut uint64
	for tr := first; tr <= last; tr++ {
		c := &t.ceil[t.at(tr, step)]
		dearIn = max(dearIn, c.input(s.TextInput, s.NoCacheWrite))
		if s.TextOutput && t.flags&flagMedia == 0 {
			dearOut = max(dearOut, c.textOut)
		} else {
			dearOut = max(dearOut, c.mediaOut)
		}
	}
	sum, ok1 := u128{}.addMul(dearIn, uint64(in))
	sum, ok2 := sum.addMul(dearOut, uint64(out))
	fees, err := t.searchBound(s.WebSearches)
	if err != nil {
		return 0, err
	}
	if !ok1 || !ok2 {
		return 0, amount.ErrOverflow
	}
	return t.charge(sum, fees, t.region, fast, t.geoBound(s.Geo))
}

func (c *ceilings) input(text, noWrite bool) uint64 {
	switch {
	case text && noWrite:
		return c.text
	case text:
		return c.textWrite
	case noWrite:
		return c.media
	default:
		return c.mediaWrite
	}
}

// tierRange returns the tiers in which a request may be served. Every one of
// them includes the standard tier.
func (t *table) tierRange(name string) (first, last tier, err error) {
	switch name {
	case "", "auto":
		if t.flags&flagAutoStandard == 0 {
			return standard, tiers - 1, nil
		}
		return standard, standard, nil
	}
	tr, ok := t.tierNamed(name)
	if !ok {
		return 0, 0, &MissingPriceError{Model: t.model, Field: "price for service tier " + fmt.Sprintf("%.32q", name)}
	}
	if _, ok := t.rates[t.at(tr, 0)].get(input); !ok {
		return 0, 0, &MissingPriceError{Model: t.model, Field: fieldOf(input, tr, 0)}
	}
	return tr, tr, nil
}

// tierNamed returns the tier that a provider means by a name.
func (t *table) tierNamed(name string) (tier, bool) {
	switch name {
	case "", "auto", "default", "standard", "standard_only":
		return standard, true
	case "priority":
		if t.flags&flagCapacity != 0 && !t.tierOf[priority] {
			return standard, true
		}
		return priority, true
	case "flex":
		return flex, true
	case "batch":
		return batch, true
	default:
		return standard, false
	}
}

func (t *table) speed(name string) (uint64, error) {
	switch name {
	case "", "standard":
		return 0, nil
	case "fast":
		if t.fast != 0 {
			return t.fast, nil
		}
	}
	return 0, &MissingPriceError{Model: t.model, Field: "price for speed " + fmt.Sprintf("%.32q", name)}
}

// geoBound returns the dearest multiplier of the regions that may serve.
func (t *table) geoBound(name string) uint64 {
	if t.pinned != 0 {
		return t.pinned
	}
	dearest := uint64(one)
	for _, g := range t.geos {
		if name == "" || name == g.name {
			dearest = max(dearest, g.multiplier)
		}
	}
	return dearest
}

func (t *table) searchBound(n int64) (u128, error) {
	if n == 0 {
		return u128{}, nil
	}
	if !t.searches {
		return u128{}, &MissingPriceError{Model: t.model, Field: searchFee}
	}
	fees, _ := u128{}.addMul(max(t.search[0], t.search[1], t.search[2]), uint64(n))
	return fees, nil
}

// What a provider adds to a request beyond the text of its body, in tokens:
// roles and separators, and the instructions that come with tools. The
// measured figures are 3 to 10 a message and up to 804 once a request has
// tools; these leave room.
const (
	requestOverhead = 64
	messageOverhead = 16
	toolPrompt      = 1024
	toolOverhead    = 64
)

// InputBound returns an upper bound on the input tokens of a text-only request
// with known fields: a token stands for at least one byte of text, and JSON
// never makes text shorter. body is the decoded body, uncompressed.
//
//	len(body) + 64 + 16 × messages + (1024 + 64 × tools, if there are any)
//
// It does not hold for anything that the body only refers to: images, files,
// stored prompts, earlier responses, hosted tools.
//
// Units: tokens.
// Source: internal/docs/architecture.md "Units".
func InputBound(body []byte, messages, tools int) int64 {
	n := int64(len(body)) + requestOverhead + messageOverhead*int64(max(messages, 0))
	if tools > 0 {
		n += toolPrompt + toolOverhead*int64(tools)
	}
	return n
}
