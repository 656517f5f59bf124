package pgwire

import (
	"os"
	"strconv"
)

// EnvEach names the environment variable for runs that have no time for every fault.
const EnvEach = "TALLYSTICK_TEST_EACH_FAULT"

// Sample is all the faults, or each n-th where the environment asks for that, but a few in any case: which ones
// depends on their number, so that tests that differ in one message try others.
func Sample(faults []Fault) []Fault {
	n, err := strconv.Atoi(os.Getenv(EnvEach))
	if err != nil || n <= 1 {
		return faults
	}
	n = max(1, min(n, len(faults)/4))
	var kept []Fault
	for i := len(faults) % n; i < len(faults); i += n {
		kept = append(kept, faults[i])
	}
	return kept
}
