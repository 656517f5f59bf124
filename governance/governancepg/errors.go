package governancepg

import (
	"errors"
	"fmt"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

// divisionByZero is how our statements say that a row was not in the state that
// was decided on.
const divisionByZero = "22012"

// translate maps a database error to what the Governor understands. Texts of the
// driver never get through.
func translate(err error) error {
	if err == nil {
		return nil
	}
	for _, own := range [...]error{governance.ErrCorrupt, governance.ErrRetry, governance.ErrLockTimeout, governance.ErrUnavailable, governance.ErrUnknownOutcome} {
		if errors.Is(err, own) {
			return err
		}
	}
	err = pgtx.Scrub(err)
	var pg *pgtx.Error
	if !errors.As(err, &pg) {
		return fmt.Errorf("%w: unexpected failure", governance.ErrUnavailable)
	}
	switch pg.Class {
	case pgtx.Retryable, pgtx.UniqueViolation:
		return fmt.Errorf("%w: %w", governance.ErrRetry, err)
	case pgtx.LockTimeout:
		return fmt.Errorf("%w: %w", governance.ErrLockTimeout, err)
	case pgtx.Poison:
		if pg.Code == divisionByZero {
			return fmt.Errorf("%w: %w", governance.ErrRetry, err)
		}
		return fmt.Errorf("%w: %w", governance.ErrPoison, err)
	case pgtx.UnknownOutcome:
		return fmt.Errorf("%w: %w", governance.ErrUnknownOutcome, err)
	}
	return fmt.Errorf("%w: %w", governance.ErrUnavailable, err)
}
