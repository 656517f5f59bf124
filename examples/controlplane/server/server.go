// Package server composes a control plane: the authority over a database, the handler of
// escrow-v1, and the operators' API. It decides nothing and keeps nothing, so that any
// number of them may stand behind one address.
package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/tallystick-go/tallystick/escrow/escrowhttp"
	"github.com/tallystick-go/tallystick/examples/gateway/admin"
	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/storage"
	"github.com/tallystick-go/tallystick/examples/serving"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/policy"
)

// Options adjust a Server. Nil and zero fields are the defaults.
type Options struct {
	Logger *slog.Logger
	// Migrate creates and updates the tables, as the configuration can say too.
	Migrate bool
	// Clock makes the authority's time of the database's. It is for tests of calendars;
	// every process on the schema must use the same.
	Clock func(database time.Time) time.Time
}

// Server is one control plane. Make it with Open; every Server must be closed.
type Server struct {
	Config    *config.ControlPlane
	Storage   *storage.Database
	Governor  *governance.Governor
	Authority *governance.Authority

	options Options
	logger  *slog.Logger
	public  *serving.Listener
	admin   *serving.Listener // nil: there is none
	probe   *serving.Probe
	began   time.Time
}

// Open opens the database, migrates it where it may, and listens. Nothing is served yet.
//
// Errors: those of package storage and of listening. Whatever was opened is closed again.
func Open(ctx context.Context, c *config.ControlPlane, o *Options) (*Server, error) {
	s := &Server{Config: c, logger: slog.Default(), began: time.Now().UTC()}
	if o != nil {
		s.options = *o
	}
	if s.options.Logger != nil {
		s.logger = s.options.Logger
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

func (s *Server) open(ctx context.Context) error {
	secure, err := secured(s.Config.TLS)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	t := s.Config.Timeouts
	o, err := storage.PostgresOf(s.Config.Storage.Postgres, t.Connect.Duration, t.Storage.Duration)
	if err != nil {
		return err
	}
	o.Migrate, o.Clock = o.Migrate || s.options.Migrate, s.options.Clock
	if s.Storage, err = storage.OpenPostgres(ctx, o); err != nil {
		return err
	}
	s.Governor, err = governance.New(s.Storage, &governance.Options{StepTimeout: t.Storage.Duration, Logger: s.logger})
	if err != nil {
		return err
	}
	s.Authority, err = governance.NewAuthority(s.Storage, &governance.AuthorityOptions{
		GrantTTL: s.Config.Grants.TTL.Duration, StepTimeout: t.Storage.Duration, Logger: s.logger,
	})
	if err != nil {
		return err
	}
	s.probe = &serving.Probe{Parts: s.parts(), Timeout: t.Storage.Duration, Logger: s.logger}
	public, err := s.publicHandler()
	if err != nil {
		return err
	}
	if s.public, err = s.listen(ctx, s.Config.Listen, public, secure); err != nil {
		return err
	}
	if s.Config.Admin.Listen != "" {
		s.admin, err = s.listen(ctx, s.Config.Admin.Listen, s.adminHandler(), nil)
	}
	return err
}

// secured reads what a listener needs to speak TLS.
func secured(t config.TLS) (*tls.Config, error) {
	if !t.On() {
		return nil, nil
	}
	own, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
	if err != nil {
		return nil, errors.New("server: tls: the certificate and key do not fit together, or one of them cannot be read")
	}
	c := &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
	if t.ClientCA == "" {
		return c, nil
	}
	data, err := os.ReadFile(t.ClientCA)
	if err != nil {
		return nil, errors.New("server: tls.client_ca cannot be read")
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven // health is for those without, too
	if !c.ClientCAs.AppendCertsFromPEM(data) {
		return nil, errors.New("server: tls.client_ca has no certificate in it")
	}
	return c, nil
}

// identify says which node a request comes from.
func (s *Server) identify() (escrowhttp.Identify, error) {
	if s.Config.TLS.ClientCA != "" {
		var known []string
		for _, n := range s.Config.Nodes {
			known = append(known, n.Name)
		}
		return func(r *http.Request) (string, bool) {
			node, ok := escrowhttp.Certificate(r)
			return node, ok && slices.Contains(known, node)
		}, nil
	}
	var tokens []escrowhttp.Token
	for _, n := range s.Config.Nodes {
		tokens = append(tokens, escrowhttp.Token{Node: n.Name, Value: n.Token.Reveal()})
		if n.NextToken.IsSet() {
			tokens = append(tokens, escrowhttp.Token{Node: n.Name, Value: n.NextToken.Reveal()})
		}
	}
	return escrowhttp.Bearer(tokens)
}

// publicHandler is what nodes reach.
func (s *Server) publicHandler() (http.Handler, error) {
	who, err := s.identify()
	if err != nil {
		return nil, err
	}
	beat, err := escrowhttp.Handler(s.Authority, escrowhttp.HandlerOptions{
		Identify: who, AllowPlaintext: s.Config.AllowPlaintext, Timeout: 2 * s.Config.Timeouts.Storage.Duration, Logger: s.logger,
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle(escrowhttp.Path, beat)
	s.health(mux)
	return mux, nil
}

// adminHandler is what operators reach.
func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(admin.Prefix, admin.Handler(admin.Options{
		Governor: s.Governor, Policies: s.Storage.Policies, Profile: policy.Node, Authority: s.Authority,
		Token: s.Config.Admin.Token.Reveal(), Timeout: 4 * s.Config.Timeouts.Storage.Duration, Logger: s.logger,
	}))
	s.health(mux)
	return mux
}

func (s *Server) health(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", serving.Health)
	mux.Handle("GET /readyz", s.probe)
}

// parts are what a control plane needs to grant anything: the database.
func (s *Server) parts() []serving.Part {
	return []serving.Part{
		{Name: "accounts", Ask: func(ctx context.Context) error {
			_, err := s.Governor.FrozenAccounts(ctx, governance.AccountQuery{Limit: 1})
			return err
		}},
		{Name: "policies", Ask: func(ctx context.Context) error {
			_, _, err := s.Governor.Policies(ctx)
			return err
		}},
	}
}

func (s *Server) listen(ctx context.Context, address string, h http.Handler, secure *tls.Config) (*serving.Listener, error) {
	t := s.Config.Timeouts
	return serving.Listen(ctx, address, h, serving.Bounds{
		ReadHeader: t.ReadHeader.Duration, Read: t.ReadBody.Duration, Write: t.ReadBody.Duration + auditTime, Idle: t.Idle.Duration,
	}, secure, s.logger)
}

// URL is where nodes go.
func (s *Server) URL() string { return s.public.URL() }

// AdminURL is where operators go, or empty.
func (s *Server) AdminURL() string { return s.admin.URL() }

// Serve answers until the context ends, and then drains. It does not close the Server.
//
// Errors: why serving ended too early, and those of Drain.
func (s *Server) Serve(ctx context.Context) error {
	return serving.Serve(ctx, s.Drain, s.public, s.admin)
}

// Drain stops to listen and lets heartbeats in flight end: those of nodes that stop too
// give back what they hold.
//
// Errors: the context's, when something was cut.
func (s *Server) Drain(ctx context.Context) error {
	s.probe.Drain()
	ctx, cancel := context.WithTimeout(ctx, s.Config.Timeouts.Drain.Duration)
	defer cancel()
	return serving.Shutdown(ctx, s.public, s.admin)
}

const (
	// openTime bounds what has to be done before a control plane listens.
	openTime = time.Minute
	// closeTime bounds the end.
	closeTime = 10 * time.Second
	// auditTime is what an audit may take; it is the longest answer.
	auditTime = 5 * time.Minute
)

// Close closes everything. Drain comes first.
func (s *Server) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	err := serving.Close(s.public, s.admin)
	if s.Governor != nil {
		err = errors.Join(err, s.Governor.Close(ctx))
	}
	if s.Storage != nil {
		err = errors.Join(err, s.Storage.Close())
	}
	if err != nil {
		err = fmt.Errorf("server: closing: %w", err)
	}
	return err
}
