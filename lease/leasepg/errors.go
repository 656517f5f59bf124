package leasepg

import (
	"errors"
	"fmt"

	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/pgtx"
	"github.com/tallystick-go/tallystick/lease"
)

// The errors of Migrate and Check. Each comes with a text that says what to do;
// nothing was changed.
var (
	// ErrOlder: the schema is older than this program. Run Migrate.
	ErrOlder = migrate.ErrOlder
	// ErrForeign: the schema holds something that this library did not make.
	ErrForeign = migrate.ErrForeign
)

// errNoOrigin: the row that names the data's origin is made by the migration and never deleted.
var errNoOrigin = errors.New("leasepg: the row of lease_origin is gone: restore it from a backup, or set the lease tables up anew")

// coreError turns what a statement returned into an error of package lease. The core's
// own pass as they are; the driver's are stripped by pgtx.
func coreError(err error) error {
	var failed *pgtx.Error
	switch {
	case err == nil:
		return nil
	case pgtx.Classify(err) == pgtx.UnknownOutcome:
		return fmt.Errorf("%w: %w", lease.ErrUnknownOutcome, err)
	case errors.As(err, &failed), errors.Is(err, errNoOrigin):
		return fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
	}
	return err
}
