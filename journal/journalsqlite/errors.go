package journalsqlite

import (
	"errors"
	"fmt"

	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
	"github.com/tallystick-go/tallystick/journal"
)

// The errors of opening a file. Each comes with a text that says what to do.
var (
	// ErrOlder: the schema is older than this program. Run Migrate.
	ErrOlder = migrate.ErrOlder
	// ErrForeign: the file holds something that this library did not make.
	ErrForeign = migrate.ErrForeign
	// ErrUnsafe: the handle, or the SQLite it uses, would lose what is committed.
	ErrUnsafe = sqlitetx.ErrUnsafe
	// ErrPath: the path names nothing that can be a private file. See *PathError.
	ErrPath = errors.New("journalsqlite: not a private file")
	// ErrLocked: another process has the journal open.
	ErrLocked = errors.New("journalsqlite: another process has this journal open: stop it first")
	// ErrQuarantined: a damaged journal was set aside. See *QuarantinedError.
	ErrQuarantined = errors.New("journalsqlite: the journal was damaged and is set aside")
)

// PathError says what is wrong with a file or its place. It wraps ErrPath.
type PathError struct {
	What   string // "the file", "its folder", "the path"
	Why    string
	Advice string
}

func (e *PathError) Error() string {
	return fmt.Sprintf("%s: %s %s: %s", ErrPath, e.What, e.Why, e.Advice)
}

// Unwrap returns ErrPath.
func (e *PathError) Unwrap() error { return ErrPath }

// QuarantinedError says where a damaged journal was set aside. Nothing takes its place
// by itself: what it held may have been spent. It wraps ErrQuarantined.
type QuarantinedError struct {
	// As is the path that it has now; empty if that is not known.
	As string
}

func (e *QuarantinedError) Error() string {
	return ErrQuarantined.Error() + ": keep it, and see StartAnew"
}

// Unwrap returns ErrQuarantined.
func (e *QuarantinedError) Unwrap() error { return ErrQuarantined }

// coreError turns what a transaction returned into an error of package journal. The
// core's own pass as they are; the driver's were stripped by sqlitetx.
func coreError(err error) error {
	var failed *sqlitetx.Error
	if !errors.As(err, &failed) {
		return err
	}
	switch failed.Class {
	case sqlitetx.UnknownOutcome:
		return fmt.Errorf("%w: %w", journal.ErrUnknownOutcome, err)
	case sqlitetx.Corrupt, sqlitetx.NotSQLite, sqlitetx.UniqueViolation, sqlitetx.Poison, sqlitetx.Rejected:
		return fmt.Errorf("%w: %w", journal.ErrCorrupt, err)
	}
	return fmt.Errorf("%w: %w", journal.ErrUnavailable, err)
}
