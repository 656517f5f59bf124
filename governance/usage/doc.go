// Package usage reads what a provider reported about one call: JSON bodies and
// streams of OpenAI, Anthropic and Amazon Bedrock, as a tri-state observation.
//
// Every number is [Known], [Unknown] or [Invalid]. Absent is not zero: an
// explicit zero settles at zero, a missing count settles nothing. Invalid is
// kept for what no convention can explain; what is merely ambiguous is Unknown.
//
// The conventions of the providers are resolved here, once. In a [Usage] the
// classes are disjoint: each input token is in exactly one of them.
//
//	OpenAI     prompt_tokens (input_tokens of a response) includes cached and cache-write
//	           tokens, completion_tokens (output_tokens) includes reasoning, audio and
//	           rejected predictions
//	Anthropic  input_tokens excludes cache reads and cache writes,
//	           output_tokens includes thinking
//	Bedrock    as Anthropic; totalTokens may or may not include the cached ones
//
// OpenAI does not report the calls of hosted tools that a response made, so their
// fees are not known here.
//
// # Rules for numbers
//
//	12           Known
//	absent       Unknown for prompt, completion, input and output counts. A break-down
//	             that the protocol makes optional (cached_tokens, cache_creation, ...)
//	             takes nothing out of its class when it is absent
//	null         the same as absent
//	-1           Invalid
//	1.5          Invalid: there is no half token
//	12.0, 1e3    Unknown: not how a count is written
//	"12", true   Unknown
//	> 2^63-1     Invalid
//	twice        a name that occurs twice in one object is Unknown
//
// # Rules for sums
//
//	a part above its whole       Invalid, Unknown where the total shows that the part
//	                             was counted beside the whole and not inside it
//	total = prompt + completion  the declared convention
//	  + reasoning                Known: reasoning is counted beside completion_tokens
//	  any larger                 Unknown: tokens that nobody named
//	  smaller                    Invalid, Unknown where leaving out the cached ones explains it
//	no total                     the declared convention
//
// Unknown members of an object are passed over, but a token count of an unknown
// kind that a provider breaks out is kept in [Usage.Other]: it may have a price
// of its own.
//
// Nothing here does I/O, keeps a clock or starts a goroutine.
//
// Source: internal/docs/guarantees.md "Nothing is refunded by accident".
package usage
