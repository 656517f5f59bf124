package usage

import "bytes"

// Stream reads the usage out of a stream as it passes: server-sent events, or the
// frames of Bedrock. Reports are folded, never summed: all protocols report
// cumulative numbers.
//
// It is an io.WriteCloser that never fails, so that it can stand behind an
// io.TeeReader. A caller that scans the events itself gives them to Event.
//
// Memory is bounded by [DefaultMaxEvent], and by 8 MiB for OpenAI's responses,
// whose last event repeats the whole answer. A longer event cannot be read: the
// usage stays unknown unless a final report follows it. The same holds for
// everything behind a frame that is none.
//
// Concurrency: none; one goroutine at a time.
// Source: internal/docs/guarantees.md "Nothing is refunded by accident".
type Stream struct {
	protocol Protocol
	scan     EventScanner
	emit     func(Event)
	frames   FrameScanner
	take     func(Frame)
	chunk    []byte // Bedrock's invoke: the event that is being read

	openai    openaiReport
	anthropic anthropicReport
	given     bool // a usage object
	doubtful  bool // a usage that is no object
	started   bool // Anthropic: message_start with usage
	final     bool // the last usage object claims to be the final one
	stale     bool // something unread came after the last usage object
	delta     bool // Anthropic: message_delta with usage
	told      bool // Responses: the last event reported what was used, failed or not
	stopped   bool // Converse: messageStop
	reported  bool // Converse: metadata
	counted   bool // invoke: Bedrock's own count, in metrics
	metrics   anthropicReport
	done      bool
	closing   bool // what comes now may be half an event
	lost      bool // a frame that is none
	dataSeen  bool
	failure   *ProviderError
	model     string
	tier      string
	speed     string
}

// NewStream returns a Stream for a protocol. An unknown protocol gives a stream
// whose result is always unknown.
func NewStream(p Protocol) *Stream {
	s := &Stream{protocol: p}
	s.emit = func(e Event) { s.Event(e) }
	s.take = s.frame
	if p == OpenAIResponses {
		s.scan.MaxEvent = maxResponse
	}
	return s
}

// Write takes the next bytes, cut anywhere. It always takes all of them.
func (s *Stream) Write(p []byte) (int, error) {
	if !s.protocol.framed() {
		s.scan.Feed(p, s.emit)
		return len(p), nil
	}
	s.frames.Feed(p, s.take)
	if s.frames.Err() != nil && !s.lost && !s.done {
		s.lost = true
		s.unread()
	}
	return len(p), nil
}

// Close says that the stream has ended. A last event without its blank line is
// taken if it is whole. It never fails.
func (s *Stream) Close() error {
	s.closing = true
	s.scan.Close(s.emit)
	s.dataSeen = s.dataSeen || !s.done && s.frames.Partial() // half a frame may be an answer
	return nil
}

// Done reports whether the end was seen: [DONE], message_stop, the last event of a
// response, or Bedrock's own report.
func (s *Stream) Done() bool { return s.done }

// DataSeen reports whether anything of an answer came: any event but errors,
// pings, comments and the end mark. An answer that was only begun may be charged.
func (s *Stream) DataSeen() bool { return s.dataSeen }

// Err returns the first error that the provider reported inside the stream, or
// nil. Its text is never counted as output.
func (s *Stream) Err() *ProviderError { return s.failure }

// Result returns what was reported so far. It is Complete once the provider's
// final usage was seen, and not after an error inside the stream, unless it is
// OpenAI's response.failed with a usage of its own.
func (s *Stream) Result() Usage {
	var u Usage
	complete := s.given && !s.stale && (s.failure == nil || s.told) && (s.final || s.done)
	switch s.protocol {
	case AnthropicMessages, BedrockInvoke:
		u = s.anthropic.resolve()
		complete = complete && s.started && s.final
	case BedrockConverse:
		u = s.anthropic.resolve()
		complete = complete && s.done
	default:
		u = s.openai.resolve(s.protocol)
	}
	switch {
	case s.counted && !complete:
		u = s.metrics.resolve()
		complete = !s.stale && s.failure == nil
	case !s.given || !s.protocol.known():
		return Usage{Model: s.model, ServiceTier: s.tier, Speed: s.speed}
	}
	if s.doubtful {
		u.doubt(Unknown)
	}
	u.Complete, u.Model = complete, s.model
	if u.ServiceTier == "" {
		u.ServiceTier = s.tier
	}
	if u.Speed == "" {
		u.Speed = s.speed
	}
	return u
}

// Event takes one event that an [EventScanner] cut. It reports whether the
// event is OpenAI's usage chunk: the one that comes only because usage was
// asked for, and that a client who did not ask must not see.
func (s *Stream) Event(e Event) (usageOnly bool) {
	switch {
	case e.Oversize:
		s.unread()
	case !e.HasData || s.done:
	case s.protocol == AnthropicMessages:
		s.anthropicEvent(e)
	case s.protocol == OpenAIResponses:
		s.responsesEvent(e)
	case s.protocol.known() && !s.protocol.framed():
		return s.openaiEvent(e)
	}
	return false
}

// unread notes an event whose content is not known. Half an event at the end of
// a stream that was cut takes nothing back.
func (s *Stream) unread() {
	s.dataSeen = true
	if !s.closing {
		s.stale, s.final = true, false
	}
}

func (s *Stream) openaiEvent(e Event) (usageOnly bool) {
	if isDone(e.Data) {
		s.done = true
		return false
	}
	var failure *ProviderError
	var usage []byte
	twice, choices, noChoices := false, false, false
	whole := members(e.Data, func(name, value []byte) {
		switch string(name) {
		case "usage":
			twice = twice || usage != nil
			usage = value
		case "choices":
			empty := true
			elements(value, func([]byte) { empty = false })
			choices, noChoices = choices || !empty, empty
		case "model":
			s.model = relabel(s.model, value, maxModel)
		case "service_tier":
			s.tier = relabel(s.tier, value, maxLabel)
		case "error":
			if !isNull(value) {
				failure = failureOf(value)
			}
		}
	})
	if !whole {
		s.unread()
		return false
	}
	if failure == nil && string(e.Name) == "error" {
		failure = failureOf(e.Data)
	}
	if failure != nil {
		s.fail(failure)
	}
	s.dataSeen = s.dataSeen || failure == nil || choices
	s.final = s.final && !choices
	if usage == nil || isNull(usage) {
		return false
	}
	s.doubtful = s.doubtful || twice || !isObject(usage)
	report := parseOpenAI(usage)
	s.openai.fold(&report)
	s.given, s.stale, s.final = true, false, noChoices && failure == nil
	return s.final && isObject(usage)
}

// isDone recognises OpenAI's end mark.
func isDone(data []byte) bool { return string(bytes.TrimSpace(data)) == "[DONE]" }

// failureOf reads an error inside a stream.
func failureOf(raw []byte) *ProviderError {
	e := &ProviderError{}
	e.parse(raw)
	e.Status = statusOf(e)
	return e
}

func (s *Stream) fail(e *ProviderError) {
	if s.failure == nil {
		s.failure = e
	}
}

func (s *Stream) anthropicEvent(e Event) {
	var kind []byte
	var usage, message, failure []byte
	twice, stopped := false, false
	whole := members(e.Data, func(name, value []byte) {
		switch string(name) {
		case "type":
			if isString(value) {
				kind = plain(value)
			}
		case "usage":
			twice = twice || usage != nil
			usage = value
		case "message":
			message = value
		case "error":
			failure = value
		case "delta":
			members(value, func(name, value []byte) {
				if string(name) == "stop_reason" {
					stopped = !isNull(value)
				}
			})
		}
	})
	if isDone(e.Data) {
		return // some servers end every stream with OpenAI's mark
	}
	if !whole {
		s.unread()
		return
	}
	switch string(kind) {
	case "ping":
		return
	case "error":
		s.fail(failureOf(failure))
		return
	case "message_stop":
		s.done = true
		s.final = s.final || s.delta && !s.stale
		return
	case "message_start":
		usage = nil
		members(message, func(name, value []byte) {
			switch string(name) {
			case "usage":
				twice = twice || usage != nil
				usage = value
			case "model":
				s.model = relabel(s.model, value, maxModel)
			}
		})
		s.started = s.started || isObject(usage)
	case "message_delta":
		s.delta = s.delta || isObject(usage)
	}
	s.dataSeen = true
	if usage == nil || isNull(usage) {
		return
	}
	s.doubtful = s.doubtful || twice || !isObject(usage)
	report := parseAnthropic(usage)
	s.anthropic.fold(&report)
	s.given, s.stale = true, false
	s.final = string(kind) == "message_delta" && stopped
}
