package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Model is one that the provider serves.
type Model struct {
	Name       string
	Embeddings bool
	Directives string // in the form of a prompt's directive; the prompt has the last word
}

// DefaultModels have the names of real ones, so that a price catalogue knows them.
var DefaultModels = []Model{
	{Name: "demo-small"},
	{Name: "demo-large"},
	{Name: "demo-free"},
	{Name: "demo-embedding", Embeddings: true},
	{Name: "gpt-4o"},
	{Name: "gpt-4o-mini"},
	{Name: "gpt-4.1-mini"},
	{Name: "text-embedding-3-small", Embeddings: true},
	{Name: "claude-sonnet-4-5"},
	{Name: "claude-haiku-4-5"},
	{Name: "us.anthropic.claude-sonnet-4-5-v1:0"},
	{Name: "anthropic.claude-haiku-4-5-v1:0"},
}

// Received is what arrived of one request.
type Received struct {
	Path       string
	Model      string
	Credential string // as presented, in either header
	Stream     bool
	Header     http.Header
	Body       []byte
}

// Options adjust a Provider. Nil and zero fields are the defaults.
type Options struct {
	// Credential is the only key that is accepted. Default: any.
	Credential string
	// Models are those that are served. Default: DefaultModels.
	Models []Model
	// Now stamps answers. Default time.Now.
	Now func() time.Time
	// Observe sees every request that reached a model endpoint.
	Observe func(Received)
}

// Provider answers in the protocols of OpenAI, Anthropic and Bedrock. It is safe for
// concurrent use.
type Provider struct {
	options Options
	models  map[string]Model
	mux     http.ServeMux
	serial  atomic.Int64

	mu    sync.Mutex
	holds map[string]chan struct{}
}

// New returns a Provider, an http.Handler.
func New(o *Options) *Provider {
	p := &Provider{models: map[string]Model{}, holds: map[string]chan struct{}{}}
	if o != nil {
		p.options = *o
	}
	if p.options.Models == nil {
		p.options.Models = DefaultModels
	}
	if p.options.Now == nil {
		p.options.Now = time.Now
	}
	for _, m := range p.options.Models {
		p.models[m.Name] = m
	}
	p.mux.HandleFunc("POST /v1/chat/completions", p.openai(p.chat))
	p.mux.HandleFunc("POST /v1/responses", p.openai(p.responses))
	p.mux.HandleFunc("POST /v1/embeddings", p.openai(p.embeddings))
	p.mux.HandleFunc("GET /v1/models", p.listModels)
	p.mux.HandleFunc("GET /v1/models/{model}", p.oneModel)
	p.mux.HandleFunc("POST /v1/messages", p.anthropic(p.messages))
	p.mux.HandleFunc("POST /v1/messages/count_tokens", p.anthropic(p.countTokens))
	p.mux.HandleFunc("POST /model/{model}/converse", p.converse(false))
	p.mux.HandleFunc("POST /model/{model}/converse-stream", p.converse(true))
	p.mux.HandleFunc("POST /model/{model}/invoke", p.invoke(false))
	p.mux.HandleFunc("POST /model/{model}/invoke-with-response-stream", p.invoke(true))
	p.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		p.refuseOpenAI(w, http.StatusNotFound, fmt.Sprintf("Invalid URL (%s %s)", r.Method, r.URL.Path), "", "")
	})
	return p
}

func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.mux.ServeHTTP(w, r) }

// Release lets every request go on that is held by the name, now or later.
func (p *Provider) Release(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gate := p.gate(name)
	select {
	case <-gate:
	default:
		close(gate)
	}
}

// gate returns the channel of a name; p.mu is held.
func (p *Provider) gate(name string) chan struct{} {
	gate := p.holds[name]
	if gate == nil {
		gate = make(chan struct{})
		p.holds[name] = gate
	}
	return gate
}

// delay does what the directives say about waiting. It fails when the client left.
func (p *Provider) delay(ctx context.Context, d Directives) error {
	if d.Hold != "" {
		p.mu.Lock()
		gate := p.gate(d.Hold)
		p.mu.Unlock()
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return pause(ctx, d.Slow)
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const maxBody = 32 << 20

var errTooLarge = errors.New("request is too large")

// read takes a JSON body into v and tells Observe.
func (p *Provider) read(r *http.Request, credential string, v any, seen func() (model string, stream bool)) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return errors.New("the body could not be read")
	}
	if len(body) > maxBody {
		return errTooLarge
	}
	if err := json.Unmarshal(body, v); err != nil {
		return errors.New("we could not parse the JSON body of your request")
	}
	if p.options.Observe != nil {
		model, stream := seen()
		p.options.Observe(Received{
			Path: r.URL.Path, Model: model, Credential: credential, Stream: stream, Header: r.Header.Clone(), Body: body,
		})
	}
	return nil
}

func (p *Provider) accepts(credential string) bool {
	return credential != "" && (p.options.Credential == "" || credential == p.options.Credential)
}

// next returns a number that no other answer of this provider has.
func (p *Provider) next() int64 { return p.serial.Add(1) }

func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return token
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("provider: an answer does not encode: " + err.Error())
	}
	return data
}

// send writes a whole JSON answer, or the beginning of it when it is to be cut.
func send(w http.ResponseWriter, status int, v any, cut int) {
	body := encode(v)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(status)
	if cut >= 0 {
		_, _ = w.Write(body[:min(cut, len(body)-1)])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
}
