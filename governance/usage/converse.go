package usage

// parseConverse reads the usage object of Bedrock's Converse. The classes are
// reported apart, as Anthropic's are, with a total beside them.
func parseConverse(raw []byte) (r anthropicReport) {
	var read, write num // as they were called before
	members(raw, func(name, value []byte) {
		switch string(name) {
		case "inputTokens":
			r.input.set(value)
		case "outputTokens":
			r.output.set(value)
		case "totalTokens":
			r.total.set(value)
		case "cacheReadInputTokens":
			r.read.set(value)
		case "cacheReadInputTokenCount":
			read.set(value)
		case "cacheWriteInputTokens":
			r.create.set(value)
		case "cacheWriteInputTokenCount":
			write.set(value)
		case "cacheDetails":
			r.cacheDetails(value)
		}
	})
	r.read.same(read)
	r.create.same(write)
	return r
}

// same takes another name for a number that may be there under both. Two that
// differ are Unknown.
func (n *num) same(other num) {
	switch {
	case !other.given():
	case !n.given():
		*n = other
	case n.Count != other.Count:
		n.State, n.N = worse(worse(n.State, other.State), Unknown), max(n.N, other.N)
	}
}

// cacheDetails takes cache writes by lifetime. A lifetime that is not known here
// stays part of the whole alone.
func (r *anthropicReport) cacheDetails(raw []byte) {
	if isNull(raw) {
		return
	}
	again := r.creation.seen
	r.creation = num{seen: true, Count: Count{State: Known}}
	list := elements(raw, func(detail []byte) {
		var tokens []byte
		lifetime := ""
		members(detail, func(name, value []byte) {
			switch string(name) {
			case "ttl":
				lifetime = label(value, maxLabel)
			case "inputTokens":
				tokens = value
			}
		})
		switch {
		case tokens == nil:
		case lifetime == "5m":
			r.create5m.set(tokens)
		case lifetime == "1h":
			r.create1h.set(tokens)
		}
	})
	if again || !list {
		r.creation.State = Unknown
	}
}

// checkSum compares the classes with a total. Providers disagree on whether cached
// tokens are in it; one that holds both readings says nothing new.
func (u *Usage) checkSum(total num) {
	bare := plus(u.Input, u.Output)
	whole := plus(plus(bare, u.CacheRead), plus(u.CacheWriteUnknownTTL, plus(u.CacheWrite5m, u.CacheWrite1h)))
	switch {
	case !total.given():
	case total.State == Invalid || whole.State == Invalid:
		u.doubt(Invalid)
	case total.State != Known || whole.State != Known:
		u.doubt(Unknown)
	case total.N == whole.N || total.N == bare.N:
	case total.N < bare.N:
		u.doubt(Invalid)
	default:
		u.doubt(Unknown)
	}
}

// typed reads a name inside an object: Converse's service tier and speed.
func typed(raw []byte, member string) (name string) {
	members(raw, func(n, value []byte) {
		if string(n) == member {
			name = label(value, maxLabel)
		}
	})
	return name
}

// converseFrame takes an event of a Converse stream: the message first, and behind
// its stop the metadata, which alone reports what was used.
func (s *Stream) converseFrame(f Frame) {
	switch string(f.Name) {
	case "metadata":
		s.metadata(f.Payload)
	case "messageStop":
		s.stopped = true
	default:
		s.stale = s.stale || s.given // it came behind the report
	}
	s.dataSeen = true
	s.done = s.stopped && s.reported
}

func (s *Stream) metadata(payload []byte) {
	var usage []byte
	twice := false
	whole := members(payload, func(name, value []byte) {
		switch string(name) {
		case "usage":
			twice = twice || usage != nil
			usage = value
		case "serviceTier":
			s.tier = typed(value, "type")
		case "performanceConfig":
			s.speed = typed(value, "latency")
		}
	})
	if !whole {
		s.unread()
		return
	}
	s.reported = true
	if usage == nil || isNull(usage) {
		return
	}
	s.doubtful = s.doubtful || twice || !isObject(usage)
	report := parseConverse(usage)
	s.anthropic.fold(&report)
	s.given, s.stale, s.final = true, false, true
}
