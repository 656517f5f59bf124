// Package suspend keeps keys and sessions suspended on every gateway of a database: an operator suspends on one, and
// within one look at the log all refuse. A gateway that joins later begins with what is suspended already.
//
// A session is a name that callers put on their requests (Header), and belongs to a key: who leaves it
// out is not of that session. To shut somebody out, suspend the key.
package suspend

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/examples/gateway/coordination"
)

// Header names the session of a request.
const Header = "X-Gateway-Session"

const (
	stream    = "suspension/"
	suspended = "suspension.begun"
	lifted    = "suspension.lifted"
)

// Record is what was decided last about a key or session.
type Record struct {
	Key       string    `json:"key"`
	Session   string    `json:"session,omitempty"` // empty: the key altogether
	Suspended bool      `json:"suspended"`
	Reason    string    `json:"reason"`
	Actor     string    `json:"actor"`
	At        time.Time `json:"at"`
}

// subject is what a record is about. Neither part holds a space.
func (r Record) subject() string {
	if r.Session == "" {
		return r.Key
	}
	return r.Key + " " + r.Session
}

const (
	longestKey     = 128 // bytes; key and session are in the name of a stream, which has 200
	longestSession = 55
	longestActor   = 200
	longestReason  = 500
)

// Validate refuses what cannot be suspended.
//
// Errors: *coordination.FieldError.
func (r Record) Validate() error {
	for _, f := range []struct {
		name, value string
		most        int
		spaces      bool
		optional    bool
	}{
		{"key", r.Key, longestKey, false, false}, {"session", r.Session, longestSession, false, true},
		{"reason", r.Reason, longestReason, true, false}, {"actor", r.Actor, longestActor, true, false},
	} {
		bad := func(c rune) bool {
			return c == utf8.RuneError || !unicode.IsPrint(c) || !f.spaces && unicode.IsSpace(c)
		}
		switch {
		case f.value == "" && f.optional:
		case strings.TrimSpace(f.value) == "":
			return &coordination.FieldError{Field: f.name, Why: "is missing"}
		case len(f.value) > f.most:
			return &coordination.FieldError{Field: f.name, Why: "is too long"}
		case strings.ContainsFunc(f.value, bad):
			return &coordination.FieldError{Field: f.name, Why: "holds characters that do not belong there"}
		}
	}
	return nil
}

// Suspensions is one gateway's knowledge of them. It is safe for concurrent use.
type Suspensions struct {
	base *coordination.Base
	view coordination.View[Record]
}

// New makes one. Its Subscription has to be given to Base.Start.
func New(b *coordination.Base) *Suspensions { return &Suspensions{base: b} }

// Subscription is the projection that keeps it.
func (s *Suspensions) Subscription() eventlog.Subscription {
	return coordination.Follow("suspensions", s.load, s.apply)
}

func (s *Suspensions) load(ctx context.Context) (eventlog.Cursor, error) {
	rows := map[string]coordination.Versioned[Record]{}
	s.view.Begin()
	at, err := s.base.Snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		found, err := tx.Query(ctx, "select version, record from "+s.table())
		if err != nil {
			return err
		}
		var version int64
		var text string
		_, err = pgx.ForEachRow(found, []any{&version, &text}, func() error {
			var r Record
			if err := json.Unmarshal([]byte(text), &r); err != nil {
				return err
			}
			rows[r.subject()] = coordination.Versioned[Record]{Version: version, Record: r}
			return nil
		})
		return err
	})
	if err == nil {
		s.view.Replace(rows)
	}
	return at, err
}

func (s *Suspensions) apply(_ context.Context, e eventlog.Recorded) error {
	subject, ours := strings.CutPrefix(e.Stream, stream)
	if !ours {
		return nil
	}
	var r Record
	if e.Type != suspended && e.Type != lifted || json.Unmarshal(e.Data, &r) != nil || r.subject() != subject {
		return eventlog.ErrDeclined // a newer gateway's: it is not for this one to guess
	}
	s.view.Set(subject, e.Version, r)
	return nil
}

func (s *Suspensions) table() string { return s.base.Table("gateway_suspensions") }

// Put suspends or lifts. What is so already, with the same reason and actor, stays as it is. This gateway
// goes by it when Put returns, the others when they have looked at the log.
//
// Retry: safe.
// Errors: *coordination.FieldError, coordination.ErrNotFound for what is lifted and was never suspended,
// coordination.ErrUnavailable, coordination.ErrUnknownOutcome.
func (s *Suspensions) Put(ctx context.Context, r Record) (Record, error) {
	if err := r.Validate(); err != nil {
		return Record{}, err
	}
	var version int64
	err := s.base.Edit(ctx, func(ctx context.Context, tx *coordination.Tx) error {
		var before string
		err := tx.QueryRow(ctx, "select version, record from "+s.table()+" where subject = $1 for update", r.subject()).Scan(&version, &before)
		switch {
		case errors.Is(err, pgx.ErrNoRows) && !r.Suspended:
			return coordination.ErrNotFound
		case errors.Is(err, pgx.ErrNoRows):
		case err != nil:
			return err
		default:
			var was Record
			if json.Unmarshal([]byte(before), &was) == nil && was.Suspended == r.Suspended && was.Reason == r.Reason && was.Actor == r.Actor {
				r = was
				return nil
			}
		}
		r.At = time.UnixMicro(tx.Now).UTC()
		kind := lifted
		if r.Suspended {
			kind = suspended
		}
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if version, err = tx.Append(ctx, stream+r.subject(), kind, text); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "insert into "+s.table()+" as t (subject, version, record) values ($1, $2, $3)"+
			" on conflict (subject) do update set version = excluded.version, record = excluded.record where t.version < excluded.version",
			r.subject(), version, string(text))
		return err
	})
	if err != nil {
		return Record{}, err
	}
	s.view.Set(r.subject(), version, r)
	return r, nil
}

// Of says what keeps a key's request from being served, or nil.
//
// Errors: coordination.ErrStarting while that is not known, and why the log is not followed any more.
func (s *Suspensions) Of(key, session string) (*Record, error) {
	if err := s.Known(); err != nil {
		return nil, err
	}
	for _, about := range []Record{{Key: key}, {Key: key, Session: session}} {
		if r, is := s.view.Get(about.subject()); is && r.Suspended {
			return &r, nil
		}
	}
	return nil, nil
}

// Known is nil once this gateway knows what is suspended, and while it hears of what changes.
//
// Errors: those of Of.
func (s *Suspensions) Known() error {
	if !s.view.Ready() {
		return coordination.ErrStarting
	}
	return s.base.Following()
}

// Await waits until this gateway knows what is suspended.
//
// Errors: the context's.
func (s *Suspensions) Await(ctx context.Context) error { return s.view.Await(ctx) }

// List returns everything that is suspended, as this gateway knows it.
func (s *Suspensions) List() []Record {
	out := []Record{}
	for _, r := range s.view.All() {
		if r.Suspended {
			out = append(out, r)
		}
	}
	return out
}
