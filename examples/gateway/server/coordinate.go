package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/coordination"
	"github.com/tallystick-go/tallystick/examples/gateway/suspend"
	"github.com/tallystick-go/tallystick/examples/gateway/upstreams"
	"github.com/tallystick-go/tallystick/examples/gateway/wire"
	"github.com/tallystick-go/tallystick/governance/httpgov"
)

// join opens what gateways coordinate by, where the configuration says so, before anything is changed: all that this
// gateway changes is told.
func (s *Server) join(ctx context.Context) (err error) {
	c := s.Config.Coordination
	if c == nil {
		return nil
	}
	pg, t := s.Config.Storage.Postgres, s.Config.Timeouts
	dsn, err := pg.ConnString()
	if err != nil {
		return err
	}
	s.coordination, err = coordination.Open(ctx, coordination.Options{
		DSN: dsn, Schema: pg.Schema, Connect: t.Connect.Duration, Call: t.Storage.Duration, Migrate: pg.Migrate || s.options.Migrate,
		Tenure: c.Tenure.Duration, Tail: c.Tail.Duration, Stale: c.Stale.Duration, Logger: s.logger,
	})
	if err != nil {
		return err
	}
	s.suspensions = suspend.New(s.coordination)
	s.fleet = upstreams.New(s.coordination, s.Config, s.route)
	exports, err := s.openExport()
	if err != nil {
		return err
	}
	return s.coordination.Join(append(exports, s.suspensions.Subscription(), s.fleet.Subscription(), s.definitions())...)
}

// coordinate begins to.
func (s *Server) coordinate(ctx context.Context) error {
	c := s.Config.Coordination
	if c == nil {
		return nil
	}
	if err := s.coordination.Start(); err != nil {
		return err
	}
	s.inBackground(s.keepPolicies)
	// Who begins to listen knows what the others know.
	if err := errors.Join(s.suspensions.Await(ctx), s.fleet.Await(ctx)); err != nil {
		return fmt.Errorf("%w: %w", coordination.ErrStarting, err)
	}
	manager := upstreams.NewManager(s.fleet)
	s.inBackground(func(ctx context.Context) {
		s.coordination.Every(ctx, c.Fleet.Cycle.Duration, coordination.FleetLease, manager.Cycle)
	})
	s.startExport()
	return nil
}

// route routes to the upstreams that are registered now.
func (s *Server) route() {
	s.routing.Lock()
	defer s.routing.Unlock()
	s.router.SetRegistered(s.fleet.Usable())
}

// whenNotSuspended lets a request pass whose key and session nobody has suspended, on any gateway.
func (s *Server) whenNotSuspended(next http.Handler) http.Handler {
	if s.suspensions == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		session := r.Header.Get(suspend.Header)
		r.Header.Del(suspend.Header) // it is no provider's business
		if p, is := httpgov.PrincipalFrom(r.Context()); is {
			why, err := s.suspensions.Of(p.KeyID, session)
			var e *wire.Error
			switch {
			case err != nil:
				e = &wire.Error{
					Status: http.StatusServiceUnavailable, Code: "unavailable", RetryAfter: time.Second,
					Message: "this gateway does not know yet what the others have suspended; try again",
				}
			case why != nil && why.Session != "":
				e = &wire.Error{Status: http.StatusForbidden, Code: "suspended", Message: "this session is suspended: " + why.Reason}
			case why != nil:
				e = &wire.Error{Status: http.StatusForbidden, Code: "suspended", Message: "this key is suspended: " + why.Reason}
			}
			if e != nil {
				e.Write(w, httpgov.DefaultRoute(r).Protocol)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// follows says what keeps this gateway from knowing what the others do.
func (s *Server) follows(context.Context) error {
	if s.suspensions == nil {
		return nil
	}
	return s.suspensions.Known()
}

// sayFollows says of the part log what is wrong with it.
func sayFollows(err error) string {
	switch {
	case errors.Is(err, coordination.ErrStale):
		return "is not read"
	case errors.Is(err, coordination.ErrStarting):
		return "is not known yet"
	}
	return "is not followed"
}

// closeCoordination hands over what this gateway manages. What it cannot hand over lapses.
func (s *Server) closeCoordination(ctx context.Context) error {
	if s.coordination == nil {
		return nil
	}
	err := s.coordination.Close(ctx)
	if s.export != nil {
		err = errors.Join(err, s.export.Close())
	}
	if errors.Is(err, context.DeadlineExceeded) {
		s.logger.Warn("gateway: what this gateway managed was not handed over, and lapses", "error", err)
		return nil
	}
	return err
}
