package router

import (
	"maps"
	"reflect"
	"slices"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
)

const (
	// mostTargets is how many a route has at most, as in a configuration.
	mostTargets = 16
	// mostRetired is how many that are gone are remembered, so that what is under way there is waited for, and
	// one that comes back finds its connections.
	mostRetired = 1024
)

// Model is one that clients may ask for.
type Model struct{ Name, Protocol string }

// Models lists what is served: first what the configuration routes, in its order, then what is registered.
func (r *Router) Models() []Model {
	table := *r.routes.Load()
	out := make([]Model, 0, len(table))
	for _, c := range r.options.Config.Routes {
		out = append(out, Model{c.Model, table[c.Model].protocol})
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if r.fixed[name] == nil {
			out = append(out, Model{name, table[name].protocol})
		}
	}
	return out
}

// SetRegistered puts upstreams in the place of those that were registered before. They serve their models behind
// what the configuration routes, in turns, and a model that it does not route at all. What is under way goes on.
func (r *Router) SetRegistered(list []config.Upstream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := make([]*upstream, 0, len(list))
	for i := range list {
		now = append(now, r.registration(&list[i]))
	}
	for _, u := range r.registered {
		if !slices.Contains(now, u) {
			r.retired = append(r.retired, u)
			u.base.CloseIdleConnections()
		}
	}
	if over := len(r.retired) - mostRetired; over > 0 {
		r.retired = slices.Delete(r.retired, 0, over)
	}
	r.registered = now
	table := maps.Clone(r.fixed)
	for _, u := range now {
		for _, model := range u.config.Models {
			add(table, r.fixed[model], model, u)
		}
	}
	r.routes.Store(&table)
}

// registration returns the upstream that a registration is, if it is or was there.
func (r *Router) registration(c *config.Upstream) *upstream {
	same := func(u *upstream) bool { return reflect.DeepEqual(u.config, c) }
	if i := slices.IndexFunc(r.registered, same); i >= 0 {
		return r.registered[i]
	}
	if i := slices.IndexFunc(r.retired, same); i >= 0 {
		u := r.retired[i]
		r.retired = slices.Delete(r.retired, i, i+1)
		return u
	}
	return r.upstream(c)
}

func add(table map[string]*route, fixed *route, model string, u *upstream) {
	to := table[model]
	switch {
	case to == nil:
		to = &route{name: model, protocol: u.config.Protocol}
		table[model] = to
	case to == fixed: // which stays as it is
		to = &route{name: to.name, protocol: to.protocol, targets: slices.Clone(to.targets)}
		table[model] = to
	}
	if to.protocol == u.config.Protocol && len(to.targets) < mostTargets {
		to.targets = append(to.targets, target{upstream: u, model: model, region: u.config.Region})
		to.extra++
	}
}

// turned is the route with the next of its registered targets first among them.
func (r *Router) turned(to *route) *route {
	if to == nil || to.extra < 2 {
		return to
	}
	first := len(to.targets) - to.extra
	at := first + int(r.turn.Add(1)%uint64(to.extra))
	turned := *to
	turned.targets = slices.Concat(to.targets[:first], to.targets[at:], to.targets[first:at])
	return &turned
}

// all returns every upstream that something may be under way at.
func (r *Router) all() []*upstream {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(r.upstreams, r.registered, r.retired)
}
