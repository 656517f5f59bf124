package sqlitetx

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSafeVersion(t *testing.T) {
	for v, safe := range map[string]bool{
		"3.7.0": false, "3.43.2": false, "3.44.5": false, "3.44.6": true, "3.44.9": true, "3.45.0": false, "3.49.2": false,
		"3.50.6": false, "3.50.7": true, "3.51.0": false, "3.51.2": false, "3.51.3": true, "3.52.0": false, "3.52.1": true,
		"3.53.0": true, "4.0.0": true, "2.8.0": false, "": false, "x": false,
	} {
		require.Equal(t, safe, safeVersion(v), v)
	}
}

type coded int

func (c coded) Error() string { return "hunter2" }
func (c coded) Code() int     { return int(c) }

func TestClasses(t *testing.T) {
	for code, want := range map[int]Class{
		5: Busy, 517: Busy, 261: Busy, 6: Busy, 10: Unavailable, 1034: Unavailable, 13: Unavailable, 14: Unavailable, 9: Canceled,
		19: Poison, 275: Poison, 787: Poison, 2067: UniqueViolation, 1555: UniqueViolation, 8: ReadOnly, 1032: ReadOnly,
		11: Corrupt, 267: Corrupt, 26: NotSQLite, 1: Rejected, 21: Rejected,
	} {
		err := Scrub(fmt.Errorf("while: %w", coded(code)))
		require.Equal(t, want, Classify(err), code)
		require.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), "hunter2")
		var own *Error
		require.True(t, errors.As(err, &own))
		require.Equal(t, code, own.Code)
		commit := Classify(scrubCommit(coded(code)))
		if want == Busy || want == Poison {
			require.Equal(t, want, commit)
		} else {
			require.Equal(t, UnknownOutcome, commit, code)
		}
	}
	require.Equal(t, OK, Classify(nil))
	require.NoError(t, scrubCommit(nil))
	for c := OK; c <= Rejected; c++ {
		require.NotEqual(t, "no class", c.String())
	}
}
