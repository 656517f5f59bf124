package server

import (
	"context"
	"net/http"
	"sync"

	"github.com/tallystick-go/tallystick/examples/gateway/wire"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
)

// readiness says what can be used, part by part.
type readiness struct {
	Status string            `json:"status"`
	Parts  map[string]string `json:"parts,omitempty"`
}

const (
	partReady = "ready"
	partDown  = "does not answer"
)

// probes remembers the probe that is under way, so that many who ask during an outage
// do not each hold connections until it has failed.
type probes struct {
	mu      sync.Mutex
	running chan struct{}
	last    readiness
}

// ready says whether a load balancer should send requests here, and what is down. It
// asks anew every time: nothing has to be started again after an outage.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() {
		wire.JSON(w, http.StatusServiceUnavailable, readiness{Status: "draining"})
		return
	}
	found, err := s.probe(r.Context())
	if err != nil {
		return // nobody is there to be answered
	}
	if found.Status != partReady {
		w.Header().Set("Retry-After", "1")
		wire.JSON(w, http.StatusServiceUnavailable, found)
		return
	}
	wire.JSON(w, http.StatusOK, found)
}

// probe returns what the probe finds that is under way, or a new one.
func (s *Server) probe(ctx context.Context) (readiness, error) {
	s.probes.mu.Lock()
	running := s.probes.running
	if running == nil {
		running = make(chan struct{})
		s.probes.running = running
		go func() {
			found := s.look(context.WithoutCancel(ctx))
			s.probes.mu.Lock()
			s.probes.last, s.probes.running = found, nil
			s.probes.mu.Unlock()
			close(running)
		}()
	}
	s.probes.mu.Unlock()
	select {
	case <-running:
	case <-ctx.Done():
		return readiness{}, ctx.Err()
	}
	s.probes.mu.Lock()
	defer s.probes.mu.Unlock()
	return s.probes.last, nil
}

// look asks every part of the store at the same time.
func (s *Server) look(ctx context.Context) readiness {
	ctx, cancel := context.WithTimeout(ctx, s.Config.Timeouts.Storage.Duration)
	defer cancel()
	found := readiness{Status: partReady, Parts: map[string]string{}}
	var mu sync.Mutex
	var wait sync.WaitGroup
	ask := func(part string, question func() error) {
		wait.Go(func() {
			answer := partReady
			err := question()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				answer, found.Status = partDown, "not ready"
				s.logger.Debug("gateway: not ready", "part", part, "error", err)
			}
			found.Parts[part] = answer
		})
	}
	ask("keys", func() error {
		_, err := s.Storage.Keys.Keys(ctx, keys.ListKeys{Limit: 1})
		return err
	})
	ask("counters", func() error {
		_, err := s.Governor.FrozenAccounts(ctx, governance.AccountQuery{Limit: 1})
		return err
	})
	ask("policies", func() error {
		_, err := s.Storage.Policies.Load(ctx)
		return err
	})
	wait.Wait()
	return found
}
