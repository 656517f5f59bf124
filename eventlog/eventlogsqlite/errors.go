package eventlogsqlite

import (
	"errors"
	"fmt"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
)

// The errors of Migrate and Check. Each comes with a text that says what to do; nothing was changed.
var (
	// ErrOlder: the schema is older than this program. Run Migrate.
	ErrOlder = migrate.ErrOlder
	// ErrForeign: the file holds something that this library did not make.
	ErrForeign = migrate.ErrForeign
)

// coreError turns what a transaction returned into an error of package eventlog. The core's own
// pass as they are; the driver's were stripped by sqlitetx.
func coreError(err error) error {
	var failed *sqlitetx.Error
	if !errors.As(err, &failed) {
		return err
	}
	if failed.Class == sqlitetx.UnknownOutcome {
		return fmt.Errorf("%w: %w", eventlog.ErrUnknownOutcome, err)
	}
	return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
}
