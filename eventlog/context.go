package eventlog

import "context"

type mayNotAppend struct{}

// withoutAppending marks what runs inside a projection or a local view.
func withoutAppending(ctx context.Context) context.Context {
	return context.WithValue(ctx, mayNotAppend{}, true)
}

// MayAppend reports whether ctx is not that of a projection or a local view. Every way to append asks it.
//
// Errors: ErrMayNotAppend.
func MayAppend(ctx context.Context) error {
	if ctx.Value(mayNotAppend{}) != nil {
		return ErrMayNotAppend
	}
	return nil
}
