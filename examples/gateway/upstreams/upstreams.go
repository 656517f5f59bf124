package upstreams

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/coordination"
)

const (
	stream = "upstream/"

	registered = "upstream.registered"
	probed     = "upstream.probed"
	gone       = "upstream.gone"
)

// Upstreams is one gateway's knowledge of the fleet. It is safe for concurrent use.
type Upstreams struct {
	base    *coordination.Base
	config  *config.Config
	view    coordination.View[Record]
	changed func()

	mu      sync.Mutex
	missing map[string]int64 // by name, the version at which this gateway does not have the record; see Declined
}

// New makes one. Its Subscription has to be given to Base.Start; changed is told whenever Usable may have changed.
func New(b *coordination.Base, c *config.Config, changed func()) *Upstreams {
	return &Upstreams{base: b, config: c, changed: changed, missing: map[string]int64{}}
}

// Subscription is the projection that keeps it.
func (u *Upstreams) Subscription() eventlog.Subscription {
	return coordination.Follow("upstreams", u.load, u.apply)
}

func (u *Upstreams) load(ctx context.Context) (eventlog.Cursor, error) {
	rows, missing := map[string]coordination.Versioned[Record]{}, map[string]int64{}
	u.view.Begin()
	at, err := u.base.Snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		found, err := tx.Query(ctx, "select name, version, record from "+u.table())
		if err != nil {
			return err
		}
		var name, text string
		var version int64
		_, err = pgx.ForEachRow(found, []any{&name, &version, &text}, func() error {
			r, err := decode([]byte(text))
			if err != nil || r.Name != name || r.Gone == "" && !r.whole() {
				missing[name] = version
				return nil
			}
			rows[name] = coordination.Versioned[Record]{Version: version, Record: r}
			return nil
		})
		return err
	})
	if err == nil {
		u.mu.Lock()
		u.missing = missing
		u.mu.Unlock()
		u.view.Replace(rows)
		u.changed()
	}
	return at, err
}

func (u *Upstreams) apply(_ context.Context, e eventlog.Recorded) error {
	name, ours := strings.CutPrefix(e.Stream, stream)
	if !ours {
		return nil
	}
	r, err := decode(e.Data)
	if e.Type != registered && e.Type != probed && e.Type != gone || err != nil || r.Name != name || r.Gone == "" && !r.whole() {
		u.mu.Lock()
		u.missing[name] = max(u.missing[name], e.Version)
		u.mu.Unlock()
		return eventlog.ErrDeclined // a newer gateway's, or an event without its record: it is not for this one to guess
	}
	u.put(name, e.Version, r)
	return nil
}

func (u *Upstreams) put(name string, version int64, r Record) {
	if u.view.Set(name, version, r) {
		u.changed()
	}
}

func (u *Upstreams) table() string { return u.base.Table("gateway_upstreams") }

// List returns the upstreams that are there, as this gateway knows them.
//
// Errors: coordination.ErrStarting, and why the log is not followed any more.
func (u *Upstreams) List() ([]Record, error) {
	if !u.view.Ready() {
		return nil, coordination.ErrStarting
	}
	out := []Record{}
	for _, r := range u.view.All() {
		if r.Gone == "" {
			out = append(out, r)
		}
	}
	return out, u.base.Following()
}

// Await waits until this gateway knows the fleet.
//
// Errors: the context's.
func (u *Upstreams) Await(ctx context.Context) error { return u.view.Await(ctx) }

// Usable returns those to which this gateway can send requests. One that is unhealthy or Declined is left out.
func (u *Upstreams) Usable() []config.Upstream {
	var out []config.Upstream
	for _, r := range u.view.All() {
		if r.Gone != "" || r.Health == Unhealthy || r.check(u.config) != nil {
			continue
		}
		up := r.upstream()
		if config.CheckRegistered(&up) != nil { // fills in its URL
			continue
		}
		up.Credential = u.config.Coordination.Fleet.Credentials[r.Credential]
		out = append(out, up)
	}
	return out
}

// Declined says, by name, why this gateway sends nothing to an upstream that others may use: it does not have its credential,
// it belongs to another gateway, or the record of its registration is missing. This gateway declines, and does not invent.
func (u *Upstreams) Declined() map[string]string {
	out := map[string]string{}
	u.mu.Lock()
	for name, version := range u.missing {
		if u.view.Has(name, version) { // it was mended: what this gateway registers itself it knows before the log tells what came earlier
			continue
		}
		out[name] = "the record of its registration is missing or of a newer version: register it again"
	}
	u.mu.Unlock()
	for _, r := range u.view.All() {
		if r.Gone != "" {
			continue
		}
		if err := r.check(u.config); err != nil {
			out[r.Name] = strings.TrimPrefix(err.Error(), "coordination: ")
		}
	}
	return out
}

// Register says that an upstream is there, for its TTL by the database's clock. Saying it again is how it stays.
//
// Retry: safe.
// Errors: *coordination.FieldError, coordination.ErrUnavailable, coordination.ErrUnknownOutcome.
func (u *Upstreams) Register(ctx context.Context, r Registration) (Record, error) {
	if err := r.check(u.config); err != nil {
		return Record{}, err
	}
	var out Record
	var version int64
	err := u.base.Edit(ctx, func(ctx context.Context, tx *coordination.Tx) (err error) {
		out, version, err = u.register(ctx, tx, r, OverAPI)
		return err
	})
	if err == nil {
		u.put(r.Name, version, out)
	}
	return out, err
}

func (u *Upstreams) register(ctx context.Context, tx *coordination.Tx, r Registration, origin string) (Record, int64, error) {
	out := Record{Registration: r, Origin: origin, Health: Unprobed, RegisteredAt: time.UnixMicro(tx.Now).UTC()}
	expires := tx.Now + r.TTLMS*1000
	version, was, err := u.lock(ctx, tx, r.Name)
	if err != nil && !errors.Is(err, coordination.ErrNotFound) {
		return out, 0, err
	}
	if err == nil && was.Gone == "" && was.whole() {
		if was.same(out) { // the same, for longer: nobody needs to hear of it
			_, err := tx.Exec(ctx, "update "+u.table()+" set expires_us = $2 where name = $1", r.Name, expires)
			return was, version, err
		}
		out.RegisteredAt = was.RegisteredAt
	}
	text, err := out.encode()
	if err != nil {
		return out, 0, err
	}
	if version, err = tx.Append(ctx, stream+r.Name, registered, []byte(text)); err != nil {
		return out, 0, err
	}
	_, err = tx.Exec(ctx, "insert into "+u.table()+" as t (name, version, record, expires_us, gone_us) values ($1, $2, $3, $4, null)"+
		" on conflict (name) do update set version = excluded.version, record = excluded.record, expires_us = excluded.expires_us, gone_us = null"+
		" where t.version < excluded.version", r.Name, version, text, expires)
	return out, version, err
}

// lock locks an upstream's row, and returns what stands in it. Of a record that cannot be read that is the name alone: it can be
// registered again, and taken away.
func (u *Upstreams) lock(ctx context.Context, tx *coordination.Tx, name string) (version int64, r Record, err error) {
	var text string
	err = tx.QueryRow(ctx, "select version, record from "+u.table()+" where name = $1 for update", name).Scan(&version, &text)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, r, coordination.ErrNotFound
	}
	return version, readable(name, text), err
}

// change writes what became of an upstream whose row is locked, and the event that tells of it.
func (u *Upstreams) change(ctx context.Context, tx *coordination.Tx, r Record, kind string) (int64, error) {
	text, err := r.encode()
	if err != nil {
		return 0, err
	}
	version, err := tx.Append(ctx, stream+r.Name, kind, []byte(text))
	if err != nil {
		return 0, err
	}
	var goneAt *int64
	if r.Gone != "" {
		goneAt = &tx.Now
	}
	_, err = tx.Exec(ctx, "update "+u.table()+" set version = $2, record = $3, gone_us = $4 where name = $1", r.Name, version, text, goneAt)
	return version, err
}

// Deregister takes an upstream out of the fleet. What is under way there ends as it ends.
//
// Retry: safe; what is gone already is nil.
// Errors: *coordination.FieldError, coordination.ErrNotFound for a name that never was, coordination.ErrUnavailable,
// coordination.ErrUnknownOutcome.
func (u *Upstreams) Deregister(ctx context.Context, name string, by Decision) error {
	if err := by.check(); err != nil {
		return err
	}
	var r Record
	var version int64
	err := u.base.Edit(ctx, func(ctx context.Context, tx *coordination.Tx) (err error) {
		if version, r, err = u.lock(ctx, tx, name); err != nil || r.Gone != "" {
			return err
		}
		r.Gone, r.Decision = "an operator deregistered it", by
		version, err = u.change(ctx, tx, r, gone)
		return err
	})
	if err == nil {
		u.put(name, version, r)
	}
	return err
}
