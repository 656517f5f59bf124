package eventlog

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// recordedJSON is the form of an event outside of its table: fields are only ever added.
type recordedJSON struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Schema   int    `json:"schema"`
	Data     []byte `json:"data"`
	Position int64  `json:"position"`
	Stream   string `json:"stream"`
	Version  int64  `json:"version"`
	Producer string `json:"producer,omitempty"`
	AtUS     int64  `json:"at_us"`
}

// MarshalJSON writes the event with its data in base64 and its time in microseconds.
func (r Recorded) MarshalJSON() ([]byte, error) {
	data := r.Data
	if data == nil {
		data = []byte{}
	}
	return json.Marshal(recordedJSON{
		ID: r.ID, Type: r.Type, Schema: r.Schema, Data: data, Position: r.Position, Stream: r.Stream, Version: r.Version,
		Producer: string(r.Producer), AtUS: r.At.UnixMicro(),
	})
}

// UnmarshalJSON reads what MarshalJSON wrote, of this version or a later one: fields that it does not know are passed over.
//
// Errors: *FieldError; those of encoding/json.
func (r *Recorded) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	var in recordedJSON
	if err := d.Decode(&in); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return refuse("event", "must be one JSON object")
	}
	out := Recorded{
		Event:    Event{ID: in.ID, Type: in.Type, Schema: in.Schema, Data: in.Data},
		Position: in.Position, Stream: in.Stream, Version: in.Version, Producer: Producer(in.Producer), At: time.UnixMicro(in.AtUS).UTC(),
	}
	if out.Data == nil {
		out.Data = []byte{}
	}
	if err := out.validate(); err != nil {
		return err
	}
	if err := checkName("stream", out.Stream); err != nil {
		return err
	}
	if out.Producer != Unknown {
		if err := checkName("producer", in.Producer); err != nil {
			return err
		}
	}
	if out.Position < 1 || out.Version < 1 {
		return refuse("position", "and version must be from 1")
	}
	*r = out
	return nil
}

const maxReason = 2000

// Prepare checks what is set aside and shortens its reason.
//
// Errors: *FieldError.
func (a Aside) Prepare() (Aside, error) {
	if err := checkName("consumer", a.Consumer); err != nil {
		return a, err
	}
	if err := checkName("runner", string(a.Runner)); err != nil {
		return a, err
	}
	a.Reason = strings.ToValidUTF8(strings.ReplaceAll(a.Reason, "\x00", ""), "?")
	if len(a.Reason) > maxReason {
		a.Reason = a.Reason[:maxReason]
		for !utf8.ValidString(a.Reason) {
			a.Reason = a.Reason[:len(a.Reason)-1]
		}
	}
	return a, nil
}

// Prepare fills in what was left out.
//
// Errors: *FieldError.
func (q AsideQuery) Prepare() (AsideQuery, error) {
	if err := checkName("consumer", q.Consumer); err != nil {
		return q, err
	}
	r, err := Read{Limit: q.Limit}.Prepare()
	q.Limit = r.Limit
	return q, err
}
