package leasepg_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/tallystick-go/tallystick/internal/pgtest"
)

// TestMain runs the tests, or is one of the processes that they start.
func TestMain(m *testing.M) {
	if text := os.Getenv(workerEnv); text != "" {
		if err := work(text); err != nil {
			fmt.Fprintln(os.Stderr, "process:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(pgtest.Run(m))
}
