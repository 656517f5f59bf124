package policy

import (
	"errors"
	"fmt"
)

// The errors of this package. Compare with errors.Is; none of them carries a statement or a
// connection string.
var (
	// ErrInvalid: refused before anything was read or written. See [Error].
	ErrInvalid = errors.New("policy: invalid")
	// ErrConflict: somebody else changed the set. Nothing changed. See [ConflictError].
	ErrConflict = errors.New("policy: the set is not the one that the edit was based on")
	// ErrNotFound: a document to delete is not in the set. Nothing changed.
	ErrNotFound = errors.New("policy: no such document")
	// ErrUnavailable: the store could not answer and nothing changed.
	ErrUnavailable = errors.New("policy: store unavailable")
	// ErrUnconfirmed: the edit is committed, or may be, but it was not confirmed that
	// every admission sees it. Repeat the edit until it returns nil: that waits again.
	ErrUnconfirmed = errors.New("policy: committed, not yet confirmed")
	// ErrCorrupt: what is stored is no set that this program understands: damaged,
	// edited by hand, or written by a newer version. Nothing may be admitted on it. See
	// [CorruptError].
	ErrCorrupt = errors.New("policy: the stored set cannot be read")
)

// Error says where a document is refused and why. It is ErrInvalid.
type Error struct {
	// Path is the place, such as documents[2].spec.rules[1].budget.limitMilliUSD. It is
	// empty where nothing has a place yet: the input is not JSON, for one.
	Path string
	Why  string
	Line int // in the input where that is known, else zero
}

func (e *Error) Error() string {
	text := "policy: "
	if e.Line > 0 {
		text += fmt.Sprintf("line %d: ", e.Line)
	}
	if e.Path != "" {
		text += e.Path + ": "
	}
	return text + e.Why
}

// Is makes errors.Is(err, ErrInvalid) hold.
func (e *Error) Is(target error) bool { return target == ErrInvalid }

func refuse(path, why string) error { return &Error{Path: path, Why: why} }

// within puts the place of an *Error below another one.
func within(path string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	return &Error{Path: join(path, e.Path), Why: e.Why, Line: e.Line}
}

func join(path, field string) string {
	switch {
	case path == "":
		return field
	case field == "" || field[0] == '[':
		return path + field
	}
	return path + "." + field
}

func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// ConflictError is ErrConflict with what is in force instead. Load, decide again, repeat.
type ConflictError struct {
	Now Mark
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s: generation %s is in force; read it and decide again", ErrConflict, e.Now.Generation)
}

// Is makes errors.Is(err, ErrConflict) hold.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// CorruptError is ErrCorrupt with what is known. Replace, with Now's generation, puts a whole
// set in the place of the stored one; nothing else can be done to it.
type CorruptError struct {
	Now  Mark   // as stored; the zero Mark where that cannot be read either
	Name string // the document, or empty
	Why  string
}

func (e *CorruptError) Error() string {
	text := ErrCorrupt.Error()
	if e.Name != "" {
		text += fmt.Sprintf(": document %q", e.Name)
	}
	return text + ": " + e.Why
}

// Is makes errors.Is(err, ErrCorrupt) hold.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }
