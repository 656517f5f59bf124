package report

import (
	"encoding/json"
	"time"

	"github.com/tallystick-go/tallystick/governance"
)

// Status is what one gateway is and goes by.
type Status struct {
	Profile   string            `json:"profile"`
	StartedAt time.Time         `json:"started_at"`
	Draining  bool              `json:"draining"`
	Ready     bool              `json:"ready"`
	Parts     map[string]string `json:"parts"` // of the store
	Topology  Topology          `json:"topology"`
	Policies  *Policies         `json:"policies"` // null while they cannot be read
	Node      *NodeStatus       `json:"node,omitempty"`
}

// Topology names the upstreams and routes of a gateway. Gateways with the same digest
// route alike.
type Topology struct {
	Version string `json:"version"`
	Digest  string `json:"digest"`
}

// Note is what an operator did, and why.
type Note struct {
	Number  int64           `json:"number"`
	At      time.Time       `json:"at"`
	Actor   string          `json:"actor"`
	Action  string          `json:"action"`
	Permit  string          `json:"permit,omitempty"`
	Account *Account        `json:"account,omitempty"`
	Reason  string          `json:"reason"`
	Before  json.RawMessage `json:"before,omitempty"`
	After   json.RawMessage `json:"after,omitempty"`
}

// NotePage is one page of notes, oldest first. A Next of zero says that it is the last.
type NotePage struct {
	Notes []Note `json:"notes"`
	Next  int64  `json:"next,omitempty"`
}

// NoteOf writes a note.
func NoteOf(n *governance.Note) Note {
	out := Note{Number: n.Number, At: time.UnixMicro(n.At).UTC(), Actor: n.Actor, Action: n.Action, Reason: n.Reason}
	if !n.Permit.IsZero() {
		out.Permit = n.Permit.String()
	}
	if n.Account != (governance.AccountKey{}) {
		a := AccountOf(n.Account)
		out.Account = &a
	}
	for _, d := range []struct {
		from string
		to   *json.RawMessage
	}{{n.Before, &out.Before}, {n.After, &out.After}} {
		if json.Valid([]byte(d.from)) {
			*d.to = json.RawMessage(d.from)
		}
	}
	return out
}
