package keyssqlite

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
	"github.com/tallystick-go/tallystick/keys"
)

// The errors of Migrate and Check. Each comes with a text that says what to do;
// nothing was changed.
var (
	// ErrOlder: the schema is older than this program. Run Migrate.
	ErrOlder = migrate.ErrOlder
	// ErrForeign: the file holds something that this library did not make.
	ErrForeign = migrate.ErrForeign
)

// found replaces the driver's "no rows" by what the method calls it.
func found(err, missing error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return missing
	}
	return err
}

// taken replaces a violated uniqueness by what the method calls it.
func taken(err, meaning error) error {
	if sqlitetx.Classify(err) == sqlitetx.UniqueViolation {
		return meaning
	}
	return err
}

// coreError turns what a transaction returned into an error of package keys. The
// core's own pass as they are; the driver's were stripped by sqlitetx.
func coreError(err error) error {
	var failed *sqlitetx.Error
	if !errors.As(err, &failed) {
		return err
	}
	if failed.Class == sqlitetx.UnknownOutcome {
		return fmt.Errorf("%w: %w", keys.ErrUnconfirmed, err)
	}
	return fmt.Errorf("%w: %w", keys.ErrUnavailable, err)
}
