package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Topology is where requests go: what the file says of upstreams and routes, without
// credentials. It changes with the file and with nothing else.
type Topology struct {
	Version string `json:"version,omitempty"`
	// Digest is of everything below: gateways that show the same one route alike.
	Digest    string          `json:"digest"`
	Upstreams []TopologyPlace `json:"upstreams"`
	Routes    []TopologyRoute `json:"routes"`
}

// TopologyPlace is an upstream.
type TopologyPlace struct {
	Name          string               `json:"name"`
	Protocol      string               `json:"protocol"`
	BaseURL       string               `json:"base_url"`
	Models        []string             `json:"models"`
	Region        string               `json:"region,omitempty"`
	Guardrails    map[string]Guardrail `json:"guardrails,omitempty"`
	OutputField   string               `json:"output_field,omitempty"`
	NoStreamUsage bool                 `json:"no_stream_usage,omitempty"`
}

// TopologyRoute is a route with its attempts, complete.
type TopologyRoute struct {
	Model    string    `json:"model"`
	Attempts []Attempt `json:"attempts"`
}

// Topology says where this configuration sends requests.
func (c *Config) Topology() Topology {
	t := Topology{Version: c.TopologyVersion, Upstreams: []TopologyPlace{}, Routes: []TopologyRoute{}}
	for i := range c.Upstreams {
		u := &c.Upstreams[i]
		t.Upstreams = append(t.Upstreams, TopologyPlace{
			Name: u.Name, Protocol: u.Protocol, BaseURL: u.URL.String(), Models: u.Models, Region: u.Region,
			Guardrails: u.Guardrails, OutputField: u.OutputField, NoStreamUsage: u.NoStreamUsage,
		})
	}
	for _, r := range c.Routes {
		t.Routes = append(t.Routes, TopologyRoute(r))
	}
	text, err := json.Marshal([]any{t.Upstreams, t.Routes})
	if err != nil {
		panic("config: a topology does not encode: " + err.Error())
	}
	sum := sha256.Sum256(text)
	t.Digest = hex.EncodeToString(sum[:])
	return t
}
