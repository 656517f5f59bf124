package keys

import (
	"encoding/json"
	"slices"
)

// Change is one field of an update. The zero value leaves the field as it is;
// [Set] gives it a value, and a nil value takes the limit, list or date away.
type Change[T any] struct {
	Set bool
	To  T
}

// Set returns the change to v.
func Set[T any](v T) Change[T] { return Change[T]{Set: true, To: v} }

// MarshalJSON writes the new value. Fields of this type are tagged omitzero, so
// that what is left alone is left out.
func (c Change[T]) MarshalJSON() ([]byte, error) { return json.Marshal(c.To) }

// UnmarshalJSON sets the change. null means none or unlimited and is refused for
// a field that always has a value. Errors: *FieldError.
func (c *Change[T]) UnmarshalJSON(data []byte) error {
	var to T
	if err := decodeValue(data, &to); err != nil {
		return err
	}
	*c = Change[T]{Set: true, To: to}
	return nil
}

// assign carries out c on *dst and reports whether anything is different now.
func assign[T any](dst *T, c Change[T], same func(a, b T) bool) bool {
	if !c.Set || same(*dst, c.To) {
		return false
	}
	*dst = c.To
	return true
}

func anyOf(changed ...bool) bool { return slices.Contains(changed, true) }

func sameValue[T comparable](a, b T) bool { return a == b }

func samePtr[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// sameList tells nil (everything) from empty (nothing).
func sameList(a, b []string) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) }
