package usage

import (
	"bytes"
	"math"
)

// openaiReport is the usage object as it was written, before any convention.
type openaiReport struct {
	prompt, completion, total             num
	promptDetails, completionDetails      num // only whether given, and whether an object
	cached, cacheHit, cacheMiss, cacheTop num
	write, write30m, write12h             num
	audioIn, imageIn, audioOut, imageOut  num
	reasoning, accepted, rejected         num
	otherIn, otherOut                     num
}

// each calls f for every number of two reports side by side.
func (r *openaiReport) each(o *openaiReport, f func(a, b *num)) {
	a, b := r.all(), o.all()
	for i := range a {
		f(a[i], b[i])
	}
}

func (r *openaiReport) all() [21]*num {
	return [...]*num{
		&r.prompt, &r.completion, &r.total, &r.promptDetails, &r.completionDetails,
		&r.cached, &r.cacheHit, &r.cacheMiss, &r.cacheTop,
		&r.write, &r.write30m, &r.write12h,
		&r.audioIn, &r.imageIn, &r.audioOut, &r.imageOut,
		&r.reasoning, &r.accepted, &r.rejected, &r.otherIn, &r.otherOut,
	}
}

// fold takes a later usage object of the same stream.
func (r *openaiReport) fold(next *openaiReport) {
	r.each(next, func(a, b *num) { a.fold(*b) })
}

func parseOpenAI(raw []byte) (r openaiReport) {
	members(raw, func(name, value []byte) {
		switch string(name) {
		case "prompt_tokens":
			r.prompt.set(value)
		case "completion_tokens":
			r.completion.set(value)
		case "total_tokens":
			r.total.set(value)
		case "prompt_cache_hit_tokens":
			r.cacheHit.set(value)
		case "prompt_cache_miss_tokens":
			r.cacheMiss.set(value)
		case "cached_tokens":
			r.cacheTop.set(value)
		case "prompt_tokens_details":
			if r.promptDetails.object(value) {
				members(value, r.promptDetail)
			}
		case "completion_tokens_details":
			if r.completionDetails.object(value) {
				members(value, r.completionDetail)
			}
		}
	})
	return r
}

// object notes that a break-down was given. One that occurs twice, or is no
// object, makes the break-down Unknown.
func (n *num) object(raw []byte) bool {
	again := n.seen
	n.seen, n.null = true, isNull(raw)
	if n.null && !again {
		return false
	}
	n.State = Unknown
	if !again && isObject(raw) {
		n.State = Known
	}
	return isObject(raw)
}

func (r *openaiReport) promptDetail(name, value []byte) {
	switch string(name) {
	case "cached_tokens":
		r.cached.set(value)
	case "cache_write_tokens", "cache_creation_tokens":
		r.write.set(value)
	case "cache_write_tokens_details":
		members(value, func(name, value []byte) {
			switch string(name) {
			case "ttl_30m_tokens":
				r.write30m.set(value)
			case "ttl_12h_tokens":
				r.write12h.set(value)
			}
		})
	case "audio_tokens":
		r.audioIn.set(value)
	case "image_tokens":
		r.imageIn.set(value)
	case "text_tokens":
	default:
		r.otherIn.other(name, value)
	}
}

func (r *openaiReport) completionDetail(name, value []byte) {
	switch string(name) {
	case "reasoning_tokens":
		r.reasoning.set(value)
	case "audio_tokens":
		r.audioOut.set(value)
	case "image_tokens":
		r.imageOut.set(value)
	case "accepted_prediction_tokens":
		r.accepted.set(value)
	case "rejected_prediction_tokens":
		r.rejected.set(value)
	case "text_tokens":
	default:
		r.otherOut.other(name, value)
	}
}

// other adds up the counts of kinds that are not known here.
func (n *num) other(name, value []byte) {
	if !bytes.HasSuffix(name, []byte("_tokens")) || isNull(value) {
		return
	}
	if !n.seen {
		n.seen, n.State = true, Known
	}
	*n = num{seen: true, Count: plus(n.Count, parseCount(value))}
}

// plus adds two counts; the state is the worse one, a sum above 63 bits Invalid.
func plus(a, b Count) Count {
	if a.N > math.MaxInt64-b.N {
		return Count{State: Invalid}
	}
	return Count{State: worse(a.State, b.State), N: a.N + b.N}
}

// resolve applies OpenAI's convention and checks it against the total.
func (r *openaiReport) resolve(p Protocol) Usage {
	in, out := r.prompt.or(Count{}), r.completion.or(Count{})
	if p == OpenAIEmbeddings {
		out = r.completion.or(Of(0))
	}
	read := agree(r.cached, r.cacheHit, r.cacheTop)
	write := r.write.or(plus(r.write30m.or(Of(0)), r.write12h.or(Of(0))))
	if r.promptDetails.given() {
		read.State, write.State = worse(read.State, r.promptDetails.State), worse(write.State, r.promptDetails.State)
	}
	u := Usage{CacheRead: read, Output: out}
	u.takeOut(in, read, write)
	u.splitWrite(write, r.write30m, r.write12h)
	if miss := r.cacheMiss; miss.given() && (miss.State != Known || plus(read, miss.Count) != in) {
		u.doubt(worse(Unknown, miss.State))
	}
	u.checkTotal(r, in, out)
	return u
}

// agree returns the number that several names stand for: none is zero, since
// the break-down is optional; two that differ are Unknown.
func agree(names ...num) Count {
	var found num
	for _, n := range names {
		switch {
		case !n.given():
		case !found.given():
			found = n
		case found.Count != n.Count:
			found.State = worse(worse(found.State, n.State), Unknown)
			found.N = max(found.N, n.N)
		}
	}
	return found.or(Of(0))
}

// takeOut sets Input to what is left of the prompt once the cached parts are
// taken out of it.
func (u *Usage) takeOut(in, read, write Count) {
	u.Input = Count{State: worse(in.State, worse(read.State, write.State)), N: in.N}
	parts := plus(read, write)
	switch {
	case parts.State == Invalid:
		u.Input.State = Invalid
	case parts.N <= in.N:
		u.Input.N -= parts.N
	case u.Input.State != Known:
	case read.N <= in.N && write.N <= in.N:
		u.Input = Count{} // a token that is read and written: counted twice or not, who knows
	default:
		u.Input.State = Invalid
	}
}

// splitWrite spreads cache writes over the lifetimes, as far as they were reported.
func (u *Usage) splitWrite(write Count, short, long num) {
	u.CacheWrite5m, u.CacheWrite1h = short.or(Of(0)), long.or(Of(0))
	split := plus(u.CacheWrite5m, u.CacheWrite1h)
	rest := Count{State: worse(write.State, split.State), N: write.N - split.N}
	if rest.N < 0 {
		rest = Count{State: worse(rest.State, Unknown)}
	}
	u.CacheWriteUnknownTTL = rest
}

// doubt lowers the state of what was counted as a whole.
func (u *Usage) doubt(s State) {
	u.Input.State, u.Output.State = worse(u.Input.State, s), worse(u.Output.State, s)
}

// checkTotal compares the parts with their wholes and the wholes with the
// total. The total decides how a provider counts that strays from the
// convention.
func (u *Usage) checkTotal(r *openaiReport, in, out Count) {
	u.Reasoning, u.AudioOutput, u.ImageOutput = r.reasoning.Count, r.audioOut.Count, r.imageOut.Count
	u.AudioInput, u.ImageInput = r.audioIn.Count, r.imageIn.Count
	u.PredictionAccepted, u.PredictionRejected = r.accepted.Count, r.rejected.Count
	u.Other = plus(r.otherIn.or(Of(0)), r.otherOut.or(Of(0)))

	sum, total := plus(in, out), r.total
	surplus := total.N - sum.N // both are zero or more: no overflow
	sure := sum.State == Known && total.State == Known
	beside := func(part Count) bool { return sure && part.State == Known && part.N > 0 && surplus == part.N }
	cached := plus(u.CacheRead, plus(u.CacheWriteUnknownTTL, plus(u.CacheWrite5m, u.CacheWrite1h)))

	switch {
	case sum.State == Invalid || total.State == Invalid:
		u.doubt(Invalid)
	case !total.given():
		if out.State == Known && u.Reasoning.N > out.N {
			u.Output.State = worse(u.Output.State, Unknown) // beside the completion, or a mistake
		}
	case !sure:
		u.doubt(total.State)
	case surplus == 0:
		if u.Reasoning.N > out.N {
			u.Output.State = Invalid
		}
	case beside(u.Reasoning):
		out = plus(out, u.Reasoning)
		u.Output = out
	case beside(cached) && u.Input.State == Invalid:
		u.Input = Count{N: in.N} // the cache counted beside the prompt, against the convention
		u.doubt(Unknown)
	case surplus > 0, cached.State == Known && surplus == -cached.N:
		u.doubt(Unknown)
	default:
		u.doubt(Invalid)
	}
	u.checkPart(&u.Input, u.AudioInput, in, beside(u.AudioInput))
	u.checkPart(&u.Input, u.ImageInput, in, beside(u.ImageInput))
	u.checkPart(&u.Output, u.AudioOutput, out, beside(u.AudioOutput))
	u.checkPart(&u.Output, u.ImageOutput, out, beside(u.ImageOutput))
	u.checkPart(&u.Output, u.PredictionRejected, out, true)
	u.checkPart(&u.Output, u.PredictionAccepted, out, true)
	u.checkPart(&u.Output, u.Reasoning, out, true)
}

// checkPart lowers the state of a class whose part is impossible.
func (u *Usage) checkPart(class *Count, part, whole Count, explained bool) {
	switch {
	case part.State == Invalid:
		class.State = Invalid
	case part.State != Known || whole.State != Known || part.N <= whole.N:
	case explained:
		class.State = worse(class.State, Unknown)
	default:
		class.State = Invalid
	}
}
