package pricing

import (
	"errors"
	"fmt"
)

var (
	// ErrNoPrice reports that something has no price. It is never free for that.
	ErrNoPrice = errors.New("pricing: no price")
	// ErrUnbounded reports a request whose tokens have no upper bound.
	ErrUnbounded = errors.New("pricing: no upper bound")
	// ErrInvalid reports arguments that make no sense, such as negative counts.
	ErrInvalid = errors.New("pricing: invalid")
	// ErrCatalogue reports a price file or options that cannot be used. Nothing
	// was loaded.
	ErrCatalogue = errors.New("pricing: unusable catalogue")
	// ErrRow reports bytes that are no price row.
	ErrRow = errors.New("pricing: not a price row")
)

// MissingPriceError says which price or limit of which model is missing.
// It is an [ErrNoPrice].
type MissingPriceError struct {
	Model  string
	Field  string // the catalogue's name of what is missing, empty if the whole model is
	Reason string // why a model that the catalogue holds was refused, else empty
}

// Error says what to do about it.
func (e *MissingPriceError) Error() string {
	switch {
	case e.Reason != "":
		return fmt.Sprintf("pricing: model %q was refused when the catalogue was loaded: %s", e.Model, e.Reason)
	case e.Field != "":
		return fmt.Sprintf("pricing: model %q has no %s: add it to the catalogue", e.Model, e.Field)
	default:
		return fmt.Sprintf("pricing: model %q is not in the catalogue: add it, an alias, or name it free", e.Model)
	}
}

// Unwrap makes errors.Is(err, ErrNoPrice) hold.
func (e *MissingPriceError) Unwrap() error { return ErrNoPrice }

// UnboundedError says why a request has no upper bound. It is an [ErrUnbounded].
type UnboundedError struct {
	Model  string
	Reason string
}

// Error names the model and the reason.
func (e *UnboundedError) Error() string {
	return fmt.Sprintf("pricing: no upper bound for a request to model %q: %s", e.Model, e.Reason)
}

// Unwrap makes errors.Is(err, ErrUnbounded) hold.
func (e *UnboundedError) Unwrap() error { return ErrUnbounded }
