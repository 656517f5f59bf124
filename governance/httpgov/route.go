package httpgov

import (
	"net/http"
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
// envelope of refusals: Anthropic's, else OpenAI's.
type Route struct {
	Kind     RouteKind
	Protocol usage.Protocol
}

// DefaultRoute knows the routes of OpenAI and Anthropic by the end of their
// paths, so that an upstream may have a path of its own before them. A path that
// is not written in its simplest form is refused.
//
//	POST …/chat/completions          governed, OpenAI chat completions
//	POST …/embeddings                governed, OpenAI embeddings
//	POST …/v1/messages               governed, Anthropic messages
//	POST …/v1/messages/count_tokens  unbilled
//	GET  …/v1/models[/{id}]          unbilled
//	anything else                    refused
func DefaultRoute(r *http.Request) Route {
	route := Route{Protocol: usage.OpenAIChat}
	p := r.URL.Path
	if r.Header.Get("Anthropic-Version") != "" || strings.Contains(p, "/v1/messages") {
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
