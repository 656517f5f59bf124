package httpgov

import (
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/tallystick-go/tallystick/governance/usage"
)

// RouteKind says what a request to a route needs. The zero value is refused, so
// that no route skips governance because nobody thought of it.
type RouteKind uint8

// The kinds of route.
const (
	// RouteGoverned reserves before it is forwarded.
	RouteGoverned RouteKind = iota + 1
	// RouteUnbilled is forwarded without a reservation, once the key was read
	// anew from the store: count_tokens and models, and what a gateway declares free.
	RouteUnbilled
)

// Route is what the path of a request stands for. Protocol also picks the
// envelope of refusals: Anthropic's, Bedrock's, else OpenAI's. A route of Bedrock
// needs a path that ModelPath takes.
type Route struct {
	Kind     RouteKind
	Protocol usage.Protocol
}

// DefaultRoute knows the routes of OpenAI, Anthropic and Amazon Bedrock by the end
// of their paths, so that an upstream may have a path of its own before them. A path
// that is not written in its simplest form is refused.
//
//	POST …/chat/completions                               governed, OpenAI chat completions
//	POST …/responses                                      governed, OpenAI responses
//	POST …/embeddings                                     governed, OpenAI embeddings
//	POST …/v1/messages                                    governed, Anthropic messages
//	POST …/model/{id}/converse[-stream]                   governed, Bedrock Converse
//	POST …/model/{id}/invoke[-with-response-stream]       governed, Bedrock invoke
//	POST …/v1/messages/count_tokens                       unbilled
//	GET  …/v1/models[/{id}]                               unbilled
//	anything else                                         refused
func DefaultRoute(r *http.Request) Route {
	route := Route{Protocol: usage.OpenAIChat}
	p := r.URL.Path
	switch {
	case strings.Contains(p, "/model/"):
		return bedrockRoute(r)
	case r.Header.Get("Anthropic-Version") != "" || strings.Contains(p, "/v1/messages"):
		route.Protocol = usage.AnthropicMessages
	}
	if r.URL.RawPath != "" || r.URL.Opaque != "" || path.Clean(p) != p {
		return route // two readings of one path: ours and the provider's
	}
	ends := func(suffix string) bool { return strings.HasSuffix(p, suffix) }
	switch r.Method {
	case http.MethodPost:
		switch {
		case ends("/chat/completions"):
			return Route{RouteGoverned, usage.OpenAIChat}
		case ends("/responses"):
			return Route{RouteGoverned, usage.OpenAIResponses}
		case ends("/embeddings"):
			return Route{RouteGoverned, usage.OpenAIEmbeddings}
		case ends("/v1/messages"):
			return Route{RouteGoverned, usage.AnthropicMessages}
		case ends("/v1/messages/count_tokens"):
			return Route{RouteUnbilled, usage.AnthropicMessages}
		}
	case http.MethodGet, http.MethodHead:
		if ends("/v1/models") || strings.HasSuffix(path.Dir(p), "/v1/models") {
			route.Kind = RouteUnbilled
		}
	}
	return route
}

func bedrockRoute(r *http.Request) Route {
	_, action, ok := ModelPath(r.URL)
	if !ok || r.Method != http.MethodPost {
		return Route{Protocol: usage.BedrockConverse}
	}
	switch action {
	case "converse", "converse-stream":
		return Route{RouteGoverned, usage.BedrockConverse}
	case "invoke", "invoke-with-response-stream":
		return Route{RouteGoverned, usage.BedrockInvoke}
	}
	return Route{Protocol: usage.BedrockConverse}
}

// ModelPath takes a path of Bedrock apart: …/model/{id}/{action}. The id is the only
// part that may be escaped, as one segment: names have colons, ARNs have slashes.
func ModelPath(u *url.URL) (model, action string, ok bool) {
	segments := strings.Split(u.EscapedPath(), "/")
	n := len(segments)
	if u.Opaque != "" || n < 4 || segments[n-3] != "model" {
		return "", "", false
	}
	action = segments[n-1]
	around := strings.Join(segments[:n-2], "/") + "/" + action
	model, err := url.PathUnescape(segments[n-2])
	if err != nil || strings.Contains(around, "%") || path.Clean(around) != around {
		return "", "", false
	}
	for part := range strings.SplitSeq(model, "/") {
		if part == "" || part == "." || part == ".." {
			return "", "", false // two readings of one path: ours and the provider's
		}
	}
	return model, action, true
}

// String returns "governed", "unbilled" or "refused".
func (k RouteKind) String() string {
	switch k {
	case RouteGoverned:
		return "governed"
	case RouteUnbilled:
		return "unbilled"
	default:
		return "refused"
	}
}
