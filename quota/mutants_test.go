package quota_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutant is a mistake planted in the source. The named test must fail with it.
type mutant struct {
	name      string
	file      string
	old, new  string // old occurs exactly once
	testsThat string // which tests must fail
}

const (
	tile    = "TestPropertyWindowsTile"
	mint    = "TestPropertyEditsMintNothing"
	rolls   = "TestPropertyRollIsWindow"
	clock   = "TestWindowsAreTheModel"
	books   = "TestPropertyAccountIsTheLedger"
	vectors = "TestWindow"
)

var mutants = []mutant{
	{"the 31st of February is the 3rd of March", "calendar.go",
		"	if date.Month() != month {", "	if false {", vectors},
	{"a month is thirty days", "calendar.go",
		"	year := floorDiv(n, 12)\n", "	if true {\n		return n * 30\n	}\n	year := floorDiv(n, 12)\n", vectors},
	{"a window that is over ends a day after the roll", "calendar.go",
		"		return Window{Start: prev.End, End: end}, nil", "		return Window{Start: nowMicros, End: nowMicros + day}, nil", rolls},
	{"the end itself is still in the window", "calendar.go",
		"	if nowMicros < prev.End {", "	if nowMicros <= prev.End {", rolls},
	{"an edit acts at once", "calendar.go",
		"	if nowMicros < prev.End {\n		return prev, nil", "	if nowMicros < prev.End {\n		return c.Window(nowMicros)", mint},
	{"an edit mints a short window", "calendar.go",
		"c.End(prev.End + c.Period.half() - 1)", "c.End(prev.End)", mint},
	{"a window starts before the last one ended", "calendar.go",
		"	if nowMicros < end {", "	if nowMicros < end && end < 0 {", mint},
	{"a day is 24 hours", "calendar.go",
		"	at, local := reach(nominal, loc)\n", "	_, local := reach(nominal, loc)\n	at := nominal\n", clock},
	{"a reset hour that does not exist is before the change", "zone.go",
		"at = max(t.UnixMicro(), nominal-ahead)", "at = nominal - ahead", clock},
	{"a reset hour that exists twice is the second", "zone.go",
		"time.UnixMicro(nominal - day).In(loc)", "time.UnixMicro(nominal).Add(time.Hour).In(loc)", clock},
	{"a skipped date has a window", "calendar.go",
		"return c.boundary(n+1, loc)", "return at", clock},
	{"weeks start on Sunday", "calendar.go",
		"int64(max(c.WeekStart, 1) - 1)", "int64(max(c.WeekStart, 0) - 1)", vectors},
	{"uncertain amounts do not count", "account.go",
		"amount.Sum(a.Consumed, a.Uncertain, a.Granted)", "amount.Sum(a.Consumed, a.Granted)", books},
	{"grants do not count", "account.go",
		"amount.Sum(a.Consumed, a.Uncertain, a.Granted)", "amount.Sum(a.Consumed, a.Uncertain)", books},
	{"reserved amounts do not count", "account.go",
		"v.Remaining = free - a.Reserved", "v.Remaining = free", books},
	{"observed amounts are charged", "account.go",
		"amount.Sum(a.Consumed, a.Uncertain, a.Granted)", "amount.Sum(a.Consumed, a.Uncertain, a.Granted, a.Observed)", books},
	{"a sum that overflows fits", "account.go",
		"	settled, err := amount.Sum(a.Consumed, a.Uncertain, a.Granted)\n	if err != nil || settled > limit {", "	settled, err := a.Consumed+a.Uncertain+a.Granted, error(nil)\n	if err != nil || settled > limit {", "TestCheck"},
	{"an overrun is cut at the bound", "account.go",
		"amount.Add(a.Consumed, used); err != nil {\n		return a, err\n	}\n	return out, nil", "amount.Add(a.Consumed, min(used, reserved)); err != nil {\n		return a, err\n	}\n	return out, nil", books},
	{"giving back twice is clamped", "account.go",
		"	case reserved > a.Reserved:\n		return a, fmt.Errorf", "	case reserved > a.Reserved:\n		a.Reserved = 0\n		return a, nil\n	case false:\n		return a, fmt.Errorf", "TestGivingBackTwice"},
	{"a hold releases the bound", "account.go",
		"amount.Add(a.Uncertain, reserved)", "amount.Add(a.Uncertain, observed)", books},
	{"a frozen account takes more", "account.go",
		"v.OK = fits && !a.Frozen", "v.OK = fits", books},
}

// Every planted mistake makes its test fail. Each is compiled from the real source with
// one change, by the overlay of the go command; nothing of it ships.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the package once per mutant")
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go command to compile mutants")
	}
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			binary := compileMutant(t, goTool, m)
			run := exec.Command(binary, "-test.run", "^"+m.testsThat+"$", "-test.short", "-rapid.checks=50000", "-rapid.shrinktime=1ns", "-rapid.nofailfile")
			out, err := run.CombinedOutput()
			var failed *exec.ExitError
			if !errors.As(err, &failed) || !strings.Contains(string(out), "--- FAIL: "+m.testsThat) {
				t.Fatalf("%s survives the mistake (%v):\n%s", m.testsThat, err, out)
			}
		})
	}
}

// compileMutant builds the package's tests with the mistake.
func compileMutant(t *testing.T, goTool string, m mutant) string {
	t.Helper()
	source, err := os.ReadFile(m.file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		t.Fatalf("%q occurs %d times in %s: bring the mutant up to date", m.old, n, m.file)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, m.file)
	if err := os.WriteFile(changed, []byte(strings.Replace(string(source), m.old, m.new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	original, err := filepath.Abs(m.file)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		t.Fatal(err)
	}
	overlayFile, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutant.test")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(goTool, "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlayFile, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("the mutant does not compile: %v\n%s", err, out)
	}
	return binary
}
