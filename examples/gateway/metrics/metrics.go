// Package metrics counts what the gateway does, for Prometheus. Every label has
// few values, all of them from this program or its configuration: none is what a
// client sent. The numbers are for dashboards; the books are in the database.
package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/httpgov"
)

// Metrics is one gateway's registry. It is safe for concurrent use.
type Metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	inFlight  prometheus.Gauge
	attempts  *prometheus.CounterVec
	refusals  *prometheus.CounterVec
	fallbacks *prometheus.CounterVec
	admission prometheus.Histogram
	firstByte *prometheus.HistogramVec
	tokens    *prometheus.CounterVec
	cost      *prometheus.CounterVec
	unsettled prometheus.Counter
}

// New returns metrics with their own registry.
func New() *Metrics {
	registry := prometheus.NewRegistry()
	m := &Metrics{
		registry: registry,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tallystick_gateway_requests_total", Help: "Requests by route and status.",
		}, []string{"route", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tallystick_gateway_request_seconds", Help: "Time to the end of the answer.",
			Buckets: []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"route"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tallystick_gateway_requests_in_flight", Help: "Requests that have not been answered to the end.",
		}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tallystick_gateway_attempts_total", Help: "Provider attempts by how they ended: settled, cancelled, uncertain, impossible, unbilled.",
		}, []string{"upstream", "model", "outcome"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tallystick_gateway_refusals_total", Help: "Requests that were not forwarded, by reason.",
		}, []string{"reason"}),
		fallbacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tallystick_gateway_fallbacks_total", Help: "Attempts that failed and were followed by another.",
		}, []string{"route", "from", "to"}),
		admission: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tallystick_gateway_admission_seconds", Help: "Time from the request to the permit.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5},
		}),
		firstByte: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tallystick_gateway_upstream_first_byte_seconds", Help: "Time from the request to the upstream's answer.",
			Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"upstream"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tallystick_gateway_tokens_total", Help: "Tokens that providers reported.",
		}, []string{"upstream", "model"}),
		cost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tallystick_gateway_cost_microusd_total", Help: "Cost of what providers reported, in microUSD.",
		}, []string{"upstream", "model"}),
		unsettled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tallystick_gateway_settlements_delayed_total", Help: "Outcomes that could not be recorded at once.",
		}),
	}
	registry.MustRegister(m.requests, m.duration, m.inFlight, m.attempts, m.refusals, m.fallbacks, m.admission,
		m.firstByte, m.tokens, m.cost, m.unsettled, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler answers a scrape.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Timeout: 10 * time.Second, MaxRequestsInFlight: 4})
}

// Request counts requests to one route. The name is the program's, not the path.
func (m *Metrics) Request(route string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		m.inFlight.Inc()
		seen := &status{ResponseWriter: w}
		defer func() {
			m.inFlight.Dec()
			m.requests.WithLabelValues(route, seen.label()).Inc()
			m.duration.WithLabelValues(route).Observe(time.Since(began).Seconds())
		}()
		next.ServeHTTP(seen, r)
	})
}

// Refused counts a request that the Middleware did not let in.
func (m *Metrics) Refused(a httpgov.Attempt) { m.refusals.WithLabelValues(a.Reason).Inc() }

// Attempt counts a request that reached a Transport.
func (m *Metrics) Attempt(upstream string, a httpgov.Attempt) {
	if a.Refusal != nil {
		m.refusals.WithLabelValues(a.Reason).Inc()
		return
	}
	model := a.Model
	if model == "" {
		model = "unpriced"
	}
	if a.Permit.IsZero() {
		m.attempts.WithLabelValues(upstream, model, "unbilled").Inc()
		return
	}
	m.attempts.WithLabelValues(upstream, model, outcome(a.Outcome)).Inc()
	m.admission.Observe(a.Admission.Seconds())
	if a.FirstByte > 0 {
		m.firstByte.WithLabelValues(upstream).Observe(a.FirstByte.Seconds())
	}
	if a.Outcome.Tokens.Certainty == governance.Known {
		m.tokens.WithLabelValues(upstream, model).Add(float64(a.Outcome.Tokens.Value))
	}
	if a.Outcome.Cost.Certainty == governance.Known {
		m.cost.WithLabelValues(upstream, model).Add(float64(a.Outcome.Cost.Value))
	}
	if a.SettleError != nil {
		m.unsettled.Inc()
	}
}

// Fallback counts an attempt that another one followed.
func (m *Metrics) Fallback(route, from, to string) {
	m.fallbacks.WithLabelValues(route, from, to).Inc()
}

func outcome(o governance.Outcome) string {
	switch {
	case o.Unsent:
		return "cancelled"
	case o.Tokens.Certainty == governance.Impossible || o.Cost.Certainty == governance.Impossible:
		return "impossible"
	case o.Tokens.Certainty == governance.Known && o.Cost.Certainty == governance.Known:
		return "settled"
	}
	return "uncertain"
}

// status remembers what was answered.
type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	if s.code == 0 && code >= 200 {
		s.code = code
	}
	s.ResponseWriter.WriteHeader(code)
}

func (s *status) Write(p []byte) (int, error) {
	if s.code == 0 {
		s.code = http.StatusOK
	}
	return s.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController find Flush and the deadlines.
func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// label is the status, or none for a client that was not answered. An upstream
// chooses its own: what no standard knows is counted by its class.
func (s *status) label() string {
	switch {
	case s.code == 0:
		return "none"
	case http.StatusText(s.code) == "" && s.code != 529:
		return strconv.Itoa(s.code/100) + "xx"
	}
	return strconv.Itoa(s.code)
}
