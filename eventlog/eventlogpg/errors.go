package eventlogpg

import (
	"errors"
	"fmt"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

// The errors of Migrate and Check. Each comes with a text that says what to do; nothing was changed.
var (
	// ErrOlder: the schema is older than this program. Run Migrate.
	ErrOlder = migrate.ErrOlder
	// ErrForeign: the schema holds something that this library did not make.
	ErrForeign = migrate.ErrForeign
)

// coreError turns what a transaction returned into an error of package eventlog. The core's own
// pass as they are; the driver's are stripped by pgtx.
func coreError(err error) error {
	err = pgtx.Scrub(err)
	var failed *pgtx.Error
	if !errors.As(err, &failed) {
		return err
	}
	switch failed.Class {
	case pgtx.UnknownOutcome:
		return fmt.Errorf("%w: %w", eventlog.ErrUnknownOutcome, err)
	case pgtx.ReadOnly:
		return fmt.Errorf("%w: %w", eventlog.ErrStandby, err)
	}
	return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
}

// What an insert of events runs into.
const (
	idTaken      = "events_id"
	versionTaken = "events_stream"
	versionWrong = "events_version"
)

// refused reports whether the insert failed because of what the log holds already.
func refused(err error) bool {
	var failed *pgtx.Error
	if !errors.As(pgtx.Scrub(err), &failed) {
		return false
	}
	return failed.Class == pgtx.UniqueViolation && (failed.Constraint == idTaken || failed.Constraint == versionTaken) ||
		failed.Class == pgtx.Poison && failed.Constraint == versionWrong
}
