package keyspg

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/pgtx"
	"github.com/tallystick-go/tallystick/keys"
)

// The errors of Migrate and Check. Each comes with a text that says what to do;
// nothing was changed.
var (
	// ErrOlder: the schema is older than this program. Run Migrate.
	ErrOlder = migrate.ErrOlder
	// ErrForeign: the schema holds something that this library did not make.
	ErrForeign = migrate.ErrForeign
)

// found replaces the driver's "no rows" by what the method calls it.
func found(err, missing error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return missing
	}
	return err
}

// taken replaces a violated uniqueness by what the method calls it.
func taken(err, meaning error) error {
	if pgtx.Classify(err) == pgtx.UniqueViolation {
		return meaning
	}
	return err
}

// coreError turns what a transaction returned into an error of package keys. The
// core's own pass as they are; the driver's are stripped by pgtx.
func coreError(err error) error {
	err = pgtx.Scrub(err)
	var failed *pgtx.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgtx.ErrUnconfirmed), pgtx.Classify(err) == pgtx.UnknownOutcome:
		return fmt.Errorf("%w: %w", keys.ErrUnconfirmed, err)
	case errors.As(err, &failed):
		return fmt.Errorf("%w: %w", keys.ErrUnavailable, err)
	}
	return err
}
