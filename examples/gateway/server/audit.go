package server

import (
	"context"
	"errors"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/examples/gateway/audit"
	"github.com/tallystick-go/tallystick/examples/gateway/coordination"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/lease"
)

// openExport makes what exports, where the configuration says so, and returns its subscription.
func (s *Server) openExport() ([]eventlog.Subscription, error) {
	a := s.Config.Coordination.Audit
	if a == nil {
		return nil, nil
	}
	var sink audit.Sink
	if a.Webhook != nil {
		sink = audit.NewWebhook(a.Webhook.URL, a.Webhook.Token.Reveal(), a.Webhook.Timeout.Duration)
	} else {
		file, err := audit.NewFile(a.Folder, s.coordination.Instance)
		if err != nil {
			return nil, err
		}
		sink = file
	}
	s.export = audit.New(sink, s.coordination.Instance)
	return []eventlog.Subscription{s.export.Subscription()}, nil
}

// startExport exports, wherever the lease on it is held, what dead gateways left and what could not be exported.
func (s *Server) startExport() {
	if s.export == nil {
		return
	}
	b := s.coordination
	if s.Config.Coordination.Audit.Calls {
		s.calls = audit.NewCalls(b.Log)
	}
	held := func() bool {
		_, is := b.Keeper.Held(coordination.ExportLease)
		return is
	}
	s.inBackground(func(ctx context.Context) {
		b.Every(ctx, b.Beat(), coordination.ExportLease, func(ctx context.Context, _ lease.Lease) error {
			done, err := b.Log.Adopt(ctx, eventlog.Adopt{Idle: b.Silence(), Held: held})
			if done.Events > 0 {
				s.logger.Info("gateway: exported what another gateway left", "events", done.Events)
			}
			if n := s.export.Again(); n > 0 && err == nil {
				_, err = b.Log.Retry(ctx, audit.Name, n)
			}
			return err
		})
	})
}

// called notes an attempt for the export.
func (s *Server) called(upstream string, a httpgov.Attempt) {
	if s.calls != nil {
		s.calls.Add(upstream, a)
	}
}

// closeExport comes when nobody calls any more and the log is still there.
func (s *Server) closeExport(ctx context.Context) error {
	if s.calls == nil {
		return nil
	}
	if err := s.calls.Close(ctx); err != nil {
		return errors.New("gateway: the events of some calls were not appended, and will not be exported")
	}
	return nil
}
