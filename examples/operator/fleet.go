package operator

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/admin"
	"github.com/tallystick-go/tallystick/examples/gateway/upstreams"
)

// fleetCommands are about the upstreams that are registered with gateways that coordinate.
var fleetCommands = map[string]operation{
	"list":       {"", func(*flag.FlagSet) *request { return get(at("fleet"), printFleet) }},
	"status":     {"", fleetStatus},
	"register":   {"NAME", registration},
	"deregister": {"NAME", deregistration},
}

func printFleet(o *output, answer json.RawMessage) error {
	f, err := into[admin.Fleet](answer)
	o.row("UPSTREAM", "PROTOCOL", "MODELS", "HEALTH", "ORIGIN", "SINCE", "STAYS", "URL", "BY", "NOT USED HERE")
	for _, u := range f.Upstreams {
		o.row(u.Name, u.Protocol, strings.Join(u.Models, ","), u.Health, u.Origin, u.RegisteredAt.Format(time.RFC3339), stays(u), u.BaseURL, u.Actor, u.Declined)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Declined)) {
		if !slices.ContainsFunc(f.Upstreams, func(u upstreams.Standing) bool { return u.Name == name }) {
			o.row(name, "", "", "", "", "", "", "", "", f.Declined[name])
		}
	}
	return err
}

// stays is for how long an upstream stays without being registered again.
func stays(u upstreams.Standing) string {
	if u.ExpiresInMS <= 0 {
		return "over"
	}
	return (time.Duration(u.ExpiresInMS) * time.Millisecond).Round(time.Second / 10).String()
}

// fleetStatus says who manages the fleet, how it stands, and what leaves it soon.
func fleetStatus(set *flag.FlagSet) *request {
	snapshots := set.Int("snapshots", 5, "`how many` of the last states of the fleet, as whoever managed noted them")
	r := get(at("fleet"), printFleetStatus)
	r.query = func(q url.Values) error {
		q.Set("snapshots", fmt.Sprint(*snapshots))
		return nil
	}
	return r
}

func printFleetStatus(o *output, answer json.RawMessage) error {
	f, err := into[admin.Fleet](answer)
	if m := f.Manager; m != nil {
		holder := m.Holder
		if holder == "" {
			holder = "nobody"
		}
		o.row("MANAGED BY", holder)
		o.row("GENERATION", m.Generation)
		o.row("TENURE", time.Duration(m.TenureInForceMS)*time.Millisecond)
		if m.Longer {
			o.row("TENURE HERE", time.Duration(m.TenureMS)*time.Millisecond, "configured apart: the holder's counts, and is how long nobody manages after it has died")
		}
		o.row("THIS GATEWAY", m.State, m.Error)
	}
	health := map[string]int{}
	for _, u := range f.Upstreams {
		health[u.Health]++
	}
	o.row("UPSTREAMS", len(f.Upstreams))
	for _, h := range slices.Sorted(maps.Keys(health)) {
		o.row("", h, health[h])
	}
	expiring := slices.SortedFunc(slices.Values(f.Upstreams), func(a, b upstreams.Standing) int { return int(min(max(a.ExpiresInMS-b.ExpiresInMS, -1), 1)) })
	for _, u := range expiring {
		if 3*u.ExpiresInMS < u.TTLMS { // who registers again in time does so before
			o.row("EXPIRING", u.Name, stays(u))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Declined)) {
		o.row("NOT USED HERE", name, f.Declined[name])
	}
	for _, s := range f.Snapshots {
		o.row("SNAPSHOT", s.At.Format(time.RFC3339), fmt.Sprintf("%d registered, %d healthy, %d unhealthy", s.Registered, s.Healthy, s.Unhealthy), fmt.Sprint("generation ", s.Generation))
	}
	return err
}

func registration(set *flag.FlagSet) *request {
	var r upstreams.Registration
	var models many
	set.StringVar(&r.Protocol, "protocol", "openai", "the `protocol` that it speaks")
	set.StringVar(&r.BaseURL, "base-url", "", "`where` it is; required")
	set.Var(&models, "model", "a `model` that it serves; may be repeated; required")
	set.StringVar(&r.Credential, "credential", "", "the `name` of one of coordination.fleet.credentials; required")
	set.StringVar(&r.Region, "region", "", "the `region` that it is in")
	set.StringVar(&r.OutputField, "output-field", "", "the `field` for a maximum of output tokens, where it is not the usual one")
	set.BoolVar(&r.NoStreamUsage, "no-stream-usage", false, "it refuses stream_options")
	set.BoolVar(&r.AllowPlaintext, "allow-plaintext", false, "over http, through a network that you trust")
	ttl := set.Duration("ttl", time.Minute, "how `long` it stays without being registered again")
	actor, reason := operatorFlags(set)
	return &request{
		method: http.MethodPost, path: at("fleet"),
		body: func(name string) (any, error) {
			if *actor == "" || *reason == "" {
				return nil, errors.New("fleet register needs -actor and -reason")
			}
			if r.BaseURL == "" || len(models.list) == 0 || r.Credential == "" {
				return nil, errors.New("fleet register needs -base-url, a -model and -credential")
			}
			r.Name, r.Models, r.TTLMS, r.Actor, r.Reason = name, models.list, ttl.Milliseconds(), *actor, *reason
			return r, nil
		},
		print: func(o *output, answer json.RawMessage) error {
			got, err := into[upstreams.Record](answer)
			o.row(got.Name + " is known to every gateway of the database, for " + (time.Duration(got.TTLMS) * time.Millisecond).String() + " unless it is registered again")
			return err
		},
	}
}

func deregistration(set *flag.FlagSet) *request {
	actor, reason := operatorFlags(set)
	return &request{
		method: http.MethodPost, path: under("fleet/", "/deregister"),
		body: func(string) (any, error) {
			if *actor == "" || *reason == "" {
				return nil, errors.New("fleet deregister needs -actor and -reason")
			}
			return upstreams.Decision{Actor: *actor, Reason: *reason}, nil
		},
		print: func(o *output, _ json.RawMessage) error {
			o.row("deregistered on every gateway of the database; calls under way there end as they end")
			return nil
		},
	}
}
