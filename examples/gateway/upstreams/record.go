// Package upstreams keeps the fleet of upstreams that are registered while gateways run: whoever runs one says over the
// admin API, or in a file, that it is there, and again before its time is over. Every gateway knows them and routes to
// them; one gateway at a time manages them, probes them and deregisters those that fell silent, and whatever it takes away
// it takes away fenced: one that lost the right to manage, and has not noticed, takes away nothing.
package upstreams

import (
	"encoding/json"
	"errors"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/coordination"
)

// Registration is what somebody says of an upstream.
type Registration struct {
	Name     string   `json:"name"`
	Protocol string   `json:"protocol"`
	BaseURL  string   `json:"base_url"`
	Models   []string `json:"models"`
	// Credential names one of the gateways' configuration. A registration brings none itself: it would be kept, and shown.
	Credential     string `json:"credential"`
	Region         string `json:"region,omitempty"`
	OutputField    string `json:"output_field,omitempty"`
	NoStreamUsage  bool   `json:"no_stream_usage,omitempty"`
	AllowPlaintext bool   `json:"allow_plaintext,omitempty"`
	// Mode is remote. An upstream that a gateway runs itself is that gateway's, and not the fleet's.
	Mode string `json:"mode,omitempty"`
	// TTLMS is how long it stays without being registered again. Default 60 s.
	TTLMS int64 `json:"ttl_ms,omitempty"`
	Decision
}

// Decision is who decided something, and why. Both may be left out, as by a program that registers itself.
type Decision struct {
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
}

const (
	longestActor  = 200 // bytes
	longestReason = 500
)

// check refuses what cannot be kept and shown.
//
// Errors: *coordination.FieldError.
func (d Decision) check() error {
	for _, f := range []struct {
		name, value string
		most        int
	}{{"actor", d.Actor, longestActor}, {"reason", d.Reason, longestReason}} {
		switch {
		case len(f.value) > f.most:
			return &coordination.FieldError{Field: f.name, Why: "is too long"}
		case strings.ContainsFunc(f.value, func(c rune) bool { return c == utf8.RuneError || !unicode.IsPrint(c) }):
			return &coordination.FieldError{Field: f.name, Why: "holds characters that do not belong there"}
		}
	}
	return nil
}

const (
	defaultTTL  = time.Minute
	shortestTTL = 100 * time.Millisecond
	longestTTL  = 24 * time.Hour
)

// Where a registration came from.
const (
	OverAPI = "registered"
	InFile  = "discovered"
)

// What probes found.
const (
	Unprobed  = "unprobed"
	Healthy   = "healthy"
	Unhealthy = "unhealthy"
)

// Record is what all gateways know of an upstream.
type Record struct {
	Registration
	Origin       string    `json:"origin"`
	Health       string    `json:"health"`
	RegisteredAt time.Time `json:"registered_at"`
	// Gone says why it is not there any more; empty: it is.
	Gone string `json:"gone,omitempty"`
}

func (r Record) encode() (string, error) {
	text, err := json.Marshal(r)
	return string(text), err
}

func decode(text []byte) (Record, error) {
	var r Record
	err := json.Unmarshal(text, &r)
	return r, err
}

// readable is the record of a row, or its name alone: one that cannot be read must not keep the others from being managed.
func readable(name, text string) Record {
	if r, err := decode([]byte(text)); err == nil && r.Name == name {
		return r
	}
	return Record{Registration: Registration{Name: name}}
}

// whole reports whether a record says where its upstream is. An earlier or a foreign program may have written
// the event of a registration without it.
func (r Record) whole() bool {
	return r.Name != "" && r.Protocol != "" && r.BaseURL != "" && len(r.Models) > 0
}

// same reports whether a registration says nothing new. Who says it again is nobody's news.
func (r Record) same(n Record) bool {
	n.Health, n.RegisteredAt, n.Gone, n.Decision = r.Health, r.RegisteredAt, "", r.Decision
	one, err := r.encode()
	two, err2 := n.encode()
	return err == nil && err2 == nil && one == two
}

// upstream is what the router makes of it, without its credential.
func (r Registration) upstream() config.Upstream {
	return config.Upstream{
		Name: r.Name, Protocol: r.Protocol, BaseURL: r.BaseURL, Models: r.Models, AllowPlaintext: r.AllowPlaintext,
		NoStreamUsage: r.NoStreamUsage, OutputField: r.OutputField, Region: r.Region, Mode: config.Remote,
	}
}

// check refuses what no gateway of this configuration could route to.
//
// Errors: *coordination.FieldError.
func (r *Registration) check(c *config.Config) error {
	switch r.Mode {
	case "":
		r.Mode = config.Remote
	case config.Remote:
	case config.Subprocess:
		return &coordination.FieldError{Field: "mode", Why: config.LocalMode, Conflict: true}
	default:
		return &coordination.FieldError{Field: "mode", Why: "must be remote"}
	}
	if r.TTLMS == 0 {
		r.TTLMS = defaultTTL.Milliseconds()
	}
	if err := r.Decision.check(); err != nil {
		return err
	}
	if r.TTLMS < shortestTTL.Milliseconds() || r.TTLMS > longestTTL.Milliseconds() {
		return &coordination.FieldError{Field: "ttl_ms", Why: "must be between 100 and 86400000"}
	}
	u := r.upstream()
	if err := config.CheckRegistered(&u); err != nil {
		var f *config.FieldError
		if errors.As(err, &f) {
			return &coordination.FieldError{Field: f.Path, Why: f.Why}
		}
		return err
	}
	for i := range c.Upstreams {
		if c.Upstreams[i].Name == r.Name {
			return &coordination.FieldError{Field: "name", Why: "is one of the configuration's upstreams", Conflict: true}
		}
	}
	if s := c.Coordination.Fleet.Credentials[r.Credential]; !s.IsSet() {
		return &coordination.FieldError{Field: "credential", Why: "must name one of coordination.fleet.credentials: registrations bring none themselves"}
	}
	return nil
}
