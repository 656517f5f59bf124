package usage

import (
	"bytes"
	"encoding/base64"
	"strings"
)

// Bedrock's invoke passes a vendor's own answer on and counts beside it: in the
// header of a whole answer, in the last chunk of a stream. For Anthropic's models
// the answer itself says more, and what Bedrock counted only helps where it is
// silent.

// headerCounts are the headers of an invoke, and where each is told.
var headerCounts = [...]string{
	"X-Amzn-Bedrock-Input-Token-Count", "X-Amzn-Bedrock-Output-Token-Count",
	"X-Amzn-Bedrock-Cache-Read-Input-Token-Count", "X-Amzn-Bedrock-Cache-Write-Input-Token-Count",
}

// FromHeader reads what Bedrock's invoke counted beside an answer, get being the
// Get of an http.Header. It is never Complete: whether the answer came whole, only
// its reader knows. Other protocols tell nothing in headers.
//
// Concurrency: safe.
func FromHeader(p Protocol, get func(name string) string) Usage {
	if p != BedrockInvoke {
		return Usage{}
	}
	var r anthropicReport
	for i, into := range [...]*num{&r.input, &r.output, &r.read, &r.create} {
		if text := strings.TrimSpace(get(headerCounts[i])); text != "" {
			into.set([]byte(text))
		}
	}
	if !r.input.given() && !r.output.given() {
		return Usage{}
	}
	u := r.resolve()
	u.ServiceTier = headerLabel(get("X-Amzn-Bedrock-Service-Tier"))
	u.Speed = headerLabel(get("X-Amzn-Bedrock-PerformanceConfig-Latency"))
	return u
}

func headerLabel(text string) string { return short([]byte(text), maxLabel) }

// Beside returns a report with what was counted beside it: where the report itself
// has nothing, the other count is taken; where both speak and differ, neither is sure.
func (u Usage) Beside(counted Usage) Usage {
	if counted == (Usage{}) {
		return u
	}
	if u.ServiceTier == "" {
		u.ServiceTier = counted.ServiceTier
	}
	if u.Speed == "" {
		u.Speed = counted.Speed
	}
	switch {
	case u.silent():
		counted.Complete, counted.Model, counted.ServiceTier, counted.Speed = u.Complete, u.Model, u.ServiceTier, u.Speed
		return counted
	case u.Input.State == Known && counted.Input.State == Known && u.Input.N != counted.Input.N,
		u.Output.State == Known && counted.Output.State == Known && u.Output.N != counted.Output.N:
		u.doubt(Unknown)
	}
	return u
}

// silent reports whether nothing at all was reported.
func (u Usage) silent() bool {
	return u.Input == (Count{}) && u.Output == (Count{}) && u.CacheRead.N == 0 && u.CacheWriteUnknownTTL.N == 0 &&
		u.CacheWrite5m.N == 0 && u.CacheWrite1h.N == 0
}

// frame takes one frame of a Bedrock stream.
func (s *Stream) frame(f Frame) {
	switch {
	case s.done:
	case f.Oversize:
		s.unread()
	case string(f.Kind) != "event":
		s.fail(exceptionOf(f))
	case s.protocol == BedrockConverse:
		s.converseFrame(f)
	case string(f.Name) == "chunk":
		s.invokeChunk(f.Payload)
	default:
		s.dataSeen = true
	}
}

// exceptionOf reads a frame that stands for an error.
func exceptionOf(f Frame) *ProviderError {
	e := &ProviderError{Type: short(f.Name, maxLabel)}
	e.Status = statusOf(e)
	return e
}

// invocationMetrics is what Bedrock adds to a stream's last chunk.
const invocationMetrics = "amazon-bedrock-invocationMetrics"

// invokeChunk takes a piece of the vendor's own stream.
func (s *Stream) invokeChunk(payload []byte) {
	var encoded []byte
	whole := members(payload, func(name, value []byte) {
		if string(name) == "bytes" && isString(value) {
			encoded = plain(value)
		}
	})
	data, err := base64.StdEncoding.AppendDecode(s.chunk[:0], encoded)
	s.chunk = data
	if !whole || encoded == nil || err != nil {
		s.unread()
		return
	}
	s.anthropicEvent(Event{Data: data, HasData: true})
	if bytes.Contains(data, []byte(invocationMetrics)) {
		members(data, func(name, value []byte) {
			if string(name) == invocationMetrics && isObject(value) {
				s.metrics, s.counted, s.done = parseMetrics(value), true, true
			}
		})
	}
}

func parseMetrics(raw []byte) (r anthropicReport) {
	members(raw, func(name, value []byte) {
		switch string(name) {
		case "inputTokenCount":
			r.input.set(value)
		case "outputTokenCount":
			r.output.set(value)
		case "cacheReadInputTokenCount":
			r.read.set(value)
		case "cacheWriteInputTokenCount":
			r.create.set(value)
		}
	})
	return r
}

// errorName takes the parts off an error type that do not name it:
// "com.amazon#ThrottlingException:http://…" is a ThrottlingException.
func errorName(s string) string {
	s, _, _ = strings.Cut(s, ":")
	if i := strings.LastIndexByte(s, '#'); i >= 0 {
		s = s[i+1:]
	}
	return headerLabel(s)
}

// exceptions are Bedrock's errors, in the letters of none of its two spellings, and
// the statuses that it answers them with.
var exceptions = map[string]int{
	"validationexception":           400,
	"servicequotaexceededexception": 400,
	"conflictexception":             400,
	"accessdeniedexception":         403,
	"resourcenotfoundexception":     404,
	"modeltimeoutexception":         408,
	"modelerrorexception":           424,
	"modelstreamerrorexception":     424,
	"throttlingexception":           429,
	"modelnotreadyexception":        429,
	"internalserverexception":       500,
	"serviceunavailableexception":   503,
}
