// Package httpgov puts governance in front of an LLM API that is reached through
// net/http. It is two pieces that fit any Go proxy:
//
//   - [Middleware] says who is calling: a token becomes a principal in the
//     request's context. No principal, no call.
//   - [Transport] is an http.RoundTripper. It works out the most that a request may
//     use, reserves it, forwards the request, and settles by what came back: one
//     reservation for each provider attempt.
//
// Around httputil.ReverseProxy that is
//
//	proxy := httputil.NewSingleHostReverseProxy(upstream)
//	proxy.Transport = &httpgov.Transport{Governor: gov, Prices: prices, Credentials: setProviderKey}
//	http.ListenAndServe(":8080", httpgov.Middleware(proxy, keys, nil))
//
// # What happens to a request
//
// Its path picks a [Route], and for Bedrock the model; what no route knows is refused, so nothing passes
// ungoverned by accident. Its body is decoded and read strictly: a member that
// occurs twice, or is known in other letters, could mean one thing here and
// another to the provider. From what it asks for follows a bound: text is bounded
// by its length, anything else by the context window, output by the requested
// maximum, else by the key's or team's default, which is then put into the
// request, else by the model's own. What has no bound in money is refused
// where money is limited, be it by a policy that only meters: nothing says what to count.
//
// The client's key, its Idempotency-Key and the headers of its connection are
// taken out and the provider's key put in. The body can be sent once only, so that
// net/http cannot repeat it under one permit. A connection that proves to have
// been closed while it was idle is replaced, since nothing was sent.
//
// # What happens to an answer
//
// It is relayed as it comes and observed while it passes; nothing is buffered but
// one event of a stream whose usage chunk is kept back, because the client did not
// ask for it. The outcome is recorded before the client sees the end, so that its
// next request does not meet its own reservation. When the client leaves, the
// provider is read on for a bounded time to learn what it used.
//
// # What proves that nothing was used
//
//	no connection, failed TLS, or a body of which no byte was asked for   all is returned
//	a whole error envelope before any data, by protocol and status       settled at zero
//	  OpenAI     400 401 403 404 413 422 429
//	  Anthropic  400 401 403 404 413 422 429 529
//	  Bedrock    400 401 403 404 413 422 429, the error being named
//	anything else: other 5xx, timeouts, cuts, clients who left            unknown: the bound is kept,
//	                                                                      what was seen is noted beside it
//
// # What a client is told
//
// Refusals are responses in the protocol of the route, with the status and the
// Retry-After of governance.StatusOf, and x-should-retry: false where trying again
// cannot help. AWS's SDKs mind neither header: for Bedrock's routes the exception's
// name says whether to repeat, and X-Amz-Retry-After how long to wait, to those that
// read it. A spent budget and a request that fits no limit are
// ServiceQuotaExceededException there, which none of them repeats. A fallback above the Transport tells them from a provider's answers
// with [RefusalFrom]. An outage of the store is 503, never 401.
//
// Source: internal/docs/architecture.md "The path of one call"; internal/docs/guarantees.md.
package httpgov
