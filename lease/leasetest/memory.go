package leasetest

import (
	"context"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/lease"
)

// Memory is a lease.Leaser in memory, for tests of what uses leases: its clock is the process's, or that of
// a bubble of testing/synctest, and Advance moves it ahead; Intercept puts trouble in the way. It guards nothing outside of its process.
//
// Concurrency: safe for concurrent use.
type Memory struct {
	data    *data
	history *lease.History

	mu        sync.Mutex
	intercept func(ctx context.Context, call, name string, do func() error) error
}

type data struct {
	mu     sync.Mutex
	origin string
	ahead  time.Duration
	rows   map[string]lease.Row
}

var _ lease.Leaser = (*Memory)(nil)

// NewMemory makes an empty store.
func NewMemory() *Memory {
	return &Memory{history: &lease.History{}, data: &data{origin: "memory", rows: map[string]lease.Row{}}}
}

// Handle is the same data, as another process sees it.
func (m *Memory) Handle() *Memory { return &Memory{data: m.data, history: &lease.History{}} }

// Advance moves the store's clock.
func (m *Memory) Advance(d time.Duration) {
	m.data.mu.Lock()
	defer m.data.mu.Unlock()
	m.data.ahead += d
}

// Rewind sets a name back to an earlier generation, which nobody holds then, as a restored backup would. 0 removes it.
func (m *Memory) Rewind(name string, to lease.Generation) {
	m.data.mu.Lock()
	defer m.data.mu.Unlock()
	r := m.data.rows[name]
	r.Holder, r.Generation = "", to
	if m.data.rows[name] = r; to == 0 {
		delete(m.data.rows, name)
	}
}

// Intercept makes f stand in for every call of this handle ("acquire", "renew", "release", "look"): it may wait, fail, or
// call do and keep the answer to itself. nil removes it.
func (m *Memory) Intercept(f func(ctx context.Context, call, name string, do func() error) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.intercept = f
}

// Fence returns nil if the lease is held in this generation now, as an adapter's Fence does in a transaction.
func (m *Memory) Fence(held lease.Lease) error {
	if err := held.Validate(false); err != nil {
		return err
	}
	m.data.mu.Lock()
	defer m.data.mu.Unlock()
	r := m.data.row(held.Name)
	if !r.Held() || r.Holder != held.Holder || r.Generation != held.Generation {
		return &lease.LostError{Held: held, Row: r}
	}
	return nil
}

// Shared implements lease.Leaser: it pretends.
func (m *Memory) Shared() bool { return true }

// Acquire implements lease.Leaser.
func (m *Memory) Acquire(ctx context.Context, c lease.Claim) (l lease.Lease, err error) {
	if err := c.Validate(); err != nil {
		return l, err
	}
	mark := m.history.Mark(c.Name)
	err = m.call(ctx, "acquire", c.Name, func() (err error) {
		a := m.data.change(c.Name, func(r *lease.Row) bool {
			if r.Generation < mark.Generation || mark.Origin != "" && mark.Origin != r.Origin || r.Held() && r.Holder != c.Holder {
				return false
			}
			r.Holder, r.Generation, r.TTL = c.Holder, r.Generation+1, c.TTL
			r.AcquiredAt, r.RenewedAt, r.ExpiresAt = r.Now, r.Now, r.Now.Add(c.TTL)
			return true
		})
		l, err = m.history.Acquired(c, mark, a)
		return err
	})
	return orZero(l, err)
}

// Renew implements lease.Leaser.
func (m *Memory) Renew(ctx context.Context, held lease.Lease) (l lease.Lease, err error) {
	if err := held.Validate(false); err != nil {
		return l, err
	}
	mark := m.history.Mark(held.Name)
	err = m.call(ctx, "renew", held.Name, func() (err error) {
		a := m.data.change(held.Name, func(r *lease.Row) bool {
			if !r.Held() || r.Holder != held.Holder || r.Generation != held.Generation {
				return false
			}
			r.RenewedAt, r.ExpiresAt = r.Now, r.Now.Add(r.TTL)
			return true
		})
		l, err = m.history.Renewed(held, mark, a)
		return err
	})
	return orZero(l, err)
}

// Release implements lease.Leaser.
func (m *Memory) Release(ctx context.Context, held lease.Lease) error {
	if err := held.Validate(true); err != nil {
		return err
	}
	mark := m.history.Mark(held.Name)
	return m.call(ctx, "release", held.Name, func() error {
		a := m.data.change(held.Name, func(r *lease.Row) bool {
			if r.Holder != held.Holder || held.Generation != 0 && r.Generation != held.Generation {
				return false
			}
			if r.Holder = ""; r.Now.Before(r.ExpiresAt) {
				r.ExpiresAt = r.Now
			}
			return true
		})
		return m.history.Released(held, mark, a)
	})
}

// Look implements lease.Leaser.
func (m *Memory) Look(ctx context.Context, name string) (r lease.Row, err error) {
	if err := lease.ValidateName(name); err != nil {
		return r, err
	}
	mark := m.history.Mark(name)
	err = m.call(ctx, "look", name, func() (err error) {
		a := m.data.change(name, func(*lease.Row) bool { return false })
		r, err = m.history.Looked(mark, a.Row)
		return err
	})
	return orZero(r, err)
}

func (m *Memory) call(ctx context.Context, call, name string, do func() error) error {
	m.mu.Lock()
	intercept := m.intercept
	m.mu.Unlock()
	if intercept != nil {
		return intercept(ctx, call, name, do)
	}
	if ctx.Err() != nil {
		return lease.ErrUnavailable
	}
	return do()
}

func (d *data) row(name string) lease.Row {
	r := d.rows[name]
	r.Name, r.Origin, r.Now = name, d.origin, time.Now().Add(d.ahead).UTC().Round(0)
	return r
}

// change applies a conditional change to a row.
func (d *data) change(name string, to func(*lease.Row) bool) lease.Answer {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.row(name)
	done := to(&r)
	if done {
		d.rows[name] = r
	}
	return lease.Answer{Row: r, Done: done}
}

func orZero[T any](v T, err error) (T, error) {
	if err != nil {
		var zero T
		return zero, err
	}
	return v, nil
}
