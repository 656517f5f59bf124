package pgtest

import (
	"context"
	"errors"
	"testing"

	"github.com/tallystick-go/tallystick/internal/pgtest/pgserver"
)

// PgBouncer starts the real one, in transaction mode, in front of the server of a DSN. Where there is none the test
// skips with a line that says so, or fails where a Postgres is required. It ends with the test.
func PgBouncer(t testing.TB, dsn string) *pgserver.Bouncer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	b, err := pgserver.StartBouncer(ctx, dsn)
	switch {
	case err == nil:
	case errors.Is(err, pgserver.ErrNoBouncer) && !Required():
		t.Skip(err)
	default:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}
