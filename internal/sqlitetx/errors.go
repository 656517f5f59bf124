package sqlitetx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Class is what a failure means. Every class but UnknownOutcome means: not committed.
type Class int

// The classes. OK is the class of a nil error.
const (
	OK              Class = iota + 1
	Busy                  // another process held the write lock for longer than busy_timeout: try again
	Unavailable           // disk, memory, a closed handle
	Canceled              // the caller's context ended before the transaction began or was committed
	UniqueViolation       // UNIQUE or PRIMARY KEY
	Poison                // another constraint, or a value that does not fit: a retry meets the same
	ReadOnly              // the file or its folder cannot be written
	Corrupt               // the file is damaged
	NotSQLite             // the file is no SQLite database
	UnknownOutcome        // COMMIT failed half-way: the transaction may or may not be there
	Rejected              // any other error: a bug, or a missing table
)

var classTexts = [...]string{
	OK: "ok", Busy: "database is locked by another process, not committed", Unavailable: "database unavailable, not committed",
	Canceled: "canceled, not committed", UniqueViolation: "already exists, not committed", Poison: "data refused by the database, not committed",
	ReadOnly:       "the database file or its folder cannot be written, not committed",
	Corrupt:        "the database file is damaged: stop all processes, keep the file and its -wal aside, and restore a backup",
	NotSQLite:      "the file is no SQLite database: give another path",
	UnknownOutcome: "the outcome of the commit is unknown", Rejected: "statement refused by the database, not committed",
}

func (c Class) String() string {
	if c < OK || int(c) >= len(classTexts) {
		return "no class"
	}
	return classTexts[c]
}

// Error is a driver error with everything taken out that could hold SQL, arguments or a
// path: a fixed text and SQLite's result code are left. It never unwraps to the driver's error.
type Error struct {
	Class Class
	Code  int // SQLite's extended result code, 0 where there was none
	cause error
}

func (e *Error) Error() string {
	if e.Code == 0 {
		return "tallystick: sqlite: " + e.Class.String()
	}
	return fmt.Sprintf("tallystick: sqlite: %s (code %d)", e.Class, e.Code)
}

// Unwrap returns ErrCorrupt, ErrNotSQLite or the context's error where that is the cause.
func (e *Error) Unwrap() error { return e.cause }

var (
	// ErrCorrupt says that the file is damaged.
	ErrCorrupt = errors.New("tallystick: the SQLite file is damaged")
	// ErrNotSQLite says that the file is something else.
	ErrNotSQLite = errors.New("tallystick: the file is no SQLite database")
	// ErrUnsafe says that a handle does not keep what is committed, or not exactly. See UnsafeError.
	ErrUnsafe = errors.New("tallystick: unsafe SQLite handle")
)

// UnsafeError names the setting that makes a handle unsafe and says how to open it instead. It wraps ErrUnsafe.
type UnsafeError struct {
	Setting string // e.g. "busy_timeout" or "sqlite_version"
	Have    string
	Advice  string
}

func (e *UnsafeError) Error() string {
	return fmt.Sprintf("%s: %s is %s: %s", ErrUnsafe, e.Setting, e.Have, e.Advice)
}

// Unwrap returns ErrUnsafe.
func (e *UnsafeError) Unwrap() error { return ErrUnsafe }

// Classify gives the class of a driver error, or of an *Error, seen before COMMIT.
func Classify(err error) Class {
	if err == nil {
		return OK
	}
	var own *Error
	if errors.As(err, &own) {
		return own.Class
	}
	if code, ok := codeOf(err); ok {
		return classOfCode(code)
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Canceled
	case errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone), err.Error() == "sql: database is closed":
		return Unavailable
	}
	return Rejected
}

// codeOf reads the result code without naming a driver.
func codeOf(err error) (int, bool) {
	var coder interface{ Code() int }
	if errors.As(err, &coder) {
		return coder.Code(), true
	}
	return 0, false
}

func classOfCode(code int) Class {
	switch code {
	case 1555, 2067, 2579: // CONSTRAINT_PRIMARYKEY, _UNIQUE, _ROWID
		return UniqueViolation
	}
	switch code & 0xff {
	case 5, 6, 17: // BUSY, LOCKED, SCHEMA
		return Busy
	case 7, 10, 13, 14, 15, 22: // NOMEM, IOERR, FULL, CANTOPEN, PROTOCOL, NOLFS
		return Unavailable
	case 9, 4: // INTERRUPT, ABORT
		return Canceled
	case 18, 19, 20, 25: // TOOBIG, CONSTRAINT, MISMATCH, RANGE
		return Poison
	case 8: // READONLY
		return ReadOnly
	case 11: // CORRUPT
		return Corrupt
	case 26: // NOTADB
		return NotSQLite
	}
	return Rejected
}

// Scrub turns a driver error seen before COMMIT into an *Error; sql.ErrNoRows and errors that are
// already ours pass unchanged. Only errors of the driver or of database/sql belong here.
func Scrub(err error) error {
	var own *Error
	var unsafe *UnsafeError
	if err == nil || errors.Is(err, sql.ErrNoRows) || errors.As(err, &own) || errors.As(err, &unsafe) {
		return err
	}
	e := &Error{Class: Classify(err)}
	e.Code, _ = codeOf(err)
	switch {
	case e.Class == Corrupt:
		e.cause = ErrCorrupt
	case e.Class == NotSQLite:
		e.cause = ErrNotSQLite
	case errors.Is(err, context.Canceled):
		e.cause = context.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		e.cause = context.DeadlineExceeded
	}
	return e
}

// scrubCommit: a COMMIT that met a busy lock or a deferred constraint changed nothing and left the transaction
// open; after any other failure the commit record may be on the disk and come back at the next recovery.
func scrubCommit(err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Class: Classify(err)}
	e.Code, _ = codeOf(err)
	if e.Class != Busy && e.Class != Poison {
		e.Class = UnknownOutcome
	}
	return e
}
