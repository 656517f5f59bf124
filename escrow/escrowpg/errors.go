package escrowpg

import (
	"fmt"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

// The errors of Migrate and Check. Each comes with a text that says what to do;
// nothing was changed.
var (
	// ErrOlder: the schema is older than this program. Run Migrate.
	ErrOlder = migrate.ErrOlder
	// ErrForeign: the schema holds something that this library did not make.
	ErrForeign = migrate.ErrForeign
)

// coreError turns what reading returned into an error of package escrow. The driver's
// texts are stripped by pgtx.
func coreError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", escrow.ErrUnavailable, pgtx.Scrub(err))
}
