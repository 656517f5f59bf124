package archtest

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	caseName = regexp.MustCompile(`\b((?:Replay|Primitive)[A-Z][0-9]+|Edge)[A-Z][A-Za-z0-9]*\b`)
	ruleName = regexp.MustCompile("`([A-Z][A-Za-z]+/[A-Z][A-Za-z]+)`") // of keystest, policytest, leasetest and eventlogtest
	testName = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
)

// What a case is named after is said in cases.md, and what cases.md names is there.
func TestCasesAreExplained(t *testing.T) {
	text, err := page("cases.md")
	if err != nil {
		t.Fatal(err)
	}
	replays, primitives, cut := strings.Cut(text, "\n## Primitives\n")
	if !cut {
		t.Fatal("cases.md has no Primitives")
	}
	told := caseName.FindAllString(text, -1)
	var there, tests, rules []string
	for _, f := range theTree(t).files {
		for _, d := range f.syntax.Decls {
			if name := functionName(d); f.test && strings.HasPrefix(name, "Test") {
				tests = append(tests, name)
			}
		}
		if f.dir == "keys/keystest" || f.dir == "governance/policy/policytest" || f.dir == "eventlog/eventlogtest" || f.dir == "lease/leasetest" {
			rules = append(rules, literals(f.syntax)...)
		}
		if f.dir != "governance/governancetest" {
			continue
		}
		for _, literal := range literals(f.syntax) {
			there = append(there, caseName.FindAllString(literal, -1)...)
		}
	}
	if len(there) < 50 {
		t.Fatalf("only %d cases found", len(there))
	}
	for _, name := range there {
		if !slices.Contains(told, name) {
			t.Errorf("internal/docs/cases.md does not name %s", name)
		}
		kind := caseName.FindStringSubmatch(name)[1]
		code, part := strings.TrimPrefix(kind, "Replay"), replays
		if code == kind {
			code, part = strings.TrimPrefix(kind, "Primitive"), primitives
		}
		if kind != "Edge" && !strings.Contains(part, "\n| "+code+" | ") {
			t.Errorf("internal/docs/cases.md does not say what %s of %s stands for", code, name)
		}
	}
	for _, name := range told {
		if !slices.Contains(there, name) {
			t.Errorf("internal/docs/cases.md names %s, which is gone", name)
		}
	}
	for _, m := range ruleName.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(rules, m[1]) {
			t.Errorf("internal/docs/cases.md names %s, which is gone", m[1])
		}
	}
	for _, m := range testName.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(tests, m[1]) {
			t.Errorf("internal/docs/cases.md names %s, which is gone", m[1])
		}
	}
}

// functionName is the name of a declared function, or nothing.
func functionName(d ast.Decl) string {
	if fn, is := d.(*ast.FuncDecl); is && fn.Recv == nil {
		return fn.Name.Name
	}
	return ""
}

// literals lists the strings that a file holds.
func literals(f *ast.File) []string {
	var out []string
	ast.Inspect(f, func(n ast.Node) bool {
		if l, is := n.(*ast.BasicLit); is && l.Kind == token.STRING {
			if s, err := strconv.Unquote(l.Value); err == nil {
				out = append(out, s)
			}
		}
		return true
	})
	return out
}
