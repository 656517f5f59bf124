package usage

// parseResponses reads the usage object of OpenAI's responses. The convention is
// that of chat completions, under other names.
func parseResponses(raw []byte) (r openaiReport) {
	members(raw, func(name, value []byte) {
		switch string(name) {
		case "input_tokens":
			r.prompt.set(value)
		case "output_tokens":
			r.completion.set(value)
		case "total_tokens":
			r.total.set(value)
		case "input_tokens_details":
			if r.promptDetails.object(value) {
				members(value, r.promptDetail)
			}
		case "output_tokens_details":
			if r.completionDetails.object(value) {
				members(value, r.completionDetail)
			}
		}
	})
	return r
}

// maxResponse is how much of one event is kept: the last one repeats the whole
// answer, the instructions and the tools, and the usage stands at its end.
const maxResponse = 8 << 20

// responsesEvent takes an event of OpenAI's responses. The response ends with one of
// response.completed, response.incomplete and response.failed, and only that one
// reports what was used.
func (s *Stream) responsesEvent(e Event) {
	var kind, response, failure []byte
	whole := members(e.Data, func(name, value []byte) {
		switch string(name) {
		case "type":
			if isString(value) {
				kind = plain(value)
			}
		case "response":
			response = value
		case "error":
			if isObject(value) {
				failure = value
			}
		}
	})
	if isDone(e.Data) {
		return // some servers end every stream so
	}
	if !whole {
		s.unread()
		return
	}
	switch string(kind) {
	case "error":
		if failure == nil {
			failure = e.Data
		}
		s.fail(failureOf(failure))
		return
	case "response.completed", "response.incomplete", "response.failed":
		s.responseEnds(response)
		s.done = true
	case "response.created", "response.in_progress", "response.queued":
		members(response, s.responseLabel)
	}
	s.dataSeen = true
}

// responseEnds takes the response as it stands in its last event. A failed one may
// report what it used: that is as final as any.
func (s *Stream) responseEnds(response []byte) {
	var usage []byte
	twice := false
	members(response, func(name, value []byte) {
		switch string(name) {
		case "usage":
			twice = twice || usage != nil
			usage = value
		case "error":
			if isObject(value) {
				s.fail(failureOf(value))
			}
		default:
			s.responseLabel(name, value)
		}
	})
	if usage == nil || isNull(usage) {
		return
	}
	s.doubtful = s.doubtful || twice || !isObject(usage)
	report := parseResponses(usage)
	s.openai.fold(&report)
	s.given, s.stale, s.final, s.told = true, false, true, isObject(usage)
}

func (s *Stream) responseLabel(name, value []byte) {
	switch string(name) {
	case "model":
		s.model = relabel(s.model, value, maxModel)
	case "service_tier":
		s.tier = relabel(s.tier, value, maxLabel)
	}
}
