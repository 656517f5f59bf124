// Package config reads the gateway's YAML file: strictly, with every fault named
// by its path, and with secrets by reference only.
package config

import (
	"net/url"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

// Config is the whole file, with its secrets read.
type Config struct {
	Profile string `yaml:"profile"`
	// TopologyVersion names what upstreams and routes say. Gateways that share a
	// database tell by it whether they route alike.
	TopologyVersion string `yaml:"topology_version"`

	Listen   string   `yaml:"listen"`
	Admin    Admin    `yaml:"admin"`
	Storage  Storage  `yaml:"storage"`
	Policies Policies `yaml:"policies"`
	Journal  Absent   `yaml:"journal"`
	// Node is the name under which this gateway asks the authority: its own, and the same
	// after every restart.
	Node      string     `yaml:"node"`
	Authority *Authority `yaml:"authority"`
	Prices    Prices     `yaml:"prices"`
	Keys      Keys       `yaml:"keys"`
	Bootstrap Bootstrap  `yaml:"bootstrap"`
	Upstreams []Upstream `yaml:"upstreams"`
	Routes    []Route    `yaml:"routes"`
	Requests  Requests   `yaml:"requests"`
	Timeouts  Timeouts   `yaml:"timeouts"`
	// Coordination says that the gateways of one database are one; nil: each is for itself, though they
	// count together.
	Coordination *Coordination `yaml:"coordination"`
}

// Admin is the listener for operators.
type Admin struct {
	Listen         string `yaml:"listen"`
	Token          Secret `yaml:"token"`
	AllowPlaintext bool   `yaml:"allow_plaintext"`
}

// The profiles that this gateway runs in.
const (
	Local  = "local"  // one gateway with a file of its own
	Node   = "node"   // any number of gateways, each with a file of its own and budgets granted by one authority
	Shared = "shared" // any number of gateways on one Postgres
)

// Storage says where keys, counters and policies are kept.
type Storage struct {
	SQLite   string    `yaml:"sqlite"`   // of the profiles local and node; in node the journal is in it
	Postgres *Postgres `yaml:"postgres"` // of the profile shared
}

// Policies are the files that the profile local reads them from.
type Policies struct {
	Files []string `yaml:"files"`
}

// Absent is a part that no gateway of this program has. It is known, so that it can be
// refused with a reason.
type Absent struct{ there bool }

// UnmarshalYAML notices that the part is there.
func (a *Absent) UnmarshalYAML(func(any) error) error {
	a.there = true
	return nil
}

// Prices says what calls cost. Without a file the bundled prices are used.
type Prices struct {
	File    string            `yaml:"file"`
	Aliases map[string]string `yaml:"aliases"`
	Free    []string          `yaml:"free"`
}

// Keys says which tokens are accepted beside our own.
type Keys struct {
	Prefixes []string `yaml:"prefixes"`
	Foreign  []string `yaml:"foreign"`
}

// Format is what a key store takes.
func (k Keys) Format() keys.Format { return keys.Format{Prefixes: k.Prefixes, Foreign: k.Foreign} }

// The protocols of upstreams.
const (
	OpenAI    = "openai"
	Anthropic = "anthropic"
	Bedrock   = "bedrock"
)

// Upstream is a provider's endpoint and the models that it serves.
type Upstream struct {
	Name           string   `yaml:"name"`
	Protocol       string   `yaml:"protocol"`
	BaseURL        string   `yaml:"base_url"`
	Credential     Secret   `yaml:"credential"`
	Models         []string `yaml:"models"`
	AllowPlaintext bool     `yaml:"allow_plaintext"`
	NoStreamUsage  bool     `yaml:"no_stream_usage"`
	OutputField    string   `yaml:"output_field"`
	Region         string   `yaml:"region"`
	// Mode is remote, or subprocess for one that this gateway runs by Command.
	Mode    string   `yaml:"mode"`
	Command []string `yaml:"command"`
	// Guardrails are those of Bedrock that attempts may name.
	Guardrails map[string]Guardrail `yaml:"guardrails"`

	URL *url.URL `yaml:"-"` // BaseURL without /v1 at its end
}

// The modes of upstreams.
const (
	Remote     = "remote"     // somebody else runs it
	Subprocess = "subprocess" // the gateway does, and it belongs to that gateway
)

// Local reports whether an upstream belongs to the gateway that runs it.
func (u *Upstream) Local() bool { return u.Mode == Subprocess }

// Guardrail is one of Bedrock's.
type Guardrail struct {
	Identifier string `yaml:"identifier" json:"identifier"`
	Version    string `yaml:"version" json:"version"`
}

// Route is a model that clients may ask for and where it is tried, in this order.
// A model that one upstream serves needs none.
type Route struct {
	Model    string    `yaml:"model"`
	Attempts []Attempt `yaml:"attempts"`
}

// Attempt is one place to try. An empty model is the route's, an empty region the
// upstream's. Teams with a guardrail are served where it is named, others where none is.
type Attempt struct {
	Upstream  string `yaml:"upstream" json:"upstream"`
	Model     string `yaml:"model" json:"model"`
	Region    string `yaml:"region" json:"region,omitempty"`
	Guardrail string `yaml:"guardrail" json:"guardrail,omitempty"`
}

// Requests bounds what clients send and names what is known to be harmless in it.
type Requests struct {
	MaxBodyBytes int64    `yaml:"max_body_bytes"`
	AllowFields  []string `yaml:"allow_fields"`
	AllowTools   []string `yaml:"allow_tools"`
	// Bound says by what the input of a text request is bounded: its bytes, or the model's
	// context window. Default: context in the profile node, else bytes.
	Bound string `yaml:"bound"`
}

// What bounds an input.
const (
	BoundByBytes   = "bytes"
	BoundByContext = "context"
)

// Duration is a time.Duration, written like 30s or 2m.
type Duration struct{ time.Duration }

// UnmarshalYAML reads a duration. One that is none becomes negative, which the
// check refuses with its path.
func (d *Duration) UnmarshalYAML(decode func(any) error) error {
	var text string
	if err := decode(&text); err != nil {
		return err
	}
	var err error
	if d.Duration, err = time.ParseDuration(text); err != nil {
		d.Duration = -1
	}
	return nil
}

// Timeouts bound everything that could take for ever. Zero is the default.
type Timeouts struct {
	ReadHeader Duration `yaml:"read_header"` // of a client's request
	ReadBody   Duration `yaml:"read_body"`   // of a client's request, its header included
	Idle       Duration `yaml:"idle"`        // of a connection without a request
	Request    Duration `yaml:"request"`     // from a request's header to the end of its answer
	Connect    Duration `yaml:"connect"`     // to an upstream, and its TLS handshake
	FirstByte  Duration `yaml:"first_byte"`  // until an upstream answers
	Storage    Duration `yaml:"storage"`     // of one transaction or look-up
	Linger     Duration `yaml:"linger"`      // an upstream is read on after the client left
	Drain      Duration `yaml:"drain"`       // of requests in flight at a shutdown
}

// Defaults are what a file that says nothing else has.
func Defaults() Config {
	return Config{
		Profile: "local",
		Listen:  "127.0.0.1:8080",
		Requests: Requests{
			MaxBodyBytes: 32 << 20,
		},
		Timeouts: Timeouts{
			ReadHeader: Duration{10 * time.Second},
			ReadBody:   Duration{time.Minute},
			Idle:       Duration{2 * time.Minute},
			Request:    Duration{15 * time.Minute},
			Connect:    Duration{10 * time.Second},
			FirstByte:  Duration{5 * time.Minute},
			Storage:    Duration{5 * time.Second},
			Linger:     Duration{10 * time.Second},
			Drain:      Duration{30 * time.Second},
		},
	}
}
