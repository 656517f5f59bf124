package leasesqlite

import (
	"errors"
	"fmt"

	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
	"github.com/tallystick-go/tallystick/lease"
)

// The errors of Migrate and Check. Each comes with a text that says what to do;
// nothing was changed.
var (
	// ErrOlder: the schema is older than this program. Run Migrate.
	ErrOlder = migrate.ErrOlder
	// ErrForeign: the file holds something that this library did not make.
	ErrForeign = migrate.ErrForeign
)

// coreError turns what a transaction returned into an error of package lease. The core's
// own pass as they are; the driver's were stripped by sqlitetx.
func coreError(err error) error {
	var failed *sqlitetx.Error
	var unsafe *sqlitetx.UnsafeError
	switch {
	case errors.As(err, &failed) && failed.Class == sqlitetx.UnknownOutcome:
		return fmt.Errorf("%w: %w", lease.ErrUnknownOutcome, err)
	case errors.As(err, &failed), errors.As(err, &unsafe):
		return fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
	}
	return err
}
