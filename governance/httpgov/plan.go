package httpgov

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/pricing"
	"github.com/tallystick-go/tallystick/governance/usage"
	"github.com/tallystick-go/tallystick/keys"
)

// plan is what is about to be admitted and sent.
type plan struct {
	route     Route
	ask       *ask
	selection Selection
	row       pricing.Row // zero: the model has no price
	request   governance.Request
	body      []byte
	strip     bool  // the usage chunk is ours, not the client's
	unpriced  error // why nothing bounds the cost; nil: something does
}

// plan reads a request and works out the most that it may use. Nothing is
// reserved or sent.
//
// Errors: *RequestError, *governance.Refusal, *passError; those of FreshPrincipal.
func (t *Transport) plan(r *http.Request, route Route, principal *keys.Principal) (*plan, error) {
	body, err := readBody(r, cmp.Or(t.MaxBody, DefaultMaxBody))
	if err != nil {
		return nil, err
	}
	p := &plan{route: route}
	if p.ask, err = parseAsk(route.Protocol, r, body); err != nil {
		return nil, err
	}
	if err := t.choose(r, p); err != nil {
		return nil, err
	}
	s := p.selection
	p.request = governance.Request{Principal: principal, Model: s.Model, Region: s.Region, Guardrail: s.Guardrail, Route: s.Route}
	if !principal.AllowsModel(s.Model) {
		if p.request.Principal, err = widened(r.Context(), principal, s.Model); err != nil {
			return nil, err
		}
	}
	e := editor{ask: p.ask}
	p.guard(&e)
	output := p.output(&e)
	if err := t.bound(p, output); err != nil {
		return nil, err
	}
	if p.ask.stream && route.Protocol == usage.OpenAIChat && !p.ask.usageAsked && !s.NoStreamUsage {
		p.strip = true
		e.askUsage()
	}
	p.body = e.apply()
	return p, nil
}

// widened reads anew who is calling, where what is known of the caller refuses a model: a cache may be older than
// the edit that allows it, and nothing that is refused here comes to an admission, which would notice.
//
// Errors: *governance.Refusal; those of FreshPrincipal but for ErrNoPrincipal.
func widened(ctx context.Context, known *keys.Principal, model string) (*keys.Principal, error) {
	fresh, err := FreshPrincipal(ctx)
	if errors.Is(err, ErrNoPrincipal) { // there is no way to ask
		fresh, err = known, nil
	}
	if err == nil && !fresh.AllowsModel(model) {
		err = &governance.Refusal{Reason: governance.ReasonModel}
	}
	return fresh, err
}

// choose asks routing, and looks the price up.
func (t *Transport) choose(r *http.Request, p *plan) error {
	s := &p.selection
	if t.Select != nil {
		var err error
		if *s, err = t.Select(r, p.ask.model); err != nil {
			return selectError(err)
		}
	}
	s.Model = cmp.Or(s.Model, p.ask.model)
	s.Price = cmp.Or(s.Price, s.Model)
	s.OutputField = cmp.Or(s.OutputField, "max_completion_tokens")
	if s.OutputField != "max_completion_tokens" && s.OutputField != "max_tokens" {
		return &passError{errOutputField}
	}
	if t.Prices == nil {
		return nil
	}
	if row, err := t.Prices.Price(s.Price); err == nil {
		p.row = row // else the model has no price, which is not an error yet
	}
	return nil
}

var errOutputField = errors.New("httpgov: Selection.OutputField must be max_tokens or max_completion_tokens")

// selectError keeps what the client can be told, and passes the rest on.
func selectError(err error) error {
	var request *RequestError
	var refusal *governance.Refusal
	if errors.As(err, &request) || errors.As(err, &refusal) {
		return err
	}
	return &passError{err}
}

// output returns the most tokens of one answer, 0 for the model's own maximum. A
// default is put into the request, so that it binds the provider too.
func (p *plan) output(e *editor) int64 {
	if p.ask.output > 0 || p.route.Protocol == usage.OpenAIEmbeddings {
		return max(p.ask.output, 0)
	}
	n, ok := p.request.Principal.DefaultMaxTokens()
	if !ok || n < 1 || p.ask.prediction > 0 { // a prediction and a maximum do not go together
		return 0
	}
	if p.route.Protocol == usage.BedrockInvoke && !p.ask.native {
		return 0 // nobody knows where this vendor has it
	}
	if most, ok := p.row.MaxOutput(); ok && most > 0 {
		n = min(n, most)
	}
	if p.route.Protocol == usage.BedrockConverse {
		e.setMaxTokens(n)
	} else {
		e.set(p.outputField(), n)
	}
	return n
}

// outputField is the member in which the request has the maximum of its output.
func (p *plan) outputField() string {
	switch p.route.Protocol {
	case usage.OpenAIChat:
		return p.selection.OutputField
	case usage.OpenAIResponses:
		return "max_output_tokens"
	case usage.BedrockConverse:
		return maxTokensField
	}
	return "max_tokens"
}

// guard puts the guardrail that routing chose into a request to Bedrock, in the
// place of any that the client chose.
func (p *plan) guard(e *editor) {
	s := p.selection
	if s.GuardrailID == "" {
		return
	}
	p.ask.unpriced = slices.DeleteFunc(p.ask.unpriced, func(name string) bool { return name == guardrailField })
	if p.route.Protocol == usage.BedrockConverse {
		e.replace(guardrailField, p.ask.guardrail, []byte(`{"guardrailIdentifier":`+string(quoted(s.GuardrailID))+
			`,"guardrailVersion":`+string(quoted(s.GuardrailVersion))+`}`))
	}
}

// header finishes the header of a request that is about to be sent: what only an
// invoke says there, others do not.
func (p *plan) header(h http.Header) {
	if p.route.Protocol != usage.BedrockInvoke {
		for _, name := range []string{tierHeader, latencyHeader, guardrailHeader, guardrailVersionHeader} {
			h.Del(name)
		}
		return
	}
	if p.selection.GuardrailID != "" {
		h.Set(guardrailHeader, p.selection.GuardrailID)
		h.Set(guardrailVersionHeader, p.selection.GuardrailVersion)
	}
}

// explain says more of a refusal for money that nothing bounds: what of the request it is.
func (p *plan) explain(err error) error {
	var refusal *governance.Refusal
	var why *RequestError
	if !errors.As(err, &refusal) || refusal.Reason != governance.ReasonUnpriced || !errors.As(p.unpriced, &why) {
		return err
	}
	said := *why
	said.Err = errors.Join(why.Err, err)
	return &said
}
