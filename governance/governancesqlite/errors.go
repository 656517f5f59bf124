package governancesqlite

import (
	"errors"
	"fmt"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
	"github.com/tallystick-go/tallystick/journal"
)

// The errors of Migrate and Check, beside governance.ErrCorrupt for a damaged file.
// Each comes with a text that says what to do; nothing was changed.
var (
	// ErrOlder: the schema is older than this program. Run Migrate.
	ErrOlder = migrate.ErrOlder
	// ErrForeign: the file holds something that this library did not make.
	ErrForeign = migrate.ErrForeign
	// ErrNotSQLite: the file is no SQLite database.
	ErrNotSQLite = sqlitetx.ErrNotSQLite
	// ErrUnsafe: the handle would lose or bend what is committed.
	ErrUnsafe = sqlitetx.ErrUnsafe
	// ErrNodes: the file has a node's journal, and whoever opens it without spends what is not
	// granted. Use OpenNode, or another file.
	ErrNodes = errors.New("governancesqlite: the file is a node's: open it with OpenNode, or use another file")
	// ErrExposed: other users of the machine may write the file. See *ExposedError.
	ErrExposed = errors.New("governancesqlite: the file is open to everybody")
)

// ExposedError says what others may change, and how to stop that. It wraps ErrExposed.
type ExposedError struct {
	What   string // "the database file" or "its folder"
	Advice string
}

func (e *ExposedError) Error() string {
	return fmt.Sprintf("%v: %s can be written by every user of this machine: %s", ErrExposed, e.What, e.Advice)
}

// Unwrap returns ErrExposed.
func (e *ExposedError) Unwrap() error { return ErrExposed }

// coreError turns what a transaction returned into an error of package governance.
// Those pass as they are; the driver's were stripped of SQL and values by sqlitetx.
func coreError(err error) error {
	var core error
	switch sqlitetx.Classify(err) {
	case sqlitetx.OK:
		return nil
	case sqlitetx.Poison:
		core = governance.ErrPoison
	case sqlitetx.Corrupt, sqlitetx.NotSQLite:
		core = governance.ErrCorrupt
	case sqlitetx.UnknownOutcome:
		core = governance.ErrUnknownOutcome
	case sqlitetx.Rejected:
		for _, own := range [...]error{governance.ErrRetry, governance.ErrCorrupt, governance.ErrUnavailable} {
			if errors.Is(err, own) {
				return err
			}
		}
		core = governance.ErrUnavailable
	default:
		core = governance.ErrUnavailable
	}
	return fmt.Errorf("%w: %w", core, err)
}

// journalError is governance.ErrCorrupt for a journal's row that nothing wrote.
func journalError(err error) error {
	if errors.Is(err, journal.ErrCorrupt) {
		return fmt.Errorf("%w: %w", governance.ErrCorrupt, err)
	}
	return err
}

// lost is the answer when an id was used by another transaction meanwhile.
func lost(err error) error {
	if sqlitetx.Classify(err) == sqlitetx.UniqueViolation {
		return governance.ErrRetry
	}
	return err
}

// torn is the answer when two rows that cannot both be are there.
func torn(err error) error {
	if sqlitetx.Classify(err) == sqlitetx.UniqueViolation {
		return governance.ErrCorrupt
	}
	return err
}
