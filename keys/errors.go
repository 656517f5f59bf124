package keys

import "errors"

// The errors of this package. Compare with errors.Is; none of them ever carries
// a token, a hash, a statement or a connection string.
var (
	// ErrUnknown: no key answers to what was presented. It never says whether
	// the token was malformed or merely not found.
	ErrUnknown = errors.New("keys: unknown key")
	// ErrRevoked: the key was revoked, its team deleted, or the token replaced
	// and its grace is over. Final: no edit brings it back.
	ErrRevoked = errors.New("keys: revoked")
	// ErrExpired: the store's time has reached the key's expiry.
	ErrExpired = errors.New("keys: expired")
	// ErrStale: the row is at another revision than the edit or the principal
	// was based on. Nothing changed; read again and decide again.
	ErrStale = errors.New("keys: changed since it was read")
	// ErrConflict: the same rotation id with other terms, a rotation that lost a
	// race, or a token that is already in use. Nothing changed.
	ErrConflict = errors.New("keys: conflict")
	// ErrExists: the identifier is taken, perhaps by a tombstone. Nothing changed.
	ErrExists = errors.New("keys: already exists")
	// ErrNotFound: an administrator asked for a team or key that never existed.
	ErrNotFound = errors.New("keys: not found")
	// ErrInvalid: refused before anything was read or written. See [FieldError].
	ErrInvalid = errors.New("keys: invalid")
	// ErrUnavailable: the store could not answer and nothing changed. Never take
	// it for an unknown key.
	ErrUnavailable = errors.New("keys: store unavailable")
	// ErrUnconfirmed: the edit is committed, or may be, but it was not confirmed
	// that every admission sees it. Repeat the edit until it returns nil.
	ErrUnconfirmed = errors.New("keys: edit not confirmed")
)

// FieldError says which field of the input was refused and why. It is ErrInvalid
// and never repeats the value.
type FieldError struct {
	Field string // path in JSON names, such as "limits.tokens_per_day"
	Why   string
}

func (e *FieldError) Error() string { return "keys: invalid " + e.Field + ": " + e.Why }

// Is makes errors.Is(err, ErrInvalid) hold.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

func refuse(field, why string) error { return &FieldError{Field: field, Why: why} }

// within prefixes the field of a FieldError with the object it was found in.
func within(object string, err error) error {
	var field *FieldError
	if !errors.As(err, &field) {
		return err
	}
	path := object
	if field.Field != "" {
		path += "." + field.Field
	}
	return &FieldError{Field: path, Why: field.Why}
}
