package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
)

// ControlPlane is the file of a control plane, with its secrets read.
type ControlPlane struct {
	Listen string `yaml:"listen"`
	TLS    TLS    `yaml:"tls"`
	// AllowPlaintext takes heartbeats of other machines without TLS: something in front
	// speaks it.
	AllowPlaintext bool            `yaml:"allow_plaintext"`
	Admin          Admin           `yaml:"admin"`
	Storage        ControlStorage  `yaml:"storage"`
	Nodes          []NodeEntry     `yaml:"nodes"`
	Grants         Grants          `yaml:"grants"`
	Timeouts       ControlTimeouts `yaml:"timeouts"`
}

// TLS is how a listener speaks it. With client_ca nodes show certificates that it signed.
type TLS struct {
	Certificate string `yaml:"certificate"` // a file
	Key         string `yaml:"key"`         // a file that nobody else may read
	ClientCA    string `yaml:"client_ca"`   // a file
}

// On reports whether the listener speaks TLS.
func (t *TLS) On() bool { return t.Certificate != "" || t.Key != "" }

// ControlStorage is where accounts, policies and grants are.
type ControlStorage struct {
	Postgres *Postgres `yaml:"postgres"`
}

// NodeEntry is one node that may speak. It has a token, and a next one while that is put in
// the place of the first; or none, where nodes show certificates.
type NodeEntry struct {
	Name      string `yaml:"name"`
	Token     Secret `yaml:"token"`
	NextToken Secret `yaml:"next_token"`
}

// Grants say how grants are made. Zero is the default.
type Grants struct {
	// TTL is how long a node may spend from a grant while it hears nothing.
	TTL Duration `yaml:"ttl"`
}

// ControlTimeouts bound everything that could take for ever. Zero is the default.
type ControlTimeouts struct {
	ReadHeader Duration `yaml:"read_header"`
	ReadBody   Duration `yaml:"read_body"`
	Idle       Duration `yaml:"idle"`
	Connect    Duration `yaml:"connect"` // to the database
	Storage    Duration `yaml:"storage"` // of one transaction
	Drain      Duration `yaml:"drain"`
}

// ControlDefaults are what a control plane's file that says nothing else has.
func ControlDefaults() ControlPlane {
	d := Defaults().Timeouts
	return ControlPlane{
		Listen:   "127.0.0.1:8082",
		Timeouts: ControlTimeouts{ReadHeader: d.ReadHeader, ReadBody: d.ReadBody, Idle: d.Idle, Connect: d.Connect, Storage: d.Storage, Drain: d.Drain},
	}
}

// LoadControlPlane does for a control plane's file what Load does for a gateway's.
//
// Errors: those of Load.
func LoadControlPlane(path string) (*ControlPlane, error) { return loadControlPlane(path, &checker{}) }

// LoadControlPlaneForAdmin does it for an operator's tool, which reads no tokens of nodes
// and need not be able to reach the database.
//
// Errors: those of Load.
func LoadControlPlaneForAdmin(path string) (*ControlPlane, error) {
	return loadControlPlane(path, &checker{blind: true})
}

func loadControlPlane(path string, k *checker) (*ControlPlane, error) {
	data, err := readFile(path, k)
	if err != nil {
		return nil, err
	}
	return parseControlPlane(data, k)
}

// ParseControlPlane does what LoadControlPlane does, with a document in memory. Errors: those of Load.
func ParseControlPlane(data []byte, folder string, env func(string) (string, bool)) (*ControlPlane, error) {
	return parseControlPlane(data, &checker{folder: folder, env: env})
}

func parseControlPlane(data []byte, k *checker) (*ControlPlane, error) {
	c := ControlDefaults()
	if err := decode(data, &c); err != nil {
		return nil, err
	}
	if err := c.check(k); err != nil {
		return nil, err
	}
	return &c, nil
}

func (c *ControlPlane) check(k *checker) error {
	k.listen("listen", c.Listen)
	c.TLS.check(k)
	if host, _, err := net.SplitHostPort(c.Listen); err == nil && !loopback(host) && !c.TLS.On() && !c.AllowPlaintext {
		k.fault("tls", "is missing: nodes would send their tokens in plain text; give a certificate and key, or say allow_plaintext: true behind something that speaks TLS")
	}
	c.Admin.check(k, c.Listen)
	if c.Storage.Postgres == nil {
		k.fault("storage.postgres", "is missing: control planes keep nothing but what is in the database")
	} else {
		c.Storage.Postgres.check(k, c.Timeouts.Storage.Duration)
	}
	c.checkNodes(k)
	if ttl := c.Grants.TTL.Duration; ttl != 0 && (ttl < time.Second || ttl > 24*time.Hour) {
		k.fault("grants.ttl", "must be a duration between 1s and 24h0m0s")
	}
	k.durations([]bounded{
		{"read_header", c.Timeouts.ReadHeader.Duration, time.Minute},
		{"read_body", c.Timeouts.ReadBody.Duration, time.Hour},
		{"idle", c.Timeouts.Idle.Duration, time.Hour},
		{"connect", c.Timeouts.Connect.Duration, time.Minute},
		{"storage", c.Timeouts.Storage.Duration, time.Minute},
		{"drain", c.Timeouts.Drain.Duration, time.Hour},
	})
	return errors.Join(k.faults...)
}

func (t *TLS) check(k *checker) {
	if !t.On() {
		if t.ClientCA != "" {
			k.fault("tls.client_ca", "needs certificate and key beside it")
		}
		return
	}
	for _, f := range []struct {
		name string
		path *string
	}{{"certificate", &t.Certificate}, {"key", &t.Key}, {"client_ca", &t.ClientCA}} {
		at := "tls." + f.name
		switch {
		case *f.path == "" && f.name == "client_ca":
			continue
		case *f.path == "":
			k.fault(at, "is missing")
			continue
		}
		*f.path = k.path(at, *f.path)
		if k.blind {
			continue
		}
		if f.name == "key" {
			if _, err := readPrivate(*f.path); err != nil {
				k.fault(at, "%s", err)
			}
		} else if info, err := os.Stat(*f.path); err != nil || !info.Mode().IsRegular() {
			k.fault(at, "the file %s cannot be read", *f.path)
		}
	}
}

const maxNodes = 10_000

func (c *ControlPlane) checkNodes(k *checker) {
	certificates := c.TLS.ClientCA != ""
	if len(c.Nodes) > maxNodes || len(c.Nodes) == 0 {
		k.fault("nodes", "must have between 1 and %d entries: who is not listed may not speak", maxNodes)
	}
	seen := map[string]bool{}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		at := fmt.Sprintf("nodes[%d]", i)
		k.node(at+".name", n.Name)
		if seen[n.Name] {
			k.fault(at+".name", "another entry has this name")
		}
		seen[n.Name] = true
		switch {
		case certificates && (n.Token.IsSet() || n.NextToken.IsSet()):
			k.fault(at+".token", "is for nodes that show no certificate: with tls.client_ca all do")
		case !certificates && !k.blind:
			k.secret(at+".token", &n.Token)
			if n.NextToken.IsSet() {
				k.secret(at+".next_token", &n.NextToken)
			}
		}
	}
}

// node checks the name of a node, which is the same after every restart.
func (k *checker) node(path, name string) {
	var wrong *escrow.Error
	switch err := escrow.ValidNode(name); {
	case name == "":
		k.fault(path, "is missing")
	case errors.As(err, &wrong):
		k.fault(path, "%s", strings.TrimSpace(wrong.Why))
	}
}
