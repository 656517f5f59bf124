package policypg

import (
	"errors"
	"fmt"

	"github.com/tallystick-go/tallystick/governance/policy"
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

// coreError turns what a transaction returned into an error of package policy. The
// core's own pass as they are; the driver's are stripped by pgtx.
func coreError(err error) error {
	err = pgtx.Scrub(err)
	var failed *pgtx.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgtx.ErrUnconfirmed), pgtx.Classify(err) == pgtx.UnknownOutcome:
		return fmt.Errorf("%w: %w", policy.ErrUnconfirmed, err)
	case errors.As(err, &failed):
		return fmt.Errorf("%w: %w", policy.ErrUnavailable, err)
	}
	return err
}
