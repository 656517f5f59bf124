package keys

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// The types of this package's events.
const (
	KeyCreated   = "key.created"
	KeyUpdated   = "key.updated"
	KeyRotated   = "key.rotated"
	KeyRevoked   = "key.revoked"
	TeamCreated  = "team.created"
	TeamUpdated  = "team.updated"
	TeamDeleted  = "team.deleted"
	KeysImported = "keys.imported"
)

// The streams: one for each key and team, and one for what came in by the thousand.
const (
	keyStream    = "key/"
	teamStream   = "team/"
	importStream = "keys"
)

// Event says what an edit changed. A store that keeps an event log appends it in the edit's own transaction, so that
// there is one for each change and none for what was refused, rolled back or in force already; the lock on the row
// puts a stream's events in the order of its revisions. No event holds a token, a hash or a fingerprint.
//
// Source: ADR-020 "Events of keys, teams and policies".
type Event struct {
	// ID is the stream and the revision, which come once each; empty where there is no revision, and then to be minted.
	ID     string
	Type   string
	Stream string // "key/" or "team/" and the id; "keys" for an import
	Schema int    // of Data
	Data   []byte // JSON; ParseEvent reads it
}

// CreationEvent is the event of a key that was made.
func (k Key) CreationEvent() Event { return keyEvent(KeyCreated, k, told{}) }

// EditEvent is the event of the edit that made k of before: an update or a revocation.
func (k Key) EditEvent(before Key) Event {
	kind := KeyUpdated
	if k.RevokedAt != nil && before.RevokedAt == nil {
		kind = KeyRevoked
	}
	return keyEvent(kind, k, told{Changed: changedFields(before.writable(), k.writable())})
}

// Event is the event of a rotation that was carried out, not of a replay.
func (r Rotation) Event() Event {
	retire := writable(r.RetireAt)
	return keyEvent(KeyRotated, r.Key, told{RotationID: r.Secret.RotationID, RetireAt: &retire})
}

// CreationEvent is the event of a team that was made.
func (t Team) CreationEvent() Event { return teamEvent(TeamCreated, t, told{}) }

// EditEvent is the event of the edit that made t of before: an update or a deletion.
func (t Team) EditEvent(before Team) Event {
	kind := TeamUpdated
	if t.DeletedAt != nil && before.DeletedAt == nil {
		kind = TeamDeleted
	}
	return teamEvent(kind, t, told{Changed: changedFields(before.writable(), t.writable())})
}

// CreationEvents are the events of a bootstrap's rows, teams before keys.
func (r Rows) CreationEvents() []Event {
	var out []Event
	for _, t := range r.Teams {
		out = append(out, t.CreationEvent())
	}
	for _, k := range r.Keys {
		out = append(out, k.CreationEvent())
	}
	return out
}

// Events are the one event of an import's transaction, at the store's time; none where it added nothing. It counts and names
// nobody: rows by the thousand are read from the store.
func (i Imported) Events(at time.Time) []Event {
	if i.Added == (Count{}) {
		return nil
	}
	return []Event{{Type: KeysImported, Stream: importStream, Schema: 1, Data: encodeTold(told{At: writable(at), Added: &i.Added})}}
}

func keyEvent(kind string, k Key, t told) Event {
	k = k.writable()
	t.Key, t.Revision, t.At = &k, k.Revision, k.UpdatedAt
	return event(kind, keyStream+k.ID, t)
}

func teamEvent(kind string, team Team, t told) Event {
	team = team.writable()
	t.Team, t.Revision, t.At = &team, team.Revision, team.UpdatedAt
	return event(kind, teamStream+team.ID, t)
}

func event(kind, stream string, t told) Event {
	return Event{ID: fmt.Sprintf("%s/%d", stream, t.Revision), Type: kind, Stream: stream, Schema: 1, Data: encodeTold(t)}
}

func encodeTold(t told) []byte {
	data, err := json.Marshal(t)
	if err != nil {
		panic("keys: records always encode: " + err.Error())
	}
	return data
}

// changedFields compares two records by what is written of them.
func changedFields(before, after any) []string {
	b, a := flattened(before), flattened(after)
	names := maps.Clone(b)
	maps.Copy(names, a)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(names)), func(name string) bool {
		_, left := b[name]
		_, right := a[name]
		return name == "revision" || name == "updated_at" || left == right && bytes.Equal(b[name], a[name])
	})
}

// flattened is a record by the names of its fields, each limit by itself.
func flattened(record any) map[string]json.RawMessage {
	fields := decodeRaw(record)
	var limits map[string]json.RawMessage
	if err := json.Unmarshal(fields["limits"], &limits); err != nil {
		panic("keys: limits always decode: " + err.Error())
	}
	delete(fields, "limits")
	for name, value := range limits {
		fields["limits."+name] = value
	}
	return fields
}

func decodeRaw(record any) (fields map[string]json.RawMessage) {
	if err := json.Unmarshal([]byte(*encodeJSON(record)), &fields); err != nil {
		panic("keys: records always decode: " + err.Error())
	}
	return fields
}

// writable is the record with instants that RFC 3339 can write: a row that was written by hand must not stop its own revocation.
func (k Key) writable() Key {
	k.CreatedAt, k.UpdatedAt, k.ExpiresAt, k.RevokedAt = writable(k.CreatedAt), writable(k.UpdatedAt), writablePtr(k.ExpiresAt), writablePtr(k.RevokedAt)
	return k
}

func (t Team) writable() Team {
	t.CreatedAt, t.UpdatedAt, t.DeletedAt = writable(t.CreatedAt), writable(t.UpdatedAt), writablePtr(t.DeletedAt)
	return t
}

func writable(t time.Time) time.Time {
	return time.UnixMicro(min(max(t.UnixMicro(), 0), maxMicros)).UTC()
}

func writablePtr(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	at := writable(*t)
	return &at
}
