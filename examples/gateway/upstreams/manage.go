package upstreams

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/coordination"
	"github.com/tallystick-go/tallystick/lease"
)

// failures in a row are needed before an upstream counts as unhealthy, and once is enough to be healthy again.
const failures = 2

// most is how many are changed in one transaction.
const most = 100

// Manager is what whoever holds the lease does in every cycle. Make one per gateway.
type Manager struct {
	u      *Upstreams
	client *http.Client
	keep   time.Duration
	failed map[string]int // probes in a row, while this gateway manages
}

// NewManager makes a manager.
func NewManager(u *Upstreams) *Manager {
	c := u.config.Coordination
	return &Manager{u: u, keep: c.Keep.Duration, failed: map[string]int{}, client: &http.Client{
		Timeout:       c.Fleet.Probe.Duration,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Cycle registers what the file names, probes, deregisters what fell silent, notes how the fleet stands, and removes
// what is old. One that fails does not keep the others from being done.
//
// Errors: lease.ErrLost, when it is another's by now; coordination.ErrUnavailable.
func (m *Manager) Cycle(ctx context.Context, held lease.Lease) error {
	var errs []error
	for _, do := range []func(context.Context, lease.Lease) error{m.discover, m.probe, m.Expire, m.note, m.Collect} {
		if err := do(ctx, held); err != nil {
			errs = append(errs, err)
		}
		if errors.Is(errors.Join(errs...), lease.ErrLost) || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// discover registers what stands in the file. It deregisters nothing: what stands there no more falls silent.
func (m *Manager) discover(ctx context.Context, held lease.Lease) error {
	path := m.u.config.Coordination.Fleet.Discover
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return errors.New("upstreams: the file of coordination.fleet.discover cannot be read")
	}
	list, err := parseList(text)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range list {
		if err := r.check(m.u.config); err != nil {
			errs = append(errs, fmt.Errorf("upstreams: %q in the file of coordination.fleet.discover: %w", r.Name, err))
			continue
		}
		err := m.u.base.Fenced(ctx, held, func(ctx context.Context, tx *coordination.Tx) error {
			_, _, err := m.u.register(ctx, tx, r, InFile)
			return err
		})
		if err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// parseList reads the file of coordination.fleet.discover. A field that a registration does not have is refused, as over the admin API:
// a misspelt "allow_plaintext" or "region" must not be taken for one that was left out.
func parseList(text []byte) ([]Registration, error) {
	var list []Registration
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil {
		return nil, errors.New("upstreams: the file of coordination.fleet.discover is not a JSON list of registrations with fields that are known")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("upstreams: the file of coordination.fleet.discover must end behind the list")
	}
	return list, nil
}

// probe asks every upstream whether it is there, all at once, and tells the others what has changed.
func (m *Manager) probe(ctx context.Context, held lease.Lease) error {
	list, err := m.u.List()
	if err != nil {
		return err
	}
	found := make([]bool, len(list))
	var wait sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i, r := range list {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			found[i] = m.answers(ctx, r)
		})
	}
	wait.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	there := map[string]bool{}
	for i, r := range list {
		there[r.Name] = true
		is := Healthy
		if found[i] {
			m.failed[r.Name] = 0
		} else if m.failed[r.Name]++; m.failed[r.Name] < failures {
			continue
		} else {
			is = Unhealthy
		}
		if is == r.Health {
			continue
		}
		if err := m.tell(ctx, held, r, is); err != nil {
			return err
		}
	}
	for name := range m.failed {
		if !there[name] {
			delete(m.failed, name)
		}
	}
	return nil
}

func (m *Manager) tell(ctx context.Context, held lease.Lease, r Record, health string) error {
	return m.u.base.Fenced(ctx, held, func(ctx context.Context, tx *coordination.Tx) error {
		_, now, err := m.u.lock(ctx, tx, r.Name)
		if errors.Is(err, coordination.ErrNotFound) || err == nil && (now.Gone != "" || now.BaseURL != r.BaseURL) {
			return nil // another one was probed
		}
		if err != nil {
			return err
		}
		now.Health = health
		_, err = m.u.change(ctx, tx, now, probed)
		return err
	})
}

// answers reports whether an upstream answers at all. It is asked without a credential: a refusal is an answer.
func (m *Manager) answers(ctx context.Context, r Record) bool {
	u := r.upstream()
	if config.CheckRegistered(&u) != nil {
		return false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.URL.JoinPath("v1", "models").String(), nil)
	if err != nil {
		return false
	}
	resp, err := m.client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode < http.StatusInternalServerError
}

// Expire deregisters, fenced, what was not registered again in time.
//
// Errors: lease.ErrLost: nothing was deregistered; coordination.ErrUnavailable, coordination.ErrUnknownOutcome.
func (m *Manager) Expire(ctx context.Context, held lease.Lease) error {
	return m.u.base.Fenced(ctx, held, func(ctx context.Context, tx *coordination.Tx) error {
		rows, err := tx.Query(ctx, "select name, record from "+m.u.table()+" where gone_us is null and expires_us <= $1 order by name limit $2 for update", tx.Now, most)
		if err != nil {
			return err
		}
		silent, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Record, error) {
			var name, text string
			err := row.Scan(&name, &text)
			return readable(name, text), err
		})
		if err != nil {
			return err
		}
		for _, r := range silent {
			r.Gone, r.Decision = "it was not registered again in time", Decision{}
			if _, err := m.u.change(ctx, tx, r, gone); err != nil {
				return err
			}
		}
		return nil
	})
}

// Snapshot is how the fleet stood at one moment, as the gateway of that generation saw it.
type Snapshot struct {
	At         time.Time `json:"at"`
	Generation int64     `json:"generation"`
	Registered int64     `json:"registered"`
	Healthy    int64     `json:"healthy"`
	Unhealthy  int64     `json:"unhealthy"`
}

func (m *Manager) note(ctx context.Context, held lease.Lease) error {
	list, err := m.u.List()
	if err != nil {
		return err
	}
	var healthy, unhealthy int64
	for _, r := range list {
		switch r.Health {
		case Healthy:
			healthy++
		case Unhealthy:
			unhealthy++
		}
	}
	return m.u.base.Fenced(ctx, held, func(ctx context.Context, tx *coordination.Tx) error {
		_, err := tx.Exec(ctx, "insert into "+m.u.base.Table("gateway_fleet_snapshots")+" (at_us, generation, registered, healthy, unhealthy) values ($1, $2, $3, $4, $5)",
			tx.Now, int64(held.Generation), int64(len(list)), healthy, unhealthy)
		return err
	})
}

// Snapshots returns the latest, newest first.
//
// Errors: coordination.ErrUnavailable.
func (u *Upstreams) Snapshots(ctx context.Context, limit int) ([]Snapshot, error) {
	out, err := coordination.Query(ctx, u.base, "select at_us, generation, registered, healthy, unhealthy from "+u.base.Table("gateway_fleet_snapshots")+" order by at_us desc, generation desc limit $1",
		func(row pgx.CollectableRow) (s Snapshot, err error) {
			var at int64
			err = row.Scan(&at, &s.Generation, &s.Registered, &s.Healthy, &s.Unhealthy)
			s.At = time.UnixMicro(at).UTC()
			return s, err
		}, limit)
	if out == nil {
		out = []Snapshot{}
	}
	return out, err
}

// Collect removes, fenced, traces of upstreams that have been gone for long, and old snapshots; and old events that every
// reader has had, which asks for no fence: whoever removes them, they are the same.
//
// Errors: lease.ErrLost; coordination.ErrUnavailable, coordination.ErrUnknownOutcome; those of eventlog.Store.Prune.
func (m *Manager) Collect(ctx context.Context, held lease.Lease) error {
	var old int64
	err := m.u.base.Fenced(ctx, held, func(ctx context.Context, tx *coordination.Tx) error {
		old = tx.Now - m.keep.Microseconds()
		if _, err := tx.Exec(ctx, "delete from "+m.u.table()+" where gone_us < $1", old); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "delete from "+m.u.base.Table("gateway_fleet_snapshots")+" where at_us < $1", old)
		return err
	})
	if err != nil {
		return err
	}
	return m.u.base.Retain(ctx, time.UnixMicro(old))
}
