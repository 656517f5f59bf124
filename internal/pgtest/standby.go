package pgtest

import (
	"context"
	"testing"

	"github.com/tallystick-go/tallystick/internal/pgtest/pgserver"
)

// Standby gives a hot standby of a server of the test's Own, or skips the test where the server does not run from
// local binaries.
func Standby(t testing.TB, primary *pgserver.Server) *pgserver.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := primary.Standby(ctx)
	if err != nil && primary.Way() == pgserver.Docker {
		t.Skip(err)
	}
	need(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
