package escrow

import (
	"errors"
	"fmt"
)

var (
	// ErrStale reports a heartbeat that arrived behind a later one of its boot.
	ErrStale = errors.New("escrow: a later heartbeat of this boot was taken already")
	// ErrIncompatible reports a peer that does not speak escrow-v1, or whose definitions
	// are not those of the documents it sent. Nothing falls back to an older protocol.
	ErrIncompatible = errors.New("escrow: the authority is not compatible")
	// ErrRegressed reports an authority that does not know what it has answered before: its
	// database was restored from a copy, or failed over and lost commits. Nothing may be
	// granted on it until an operator has looked.
	ErrRegressed = errors.New("escrow: the authority's history went back")
	// ErrCorrupt reports stored bytes that nothing wrote.
	ErrCorrupt = errors.New("escrow: what is stored cannot be read")
	// ErrUnavailable reports that no answer was had; the heartbeat may have been taken.
	// Repeat it as it was.
	ErrUnavailable = errors.New("escrow: the authority cannot be reached")
)

// Error says which part of a message is wrong. Nothing of it was taken.
type Error struct {
	Field string // as in requests[2].amount
	Why   string
}

func (e *Error) Error() string {
	if e.Field == "" {
		return "escrow: " + e.Why
	}
	return fmt.Sprintf("escrow: %s %s", e.Field, e.Why)
}

func refuse(field, why string) error { return &Error{Field: field, Why: why} }

// within puts the place of an *Error below another one.
func within(place string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	field := e.Field
	if field != "" && field[0] != '[' {
		field = "." + field
	}
	return &Error{Field: place + field, Why: e.Why}
}

func index(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// FenceReason says why a boot may no longer speak for its node. The numbers are part of the protocol.
type FenceReason uint8

const (
	Replaced FenceReason = iota + 1 // a later opening of the journal has spoken
	Cloned                          // another opening with the same number has spoken: the journal was copied
	Restored                        // the journal is older than one that has spoken: it was restored from a copy
)

// Fenced reports that a boot must not spend any more.
type Fenced struct {
	Reason     FenceReason
	BootNumber int64 // the highest that the authority has heard
}

func (e *Fenced) Error() string {
	switch e.Reason {
	case Replaced:
		return fmt.Sprintf("escrow: opening %d of this node's journal has taken over; stop this process", e.BootNumber)
	case Cloned:
		return fmt.Sprintf("escrow: two copies of this node's journal were opened as number %d; give one of them another node name and a new journal", e.BootNumber)
	}
	return fmt.Sprintf("escrow: the authority has heard opening %d of this node's journal; this one was restored from an older copy, readmit it", e.BootNumber)
}
