package httpgov

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/pricing"
)

// The defaults of a Transport.
const (
	DefaultMaxBody     = 32 << 20
	DefaultLinger      = 10 * time.Second
	DefaultLingerLimit = 512
)

// Transport is an http.RoundTripper that reserves the most a request may use,
// forwards it, and settles by what came back: one reservation for each provider
// attempt. A fallback above it makes several attempts by calling it several times.
//
// Governor and Credentials must be set; the zero value of every other field is
// its default. No field may change once the Transport is in use.
//
// Concurrency: safe for concurrent use.
//
// Source: internal/docs/architecture.md "The path of one call".
type Transport struct {
	// Governor decides.
	Governor *governance.Governor
	// Prices bounds and prices. Without it no model has a price.
	Prices *pricing.Catalogue
	// Credentials puts the provider's key on a request that is about to be sent.
	// The headers that could hold the client's are already gone. It may change the
	// header and the URL, not the body; a signer that needs it finds GetBody set, which
	// is taken off again before the request is sent.
	Credentials func(*http.Request) error
	// Base sends. Default: a Transport like http.DefaultTransport that neither
	// compresses nor shares its connections with others.
	Base http.RoundTripper
	// Route says what a request's path stands for. Default DefaultRoute.
	Route func(*http.Request) Route
	// Select says what routing chose for a request whose body or path names the model.
	// Default: that model, under that name. A *RequestError or *governance.Refusal
	// is answered as a response, any other error is returned by RoundTrip.
	Select func(r *http.Request, model string) (Selection, error)
	// AllowFields are members of requests that this package does not know and that
	// are known to change neither tokens nor price. Others are refused under a
	// money budget, and bound by the context window without one.
	AllowFields []string
	// AllowTools are types of tools which the provider runs, such as
	// "web_search_20250305", whose price is accounted for elsewhere. Others are
	// refused under a money budget.
	AllowTools []string
	// OneAnswer refuses requests for several answers (n above 1): on a node, where each call
	// is one reservation in the journal and one amount of known use.
	OneAnswer bool
	// ContextBound bounds the input of every request by the model's context window, whatever
	// its size: on a node, where nobody finds out soon that a bound was too low.
	ContextBound bool
	// MaxBody bounds a request's body, encoded and decoded. Default DefaultMaxBody.
	MaxBody int64
	// Linger is how long a provider is read on after the client has left, to learn
	// what it used. Default DefaultLinger; negative: not at all.
	Linger time.Duration
	// LingerLimit is how many providers are read on at the same time. Beyond it the
	// connection is cut and the usage stays unknown. Default DefaultLingerLimit.
	LingerLimit int
	// Observe is told of every request once it has ended. It must not block.
	Observe func(Attempt)
	// Logger receives what no client is told. Default slog.Default().
	Logger *slog.Logger

	once      sync.Once
	transport http.RoundTripper
	fields    map[string]bool
	tools     map[string]bool

	mu        sync.Mutex
	open      int // attempts that have not ended
	idle      chan struct{}
	lingering map[context.Context]context.CancelFunc
	closed    bool
}

var _ http.RoundTripper = (*Transport)(nil)

// Selection is what routing chose for one attempt. Zero fields take their default.
type Selection struct {
	// Model is the name that is governed: allow-lists and permits name it. Default:
	// the model that the request names.
	Model string
	// Route is what Governor.Route said before Model was chosen; nil where nobody asked.
	// Where the policies replaced Model meanwhile, the answer is a refusal that wraps
	// governance.ErrStale: ask again and choose again.
	Route *governance.Route
	// Price is the name in the catalogue. Default Model.
	Price string
	// Region and Guardrail are compared with what the key may use at admission.
	Region    string
	Guardrail string
	// GuardrailID and GuardrailVersion are put into a request to Bedrock, in the place
	// of what the client chose. What a guardrail costs is not part of any bound.
	GuardrailID      string
	GuardrailVersion string
	// OutputField is the member in which a default maximum is put into an OpenAI
	// request that names none: "max_tokens" or "max_completion_tokens", the default.
	OutputField string
	// NoStreamUsage is for upstreams that refuse stream_options. Their streams
	// settle as unknown unless they report by themselves.
	NoStreamUsage bool
}

// Attempt tells what became of one request, for metrics and logs. Model is set
// only when it has a price, Team and Key when somebody was let in, so none of
// them is the client's invention.
type Attempt struct {
	Route   Route
	Model   string
	Team    string
	Key     string
	Stream  bool
	Status  int   // what the client was answered; zero: no answer
	Refusal error // why the request was not forwarded
	Reason  string
	Err     error // why there is no answer

	Permit      governance.PermitID
	Bound       governance.Bound
	Outcome     governance.Outcome
	SettleError error // the outcome is not recorded yet
	Left        bool  // the client left before the end

	Began     time.Time
	Admission time.Duration // from the request to the permit
	FirstByte time.Duration // from the request to the answer's header
	Duration  time.Duration
}

// RoundTrip implements http.RoundTripper. What is refused is answered as a
// response in the protocol of the route, not as an error; see RefusalFrom.
//
// Errors: those of Base, of Credentials and of the request's context.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.Governor == nil || t.Credentials == nil {
		closeBody(r)
		return nil, errors.New("httpgov: Transport needs a Governor and Credentials")
	}
	t.once.Do(t.init)
	report := Attempt{Route: t.route(r), Began: time.Now()}
	switch report.Route.Kind {
	case RouteGoverned:
		return t.governed(r, report)
	case RouteUnbilled:
		return t.unbilled(r, report)
	}
	closeBody(r)
	return t.refuse(r, report, ErrRoute), nil
}

func (t *Transport) init() {
	t.transport = t.Base
	if t.transport == nil {
		base, ok := http.DefaultTransport.(*http.Transport)
		if ok {
			base = base.Clone()
		} else {
			base = &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
		}
		base.DisableCompression = true
		t.transport = base
	}
	set := func(names []string) map[string]bool {
		m := map[string]bool{}
		for _, name := range names {
			m[name] = true
		}
		return m
	}
	t.fields, t.tools = set(t.AllowFields), set(t.AllowTools)
}

func (t *Transport) base() http.RoundTripper { return t.transport }

func (t *Transport) route(r *http.Request) Route {
	if t.Route != nil {
		return t.Route(r)
	}
	return DefaultRoute(r)
}

func (t *Transport) logger() *slog.Logger {
	if t.Logger != nil {
		return t.Logger
	}
	return slog.Default()
}

// governed admits, forwards and settles.
func (t *Transport) governed(r *http.Request, report Attempt) (*http.Response, error) {
	principal, ok := PrincipalFrom(r.Context())
	if !ok {
		closeBody(r)
		return t.refuse(r, report, ErrNoPrincipal), nil
	}
	report.Team, report.Key = principal.TeamID, principal.KeyID
	plan, err := t.plan(r, report.Route, principal)
	var pass *passError
	if errors.As(err, &pass) {
		report.Err, report.Duration = err, time.Since(report.Began)
		t.tell(report)
		return nil, pass.err
	}
	if err != nil {
		return t.refuse(r, report, err), nil
	}
	report.Stream, report.Bound = plan.ask.stream, plan.request.Bound
	if !plan.row.IsZero() {
		report.Model = plan.request.Model
	}
	permit, err := t.Governor.Admit(r.Context(), plan.request)
	report.Admission = time.Since(report.Began)
	switch {
	case gone(r.Context(), err):
		report.Err, report.Duration = err, report.Admission
		t.tell(report)
		return nil, r.Context().Err()
	case err != nil:
		return t.refuse(r, report, plan.explain(err)), nil
	}
	report.Permit = permit.ID()
	return t.start(r, plan, permit, report)
}

// unbilled forwards what is never charged, for a key that is good right now.
func (t *Transport) unbilled(r *http.Request, report Attempt) (*http.Response, error) {
	principal, err := FreshPrincipal(r.Context())
	if err != nil {
		closeBody(r)
		return t.refuse(r, report, err), nil
	}
	report.Team, report.Key = principal.TeamID, principal.KeyID
	out := r.Clone(r.Context())
	strip(out.Header)
	if err := t.credentials(out); err != nil {
		closeBody(r)
		return nil, err
	}
	resp, err := t.base().RoundTrip(out)
	if err == nil {
		report.Status = resp.StatusCode
	}
	report.Err, report.Duration = err, time.Since(report.Began)
	report.FirstByte = report.Duration
	t.tell(report)
	return resp, err
}

// credentials sets the provider's key. A panic is the caller's.
func (t *Transport) credentials(out *http.Request) error {
	if err := t.Credentials(out); err != nil {
		return fmt.Errorf("httpgov: no credentials for the provider: %w", err)
	}
	return nil
}

func (t *Transport) refuse(r *http.Request, report Attempt, err error) *http.Response {
	resp := refuse(r, report.Route.Protocol, err)
	report.Status, report.Refusal, report.Reason = resp.StatusCode, err, answerTo(err).reason
	report.Duration = time.Since(report.Began)
	t.tell(report)
	return resp
}

// tell reports an attempt. An observer that panics must not end the process.
func (t *Transport) tell(a Attempt) {
	if t.Observe == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			t.logger().Error("httpgov: panic in Observe", "panic", fmt.Sprint(v))
		}
	}()
	t.Observe(a)
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}
