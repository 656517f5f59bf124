package ratelimit_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutant is a mistake planted in the source. The property tests must fail with it.
type mutant struct {
	name      string
	file      string
	old, new  string // old occurs exactly once
	testsThat string // which tests must fail
}

const (
	isModel = "TestPropertyBucketIsTheModel"
	merged  = "TestPropertyMergedBucketIsConservative"
)

var mutants = []mutant{
	{"refill drops the fraction", "drain.go",
		"b.head.frac = int64(frac)\n}", "b.head.frac = 0\n}", isModel},
	{"refill overflows after a long idle time", "wide.go",
		"hi, lo := bits.Mul64(a, b)\n\treturn wide{hi, lo}", "return wide{uint64(bits.Len64(0)), a * b}", isModel},
	{"the burst itself does not fit", "bucket.go",
		"case v.Debt <= l.Burst-cost:", "case v.Debt < l.Burst-cost:", isModel},
	{"one above the burst fits", "bucket.go",
		"case v.Debt <= l.Burst-cost:", "case v.Debt <= l.Burst-cost+1:", isModel},
	{"a raised limit is retroactive", "bucket.go",
		"return min(b.rate, perMinute)", "return perMinute", isModel},
	{"a lowered limit drains old debt at the old speed", "bucket.go",
		"return min(b.rate, perMinute)", "return b.rate", isModel},
	{"a refusal is written down", "bucket.go",
		"	v, err = b.Peek(nowMicros, l, cost)\n	if err != nil || !v.OK || cost == 0 {\n		return 0, v, err\n	}\n	if b.next",
		"	b.see(nowMicros, l.PerMinute)\n	v, err = b.Peek(nowMicros, l, cost)\n	if err != nil || !v.OK || cost == 0 {\n		return 0, v, err\n	}\n	if b.next", isModel},
	{"the clock going back moves the anchor back", "bucket.go",
		"	if now > b.anchor {\n		b.drain(", "	if now != b.anchor {\n		b.drain(", isModel},
	{"a raise drains", "bucket.go",
		"	b.start(nowMicros)\n	if b.rate == unseen {", "	b.see(nowMicros, l.PerMinute)\n	if b.rate == unseen {", isModel},
	{"debt is drained by time before it joined", "bucket.go",
		"	if now <= b.anchor {\n		return 0\n	}\n	return now", "	return 0", isModel},
	{"time before a birth drains what joined then", "drain.go",
		"clock.less(at) {\n			return at", "clock.less(at) {\n			return clock", isModel},
	{"the wait is rounded down", "bucket.go",
		"need.divUp(uint64(rate))}", "need.divUp(uint64(rate)) - 1}", isModel},
	{"a drained reservation is refunded from a neighbour", "segments.go",
		"	return -1\n}\n\n// remove", "	return len(b.segments) - 1\n}\n\n// remove", isModel},
	{"a cancel returns what is drained", "segments.go",
		"s.tokens = max(0, keep-b.head.drained)", "s.tokens = keep", isModel},
	{"a smaller settlement returns all", "segments.go",
		"	free := amount - keep\n	s.tokens", "	free := amount\n	s.tokens", isModel},
	{"a reservation can be returned twice", "segments.go",
		"	if s.span <= 1 {\n		s.close()\n	}\n	if s.tokens == 0", "	if s.span > 1 {\n		s.close()\n	}\n	if s.tokens == 0", isModel},
	{"the newest is drained first", "segments.go",
		"	b.segments = append(b.segments, s)\n	size", "	b.segments = append([]segment{s}, b.segments...)\n	size", isModel},
	{"settled debt of another age is merged", "segments.go",
		"if tail := &b.segments[n-1]; tail.terminal() && tail.born == s.born {", "if tail := &b.segments[n-1]; tail.terminal() {", isModel},
	{"a member of a merged head gets all of it", "segments.go",
		"	if amount <= h.drained {", "	h.drained, h.drainedFrac = 0, 0\n	if amount <= h.drained {", merged},
	{"the head is merged into", "segments.go",
		"	place, least := 1, int64(math.MaxInt64)\n	before := b.segments[1].tokens\n	for i := 2;", "	place, least := 0, int64(math.MaxInt64)\n	before := b.segments[0].tokens\n	for i := 1;", merged},
	{"merged debt is as old as its older part", "segments.go",
		"	p.born = max(p.born, s.born)\n", "	if p.born == 0 && s.born != 0 {\n		b.late--\n	}\n", merged},
	{"the encoding forgets what the head has drained", "codec.go",
		"		flags |= hasFrac\n	}\n	if b.head.drained != 0 || b.head.drainedFrac != 0 {", "		flags |= hasFrac\n	}\n	if false {", isModel},
	{"the encoding forgets when debt joined", "codec.go",
		"		if s.born == 0 {\n			dst", "		if true {\n			dst", isModel},
}

// Every planted mistake makes the properties fail. Each is compiled from the real source with
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
			run := exec.Command(binary, "-test.run", "^"+m.testsThat+"$", "-test.count=1", "-rapid.checks=20000", "-rapid.shrinktime=1ns", "-rapid.nofailfile")
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
