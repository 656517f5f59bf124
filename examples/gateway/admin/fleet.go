package admin

import (
	"strings"

	"github.com/tallystick-go/tallystick/examples/gateway/coordination"
	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/examples/gateway/upstreams"
)

// Fleet is every upstream that is registered, who manages them, and how the fleet stood, newest first.
type Fleet struct {
	Upstreams []upstreams.Standing `json:"upstreams"`
	// Declined are names that this gateway heard of and does not use, and why.
	Declined  map[string]string    `json:"declined"`
	Manager   *report.LeaseState   `json:"manager"` // as this gateway knows it
	Snapshots []upstreams.Snapshot `json:"snapshots"`
}

func (a *api) listFleet(c *call) (any, error) {
	limit := 10
	if err := c.parameters(map[string]any{"snapshots": &limit}); err != nil {
		return nil, err
	}
	if limit < 0 || limit > 1000 {
		return nil, invalid("snapshots", "must be between 0 and 1000")
	}
	if a.Fleet == nil {
		return nil, uncoordinated
	}
	list, err := a.Fleet.Standings(c.ctx)
	if err != nil {
		return nil, err
	}
	manager, err := a.manager(c)
	if err != nil {
		return nil, err
	}
	snapshots, err := a.Fleet.Snapshots(c.ctx, limit)
	return Fleet{list, a.Fleet.Declined(), manager, snapshots}, err
}

// manager is how this gateway stands with the right to manage the fleet.
func (a *api) manager(c *call) (*report.LeaseState, error) {
	if a.System == nil {
		return nil, nil
	}
	s, err := a.System(c.ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range s.Leases {
		if l.Name == coordination.FleetLease {
			return &l, nil
		}
	}
	return nil, nil
}

func (a *api) register(c *call) (any, error) {
	data, err := c.document()
	if err != nil {
		return nil, err
	}
	var r upstreams.Registration
	if err := fields(data, map[string]any{
		"name": &r.Name, "protocol": &r.Protocol, "base_url": &r.BaseURL, "models": &r.Models, "credential": &r.Credential, "region": &r.Region,
		"output_field": &r.OutputField, "no_stream_usage": &r.NoStreamUsage, "allow_plaintext": &r.AllowPlaintext, "mode": &r.Mode, "ttl_ms": &r.TTLMS, "actor": &r.Actor, "reason": &r.Reason,
	}); err != nil {
		return nil, err
	}
	if a.Fleet == nil {
		return nil, uncoordinated
	}
	return a.Fleet.Register(c.ctx, r)
}

// deregister is for a program that takes its own upstream away; operators say who they are, and why: see dismiss.
func (a *api) deregister(c *call) (any, error) {
	if err := c.nothing(); err != nil {
		return nil, err
	}
	return a.takeAway(c, upstreams.Decision{})
}

func (a *api) dismiss(c *call) (any, error) {
	data, err := c.document()
	if err != nil {
		return nil, err
	}
	var by upstreams.Decision
	if err := fields(data, map[string]any{"actor": &by.Actor, "reason": &by.Reason}); err != nil {
		return nil, err
	}
	for _, f := range []struct{ name, value string }{{"actor", by.Actor}, {"reason", by.Reason}} {
		if strings.TrimSpace(f.value) == "" {
			return nil, invalid(f.name, "is missing")
		}
	}
	return a.takeAway(c, by)
}

func (a *api) takeAway(c *call, by upstreams.Decision) (any, error) {
	if a.Fleet == nil {
		return nil, uncoordinated
	}
	if err := a.Fleet.Deregister(c.ctx, c.PathValue("name"), by); err != nil {
		return nil, err
	}
	return map[string]string{"deregistered": c.PathValue("name")}, nil
}
