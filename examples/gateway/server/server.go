// Package server composes the gateway: storage, Governor, Middleware, router and
// the two listeners. It decides nothing and counts nothing.
package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/admin"
	"github.com/tallystick-go/tallystick/examples/gateway/audit"
	"github.com/tallystick-go/tallystick/examples/gateway/child"
	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/coordination"
	"github.com/tallystick-go/tallystick/examples/gateway/metrics"
	"github.com/tallystick-go/tallystick/examples/gateway/router"
	"github.com/tallystick-go/tallystick/examples/gateway/storage"
	"github.com/tallystick-go/tallystick/examples/gateway/suspend"
	"github.com/tallystick-go/tallystick/examples/gateway/upstreams"
	"github.com/tallystick-go/tallystick/examples/serving"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/lease"
)

// Options adjust a Server. Nil and zero fields are the defaults.
type Options struct {
	Logger *slog.Logger
	// Observe is told of every request that was refused and every attempt that ended.
	Observe func(httpgov.Attempt)
	// Migrate creates and updates the tables of a Postgres, as the configuration can say too.
	Migrate bool
	// Clock makes the store's time of a Postgres's, or of this machine's where the store is a
	// file. It is for tests of calendars and wrong clocks; every gateway on one schema must use
	// the same.
	Clock func(database time.Time) time.Time
}

// Server is one gateway. Make it with Open; every Server must be closed.
type Server struct {
	Config   *config.Config
	Storage  *storage.Database
	Governor *governance.Governor

	options Options
	logger  *slog.Logger
	cache   *keys.Cache
	metrics *metrics.Metrics
	router  *router.Router
	public  *serving.Listener
	admin   *serving.Listener // nil: there is none
	probe   *serving.Probe
	began   time.Time

	instance     string               // minted; of gateways that coordinate it is the log's
	coordination *coordination.Base   // nil: this gateway is for itself
	suspensions  *suspend.Suspensions // nil without coordination
	fleet        *upstreams.Upstreams // nil without coordination
	export       *audit.Exporter      // nil: nothing is exported
	calls        *audit.Calls         // nil: attempts have no events
	routing      sync.Mutex           // what is known last is routed by last
	edited       chan struct{}        // policies were, somewhere

	witness    *witness // of the profile shared with an authority, else nil
	node       *node    // of the profile node, else nil
	background []func() // each ends something that runs beside requests
}

// Open opens the storage, migrates it where it may, and listens. Nothing is served yet.
//
// Errors: those of package storage, of loading prices, and of listening. Whatever was
// opened is closed again.
func Open(ctx context.Context, c *config.Config, o *Options) (*Server, error) {
	s := &Server{Config: c, logger: slog.Default(), metrics: metrics.New(), began: time.Now().UTC(), instance: lease.NewHolder(""), edited: make(chan struct{}, 1)}
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
	prices, err := loadPrices(s.Config.Prices)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	if err := s.join(ctx); err != nil {
		return err
	}
	if s.Storage, err = s.openStorage(ctx); err != nil {
		return err
	}
	declared, err := s.Storage.Keys.Bootstrap(ctx, s.Config.Bootstrap.Declarations())
	if err != nil {
		return err
	}
	for _, name := range declared.Created {
		s.logger.Info("declared for the first time", "kind", name.Kind, "id", name.ID)
	}
	s.cache = keys.NewCache(s.Storage.Keys, nil)
	if err := s.govern(ctx); err != nil {
		return err
	}
	if err := s.startPolicies(ctx); err != nil {
		return err
	}
	switch {
	case s.node != nil:
		err = s.startSyncer()
		s.metrics.Node(s.nodeMetrics)
	case s.Config.Authority != nil:
		err = s.startWitness()
	}
	if err != nil {
		return err
	}
	s.router = router.New(router.Options{
		Config: s.Config, Governor: s.Governor, Prices: prices, Logger: s.logger,
		Observe: s.attempted, Fallback: s.metrics.Fallback,
	})
	if err := s.coordinate(ctx); err != nil {
		return err
	}
	children, err := child.Launch(s.Config, s.logger)
	if err != nil {
		return err
	}
	s.background = append(s.background, children.Close)
	s.probe = &serving.Probe{Parts: s.parts(), Timeout: s.Config.Timeouts.Storage.Duration, Logger: s.logger}
	if s.public, err = s.listen(ctx, s.Config.Listen, s.publicHandler()); err != nil {
		return err
	}
	if s.Config.Admin.Listen != "" {
		s.admin, err = s.listen(ctx, s.Config.Admin.Listen, s.adminHandler())
	}
	return err
}

// govern makes the Governor, on a node over its journal.
func (s *Server) govern(ctx context.Context) (err error) {
	o := &governance.Options{StepTimeout: s.Config.Timeouts.Storage.Duration, Evict: s.cache.Evict, Logger: s.logger}
	if s.Config.Profile == config.Node {
		if err := s.openJournal(ctx); err != nil {
			return err
		}
		o.Journal, o.Now = s.node.journal, s.fileClock()
	}
	s.Governor, err = governance.New(s.Storage, o)
	return err
}

// fileClock is the clock of a store that is a file; nil: this machine's.
func (s *Server) fileClock() func() time.Time {
	if s.options.Clock == nil {
		return nil
	}
	return func() time.Time { return s.options.Clock(time.Now()) }
}

// openStorage opens the database of the profile.
func (s *Server) openStorage(ctx context.Context) (*storage.Database, error) {
	if s.Config.Profile != config.Shared {
		o := storage.Options{Serve: true, Node: s.Config.Profile == config.Node, Format: s.Config.Keys.Format(), Now: s.fileClock()}
		file, err := storage.Open(ctx, s.Config.Storage.SQLite, o)
		if err != nil {
			return nil, err
		}
		return file.Database(), nil
	}
	t := s.Config.Timeouts
	o, err := storage.PostgresOf(s.Config.Storage.Postgres, t.Connect.Duration, t.Storage.Duration)
	if err != nil {
		return nil, err
	}
	o.Format = s.Config.Keys.Format()
	o.Migrate, o.Clock = o.Migrate || s.options.Migrate, s.options.Clock
	if s.coordination != nil {
		o.Events = s.coordination.Events
	}
	return storage.OpenPostgres(ctx, o)
}

func (s *Server) attempted(upstream string, a httpgov.Attempt) {
	s.metrics.Attempt(upstream, a)
	s.called(upstream, a)
	if s.options.Observe != nil {
		s.options.Observe(a)
	}
}

func (s *Server) refused(a httpgov.Attempt) {
	s.metrics.Refused(a)
	s.called("", a)
	if s.options.Observe != nil {
		s.options.Observe(a)
	}
}

// adminAPI is what operators use.
func (s *Server) adminAPI() http.Handler {
	return admin.Handler(admin.Options{
		Keys: s.Storage.Keys, Governor: s.Governor, Token: s.Config.Admin.Token.Reveal(), Status: s.status, Topology: s.Config.Topology(),
		System: s.system, Suspensions: s.suspensions, Coordination: s.coordination, Fleet: s.fleet,
		Policies: s.Storage.Policies, PoliciesFromFiles: s.Config.Profile == config.Local, Profile: s.profile(), Journal: s.Storage.Journal,
		Timeout: 4 * s.Config.Timeouts.Storage.Duration, Changed: s.cache.Evict, Logger: s.logger,
	})
}

func (s *Server) listen(ctx context.Context, address string, h http.Handler) (*serving.Listener, error) {
	t := s.Config.Timeouts
	return serving.Listen(ctx, address, h, serving.Bounds{
		ReadHeader: t.ReadHeader.Duration, Read: t.ReadBody.Duration, Write: t.ReadBody.Duration + t.Request.Duration, Idle: t.Idle.Duration,
	}, nil, s.logger)
}

// Address is where clients go, as host:port.
func (s *Server) Address() string { return s.public.Address() }

// AdminAddress is where operators go, as host:port, or empty.
func (s *Server) AdminAddress() string { return s.admin.Address() }

// Serve answers requests until the context ends, and then drains. It does not
// close the Server.
//
// Errors: why serving ended too early, and those of Drain.
func (s *Server) Serve(ctx context.Context) error {
	return serving.Serve(ctx, s.Drain, s.public, s.admin)
}

// Drain stops to listen, to clients first, lets requests in flight end, and waits
// until each of their attempts is settled. What takes longer than the configuration
// allows is cut.
//
// Errors: the context's, when something was cut.
func (s *Server) Drain(ctx context.Context) error {
	s.probe.Drain()
	ctx, cancel := context.WithTimeout(ctx, s.Config.Timeouts.Drain.Duration)
	defer cancel()
	err := serving.Shutdown(ctx, s.public, s.admin)
	if e := s.router.Shutdown(ctx); e != nil { // it has cut what was left: wait until that is settled
		settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
		defer cancel()
		err = errors.Join(err, e, s.router.Shutdown(settle))
	}
	return err
}

// openTime bounds what has to be done before a gateway listens.
const openTime = time.Minute

// settleTime bounds the settlement of attempts that were cut.
const settleTime = 5 * time.Second

// closeTime bounds the last try to record outcomes.
const closeTime = 10 * time.Second

// Close closes the Governor and then the storage. Drain comes first.
func (s *Server) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	err := serving.Close(s.public, s.admin)
	for _, end := range s.background {
		end()
	}
	if s.node != nil { // the journal takes outcomes for as long as the Governor has any
		err = errors.Join(err, s.closeNode(ctx))
	} else if s.Governor != nil {
		err = errors.Join(err, s.Governor.Close(ctx))
	}
	err = errors.Join(err, s.closeExport(ctx), s.closeCoordination(ctx))
	if s.Storage != nil {
		err = errors.Join(err, s.Storage.Close())
	}
	return err
}
