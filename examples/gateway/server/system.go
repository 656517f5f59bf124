package server

import (
	"context"
	"strings"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/coordination"
	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/lease"
)

// system says what this gateway is among others. It asks nobody: it tells what this gateway goes by.
func (s *Server) system(context.Context) (report.System, error) {
	out := report.System{
		Instance: s.instance, Profile: s.Config.Profile, StorageIsShareable: s.Config.Profile == config.Shared,
		Leases: []report.LeaseState{}, Limits: s.scope(), Local: s.local(), Shared: s.shared(),
	}
	if s.coordination == nil {
		return out, nil
	}
	b := s.coordination
	out.Instance, out.HoldsAs, out.CoordinatesWithPeers = b.Instance(), b.Keeper.Holder(), b.Leaser.Shared()
	_, out.ManagesFleet = b.Keeper.Held(coordination.FleetLease)
	leases := b.Keeper.Status()
	for _, st := range leases {
		out.Leases = append(out.Leases, leaseOf(st, b.Keeper.Holder()))
	}
	out.Log = &report.LogState{
		TailMS: s.Config.Coordination.Tail.Milliseconds(), AgeMS: b.Age().Milliseconds(), StaleMS: s.Config.Coordination.Stale.Milliseconds(),
		HeldBy: b.HeldBy(), Subscriptions: []report.Subscription{},
	}
	status := b.Log.Status()
	for _, sub := range status.Subscriptions {
		out.Log.Subscriptions = append(out.Log.Subscriptions, subscriptionOf(sub))
	}
	if s.calls != nil {
		out.Log.CallsLost = s.calls.Lost()
	}
	if err := b.Following(); err != nil {
		out.Log.Error = err.Error()
	}
	out.History = historyOf(leases, status.Regressed)
	return out, nil
}

// historyOf says what was seen to go back. The log is not read on until the gateway is started again; the leases go on once
// they are ahead of what was seen.
func historyOf(leases []lease.Status, log *eventlog.ResyncError) (out report.History) {
	for _, st := range leases {
		if st.Regressed {
			out.Leases = append(out.Leases, st.Name)
		}
	}
	var why []string
	if len(out.Leases) > 0 {
		why = append(why, "leases show less than this gateway has seen: it manages nothing until they are ahead of that")
	}
	if out.Log = log != nil; out.Log {
		why = append(why, log.Error())
	}
	out.Regressed, out.Why = len(why) > 0, strings.Join(why, "; ")
	return out
}

func leaseOf(st lease.Status, own string) report.LeaseState {
	l := report.LeaseState{
		Name: st.Name, State: st.State.String(), Holder: st.Other.Holder, Generation: int64(st.Other.Generation),
		TenureMS: st.TenureOwn.Milliseconds(), TenureInForceMS: st.TenureInForce.Milliseconds(), Longer: st.Longer, Failures: st.Failures,
	}
	if st.State == lease.Holding {
		l.Holder, l.Generation = own, int64(st.Held.Generation)
	}
	if st.Err != nil {
		l.Error = st.Err.Error()
	}
	return l
}

func subscriptionOf(st eventlog.SubscriptionStatus) report.Subscription {
	out := report.Subscription{
		Name: st.Name, Kind: st.Kind.String(), Behind: st.Lag.Behind, Handled: st.Handled, Aside: st.Aside, Adopted: st.Adopted, Error: st.Err,
	}
	if st.Lag.Err != nil && st.Lag.Failures > 0 {
		out.Error = st.Lag.Err.Error()
	}
	return out
}

// scope says what limits count in each profile.
func (s *Server) scope() report.Scope {
	switch s.Config.Profile {
	case config.Shared:
		return report.Scope{Rates: report.OfFleet, Quotas: report.OfFleet, Budgets: report.OfFleet}
	case config.Node: // policies' budgets are the authority's, everything else is counted here
		return report.Scope{Rates: report.OfInstance, Quotas: report.OfInstance, Budgets: report.OfFleet}
	}
	return report.Scope{Rates: report.OfInstance, Quotas: report.OfInstance, Budgets: report.OfInstance}
}

// local is what this gateway has for itself: its peers neither see nor follow it. shared.yaml says the same.
func (s *Server) local() []string {
	out := []string{
		"catalogue: prices, and the upstreams and routes of its file; the topology's digest tells whether its peers have the same",
		"credentials of upstreams, also those that registrations name",
		"connections to upstreams, and whose turn it is among registered ones",
		"failed attempts: there is no breaker; each request finds out for itself, and only the health of registered upstreams is shared",
		"cached principals: every admission compares them with what is in force",
		"metrics and logs",
	}
	switch s.Config.Profile {
	case config.Local:
		out = append(out, "keys, policies, accounts and limits: in its file")
	case config.Node:
		out = append(out, "keys, rates and quotas: in its file", "journal: what it holds of granted budgets")
	}
	if c := s.Config.Coordination; c != nil && c.Audit != nil {
		if c.Audit.Folder != "" {
			out = append(out, "audit file: the lines that it exported")
		}
		if c.Audit.Calls {
			out = append(out, "events of calls that are not appended yet: they go with the process")
		}
	}
	for i := range s.Config.Upstreams {
		if s.Config.Upstreams[i].Local() {
			return append(out, "child processes: upstreams of the mode subprocess")
		}
	}
	return out
}

// shared is what all gateways of the database, or of the authority, have together.
func (s *Server) shared() []string {
	switch {
	case s.Config.Profile == config.Local:
		return []string{}
	case s.Config.Profile == config.Node:
		return []string{"policies and their budgets, by the authority"}
	case s.Config.Coordination == nil:
		return []string{"keys", "policies", "accounts and limits"}
	}
	return []string{
		"keys", "policies", "accounts and limits", "suspensions", "registered upstreams, and their health", "leases: who manages, and who exports what a dead gateway left",
		"event log, and how far each export came",
	}
}
