package rollout_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/rollout"
)

// TestTheEarlierVersionIsThere: without it nothing is shown of rollouts, so CI does not pass without it.
func TestTheEarlierVersionIsThere(t *testing.T) {
	folder := t.TempDir()
	program, err := rollout.Build(t.Context(), rollout.Before, "./internal/migrate", folder) // small, and no program
	if err != nil && !pgtest.Required() {
		t.Skip(err)
	}
	require.NoError(t, err)
	require.NotEmpty(t, program)
	_, err = os.Stat(filepath.Join(folder, "source", "lease", "leasepg", "migrations"))
	require.NoError(t, err, "whole, as it was")

	_, err = rollout.Build(t.Context(), "0123456789012345678901234567890123456789", ".", t.TempDir())
	require.ErrorIs(t, err, rollout.ErrNoHistory)
	require.ErrorContains(t, err, "clone it whole")
}
