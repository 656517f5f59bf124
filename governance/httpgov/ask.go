package httpgov

import (
	"errors"
	"net/http"
	"strings"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/usage"
)

// ask is what a request asks for, as far as it bounds what may be used.
type ask struct {
	doc   document
	root  span
	model string

	stream        bool
	streamOptions span // zero: absent
	usageAsked    bool // the client itself wants the usage chunk

	inference span // Converse\'s inferenceConfig, zero: absent
	guardrail span // Converse\'s guardrailConfig, zero: absent
	native    bool // invoke: the body is Anthropic\'s

	output      int64 // requested maximum of generated tokens; -1: none named
	prediction  int64 // text that may be charged as output beside it
	n           int64
	messages    int
	tools       int
	inputs      []int64 // the bytes of each text to embed
	window      bool    // what the text's length does not bound
	mediaInput  bool    // images, audio or files may be among the input
	mediaOutput bool
	tier        string          // service tier asked for
	speed, geo  string          // Anthropic's fast mode and place of inference
	nulls       map[string]span // members that are known and null
	unpriced    []string        // members that may be charged for by themselves
	hosted      []string        // tools that the provider runs and may charge for
}

// spell says how a member of the body is read.
type spell func(a *ask, name string, v span) error

// words are the members of a body that are known.
type words struct {
	fields map[string]spell
	folded map[string]bool // their names without upper and lower case
}

func vocabulary(fields map[string]spell) words {
	w := words{fields, map[string]bool{}}
	for name := range fields {
		w.folded[folded(name)] = true
	}
	return w
}

// vocabularies are the words of each protocol.
var vocabularies = map[usage.Protocol]words{
	usage.OpenAIChat: chatFields, usage.OpenAIEmbeddings: embeddingFields, usage.OpenAIResponses: responsesFields,
	usage.AnthropicMessages: messagesFields, usage.BedrockConverse: converseFields, usage.BedrockInvoke: invokeFields,
}

// parseAsk reads a request: its body, and for Bedrock its path and header. Everything
// that is not understood is noted: it costs the tight bound, or under a budget the
// request.
//
// Errors: *RequestError.
func parseAsk(p usage.Protocol, r *http.Request, body []byte) (*ask, error) {
	doc, root, err := parse(body)
	if err != nil {
		return nil, bad("", "the body "+err.Error())
	}
	a := &ask{doc: doc, root: root, output: -1, n: 1, nulls: map[string]span{}}
	if err := a.readPath(p, r); err != nil {
		return nil, err
	}
	spoken := vocabularies[p]
	err = doc.members(root, func(name string, v span) error {
		read, known := spoken.fields[name]
		switch {
		case known && doc.isNull(v) && name != "model":
			a.nulls[name] = v
			return nil // as good as absent
		case known:
			return within(name, read(a, name, v))
		}
		if spoken.folded[folded(name)] {
			return bad("", "a member of the body is known by a name in other letters; use upper and lower case as documented")
		}
		a.unpriced = append(a.unpriced, name)
		return nil
	})
	var request *RequestError
	switch {
	case errors.As(err, &request):
		return nil, request
	case err != nil:
		return nil, bad("", "the body "+err.Error())
	case a.model == "":
		return nil, bad("model", "is missing")
	}
	return a, nil
}

// readPath takes what Bedrock has in the path and header, and others in the body.
func (a *ask) readPath(p usage.Protocol, r *http.Request) error {
	if p != usage.BedrockConverse && p != usage.BedrockInvoke {
		return nil
	}
	model, action, ok := ModelPath(r.URL)
	switch {
	case !ok:
		return bad("", "the path does not name a model and what to do with it")
	case len(model) > governance.MaxNameBytes:
		return bad("model", "is too long")
	}
	a.model, a.stream = model, strings.HasSuffix(action, "-stream")
	if p == usage.BedrockInvoke {
		return a.readHeader(r.Header)
	}
	return nil
}

// within names the member in which something is wrong.
func within(field string, err error) error {
	var request *RequestError
	if err == nil || errors.As(err, &request) {
		return err
	}
	return bad(field, err.Error())
}

// plain takes a member that changes neither the input beyond its own length nor
// the output beyond its maximum, nor the price.
func plain(*ask, string, span) error { return nil }

func readModel(a *ask, _ string, v span) error {
	model, ok := a.doc.text(v)
	if !ok || model == "" {
		return errors.New("must be a string that is not empty")
	}
	if len(model) > governance.MaxNameBytes {
		return errors.New("is too long")
	}
	a.model = model
	return nil
}

func readStream(a *ask, _ string, v span) error {
	var ok bool
	if a.stream, ok = a.doc.boolean(v); !ok {
		return errors.New("must be true or false")
	}
	return nil
}

func readStreamOptions(a *ask, _ string, v span) error {
	a.streamOptions = v
	return a.doc.members(v, func(name string, v span) error {
		if name != "include_usage" || a.doc.isNull(v) {
			return nil
		}
		var ok bool
		if a.usageAsked, ok = a.doc.boolean(v); !ok {
			return bad("stream_options.include_usage", "must be true or false")
		}
		return nil
	})
}

// readOutput takes a maximum of generated tokens. Where a request names two,
// providers differ in which one counts.
func readOutput(a *ask, _ string, v span) error {
	n, ok := a.doc.integer(v)
	if !ok || n < 1 || n > int64(governance.MaxTokens) {
		return errors.New("must be a whole number of at least 1")
	}
	a.output = max(a.output, n)
	return nil
}

func readN(a *ask, _ string, v span) error {
	n, ok := a.doc.integer(v)
	if !ok || n < 1 || n > maxChoices {
		return errors.New("must be a whole number between 1 and 1024")
	}
	a.n = n
	return nil
}

// maxChoices is far above what any provider takes.
const maxChoices = 1024

// readLabel takes a short name that picks a price.
func readLabel(into func(*ask) *string) spell {
	return func(a *ask, _ string, v span) error {
		text, ok := a.doc.text(v)
		if !ok || len(text) > governance.MaxNameBytes {
			return errors.New("must be a short string")
		}
		*into(a) = text
		return nil
	}
}

// unpriced notes a member that the provider may charge for by itself.
func unpriced(a *ask, name string, _ span) error {
	a.unpriced = append(a.unpriced, name)
	return nil
}
