package server

import (
	"context"
	"net/http"
	"time"

	"github.com/tallystick-go/tallystick/escrow/escrowhttp"
	"github.com/tallystick-go/tallystick/examples/gateway/wire"
	"github.com/tallystick-go/tallystick/governance/httpgov"
)

// authority is the client of the control planes that the configuration names.
//
// Errors: *config.FieldError.
func (s *Server) authority() (*escrowhttp.Client, error) {
	a := s.Config.Authority
	secure, err := a.TLS()
	if err != nil {
		return nil, err
	}
	o := escrowhttp.ClientOptions{URL: a.URL, AllowPlaintext: a.AllowPlaintext, Timeout: a.Timeout.Duration}
	if a.Token.IsSet() {
		o.Token = a.FreshToken
	}
	if secure != nil {
		o.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure, ForceAttemptHTTP2: true, DisableCompression: true,
			TLSHandshakeTimeout: s.Config.Timeouts.Connect.Duration, IdleConnTimeout: 90 * time.Second,
		}
	}
	return escrowhttp.NewClient(o)
}

// startWitness begins to make sure that a gateway of the profile shared has its authority's
// database.
func (s *Server) startWitness() error {
	client, err := s.authority()
	if err != nil {
		return err
	}
	s.witness = newWitness(client, s.Storage.Policies, s.Config.Node, s.logger)
	s.inBackground(func(ctx context.Context) {
		defer client.Close()
		s.witness.run(ctx)
	})
	return nil
}

// inBackground runs something until the server is closed.
func (s *Server) inBackground(run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx)
	}()
	s.background = append(s.background, func() {
		cancel()
		<-done
	})
}

// bound is what ties a gateway to its authority; nil where there is none.
func (s *Server) bound(ctx context.Context) error {
	switch {
	case s.node != nil:
		return s.node.heard()
	case s.witness != nil:
		return s.witness.ask(ctx)
	}
	return nil
}

// whenBound lets a request pass that costs something, once it is sure that it counts where
// it must. Counting tokens is free.
func (s *Server) whenBound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.bound(r.Context()); err != nil {
			e := wire.Error{
				Status: http.StatusServiceUnavailable, Code: "not_ready", Retryable: true, RetryAfter: time.Second,
				Message: "this gateway has not been bound to its authority yet, or no more; try again",
			}
			e.Write(w, httpgov.DefaultRoute(r).Protocol)
			return
		}
		next.ServeHTTP(w, r)
	})
}
