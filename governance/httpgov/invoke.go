package httpgov

import (
	"maps"
	"net/http"
)

// invokeFields are the members of an Anthropic message request as Bedrock's invoke
// takes it: the model and whether to stream are in the path.
var invokeFields = vocabulary(func() map[string]spell {
	fields := maps.Clone(messagesFields.fields)
	for _, name := range []string{"model", "stream", "service_tier", "speed", "inference_geo"} {
		delete(fields, name)
	}
	fields["anthropic_version"] = func(a *ask, _ string, _ span) error { a.native = true; return nil }
	fields["anthropic_beta"] = plain
	return fields
}())

// The headers with which an invoke chooses what it costs.
const (
	tierHeader             = "X-Amzn-Bedrock-Service-Tier"
	latencyHeader          = "X-Amzn-Bedrock-Performanceconfig-Latency"
	guardrailHeader        = "X-Amzn-Bedrock-Guardrailidentifier"
	guardrailVersionHeader = "X-Amzn-Bedrock-Guardrailversion"
)

// readHeader takes what an invoke says in its header.
func (a *ask) readHeader(h http.Header) error {
	for _, name := range []string{tierHeader, latencyHeader, guardrailHeader, guardrailVersionHeader} {
		if len(h.Values(name)) > 1 {
			return bad("", "the header "+name+" must not be there twice")
		}
	}
	a.tier, a.speed = h.Get(tierHeader), h.Get(latencyHeader)
	if h.Get(guardrailHeader) != "" {
		a.unpriced = append(a.unpriced, guardrailField)
	}
	return nil
}

// guardrailField names a guardrail that the client chose, wherever it says so.
const guardrailField = "guardrailConfig"
