package pgtx

import (
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Class is what a failure means for the transaction it happened in. Every class but
// UnknownOutcome means: not committed.
type Class int

// The classes. OK is the class of a nil error.
const (
	OK              Class = iota + 1
	Unavailable           // no connection, or it was lost before COMMIT was sent: not committed
	Retryable             // 40001, 40P01, or a plan outdated by a migration: run the transaction again
	LockTimeout           // 55P03
	Canceled              // 57014 (statement timeout or cancel), or the caller's context ended before COMMIT
	UnknownOutcome        // COMMIT was sent and its answer proves nothing
	UniqueViolation       // 23505
	ReadOnly              // 25006: the server became a standby; the connection is closed and the pool reset
	Poison                // 22xxx, 23xxx: the data itself is refused, a retry meets the same
	Rejected              // any other server error: a bug or a missing privilege or table
)

var classTexts = [...]string{
	OK: "ok", Unavailable: "database unavailable, not committed", Retryable: "conflict with another transaction, not committed",
	LockTimeout: "lock not granted in time, not committed", Canceled: "canceled or timed out, not committed",
	UnknownOutcome: "the outcome of the commit is unknown", UniqueViolation: "already exists, not committed",
	ReadOnly: "the database is read-only here, not committed", Poison: "data refused by the database, not committed",
	Rejected: "statement refused by the database, not committed",
}

func (c Class) String() string {
	if c < OK || int(c) >= len(classTexts) {
		return "no class"
	}
	return classTexts[c]
}

// NotCommitted reports whether the class proves that nothing was committed.
func (c Class) NotCommitted() bool { return c != OK && c != UnknownOutcome }

// Error is a driver error with everything taken out that could hold a DSN, SQL or
// arguments: a fixed text and the SQLSTATE are left. It never unwraps to the driver's error.
type Error struct {
	Class Class
	Code  string // SQLSTATE, or ""
	// Constraint is the name of the violated constraint for UniqueViolation and Poison: a name from our own migrations, or "".
	Constraint string
	cause      error // context.Canceled, context.DeadlineExceeded or nil
}

func (e *Error) Error() string {
	text := "tallystick: postgres: " + e.Class.String()
	if e.Code != "" {
		text += " (SQLSTATE " + e.Code + ")"
	}
	switch e.Code {
	case "42P01", "42703", "3F000": // a table, a column, a schema
		text += ": it lacks a table, or has an older one: run Migrate of every store that is in use"
	case "42501":
		text += ": the role lacks a privilege"
	}
	return text
}

// Unwrap returns the context's error where that is the cause.
func (e *Error) Unwrap() error { return e.cause }

// Phase says how far a transaction had come when an error was seen.
type Phase int

// The phases.
const (
	Before Phase = iota + 1 // COMMIT not sent
	Piped                   // COMMIT sent in the same pipeline, the error belongs to a statement ahead of it
	Commit                  // the error is the answer, or the missing answer, to COMMIT
)

// Classify gives the class of an error seen before COMMIT was sent. It takes driver
// errors and *Error alike.
func Classify(err error) Class { return ClassifyAt(Before, err) }

// ClassifyAt gives the class of an error seen at the given phase.
func ClassifyAt(p Phase, err error) Class {
	if err == nil {
		return OK
	}
	var own *Error
	if errors.As(err, &own) {
		return own.Class
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		// pgconn.SafeToRetry is not asked: of a connection that broke while answers were read, pgx says
		// "conn closed" and calls that safe (since 5.9), though everything had been sent.
		if p != Before {
			return UnknownOutcome
		}
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return Canceled
		}
		return Unavailable
	}
	lost := strings.HasPrefix(pg.Code, "08") || strings.HasPrefix(pg.Code, "57P")
	switch {
	// A pooler or proxy between us and the server can answer with 08 or 57P0x for a COMMIT that went
	// through; and an error raised while committing proves nothing by itself.
	case p == Commit, p == Piped && lost:
		return UnknownOutcome
	case lost, strings.HasPrefix(pg.Code, "53"):
		return Unavailable
	}
	// A statement prepared before a migration changed its table; pgx forgets it, and the next run prepares it anew.
	if pg.Code == "0A000" && pg.Routine == "RevalidateCachedQuery" {
		return Retryable
	}
	return classOfCode(pg.Code)
}

func classOfCode(code string) Class {
	switch code {
	case "40001", "40P01":
		return Retryable
	case "55P03":
		return LockTimeout
	case "57014", "25P03", "25P04":
		return Canceled
	case "23505":
		return UniqueViolation
	case "25006":
		return ReadOnly
	}
	if strings.HasPrefix(code, "22") || strings.HasPrefix(code, "23") {
		return Poison
	}
	return Rejected
}

// Scrub turns a driver error seen before COMMIT into an *Error. Errors that are no
// driver's (a caller's own sentinel, pgx.ErrNoRows) pass unchanged.
func Scrub(err error) error { return scrubAt(Before, err) }

// ScrubConnect is Scrub for an error of getting a connection or of BEGIN: nothing was sent that
// could commit, and whatever its type, its text can hold the DSN.
func ScrubConnect(err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Class: Unavailable}
	for _, c := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, c) {
			e.Class, e.cause = Canceled, c
		}
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		e.Code = pg.Code
	}
	return e
}

// ScrubCommit is Scrub for the answer to a COMMIT sent by itself.
func ScrubCommit(err error) error {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return &Error{Class: Rejected}
	}
	return scrubAt(Commit, err)
}

// ScrubStatement is Scrub for the answer to a statement that commits by itself.
func ScrubStatement(err error) error { return scrubAt(Piped, err) }

func scrubAt(p Phase, err error) error {
	if err == nil {
		return nil
	}
	var own *Error
	if errors.As(err, &own) || !IsDriver(err) {
		return err
	}
	out := &Error{Class: ClassifyAt(p, err)}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		out.Code, out.Constraint = pg.Code, pg.ConstraintName
	}
	for _, c := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, c) {
			out.cause = c
		}
	}
	return out
}

// IsDriver reports whether any error in err's tree comes from pgx, the network or a context.
func IsDriver(err error) bool {
	if err == nil || err == pgx.ErrNoRows {
		return false
	}
	if _, is := err.(net.Error); is || err == io.EOF || err == io.ErrUnexpectedEOF || err == context.Canceled || err == context.DeadlineExceeded {
		return true
	}
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if strings.HasPrefix(t.PkgPath(), "github.com/jackc/") || driverTexts[err.Error()] {
		return true
	}
	switch u := err.(type) {
	case interface{ Unwrap() error }:
		return IsDriver(u.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(u.Unwrap(), IsDriver)
	}
	return false
}

// driverTexts are errors that pgx makes without a type of its own.
var driverTexts = map[string]bool{"closed pool": true, "conn closed": true, "conn busy": true, "tx is closed": true, "unexpected EOF": true}
