package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/admin"
	"github.com/tallystick-go/tallystick/examples/gateway/router"
	"github.com/tallystick-go/tallystick/examples/gateway/wire"
	"github.com/tallystick-go/tallystick/examples/serving"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/keys"
)

// publicHandler is what clients reach.
func (s *Server) publicHandler() http.Handler {
	mux := http.NewServeMux()
	proxy := s.proxy()
	billed := s.whenBound(proxy)
	// Everything but health and metrics asks first who is calling.
	who := func(pattern, name string, resolver keys.Resolver, h http.Handler) {
		h = httpgov.Middleware(h, resolver, &httpgov.Options{
			ResolveTimeout: s.Config.Timeouts.Storage.Duration, Observe: s.refused,
		})
		mux.Handle(pattern, s.metrics.Request(name, s.bounded(h)))
	}
	handle := func(pattern, name string, h http.Handler) { who(pattern, name, s.cache, s.whenNotSuspended(h)) }
	handle("POST /v1/chat/completions", "chat_completions", billed)
	handle("POST /v1/responses", "responses", billed)
	handle("POST /v1/embeddings", "embeddings", billed)
	handle("POST /v1/messages", "messages", billed)
	handle("POST /v1/messages/count_tokens", "count_tokens", proxy)
	handle("POST /model/{model}/converse", "converse", billed)
	handle("POST /model/{model}/converse-stream", "converse_stream", billed)
	handle("POST /model/{model}/invoke", "invoke", billed)
	handle("POST /model/{model}/invoke-with-response-stream", "invoke_stream", billed)
	handle("GET /v1/models", "models", http.HandlerFunc(s.listModels))
	handle("GET /v1/models/{model...}", "models", http.HandlerFunc(s.oneModel))
	who("GET /v1/usage", "usage", tolerant{s.cache}, http.HandlerFunc(s.usage))
	handle("/v1/", "other", http.HandlerFunc(unknownRoute))
	handle("/model/", "other", http.HandlerFunc(unknownRoute))
	s.handleHealth(mux)
	mux.Handle("/", s.metrics.Request("other", http.HandlerFunc(unknownRoute)))
	return mux
}

// adminHandler is what operators reach.
func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	api := s.metrics.Request("admin", s.adminAPI())
	mux.Handle(admin.Prefix, api)
	mux.Handle(admin.SystemPath, api)
	s.handleHealth(mux)
	return mux
}

func (s *Server) handleHealth(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", serving.Health)
	mux.Handle("GET /readyz", s.probe)
	mux.Handle("GET /metrics", s.metrics.Handler())
}

// bounded ends every request in time, whatever an upstream does.
func (s *Server) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), s.Config.Timeouts.Request.Duration)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// proxy relays to wherever the router sends a request, as the answer comes.
func (s *Server) proxy() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:       func(*httputil.ProxyRequest) {}, // the router chooses the URL
		Transport:     s.router,
		FlushInterval: -1,
		ErrorHandler:  s.proxyError,
		ErrorLog:      slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}
}

// proxyError answers when there is no answer to relay.
func (s *Server) proxyError(w http.ResponseWriter, r *http.Request, err error) {
	e := wire.Error{
		Status: http.StatusBadGateway, Code: "upstream_unreachable",
		Message: "no provider of this model could be reached", Retryable: true,
	}
	var client *router.ClientError
	var timeout net.Error
	switch {
	case errors.Is(r.Context().Err(), context.Canceled):
		panic(http.ErrAbortHandler) // nobody is there to be answered
	case errors.As(err, &client):
		e = wire.Error{Status: http.StatusBadRequest, Code: "invalid_request", Message: "the body could not be read to its end"}
	case errors.Is(r.Context().Err(), context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		e.Status, e.Code, e.Message = http.StatusGatewayTimeout, "upstream_timeout", "the provider of this model did not answer in time"
	default:
		s.logger.WarnContext(r.Context(), "gateway: no answer from any upstream", "error", err)
	}
	e.Write(w, httpgov.DefaultRoute(r).Protocol)
}

func unknownRoute(w http.ResponseWriter, r *http.Request) {
	e := wire.Error{Status: http.StatusNotFound, Code: "unknown_route", Message: "this gateway does not serve this path and method"}
	e.Write(w, httpgov.DefaultRoute(r).Protocol)
}

// startTime is when the list of models was made, as far as clients are told.
var startTime = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
