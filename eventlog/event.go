package eventlog

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"
	"unicode/utf8"
)

// The largest of each thing that a log takes.
const (
	MaxName     = 200     // bytes in a stream, type, id, producer or consumer
	MaxData     = 1 << 20 // bytes in one event's data
	MaxEvents   = 4096    // events in one transaction of the log's own
	MaxPage     = 4096    // events in one page
	DefaultPage = 256     // events in a page where nobody says how many
)

// Event is something that happened, before it is appended.
type Event struct {
	// ID is unique in the log and is what makes an append safe to repeat, and an effect
	// safe to repeat on the other side. Log mints one where it is empty.
	ID string
	// Type names what happened.
	Type string
	// Schema is the version of the data's shape, from 1; 0 is 1. See Upcasters.
	Schema int
	// Data is opaque to the log.
	Data []byte
}

// Expect says at which version a stream must be for an append to go in. The zero Expect is Any.
type Expect int64

// What can be expected, besides a version above zero.
const (
	Any   Expect = 0  // wherever the stream is
	Empty Expect = -1 // nothing was ever appended to it
)

// Version is the version that is expected, and whether one is.
func (e Expect) Version() (version int64, exact bool) {
	switch e {
	case Any:
		return 0, false
	case Empty:
		return 0, true
	}
	return int64(e), true
}

// Append is one caller's events for one stream: all of them, in this order, or none.
type Append struct {
	Stream   string
	Expect   Expect
	Events   []Event
	Producer Producer // set by Log; a store takes no event without one
}

// Appended is what became of an Append.
type Appended struct {
	Version  int64 // the stream's, after the last of the events
	Position int64 // of the last of the events
	Replayed bool  // the same events had been appended before, and nothing was done now
}

// Recorded is an event in the log.
type Recorded struct {
	Event
	Position int64     // its place among all events; there are gaps, and a later one may become visible earlier
	Stream   string    // whose it is
	Version  int64     // its place in the stream: 1, 2, 3
	Producer Producer  // Unknown for rows from before producers were written
	At       time.Time // the store's time when it was appended, UTC, microseconds
}

// Producer is the identity of the process that appended an event.
type Producer string

// Unknown is the producer of rows that do not say. It is nobody: such events belong to no process's
// effects, and never to the reader.
const Unknown Producer = ""

// MintProducer makes the identity of this process. The label, a host or pod name, is for people; what
// makes it unique is always minted, because replicas that are given one configured name each take the others' events for their own.
//
// Errors: *FieldError for a label that is too long or holds control characters.
//
// Source: ADR-020 "Producers".
func MintProducer(label string) (Producer, error) {
	if label != "" {
		if err := checkName("label", label); err != nil {
			return Unknown, err
		}
		if len(label) > MaxName-34 {
			return Unknown, refuse("label", "must be at most 166 bytes")
		}
		label += "/"
	}
	return Producer(label + mint()), nil
}

// mint gives 128 random bits.
func mint() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func checkName(field, name string) error {
	switch {
	case name == "":
		return refuse(field, "must not be empty")
	case len(name) > MaxName:
		return refuse(field, "must be at most 200 bytes")
	case !utf8.ValidString(name):
		return refuse(field, "must be UTF-8")
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return refuse(field, "must not hold control characters")
	}
	return nil
}

// Validate reports what is wrong with a, as a store must before it does anything.
//
// Errors: *FieldError.
func (a Append) Validate() error {
	if err := checkName("stream", a.Stream); err != nil {
		return err
	}
	if a.Expect < Empty {
		return refuse("expect", "must be Any, Empty or a version")
	}
	if err := checkName("producer", string(a.Producer)); err != nil {
		return err
	}
	if len(a.Events) == 0 {
		return refuse("events", "must not be empty")
	}
	for _, e := range a.Events {
		if err := e.validate(); err != nil {
			return err
		}
	}
	return nil
}

func (e Event) validate() error {
	if err := checkName("events.id", e.ID); err != nil {
		return err
	}
	if err := checkName("events.type", e.Type); err != nil {
		return err
	}
	if e.Schema < 1 || e.Schema > 1<<20 {
		return refuse("events.schema", "must be a version from 1")
	}
	if len(e.Data) > MaxData {
		return refuse("events.data", "must be at most 1 MiB")
	}
	return nil
}

// clone gives a copy that shares nothing that the caller may change.
func (a Append) clone() Append {
	events := make([]Event, len(a.Events))
	for i, e := range a.Events {
		if e.ID == "" {
			e.ID = mint()
		}
		if e.Schema == 0 {
			e.Schema = 1
		}
		e.Data = append([]byte{}, e.Data...)
		events[i] = e
	}
	a.Events = events
	return a
}
