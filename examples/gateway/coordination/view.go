package coordination

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/tallystick-go/tallystick/eventlog"
)

// View is what this gateway knows of something that is shared: the latest record of every name, by the version of the
// name's stream. It is safe for concurrent use.
type View[T any] struct {
	mu    sync.RWMutex
	ready bool
	rows  map[string]Versioned[T]
	fresh map[string]bool // set since Begin
	known chan struct{}   // closed with ready; nil: nobody waits
}

// Versioned is a record and the version that it was written at.
type Versioned[T any] struct {
	Version int64
	Record  T
}

// Begin must come before the reading of what Replace is given.
func (v *View[T]) Begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fresh = map[string]bool{}
}

// Replace begins anew, with what was read at one moment. What was set since Begin stays where it is later.
func (v *View[T]) Replace(rows map[string]Versioned[T]) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name := range v.fresh {
		if was := v.rows[name]; was.Version > rows[name].Version {
			rows[name] = was
		}
	}
	v.rows, v.ready, v.fresh = rows, true, nil
	if v.known != nil {
		close(v.known)
		v.known = nil
	}
}

// Await waits until something is known.
//
// Errors: the context's.
func (v *View[T]) Await(ctx context.Context) error {
	v.mu.Lock()
	if v.ready {
		v.mu.Unlock()
		return nil
	}
	if v.known == nil {
		v.known = make(chan struct{})
	}
	known := v.known
	v.mu.Unlock()
	select {
	case <-known:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Set takes a record, unless a later one is there: what this gateway did itself comes again by the log.
func (v *View[T]) Set(name string, version int64, record T) (changed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if version <= v.rows[name].Version || !v.ready {
		return false
	}
	v.rows[name] = Versioned[T]{version, record}
	if v.fresh != nil {
		v.fresh[name] = true
	}
	return true
}

// Ready reports whether anything is known yet.
func (v *View[T]) Ready() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.ready
}

// Has reports whether a name's record is known as of a version, or a later one.
func (v *View[T]) Has(name string, version int64) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.rows[name].Version >= version
}

// Get returns a name's record.
func (v *View[T]) Get(name string) (record T, is bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	r, is := v.rows[name]
	return r.Record, is
}

// All returns every record, by name.
func (v *View[T]) All() []T {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := make([]T, 0, len(v.rows))
	for _, name := range slices.Sorted(maps.Keys(v.rows)) {
		out = append(out, v.rows[name].Record)
	}
	return out
}

// Follow is a projection that begins with what is there when a gateway joins, and again wherever its cursor
// cannot go on.
func Follow(name string, load func(context.Context) (eventlog.Cursor, error), handle func(context.Context, eventlog.Recorded) error) eventlog.Subscription {
	return eventlog.Projection(name, handle, &eventlog.ViewOptions{
		From:   load,
		Resync: func(ctx context.Context, _ error) (eventlog.Cursor, error) { return load(ctx) },
	})
}
