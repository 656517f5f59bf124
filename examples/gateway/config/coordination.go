package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"
)

// Coordination says that the gateways of a database are one: they see the same suspensions and the same
// upstreams, one of them at a time manages those, and what each of them did is exported once. Zero fields
// are the defaults. Use the same on all of them.
type Coordination struct {
	// Tenure is how long the right to manage lasts without renewal: how long nobody manages anything after the
	// gateway that did has died. Default 15s.
	Tenure Duration `yaml:"tenure"`
	// Tail is how often a gateway asks for what others did. Default 250ms.
	Tail Duration `yaml:"tail"`
	// Stale is how long the log may be unreadable until the gateway serves no longer, and is not ready: a suspension may be missing
	// by then. Default 30s, or ten times Tail where that is more; at least four times Tail.
	Stale Duration `yaml:"stale"`
	// Keep is how long events, snapshots and the traces of upstreams that are gone are kept. Default 168h.
	Keep  Duration `yaml:"keep"`
	Fleet Fleet    `yaml:"fleet"`
	Audit *Audit   `yaml:"audit"`
}

// Fleet is how registered upstreams are managed.
type Fleet struct {
	// Cycle is how often they are probed, and those deregistered that were not renewed in time. Default 10s.
	Cycle Duration `yaml:"cycle"`
	// Probe is how long one may take to answer a probe. Default 2s.
	Probe Duration `yaml:"probe"`
	// Discover is a file of upstreams that whoever manages reads in every cycle, and registers.
	Discover string `yaml:"discover"`
	// Credentials are those that registrations may name: they bring none themselves.
	Credentials map[string]Secret `yaml:"credentials"`
}

// Audit is where events are exported to: a folder, in which each gateway has a file of its own, or a webhook.
type Audit struct {
	Folder  string   `yaml:"folder"`
	Webhook *Webhook `yaml:"webhook"`
	// Calls has an event of every attempt too.
	Calls bool `yaml:"calls"`
}

// Webhook takes one event in a POST.
type Webhook struct {
	URL            string   `yaml:"url"`
	Token          Secret   `yaml:"token"` // presented as a bearer's; may be left out
	AllowPlaintext bool     `yaml:"allow_plaintext"`
	Timeout        Duration `yaml:"timeout"` // default 5s
}

// checkCoordination refuses to call gateways one that cannot see one another.
func (c *Config) checkCoordination(k *checker) {
	o := c.Coordination
	if o == nil {
		return
	}
	switch {
	case c.Storage.SQLite == "" && c.Storage.Postgres == nil:
		k.fault("coordination", "says that several gateways are one, and no storage was chosen through which they could be: choose profile: shared with storage.postgres, or leave coordination out")
	case c.Profile != Shared:
		k.fault("coordination", "says that several gateways are one, and the storage of the profile %s cannot be shared: each gateway would have a file of its own, grant itself the right to manage, and report that all is well; choose profile: shared with storage.postgres, or leave coordination out", c.Profile)
	}
	for i := range c.Upstreams {
		if c.Upstreams[i].Local() {
			k.fault(fmt.Sprintf("upstreams[%d].mode", i), "%s", LocalMode)
		}
	}
	for _, d := range []struct {
		name        string
		d           *Duration
		fallback    time.Duration
		least, most time.Duration
	}{
		{"tenure", &o.Tenure, 15 * time.Second, 300 * time.Millisecond, 10 * time.Minute},
		{"tail", &o.Tail, 250 * time.Millisecond, 10 * time.Millisecond, time.Minute},
		{"stale", &o.Stale, max(30*time.Second, 10*o.Tail.Duration), max(time.Second, 4*o.Tail.Duration), time.Hour},
		{"keep", &o.Keep, 7 * 24 * time.Hour, time.Hour, 10 * 365 * 24 * time.Hour},
		{"fleet.cycle", &o.Fleet.Cycle, 10 * time.Second, 50 * time.Millisecond, 10 * time.Minute},
		{"fleet.probe", &o.Fleet.Probe, 2 * time.Second, 10 * time.Millisecond, time.Minute},
	} {
		k.between("coordination."+d.name, d.d, d.fallback, d.least, d.most)
	}
	if o.Fleet.Discover != "" {
		o.Fleet.Discover = k.path("coordination.fleet.discover", o.Fleet.Discover)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Fleet.Credentials)) {
		at := "coordination.fleet.credentials." + name
		if s := o.Fleet.Credentials[name]; k.name(at, name) && !k.blind {
			k.secret(at, &s)
			o.Fleet.Credentials[name] = s
		}
	}
	o.Audit.check(k)
}

// between fills in a duration that was left out, and refuses one that is out of bounds.
func (k *checker) between(path string, d *Duration, fallback, least, most time.Duration) {
	if d.Duration == 0 {
		d.Duration = fallback
	}
	if d.Duration < least || d.Duration > most {
		k.fault(path, "must be a duration between %s and %s", least, most)
	}
}

func (a *Audit) check(k *checker) {
	const at = "coordination.audit"
	switch {
	case a == nil:
		return
	case (a.Folder == "") == (a.Webhook == nil):
		k.fault(at, "needs a folder or a webhook, and not both: two exports of one event are two truths")
		return
	case a.Folder != "":
		a.Folder = k.path(at+".folder", a.Folder)
		return
	}
	w := a.Webhook
	u, err := url.Parse(w.URL)
	switch {
	case w.URL == "":
		k.fault(at+".webhook.url", "is missing")
	case err != nil, u.Host == "", u.Scheme != "https" && u.Scheme != "http":
		k.fault(at+".webhook.url", "must be a URL such as https://siem.example.com/events")
	case u.User != nil:
		k.fault(at+".webhook.url", "must not carry a name or password: that is what token is for")
	case u.Scheme == "http" && !loopback(u.Hostname()) && !w.AllowPlaintext:
		k.fault(at+".webhook.url", "would send events in plain text: use https, or say allow_plaintext: true for a network that you trust")
	}
	if w.Token.IsSet() && !k.blind {
		k.secret(at+".webhook.token", &w.Token)
	}
	k.between(at+".webhook.timeout", &w.Timeout, 5*time.Second, 10*time.Millisecond, time.Minute)
}

// LocalMode is why a gateway that coordinates runs no upstream itself.
const LocalMode = "is subprocess: that describes a process which one gateway runs, at an address that means another thing on every machine; gateways that coordinate would each start one of their own. Run it as a service and say where it is, or leave coordination out"
