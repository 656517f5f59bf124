package httpgov

import (
	"mime"
	"net/http"
	"strings"

	"github.com/tallystick-go/tallystick/governance/usage"
)

// observer reads what passes of one answer and says what was used.
//
// Concurrency: none; the attempt's own goroutine.
type observer interface {
	// observe takes the next bytes and appends those that the client gets.
	observe(dst, p []byte) []byte
	// close says that the answer ended and appends what was held back.
	close(dst []byte) []byte
	// final reports whether the rest of the answer can change nothing any more.
	final() bool
	// found says what is known; clean: the answer ended as it should.
	found(clean bool) finding
}

// finding is what an answer said about what was used.
type finding struct {
	usage   usage.Usage
	nothing bool // it is proved that nothing was used
}

// observerFor picks how an answer is read.
func observerFor(p usage.Protocol, resp *http.Response, streamed, strip bool) observer {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	encoding := resp.Header.Get("Content-Encoding")
	switch {
	case encoding != "" && !strings.EqualFold(encoding, "identity"):
		return blind{} // it was asked not to
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return &failed{object{protocol: p, size: resp.ContentLength}, resp.StatusCode, resp.Header.Get(errorTypeHeader)}
	case kind == "text/event-stream", kind == "application/vnd.amazon.eventstream", streamed && kind != "application/json":
		r := relayed{p, usage.NewStream(p)}
		if strip {
			return &stripped{relayed: r}
		}
		return &r
	}
	return &whole{object{protocol: p, size: resp.ContentLength}, usage.FromHeader(p, resp.Header.Get)}
}

// errorTypeHeader is where Bedrock names an error.
const errorTypeHeader = "X-Amzn-Errortype"

// blind observes nothing: the answer is in an encoding that was not asked for.
type blind struct{}

func (blind) observe(dst, p []byte) []byte { return append(dst, p...) }
func (blind) close(dst []byte) []byte      { return dst }
func (blind) final() bool                  { return false }
func (blind) found(bool) finding           { return finding{} }

// object observes an answer that is one JSON object.
type object struct {
	protocol usage.Protocol
	skim     skim
	size     int64 // Content-Length, -1 unknown
	seen     int64
}

func (o *object) observe(dst, p []byte) []byte {
	o.seen += int64(len(p))
	_, _ = o.skim.Write(p)
	return append(dst, p...)
}

func (o *object) close(dst []byte) []byte { return dst }

// final comes before the end is read: whoever has the whole answer may ask again
// at once, and must not find the first reservation still there.
func (o *object) final() bool { return o.size > 0 && o.seen >= o.size }

// whole observes an answer.
type whole struct {
	object
	counted usage.Usage // what its header says
}

func (w *whole) found(clean bool) finding {
	var u usage.Usage
	if object := w.skim.object(); clean && object != nil {
		u, _ = usage.FromJSON(w.protocol, object) // unknown if it is none
	}
	return finding{usage: u.Beside(w.counted)}
}

// failed observes a provider's error.
type failed struct {
	object
	status int
	name   string // where a header names the error
}

func (f *failed) found(clean bool) finding {
	object := f.skim.object()
	if !clean || object == nil {
		return finding{}
	}
	e, complete := usage.ParseNamedError(f.protocol, f.status, f.name, object)
	return finding{nothing: complete && e.ProvesNothingUsed(f.protocol, false)}
}

// relayed observes a stream that the client gets as it comes.
type relayed struct {
	protocol usage.Protocol
	stream   *usage.Stream
}

func (r *relayed) observe(dst, p []byte) []byte {
	_, _ = r.stream.Write(p)
	return append(dst, p...)
}

func (r *relayed) close(dst []byte) []byte {
	_ = r.stream.Close()
	return dst
}

func (r *relayed) final() bool { return r.stream.Done() }

// found is what the stream said. An error before any data is the provider's
// refusal, if the stream ended with it.
func (r *relayed) found(clean bool) finding {
	f := finding{usage: r.stream.Result()}
	if e := r.stream.Err(); e != nil && clean {
		f.nothing = e.ProvesNothingUsed(r.protocol, r.stream.DataSeen())
	}
	return f
}

// stripped observes a stream and keeps back the usage chunk that the client did
// not ask for. It holds an event until it is whole.
type stripped struct {
	relayed
	scan usage.EventScanner
	out  []byte
}

func (s *stripped) observe(dst, p []byte) []byte {
	s.out = dst
	s.scan.Feed(p, s.take)
	return s.out
}

func (s *stripped) close(dst []byte) []byte {
	s.out = dst
	s.scan.Close(s.take)
	return s.out
}

func (s *stripped) take(e usage.Event) {
	if !s.stream.Event(e) {
		s.out = append(s.out, e.Raw...)
	}
}
