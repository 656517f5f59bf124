package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	maxUpstreams = 256
	maxModels    = 4096
	maxAttempts  = 16
	maxName      = 128
)

// checker collects what is wrong.
type checker struct {
	folder string
	blind  bool // the credentials of upstreams are not read
	env    func(string) (string, bool)
	faults []error
}

func (k *checker) fault(path, format string, args ...any) {
	k.faults = append(k.faults, &FieldError{Path: path, Why: fmt.Sprintf(format, args...)})
}

func (k *checker) secret(path string, s *Secret) {
	read, err := ReadSecret(path, s.reference, k.folder, k.env)
	if err != nil {
		k.faults = append(k.faults, err)
		return
	}
	*s = read
}

// name checks a word that appears in logs, metrics and errors.
func (k *checker) name(path, name string) bool {
	switch {
	case name == "":
		k.fault(path, "is missing")
	case len(name) > maxName:
		k.fault(path, "must not be longer than %d bytes", maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) || r == unicode.ReplacementChar }):
		k.fault(path, "must not contain spaces or control characters")
	default:
		return true
	}
	return false
}

// check validates the document and reads its secrets.
func (c *Config) check(k *checker) error {
	switch c.Profile {
	case Local, Node, Shared:
	default:
		k.fault("profile", "must be local, node or shared")
	}
	k.listen("listen", c.Listen)
	c.Admin.check(k, c.Listen)
	c.checkStorage(k)
	c.checkAuthority(k)
	k.strings("prices.free", c.Prices.Free)
	switch {
	case c.Prices.File != "":
		c.Prices.File = k.path("prices.file", c.Prices.File)
	case len(c.Prices.Aliases) > 0 || len(c.Prices.Free) > 0:
		k.fault("prices.file", "is missing: aliases and free add to a price list of your own")
	}
	if err := c.Keys.Format().Validate(); err != nil {
		k.fault("keys", "%s", strings.TrimPrefix(err.Error(), "keys: "))
	}
	c.checkBootstrap(k)
	c.checkUpstreams(k)
	c.checkRoutes(k)
	c.checkCoordination(k)
	if c.Requests.MaxBodyBytes < 1024 || c.Requests.MaxBodyBytes > 1<<30 {
		k.fault("requests.max_body_bytes", "must be between 1024 and 1073741824")
	}
	k.strings("requests.allow_fields", c.Requests.AllowFields)
	k.strings("requests.allow_tools", c.Requests.AllowTools)
	switch c.Requests.Bound {
	case "":
		if c.Requests.Bound = BoundByBytes; c.Profile == Node {
			c.Requests.Bound = BoundByContext
		}
	case BoundByBytes, BoundByContext:
	default:
		k.fault("requests.bound", "must be bytes or context")
	}
	c.checkTimeouts(k)
	return errors.Join(k.faults...)
}

// check checks the listener for operators, beside the other one.
func (a *Admin) check(k *checker, beside string) {
	if a.Listen == "" && !a.Token.IsSet() {
		return
	}
	k.listen("admin.listen", a.Listen)
	k.secret("admin.token", &a.Token)
	if host, _, err := net.SplitHostPort(a.Listen); err == nil && !loopback(host) && !a.AllowPlaintext {
		k.fault("admin.listen", "would take the token in plain text from other machines: listen on 127.0.0.1, or say allow_plaintext: true behind something that speaks TLS")
	}
	if a.Listen == beside && !strings.HasSuffix(beside, ":0") {
		k.fault("admin.listen", "must be another address than listen")
	}
}

func (k *checker) listen(path, address string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		k.fault(path, "must be host:port, such as 127.0.0.1:8080")
		return
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > 65535 {
		k.fault(path, "the port must be a number from 0 to 65535")
	}
	if host != "" && host != "localhost" {
		if _, err := netip.ParseAddr(host); err != nil {
			k.fault(path, "the host must be an IP address, localhost, or nothing for all")
		}
	}
}

func (c *Config) checkStorage(k *checker) {
	if c.Profile == Shared {
		c.checkShared(k)
		return
	}
	switch {
	case c.Profile == Node:
		c.checkNode(k)
	case c.Storage.Postgres != nil:
		k.fault("storage.postgres", "is for the profile shared: a gateway of the profile local is the only one, and its policies come from files; say profile: shared")
	}
	if c.Journal.there && c.Profile != Node {
		k.fault("journal", "belongs to the profile node: a gateway of the profile local has its money in storage.sqlite")
	}
	for i, path := range c.Policies.Files {
		at := fmt.Sprintf("policies.files[%d]", i)
		if path == "" {
			k.fault(at, "is missing")
			continue
		}
		if c.Policies.Files[i] = k.path(at, path); slices.Contains(c.Policies.Files[:i], c.Policies.Files[i]) {
			k.fault(at, "stands here twice")
		}
	}
	if c.TopologyVersion != "" {
		k.name("topology_version", c.TopologyVersion)
	}
	file := c.Storage.SQLite
	switch {
	case file == "":
		k.fault("storage.sqlite", "is missing: say which file keeps keys and counters")
	case strings.ContainsAny(file, "?#%\x00") || strings.HasPrefix(file, "file:"):
		k.fault("storage.sqlite", "must be a plain path: the gateway chooses the settings itself")
	case strings.Contains(file, ":memory:"):
		k.fault("storage.sqlite", "must be a file: memory forgets what was spent")
	default:
		c.Storage.SQLite = k.path("storage.sqlite", file)
	}
}

// path makes a path absolute, from the folder of the document.
func (k *checker) path(where, path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(k.folder, path)
	}
	full, err := filepath.Abs(path)
	if err != nil {
		k.fault(where, "is not a path")
	}
	return full
}

func (k *checker) strings(path string, list []string) {
	seen := map[string]bool{}
	for i, s := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		if k.name(at, s) && seen[s] {
			k.fault(at, "stands here twice")
		}
		seen[s] = true
	}
}

func (c *Config) checkUpstreams(k *checker) {
	if len(c.Upstreams) == 0 || len(c.Upstreams) > maxUpstreams {
		k.fault("upstreams", "must have between 1 and %d entries", maxUpstreams)
		return
	}
	seen := map[string]bool{}
	models := 0
	for i := range c.Upstreams {
		u := &c.Upstreams[i]
		at := fmt.Sprintf("upstreams[%d]", i)
		if k.name(at+".name", u.Name) && seen[u.Name] {
			k.fault(at+".name", "another upstream has this name")
		}
		seen[u.Name] = true
		if !k.blind {
			k.secret(at+".credential", &u.Credential)
		}
		if models += len(u.Models); len(u.Models) == 0 || models > maxModels {
			k.fault(at+".models", "must name at least one model, and all upstreams at most %d", maxModels)
		}
		k.upstream(at, u)
		k.mode(at, u)
	}
}

// upstream checks what an upstream says of itself, but its name and credential.
func (k *checker) upstream(at string, u *Upstream) {
	if u.Protocol != OpenAI && u.Protocol != Anthropic && u.Protocol != Bedrock {
		k.fault(at+".protocol", "must be openai, anthropic or bedrock")
	}
	u.URL = k.baseURL(at+".base_url", u)
	k.strings(at+".models", u.Models)
	switch u.OutputField {
	case "", "max_tokens", "max_completion_tokens":
	default:
		k.fault(at+".output_field", "must be max_tokens or max_completion_tokens")
	}
	if u.Protocol != OpenAI && (u.OutputField != "" || u.NoStreamUsage) {
		k.fault(at, "output_field and no_stream_usage are for the protocol openai")
	}
	k.where(at, u)
}

// mode checks who runs an upstream.
func (k *checker) mode(at string, u *Upstream) {
	switch u.Mode {
	case "":
		u.Mode = Remote
	case Remote, Subprocess:
	default:
		k.fault(at+".mode", "must be remote or subprocess")
		return
	}
	switch {
	case u.Local() != (len(u.Command) > 0):
		k.fault(at+".command", "is what runs an upstream of the mode subprocess: a program and its arguments, and of that mode alone")
	case u.Local() && u.URL != nil && !loopback(u.URL.Hostname()):
		k.fault(at+".base_url", "must be on this machine: the gateway runs this upstream itself")
	}
}

// where checks what says in which region an upstream is, and what guards it.
func (k *checker) where(at string, u *Upstream) {
	if u.Region != "" {
		k.name(at+".region", u.Region)
	}
	if u.Protocol != Bedrock && len(u.Guardrails) > 0 {
		k.fault(at+".guardrails", "are Bedrock's: an attempt may name what another upstream applies by itself")
	}
	for _, name := range slices.Sorted(maps.Keys(u.Guardrails)) {
		g := u.Guardrails[name]
		k.name(at+".guardrails", name)
		k.name(at+".guardrails."+name+".identifier", g.Identifier)
		k.name(at+".guardrails."+name+".version", g.Version)
	}
}

// baseURL reads where an upstream is. /v1 at the end is optional, since the
// official clients of the two protocols disagree about it.
func (k *checker) baseURL(path string, u *Upstream) *url.URL {
	parsed, err := url.Parse(u.BaseURL)
	switch {
	case u.BaseURL == "":
		k.fault(path, "is missing")
	case err != nil, parsed.Host == "", parsed.Scheme != "https" && parsed.Scheme != "http", parsed.Opaque != "":
		k.fault(path, "must be a URL such as https://api.example.com")
	case parsed.User != nil:
		k.fault(path, "must not carry a name or password: that is what credential is for")
	case parsed.RawQuery != "" || parsed.ForceQuery || parsed.Fragment != "" || parsed.RawPath != "":
		k.fault(path, "must end with its path: no query, no fragment, nothing encoded")
	case parsed.Scheme == "http" && !loopback(parsed.Hostname()) && !u.AllowPlaintext:
		k.fault(path, "would send the credential in plain text: use https, or say allow_plaintext: true for a network that you trust")
	default:
		parsed.Path = strings.TrimSuffix(strings.TrimSuffix(parsed.Path, "/"), "/v1")
		return parsed
	}
	return nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// checkRoutes checks the routes and adds one for every model that needs none.
func (c *Config) checkRoutes(k *checker) {
	upstreams := map[string]*Upstream{}
	serves := map[string][]string{}
	var order []string
	for i := range c.Upstreams {
		u := &c.Upstreams[i]
		upstreams[u.Name] = u
		for _, m := range u.Models {
			if serves[m] == nil {
				order = append(order, m)
			}
			serves[m] = append(serves[m], u.Name)
		}
	}
	routed := map[string]bool{}
	for i := range c.Routes {
		r := &c.Routes[i]
		at := fmt.Sprintf("routes[%d]", i)
		if k.name(at+".model", r.Model) && routed[r.Model] {
			k.fault(at+".model", "another route has this model")
		}
		routed[r.Model] = true
		if len(r.Attempts) == 0 || len(r.Attempts) > maxAttempts {
			k.fault(at+".attempts", "must have between 1 and %d entries", maxAttempts)
		}
		for j := range r.Attempts {
			k.attempt(fmt.Sprintf("%s.attempts[%d]", at, j), r, j, upstreams)
		}
	}
	for _, m := range order {
		if routed[m] {
			continue
		}
		if len(serves[m]) > 1 {
			k.fault("routes", "the model %s is served by %s: add a route that says which comes first", m, strings.Join(serves[m], " and "))
			continue
		}
		only := upstreams[serves[m][0]]
		c.Routes = append(c.Routes, Route{Model: m, Attempts: []Attempt{{Upstream: only.Name, Model: m, Region: only.Region}}})
	}
}

func (k *checker) attempt(at string, r *Route, j int, upstreams map[string]*Upstream) {
	a := &r.Attempts[j]
	if a.Model == "" {
		a.Model = r.Model
	}
	u := upstreams[a.Upstream]
	if u == nil {
		k.fault(at+".upstream", "no upstream has this name")
		return
	}
	if a.Region == "" {
		a.Region = u.Region
	} else {
		k.name(at+".region", a.Region)
	}
	if a.Guardrail != "" && k.name(at+".guardrail", a.Guardrail) && u.Protocol == Bedrock && u.Guardrails[a.Guardrail] == (Guardrail{}) {
		k.fault(at+".guardrail", "the upstream %s does not list this guardrail", u.Name)
	}
	if !slices.Contains(u.Models, a.Model) {
		k.fault(at+".model", "the upstream %s does not list this model", u.Name)
	}
	if first := upstreams[r.Attempts[0].Upstream]; first != nil && first.Protocol != u.Protocol {
		k.fault(at+".upstream", "all attempts of a route must speak one protocol")
	}
	if slices.Contains(r.Attempts[:j], *a) {
		k.fault(at, "stands here twice")
	}
}

func (c *Config) checkTimeouts(k *checker) {
	k.durations([]bounded{
		{"read_header", c.Timeouts.ReadHeader.Duration, time.Minute},
		{"read_body", c.Timeouts.ReadBody.Duration, time.Hour},
		{"idle", c.Timeouts.Idle.Duration, time.Hour},
		{"request", c.Timeouts.Request.Duration, 24 * time.Hour},
		{"connect", c.Timeouts.Connect.Duration, time.Minute},
		{"first_byte", c.Timeouts.FirstByte.Duration, 24 * time.Hour},
		{"storage", c.Timeouts.Storage.Duration, time.Minute},
		{"linger", c.Timeouts.Linger.Duration, 10 * time.Minute},
		{"drain", c.Timeouts.Drain.Duration, time.Hour},
	})
}

// bounded is a duration of timeouts and the most that it may be.
type bounded struct {
	name string
	d    time.Duration
	most time.Duration
}

func (k *checker) durations(list []bounded) {
	for _, t := range list {
		if t.d < time.Millisecond || t.d > t.most {
			k.fault("timeouts."+t.name, "must be a duration between 1ms and %s", t.most)
		}
	}
}
