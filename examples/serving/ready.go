package serving

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/wire"
)

// Readiness says what can be used, part by part.
type Readiness struct {
	Status string            `json:"status"`
	Parts  map[string]string `json:"parts,omitempty"`
}

const (
	// Ready is the status of what can be used.
	Ready = "ready"
	down  = "does not answer"
)

// Part is what a program needs to answer.
type Part struct {
	Name string
	Ask  func(context.Context) error
	// Down says what it means when Ask fails; when empty: does not answer.
	Down string
	// Say says it of one error, where there are several things that it may mean; nil: Down.
	Say func(error) string
}

// Probe asks parts, all at the same time. It remembers the question that is under way, so
// that many who ask during an outage do not each hold connections until it has failed.
type Probe struct {
	Parts   []Part
	Timeout time.Duration
	Logger  *slog.Logger

	draining atomic.Bool
	mu       sync.Mutex
	running  chan struct{}
	last     Readiness
}

// Drain makes the program unready for good.
func (p *Probe) Drain() { p.draining.Store(true) }

// Draining reports whether it is.
func (p *Probe) Draining() bool { return p.draining.Load() }

// ServeHTTP says whether a load balancer should send requests here, and what is down. It
// asks anew every time: nothing has to be started again after an outage.
func (p *Probe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.Draining() {
		wire.JSON(w, http.StatusServiceUnavailable, Readiness{Status: "draining"})
		return
	}
	found, err := p.Look(r.Context())
	if err != nil {
		return // nobody is there to be answered
	}
	if found.Status != Ready {
		w.Header().Set("Retry-After", "1")
		wire.JSON(w, http.StatusServiceUnavailable, found)
		return
	}
	wire.JSON(w, http.StatusOK, found)
}

// Look returns what the probe finds that is under way, or a new one.
func (p *Probe) Look(ctx context.Context) (Readiness, error) {
	p.mu.Lock()
	running := p.running
	if running == nil {
		running = make(chan struct{})
		p.running = running
		go func() {
			found := p.ask(context.WithoutCancel(ctx))
			p.mu.Lock()
			p.last, p.running = found, nil
			p.mu.Unlock()
			close(running)
		}()
	}
	p.mu.Unlock()
	select {
	case <-running:
	case <-ctx.Done():
		return Readiness{}, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, nil
}

func (p *Probe) ask(ctx context.Context) Readiness {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	found := Readiness{Status: Ready, Parts: map[string]string{}}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for _, part := range p.Parts {
		wait.Go(func() {
			answer := Ready
			err := part.Ask(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				answer, found.Status = down, "not ready"
				if part.Down != "" {
					answer = part.Down
				}
				if part.Say != nil {
					answer = part.Say(err)
				}
				p.Logger.Debug("server: not ready", "part", part.Name, "error", err)
			}
			found.Parts[part.Name] = answer
		})
	}
	wait.Wait()
	return found
}

// Health answers as long as the process does.
func Health(w http.ResponseWriter, _ *http.Request) {
	wire.JSON(w, http.StatusOK, map[string]string{"status": "ok"})
}
