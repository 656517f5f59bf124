package usage

import "fmt"

// FromJSON reads the usage out of one whole response body.
//
// A body without usage, such as an error, is wholly unknown and no error. Bytes
// that are not one whole JSON object, or more than one object, give
// [ErrSyntax]: part of an answer proves nothing about its end. A caller that
// only settles may ignore the error, the usage is unknown then.
//
// Concurrency: safe; body is not kept.
// Errors: ErrSyntax, ErrProtocol.
// Source: internal/docs/guarantees.md "Nothing is refunded by accident".
func FromJSON(p Protocol, body []byte) (Usage, error) {
	b := response{protocol: p}
	if !p.known() {
		return Usage{}, fmt.Errorf("%w: %d", ErrProtocol, p)
	}
	if !members(body, b.member) {
		return Usage{}, fmt.Errorf("%w (%d bytes)", ErrSyntax, len(body))
	}
	u := b.usage()
	u.Complete = true
	return u, nil
}

func (p Protocol) known() bool { return p >= OpenAIChat && p <= BedrockInvoke }

// framed reports whether streams come in AWS's event-stream encoding.
func (p Protocol) framed() bool { return p == BedrockConverse || p == BedrockInvoke }

// disjoint reports whether the classes of input are reported apart.
func (p Protocol) disjoint() bool { return p == AnthropicMessages || p.framed() }

// response is a body while it is read.
type response struct {
	protocol    Protocol
	given       bool // a usage object
	doubtful    bool // a second one, or no object
	openai      openaiReport
	anthropic   anthropicReport
	model, tier string
	speed       string // Converse
}

func (b *response) member(name, value []byte) {
	switch string(name) {
	case "usage":
		if isNull(value) {
			return
		}
		b.doubtful = b.doubtful || b.given || !isObject(value)
		b.given = true
		switch b.protocol {
		case AnthropicMessages, BedrockInvoke:
			b.anthropic = parseAnthropic(value)
		case BedrockConverse:
			b.anthropic = parseConverse(value)
		case OpenAIResponses:
			b.openai = parseResponses(value)
		default:
			b.openai = parseOpenAI(value)
		}
	case "model":
		b.model = label(value, maxModel)
	case "service_tier":
		b.tier = label(value, maxLabel)
	case "serviceTier":
		b.tier = typed(value, "type")
	case "performanceConfig":
		b.speed = typed(value, "latency")
	}
}

func (b *response) usage() Usage {
	u := Usage{}
	switch {
	case !b.given:
	case b.protocol.disjoint():
		u = b.anthropic.resolve()
	default:
		u = b.openai.resolve(b.protocol)
	}
	if b.doubtful {
		u.doubt(Unknown)
	}
	u.Model = b.model
	if u.ServiceTier == "" {
		u.ServiceTier = b.tier
	}
	if u.Speed == "" {
		u.Speed = b.speed
	}
	return u
}
