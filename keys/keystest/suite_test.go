package keystest_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keystest"
)

func TestMemory(t *testing.T) { keystest.Run(t, harness(os.Getenv(mistakeVariable))) }

// mistakeVariable plants a mistake in the child process that runs TestMemory.
const mistakeVariable = "KEYSTEST_MISTAKE"

// mistakes were each made by a system in use, or lie next to one that was.
var mistakes = []string{
	"ignores the context", "an outage is a refusal", "a tombstone's id is free", "lists are joined by commas", "an empty list is none",
	"a deleted team gets keys", "a declaration revives", "a token is used twice", "errors repeat their input", "negative limits pass on update",
	"an edit revives", "edits do not compare the revision", "revoking again stamps again", "revoking nothing is a success",
	"self-revocation compares nothing", "edits are not alone", "results are shared", "rotation ids are global", "a replay rotates again",
	"two rotations win", "a grace is lengthened", "the old token stays", "a rotation resets the key", "owners compare without case",
	"listings drop the revoked", "ids are ordered without case", "a full last page points on", "space around a token is trimmed",
	"a hash authenticates", "unknown says why", "unknown is remembered", "a reload goes by the key", "a deleted team's keys work",
	"expiry by the caller's clock", "expiry is not looked at", "revocations live in memory",
	"a declaration overwrites", "a declaration brings back", "a conflict starts", "a conflict does its half", "declarations are forgotten", "a declared id is shared",
	"an import leaves the revoked out", "an import begins anew", "an import overwrites", "an import stops half-way", "a grace is not imported",
	"a creation is not told", "a repetition is told", "a refusal is told", "the newest is told first", "a hash is told",
}

// TestTheSuiteFindsMistakes runs the suite, in a process of its own, on a store with
// a mistake in it: it must fail each time.
func TestTheSuiteFindsMistakes(t *testing.T) {
	if os.Getenv(mistakeVariable) != "" {
		return
	}
	run := func(mistake string) (string, error) {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMemory$", "-test.failfast")
		child.Env = append(os.Environ(), mistakeVariable+"="+mistake)
		var out bytes.Buffer
		child.Stdout, child.Stderr = &out, &out
		err := child.Run()
		return out.String(), err
	}
	out, err := run("none of them")
	require.NoError(t, err, out)
	for _, mistake := range mistakes {
		out, err := run(mistake)
		assert.Error(t, err, mistake)
		assert.Contains(t, out, "--- FAIL: TestMemory", mistake)
		assert.NotContains(t, out, "panic:", mistake)
	}
}

func ExampleRun() {
	open := func(testing.TB) keys.Store { return newMemory("", keys.Format{}) } // an empty store of yours

	// func TestStore(t *testing.T) is the whole test:
	test := func(t *testing.T) { keystest.Run(t, keystest.Harness{New: open}) }
	fmt.Printf("%T\n", test)
	// Output: func(*testing.T)
}

func BenchmarkMemory(b *testing.B) { keystest.Bench(b, harness("")) }
