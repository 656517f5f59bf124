package usage

import "bytes"

// anthropicReport is the usage object as it was written.
type anthropicReport struct {
	input, output      num
	read, create       num
	creation           num // only whether given, and whether an object
	create5m, create1h num
	thinking           num
	searches, tools    num
	total              num  // Converse
	aside              bool // iterations that the top-level counts leave out
	tier, speed, geo   string
}

func (r *anthropicReport) all() [10]*num {
	return [...]*num{&r.input, &r.output, &r.read, &r.create, &r.creation, &r.create5m, &r.create1h, &r.thinking, &r.searches, &r.total}
}

// fold takes a later usage object of the same stream: counts are cumulative,
// never summed.
func (r *anthropicReport) fold(next *anthropicReport) {
	a, b := r.all(), next.all()
	for i := range a {
		a[i].fold(*b[i])
	}
	r.tools.fold(next.tools)
	r.aside = r.aside || next.aside
	for _, s := range [...]struct{ have, later *string }{{&r.tier, &next.tier}, {&r.speed, &next.speed}, {&r.geo, &next.geo}} {
		if *s.later != "" {
			*s.have = *s.later
		}
	}
}

func parseAnthropic(raw []byte) (r anthropicReport) {
	members(raw, func(name, value []byte) {
		switch string(name) {
		case "input_tokens":
			r.input.set(value)
		case "output_tokens":
			r.output.set(value)
		case "cache_read_input_tokens":
			r.read.set(value)
		case "cache_creation_input_tokens":
			r.create.set(value)
		case "cache_creation":
			if r.creation.object(value) {
				members(value, func(name, value []byte) {
					switch string(name) {
					case "ephemeral_5m_input_tokens":
						r.create5m.set(value)
					case "ephemeral_1h_input_tokens":
						r.create1h.set(value)
					}
				})
			}
		case "output_tokens_details":
			members(value, func(name, value []byte) {
				if string(name) == "thinking_tokens" {
					r.thinking.set(value)
				}
			})
		case "server_tool_use":
			members(value, r.serverTool)
		case "iterations":
			elements(value, r.iteration)
		case "service_tier":
			r.tier = label(value, maxLabel)
		case "speed":
			r.speed = label(value, maxLabel)
		case "inference_geo":
			r.geo = label(value, maxLabel)
		}
	})
	return r
}

func (r *anthropicReport) serverTool(name, value []byte) {
	switch {
	case string(name) == "web_search_requests":
		r.searches.set(value)
	case string(name) == "web_fetch_requests": // charged by its tokens alone
	case bytes.HasSuffix(name, []byte("_requests")) && !isNull(value):
		if !r.tools.seen {
			r.tools = num{seen: true, Count: Of(0)}
		}
		r.tools.Count = plus(r.tools.Count, parseCount(value))
	}
}

// iteration looks for work that was billed beside the message: the top-level
// counts hold the iterations of type "message" only.
func (r *anthropicReport) iteration(value []byte) {
	message := false
	members(value, func(name, value []byte) {
		if string(name) == "type" {
			message = label(value, maxLabel) == "message"
		}
	})
	r.aside = r.aside || !message
}

// resolve applies the convention of Anthropic and Bedrock: the classes are reported apart.
func (r *anthropicReport) resolve() Usage {
	u := Usage{
		Input: r.input.or(Count{}), Output: r.output.or(Count{}), CacheRead: r.read.or(Of(0)),
		Reasoning: r.thinking.Count, Other: Of(0),
		WebSearches: r.searches.or(Of(0)), OtherTools: r.tools.or(Of(0)),
		ServiceTier: r.tier, Speed: r.speed, Geo: r.geo,
	}
	if u.Reasoning.State == Known && u.Reasoning.N > u.Output.N {
		u.Reasoning.State = Unknown // counted again by the provider, off by a few; the output is what is billed
	}
	if u.Reasoning.State == Invalid {
		u.Output.State = Invalid
	}
	u.splitCreation(r)
	u.checkSum(r.total)
	if r.aside {
		u.doubt(Unknown)
	}
	return u
}

// splitCreation spreads cache writes over the lifetimes. Writes without a
// lifetime are known tokens of unknown price.
func (u *Usage) splitCreation(r *anthropicReport) {
	u.CacheWrite5m, u.CacheWrite1h = r.create5m.or(Of(0)), r.create1h.or(Of(0))
	if r.creation.given() && r.creation.State != Known {
		u.CacheWrite5m.State = worse(u.CacheWrite5m.State, Unknown)
		u.CacheWrite1h.State = worse(u.CacheWrite1h.State, Unknown)
	}
	split := plus(u.CacheWrite5m, u.CacheWrite1h)
	whole := r.create.or(split)
	rest := Count{State: whole.State, N: whole.N - split.N}
	if rest.N < 0 {
		rest.N = 0
		if whole.State == Known && split.State == Known {
			rest.State = Invalid // more by lifetime than in all
		}
	}
	u.CacheWriteUnknownTTL = rest
}
