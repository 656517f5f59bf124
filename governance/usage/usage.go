package usage

import "math"

// State says how far a number can be trusted.
type State uint8

const (
	// Unknown means not reported, or reported in a way that has several
	// readings. It is the zero value, because absent is not zero.
	Unknown State = iota
	// Known means reported and consistent.
	Known
	// Invalid means that no convention explains what was reported. It freezes
	// the accounts concerned.
	Invalid
)

// String returns "unknown", "known" or "invalid".
func (s State) String() string {
	switch s {
	case Known:
		return "known"
	case Invalid:
		return "invalid"
	default:
		return "unknown"
	}
}

// worse returns the less trustworthy of two states.
func worse(a, b State) State {
	if a == Invalid || b == Invalid {
		return Invalid
	}
	if a == Known && b == Known {
		return Known
	}
	return Unknown
}

// Count is a reported number. N of a count that is not Known is what was
// observed, never an amount to charge.
type Count struct {
	State State
	N     int64
}

// Of returns a Known count; a negative one is Invalid.
func Of(n int64) Count {
	if n < 0 {
		return Count{State: Invalid}
	}
	return Count{State: Known, N: n}
}

// Usage is what a provider reported about one attempt, conventions resolved.
// The zero value is wholly unknown. Values can be compared with ==.
//
// Units: all counts are tokens, but WebSearches and OtherTools, which are calls.
// Source: internal/docs/guarantees.md "Nothing is refunded by accident".
type Usage struct {
	// Disjoint classes: their sum is what the call used.
	Input                Count // read fresh, neither from nor into a cache
	CacheRead            Count // read from a cache
	CacheWrite5m         Count // written for the provider's default lifetime
	CacheWrite1h         Count // written for the provider's long lifetime
	CacheWriteUnknownTTL Count // written, lifetime not reported: tokens known, price not
	Output               Count // everything generated, reasoning included

	// Parts of the classes, never added to them. Unknown where not broken out.
	Reasoning          Count // of Output
	AudioInput         Count // of all input classes together
	ImageInput         Count // of all input classes together
	AudioOutput        Count // of Output
	ImageOutput        Count // of Output
	PredictionAccepted Count // of Output
	PredictionRejected Count // of Output
	Other              Count // of Input or Output: kinds this package does not know

	// Work the provider did beside generating, charged by the call.
	WebSearches Count
	OtherTools  Count

	Model       string // as reported
	ServiceTier string // as reported: "default", "priority", "flex", "batch", ...
	Speed       string // as reported by Anthropic ("standard", "fast") or Bedrock ("standard", "optimized")
	Geo         string // as reported by Anthropic (inference_geo)

	// Complete says that the provider's final report was seen: a whole JSON
	// body, or a stream up to its final usage.
	Complete bool
}

// Total returns the tokens that count against rates and quotas: all input
// classes and the output, each token once.
//
// The state is that of [Usage.State]. When it is not Known, N is what was
// observed. A sum above 63 bits is Invalid with N zero.
func (u Usage) Total() Count {
	state := Unknown
	if u.Complete {
		state = Known
	}
	var sum int64
	for _, c := range [...]Count{u.Input, u.CacheRead, u.CacheWrite5m, u.CacheWrite1h, u.CacheWriteUnknownTTL, u.Output} {
		state = worse(state, c.State)
		if c.N < 0 || c.N > math.MaxInt64-sum {
			return Count{State: Invalid}
		}
		sum += c.N
	}
	return Count{State: state, N: sum}
}

// State is Known only if the report is complete and every class is known,
// Invalid if any of it is impossible under every convention, else Unknown.
// Parts, tool calls and Other do not matter here: they change a price, not the
// number of tokens.
func (u Usage) State() State { return u.Total().State }

// Protocol is the wire format in which a provider answered.
type Protocol uint8

const (
	// OpenAIChat is OpenAI's chat completions and the many APIs shaped like it.
	OpenAIChat Protocol = iota + 1
	// OpenAIEmbeddings is OpenAI's embeddings: input only.
	OpenAIEmbeddings
	// AnthropicMessages is Anthropic's messages.
	AnthropicMessages
	// OpenAIResponses is OpenAI's responses.
	OpenAIResponses
	// BedrockConverse is the one format that Amazon Bedrock has for all its models.
	BedrockConverse
	// BedrockInvoke is Amazon Bedrock's invoke: the model's own format, read where it
	// is Anthropic's, with Bedrock's own count beside it.
	BedrockInvoke
)

// String returns the name in lower case, such as "openai-chat".
func (p Protocol) String() string {
	switch p {
	case OpenAIChat:
		return "openai-chat"
	case OpenAIEmbeddings:
		return "openai-embeddings"
	case AnthropicMessages:
		return "anthropic-messages"
	case OpenAIResponses:
		return "openai-responses"
	case BedrockConverse:
		return "bedrock-converse"
	case BedrockInvoke:
		return "bedrock-invoke"
	default:
		return "unknown protocol"
	}
}
