package config

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"strings"
	"time"
)

// Authority is where the control planes of a deployment are reached, behind one address.
// A gateway of the profile node is granted budgets there; one of the profile shared asks
// for none, and makes sure that it has the authority's own database.
type Authority struct {
	URL string `yaml:"url"`
	// Token is what this node presents, unless it shows a certificate.
	Token          Secret   `yaml:"token"`
	Certificate    string   `yaml:"certificate"`
	Key            string   `yaml:"key"`
	CA             string   `yaml:"ca"` // that signed the authority's certificate; left out: those of the system
	AllowPlaintext bool     `yaml:"allow_plaintext"`
	Timeout        Duration `yaml:"timeout"` // of one heartbeat
	// Farewell is how long a node that stops tries to give back what it has not used. What the
	// authority does not hear of then waits for the next start.
	Farewell Duration `yaml:"farewell"`

	folder string
}

const (
	defaultBeat     = 5 * time.Second
	defaultFarewell = 10 * time.Second
)

// checkNode checks what a gateway needs that spends budgets which it was granted.
func (c *Config) checkNode(k *checker) {
	if c.Storage.Postgres != nil {
		k.fault("storage.postgres", "is for the profile shared: a gateway of the profile node has a file of its own, and its authority has the database")
	}
	if len(c.Policies.Files) > 0 {
		k.fault("policies.files", "are for the profile local: a gateway of the profile node has the authority's, see `controlplane policies apply`")
		c.Policies.Files = nil
	}
	if c.Journal.there {
		k.fault("journal", "has no place of its own: rates, quotas and budgets of a node commit as one, in storage.sqlite")
	}
	if c.Authority == nil {
		k.fault("authority", "is missing: a gateway of the profile node spends what an authority grants it")
	}
	for _, suffix := range [...]string{".lock", ".serve", ".quarantined", "-wal", "-shm", "-journal"} {
		if strings.HasSuffix(c.Storage.SQLite, suffix) {
			k.fault("storage.sqlite", "must not end in %s: such a file lies beside the database", suffix)
		}
	}
}

// checkAuthority checks how the authority is reached, and by whom.
func (c *Config) checkAuthority(k *checker) {
	if c.Authority == nil {
		if c.Node != "" && c.Profile != Node {
			k.fault("node", "names this gateway to an authority, and there is none: add authority")
		}
		return
	}
	if c.Profile == Local {
		k.fault("authority", "is for the profiles node and shared: the budgets of a gateway of the profile local are its own")
	}
	k.node("node", c.Node)
	a := c.Authority
	k.authorityURL(a)
	switch certified := a.Certificate != "" || a.Key != ""; {
	case certified && a.Token.IsSet():
		k.fault("authority.token", "is for nodes that show no certificate")
	case certified:
		k.certificate(a)
	case !k.blind:
		k.secret("authority.token", &a.Token)
	}
	if a.CA != "" {
		a.CA = k.path("authority.ca", a.CA)
	}
	if c.Profile != Node && a.Farewell.Duration != 0 {
		k.fault("authority.farewell", "is for the profile node: others hold nothing that could be given back")
	}
	for _, t := range []struct {
		name      string
		d         *Duration
		otherwise time.Duration
		most      time.Duration
	}{{"timeout", &a.Timeout, defaultBeat, time.Minute}, {"farewell", &a.Farewell, defaultFarewell, 10 * time.Minute}} {
		if t.d.Duration == 0 {
			t.d.Duration = t.otherwise
		}
		if t.d.Duration < time.Millisecond || t.d.Duration > t.most {
			k.fault("authority."+t.name, "must be a duration between 1ms and %s", t.most)
		}
	}
	a.folder = k.folder
}

func (k *checker) authorityURL(a *Authority) {
	u, err := url.Parse(a.URL)
	switch {
	case a.URL == "":
		k.fault("authority.url", "is missing")
	case err != nil, u.Host == "", u.Scheme != "https" && u.Scheme != "http":
		k.fault("authority.url", "must be a URL such as https://control.example.com")
	case u.User != nil:
		k.fault("authority.url", "must not carry a name or password: that is what token is for")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		k.fault("authority.url", "must end with its path")
	case u.Scheme == "http" && !loopback(u.Hostname()) && !a.AllowPlaintext:
		k.fault("authority.url", "would send the token in plain text: use https, or say allow_plaintext: true for a network that you trust")
	}
}

func (k *checker) certificate(a *Authority) {
	for _, f := range []struct {
		name string
		path *string
	}{{"certificate", &a.Certificate}, {"key", &a.Key}} {
		at := "authority." + f.name
		if *f.path == "" {
			k.fault(at, "is missing")
			continue
		}
		*f.path = k.path(at, *f.path)
		if f.name != "key" || k.blind {
			continue
		}
		if _, err := readPrivate(*f.path); err != nil {
			k.fault(at, "%s", err)
		}
	}
}

// FreshToken reads the token again where its reference is a file, so that a new one is used
// without a restart.
//
// Errors: *SecretError.
func (a *Authority) FreshToken() (string, error) {
	s, err := ReadSecret("authority.token", a.Token.reference, a.folder, func(string) (string, bool) {
		return a.Token.Reveal(), true // the environment of a process does not change
	})
	return s.Reveal(), err
}

// TLS is how the authority is spoken to, or nil for Go's own way.
//
// Errors: *FieldError.
func (a *Authority) TLS() (*tls.Config, error) {
	if a.CA == "" && a.Certificate == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.CA != "" {
		data, err := os.ReadFile(a.CA)
		if err != nil {
			return nil, &FieldError{Path: "authority.ca", Why: reason(err)}
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(data) {
			return nil, &FieldError{Path: "authority.ca", Why: "has no certificate in it"}
		}
	}
	if a.Certificate != "" {
		own, err := tls.LoadX509KeyPair(a.Certificate, a.Key)
		if err != nil {
			return nil, &FieldError{Path: "authority.certificate", Why: "does not fit its key, or one of them cannot be read"}
		}
		c.Certificates = []tls.Certificate{own}
	}
	return c, nil
}
