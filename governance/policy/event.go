package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// The types of this package's events.
const (
	EventApplied = "policy.applied" // a document was added, or put in the place of the one of its name
	EventRemoved = "policy.removed"
)

// EventStream is the stream of all of them: the one row that says what is in force puts them in order.
const EventStream = "policies"

// Event says what an edit did to one document. A store that keeps an event log appends it in the edit's own
// transaction, so that there is one for each document that changed, and none for what was refused, rolled back or
// in force already. Who edited, and why, is in the operator's note: stores are not told.
//
// Source: ADR-020 "Events of keys, teams and policies".
type Event struct {
	ID     string // the stream, the revision and the name, which come together once
	Type   string
	Stream string
	Schema int    // of Data
	Data   []byte // JSON; ParseEvent reads it
}

// Told is what an event says. The document itself is read from the store.
type Told struct {
	Type string `json:"-"`
	Name string `json:"name"`
	// Digest is the SHA-256 of the document as it was stored, in hexadecimal; empty where it was removed.
	Digest string `json:"digest,omitempty"`
	// Mark is that of the set after the edit.
	Mark
}

// Events are the events of an edit that was written: what Difference gave for it, and the mark afterwards. The documents that stood in a
// set that could not be read are not known to be gone, and not told as removed.
func Events(now Mark, put []Row, remove []string) []Event {
	var out []Event
	for _, name := range remove {
		out = append(out, eventOf(Told{Type: EventRemoved, Name: name, Mark: now}))
	}
	for _, row := range put {
		sum := sha256.Sum256([]byte(row.Text))
		out = append(out, eventOf(Told{Type: EventApplied, Name: row.Name, Digest: hex.EncodeToString(sum[:]), Mark: now}))
	}
	return out
}

func eventOf(t Told) Event {
	data, err := json.Marshal(t)
	if err != nil {
		panic("policy: marks always encode: " + err.Error())
	}
	return Event{ID: fmt.Sprintf("%s/%d/%s", EventStream, t.Revision, t.Name), Type: t.Type, Stream: EventStream, Schema: 1, Data: data}
}

// ParseEvent reads an event of this package. A field that it does not know passes: a later version may have added it. What an event of
// its type must have and has not is refused.
//
// Whoever keeps a set needs no more than the stream: any event on it says that what is in force is another one now.
//
// Errors: *Error.
func ParseEvent(kind string, data []byte) (Told, error) {
	if kind != EventApplied && kind != EventRemoved {
		return Told{}, refuse("type", "must be one of this package's events")
	}
	n, err := parse("", data)
	if err != nil {
		return Told{}, err
	}
	out := Told{Type: kind}
	var namespace, generation string
	fields := map[string]func(node) error{
		"name": str(&out.Name), "namespace": str(&namespace), "generation": str(&generation), "revision": whole(&out.Revision),
	}
	if kind == EventApplied {
		fields["digest"] = str(&out.Digest)
	}
	if err := n.known(fields).object(fields); err != nil {
		return Told{}, err
	}
	for name := range fields {
		if !n.has(name) {
			return Told{}, refuse(name, "must be there")
		}
	}
	if err = validName("name", out.Name); err != nil {
		return Told{}, err
	}
	if out.Generation, err = ParseGeneration(generation); err != nil {
		return Told{}, err
	}
	if _, err := ParseGeneration(out.Digest); kind == EventApplied && err != nil {
		return Told{}, refuse("digest", "must be 64 digits of 0-9 and a-f")
	}
	if out.Revision < 1 {
		return Told{}, refuse("revision", "must be at least 1")
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(namespace, "-", ""))
	if err != nil || copy(out.Namespace[:], raw) != len(raw) || out.Namespace.String() != namespace {
		return Told{}, refuse("namespace", "must be a UUID")
	}
	return out, nil
}

// known is an object without the members that nobody reads.
func (n node) known(fields map[string]func(node) error) node {
	out := node{path: n.path, kind: n.kind}
	for i, name := range n.names {
		if fields[name] != nil {
			out.names, out.list = append(out.names, name), append(out.list, n.list[i])
		}
	}
	return out
}
