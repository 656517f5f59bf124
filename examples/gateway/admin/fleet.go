package admin

import (
	"net/http"

	"github.com/tallystick-go/tallystick/examples/gateway/upstreams"
)

// Fleet is every upstream that is registered, and how the fleet stood, newest first.
type Fleet struct {
	Upstreams []upstreams.Record   `json:"upstreams"`
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
	list, err := a.Fleet.List()
	if err != nil {
		return nil, err
	}
	snapshots, err := a.Fleet.Snapshots(c.ctx, limit)
	return Fleet{list, snapshots}, err
}

func (a *api) register(c *call) (any, error) {
	data, err := c.document()
	if err != nil {
		return nil, err
	}
	var r upstreams.Registration
	if err := fields(data, map[string]any{
		"name": &r.Name, "protocol": &r.Protocol, "base_url": &r.BaseURL, "models": &r.Models, "credential": &r.Credential, "region": &r.Region,
		"output_field": &r.OutputField, "no_stream_usage": &r.NoStreamUsage, "allow_plaintext": &r.AllowPlaintext, "mode": &r.Mode, "ttl_ms": &r.TTLMS,
	}); err != nil {
		return nil, err
	}
	if a.Fleet == nil {
		return nil, uncoordinated
	}
	return a.Fleet.Register(c.ctx, r)
}

func (a *api) deregister(c *call) (any, error) {
	if err := c.nothing(); err != nil {
		return nil, err
	}
	if a.Fleet == nil {
		return nil, uncoordinated
	}
	if err := a.Fleet.Deregister(c.ctx, c.PathValue("name")); err != nil {
		return nil, err
	}
	c.status = http.StatusOK
	return map[string]string{"deregistered": c.PathValue("name")}, nil
}
