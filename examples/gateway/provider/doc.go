// Package provider is an LLM provider that needs no account: it speaks the wire
// formats of OpenAI (chat completions, responses, embeddings, models), Anthropic
// (messages, count_tokens) and Amazon Bedrock (converse and invoke), plain and streamed, with their usage reports and
// their errors, and what it answers depends on the request alone.
//
// A prompt or a model steers it with a directive in double braces:
//
//	{{provider: tokens=40 cached=1000 slow=200ms}}
//
// See [Directives] for what there is. Nothing it says has a meaning; what matters
// is that a gateway in front of it meets everything that a real one would send.
package provider
