// Package mutate shows that tests notice mistakes. It plants them in a package's real source, one at a
// time, and demands that a named test fails. Nothing of a mistake ships or touches the tree: the go command
// lays the changed file over the real one while it compiles a test binary.
package mutate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Mutant is one mistake.
type Mutant struct {
	Name string // what is wrong, in words
	File string // where, in the package's folder
	Old  string // occurs exactly once there
	New  string
	Test string // the test that must fail
}

// Suite is a package's mutants and what they are tried with. Its tests use rapid.
type Suite struct {
	// Files are the test files that the tests need. The others are left out of the mutants' binaries,
	// which makes compiling them much cheaper.
	Files []string
	// Checks is how many random cases a test gets to notice a mistake. Take ten times what the slowest
	// needs (-v tells): whoever changes a test shuffles its cases.
	Checks  int
	Mutants []Mutant
}

// Run tries the mutants of the package in whose folder the test runs, each as a subtest, as many at once as
// go test lets run in parallel. First the unchanged source must pass with the same cases.
//
// With TALLYSTICK_TEST_EACH_MUTANT=n/k in the environment it tries the k-th of every n mutants only, for runs
// that have no time for all.
//
// It is skipped with -short, since each mutant is a compilation, and with -race, which has nothing to add:
// compiling for it would cost as much again.
func Run(t *testing.T, s Suite) {
	t.Helper()
	skip(t)
	p, err := at(".", s)
	if err != nil {
		t.Fatal(err)
	}
	if !t.Run("unchanged", func(t *testing.T) {
		if err := p.passes(t.Context(), t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}) {
		return // what fails anyway proves nothing
	}
	tried, err := sample(s.Mutants, os.Getenv(envEach))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range tried {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			cost, err := p.kill(t.Context(), t.TempDir(), m)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(cost)
		})
	}
}

const envEach = "TALLYSTICK_TEST_EACH_MUTANT"

// sample keeps the k-th of every n, where each is n/k; all of them where it is empty.
func sample(all []Mutant, each string) ([]Mutant, error) {
	if each == "" {
		return all, nil
	}
	text, which, _ := strings.Cut(each, "/")
	n, err := strconv.Atoi(text)
	k, err2 := strconv.Atoi(which)
	if err != nil || err2 != nil || n < 1 || k < 0 || k >= n {
		return nil, fmt.Errorf("%s=%q: say n/k, with k from 0 to n-1", envEach, each)
	}
	var kept []Mutant
	for i := k; i < len(all); i += n {
		kept = append(kept, all[i])
	}
	return kept, nil
}

func skip(t *testing.T) {
	t.Helper()
	switch {
	case raced:
		t.Skip("no mutants with -race, which would compile them all for nothing new: go test -run Mutants tries them")
	case testing.Short():
		t.Skip("no mutants with -short: each is a compilation")
	}
}

// pkg is a package whose mutants are tried.
type pkg struct {
	Suite
	dir   string
	left  []string      // test files that are left out
	limit time.Duration // of one run
}

func at(dir string, s Suite) (*pkg, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	left, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range s.Files {
		i := slices.Index(left, filepath.Join(dir, name))
		if i < 0 {
			return nil, fmt.Errorf("there is no test file %s: bring Files up to date", name)
		}
		left = slices.Delete(left, i, i+1)
	}
	return &pkg{s, dir, left, 2 * time.Minute}, nil
}

// passes tries the tests on the unchanged source.
func (p *pkg) passes(ctx context.Context, scratch string) error {
	binary, _, err := p.compile(ctx, scratch, nil)
	if err != nil {
		return fmt.Errorf("the unchanged package does not compile with no other test files than %v: %w", p.Files, err)
	}
	var tests []string
	for _, m := range p.Mutants {
		tests = append(tests, m.Test)
	}
	slices.Sort(tests)
	tests = slices.Compact(tests)
	out, _, err := p.run(ctx, binary, tests...)
	if err != nil {
		return fmt.Errorf("the tests fail though nothing is changed: %w\n%s", err, out)
	}
	for _, test := range tests {
		if !ended(out, "PASS", test) {
			return fmt.Errorf("there is no test %s in %v: bring the mutants up to date", test, p.Files)
		}
	}
	return nil
}

// kill returns what it took to notice the mistake, or why that did not happen.
func (p *pkg) kill(ctx context.Context, scratch string, m Mutant) (took string, err error) {
	changed, err := p.plant(scratch, m)
	if err != nil {
		return "", err
	}
	binary, compiling, err := p.compile(ctx, scratch, changed)
	if err != nil {
		return "", fmt.Errorf("the mutant does not compile: %w", err)
	}
	out, running, err := p.run(ctx, binary, m.Test)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", fmt.Errorf("the mutant survives: %s passes with %q in place of %q in %s", m.Test, m.New, m.Old, m.File)
	case !errors.As(err, &exit) || !ended(out, "FAIL", m.Test):
		return "", fmt.Errorf("%s neither passes nor fails: %w\n%s", m.Test, err, out)
	}
	if found := failedAfter.Find(out); found != nil {
		took = string(found) + "; "
	}
	return fmt.Sprintf("%sCPU: %v to compile, %v to run", took, compiling, running), nil
}

var failedAfter = regexp.MustCompile(`failed after \d+ tests`)

// plant writes the changed file and returns what it is to be laid over.
func (p *pkg) plant(scratch string, m Mutant) (overlay map[string]string, err error) {
	original, changed := filepath.Join(p.dir, m.File), filepath.Join(scratch, m.File)
	source, err := os.ReadFile(original)
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(source, []byte(m.Old)); n != 1 {
		return nil, fmt.Errorf("%q must occur once in %s, it does so %d times: bring the mutant up to date", m.Old, m.File, n)
	}
	source = bytes.Replace(source, []byte(m.Old), []byte(m.New), 1)
	return map[string]string{original: changed}, os.WriteFile(changed, source, 0o600)
}

// compile makes a test binary with what is least to compile: no unneeded files, no debugging information, no
// optimization. The tests run a second at most.
func (p *pkg) compile(ctx context.Context, scratch string, overlay map[string]string) (binary string, cost time.Duration, err error) {
	replace := map[string]string{}
	for _, name := range p.left {
		replace[name] = ""
	}
	for original, changed := range overlay {
		replace[original] = changed
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", 0, err
	}
	listed, binary := filepath.Join(scratch, "overlay.json"), filepath.Join(scratch, "mutant.test")
	if err := os.WriteFile(listed, list, 0o600); err != nil {
		return "", 0, err
	}
	out, cost, err := p.do(ctx, "go", "test", "-c", "-vet=off", "-gcflags=-dwarf=false -N -l", "-ldflags=-s -w", "-overlay", listed, "-o", binary, ".")
	if err != nil {
		return "", 0, fmt.Errorf("%w\n%s", err, out)
	}
	return binary, cost, nil
}

// run gives the tests their checks, with one seed: a mutant that is noticed here is noticed everywhere.
func (p *pkg) run(ctx context.Context, binary string, tests ...string) (out []byte, cost time.Duration, err error) {
	return p.do(ctx, binary, "-test.run", "^("+strings.Join(tests, "|")+")$", "-test.v", "-test.short", "-test.timeout", p.limit.String(),
		"-rapid.checks", strconv.Itoa(p.Checks), "-rapid.seed=1", "-rapid.shrinktime=1ns", "-rapid.nofailfile")
}

func (p *pkg) do(ctx context.Context, name string, args ...string) (out []byte, cost time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.WaitDelay = p.dir, 5*time.Second
	out, err = cmd.CombinedOutput()
	if state := cmd.ProcessState; state != nil {
		cost = (state.UserTime() + state.SystemTime()).Round(10 * time.Millisecond)
	}
	return out, cost, err
}

// ended reports whether a test's own line says how it ended.
func ended(out []byte, how, test string) bool {
	return bytes.Contains(append([]byte{'\n'}, out...), []byte("\n--- "+how+": "+test+" ("))
}
