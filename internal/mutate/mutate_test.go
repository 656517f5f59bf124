package mutate

import (
	"strings"
	"testing"
	"time"
)

const property = "TestPropertyOrderDoesNotMatter"

func sum(t *testing.T, s Suite) *pkg {
	t.Helper()
	s.Checks = 100
	p, err := at("testdata/sum", s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func says(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Fatalf("%v: not %q", err, text)
	}
}

// A mutant is noticed, or the error says why that cannot be told.
func TestMutants(t *testing.T) {
	skip(t)
	for _, c := range []struct{ name, old, new, says string }{
		{"is noticed", "sum += list[i]", "sum += 1 - list[i]", ""},
		{"panics", "i < len(list)", "i <= len(list)", ""},
		{"survives", "sum += list[i]", "sum = list[i] + sum", "survives: " + property},
		{"does not compile", "sum += list[i]", "sum += lost[i]", "undefined: lost"},
		{"goes on for ever", "i < len(list); i++ {", "; i = 0 {", "neither passes nor fails"},
		{"is out of date", "sum -= list[i]", "", "it does so 0 times"},
		{"is in several places", "sum", "", "it does so 5 times"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := sum(t, Suite{Files: []string{"sum_test.go"}})
			if c.new == "; i = 0 {" {
				p.limit = time.Second
			}
			took, err := p.kill(t.Context(), t.TempDir(), Mutant{c.name, "sum.go", c.old, c.new, property})
			if c.says != "" {
				says(t, err, c.says)
			} else if err != nil || !strings.Contains(took, "CPU") {
				t.Fatal(took, err)
			}
		})
	}
}

// A test that fails anyway, or is not there, notices nothing.
func TestMutantsNeedTestsThatPass(t *testing.T) {
	skip(t)
	for _, c := range []struct{ name, file, test, says string }{
		{"they pass", "sum_test.go", property, ""},
		{"one fails", "sum_test.go", "TestWrong", "though nothing is changed"},
		{"one is not there", "sum_test.go", "TestAbsent", "there is no test TestAbsent"},
		{"a file lacks what another has", "broken_test.go", property, "does not compile"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := sum(t, Suite{Files: []string{c.file}, Mutants: []Mutant{{Test: c.test}, {Test: property}}})
			if err := p.passes(t.Context(), t.TempDir()); c.says != "" {
				says(t, err, c.says)
			} else if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestFilesAreThere(t *testing.T) {
	_, err := at("testdata/sum", Suite{Files: []string{"summ_test.go"}})
	says(t, err, "there is no test file summ_test.go")
}

// Every mutant is in one of the samples.
func TestSample(t *testing.T) {
	all := []Mutant{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}
	for each, want := range map[string]string{"": "abcd", "1/0": "abcd", "3/0": "ad", "3/1": "b", "3/2": "c"} {
		kept, err := sample(all, each)
		var got string
		for _, m := range kept {
			got += m.Name
		}
		if err != nil || got != want {
			t.Errorf("%q keeps %q, %v, not %q", each, got, err, want)
		}
	}
	for _, each := range []string{"3", "3/3", "0/0", "a/b", "3/-1"} {
		if _, err := sample(all, each); err == nil {
			t.Errorf("%q is taken", each)
		}
	}
}
