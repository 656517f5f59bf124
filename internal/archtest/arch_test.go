package archtest

import (
	"go/ast"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// kind is what a package is, told by its place and name.
type kind int

const (
	root     kind = iota + 1 // the module's own package: documentation only
	core                     // pure: standard library and cores
	pg                       // Postgres adapter
	sqlite                   // SQLite adapter
	suite                    // conformance suite
	inner                    // internal/...
	example                  // examples/...
	stranger                 // nothing we know
)

var topFolders = []string{"governance", "keys", "ratelimit", "quota", "escrow", "journal", "lease", "eventlog", "examples", "internal"}

// cores that are not named like an adapter. A new one is a decision, and is made here.
var cores = []string{
	"keys", "ratelimit", "quota", "escrow", "escrow/escrowhttp", "journal", "lease", "eventlog",
	"governance", "governance/amount", "governance/policy", "governance/policy/policyyaml", "governance/pricing",
	"governance/usage", "governance/httpgov", "governance/governancemem", "keys/keysimport",
}

// extra names the one library beyond the standard one that a core may use.
var extra = map[string][]string{
	"governance/pricing":           {"github.com/shopspring/decimal"},
	"governance/policy/policyyaml": {"go.yaml.in/yaml/v3"},
}

const (
	pgx        = "github.com/jackc/pgx/v5"
	dockertest = "github.com/ory/dockertest"
	driver     = "modernc.org/sqlite"
)

func kindOf(dir string) kind {
	switch {
	case dir == ".":
		return root
	case under(dir, "internal"):
		return inner
	case under(dir, "examples"):
		return example
	case slices.Contains(cores, dir):
		return core
	}
	// An adapter or suite lies in its core's folder and is named after it: keys/keyspg.
	own := path.Base(path.Dir(dir))
	switch path.Base(dir) {
	case own + "pg":
		return pg
	case own + "sqlite":
		return sqlite
	case own + "test":
		return suite
	}
	return stranger
}

// shipped reports whether users link the package by importing us.
func shipped(dir string) bool {
	switch kindOf(dir) {
	case core, pg, sqlite, root:
		return true
	case inner:
		return slices.ContainsFunc([]string{"internal/pgtx", "internal/sqlitetx", "internal/migrate"}, func(p string) bool { return under(dir, p) })
	}
	return false
}

func TestEveryPackageHasAPlace(t *testing.T) {
	tr := theTree(t)
	for _, dir := range tr.packages() {
		if kindOf(dir) == stranger {
			t.Errorf("%s is neither a core, an adapter (<core>/<core>pg, <core>/<core>sqlite) nor a suite (<core>/<core>test)", dir)
		}
	}
	bad := []string{"util", "utils", "common", "helper", "helpers", "manager", "managers"}
	for _, dir := range tr.dirs {
		if slices.Contains(bad, path.Base(dir)) {
			t.Errorf("folder %s is named after nothing", dir)
		}
		if top, _, _ := strings.Cut(dir, "/"); dir != "." && !slices.Contains(topFolders, top) {
			t.Errorf("folder %s: the top level holds %s only", dir, strings.Join(topFolders, " "))
		}
	}
	for _, f := range tr.files {
		name := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.path), ".go"), "_test")
		if slices.Contains(bad, name) {
			t.Errorf("file %s is named after nothing", f.path)
		}
	}
}

func TestImports(t *testing.T) {
	tr := theTree(t)
	for _, f := range tr.files {
		for _, imp := range f.imports {
			if f.test {
				continue
			}
			if why := forbidden(tr, f.dir, imp); why != "" {
				t.Errorf("%s imports %s: %s", f.path, imp, why)
			}
		}
	}
}

func forbidden(tr *tree, dir, imp string) string {
	if std(imp) {
		if imp == "testing" || strings.HasPrefix(imp, "testing/") {
			if k := kindOf(dir); k != suite && dir != "internal/pgtest" && dir != "internal/mutate" {
				return "only suites and what tests are built with may link testing"
			}
		}
		if imp == "database/sql" && kindOf(dir) == core {
			return "a core does no I/O on a database"
		}
		return ""
	}
	to, ours := folder(imp)
	switch kindOf(dir) {
	case root:
		return "the root package is documentation only"
	case core:
		return coreMay(dir, imp, to, ours)
	case pg:
		if under(imp, pgx) {
			return ""
		}
		return adapterMay(tr, dir, to, ours, pg, "internal/pgtx", "internal/migrate", "internal/migrate/migratepg")
	case sqlite:
		return adapterMay(tr, dir, to, ours, sqlite, "internal/sqlitetx", "internal/migrate", "internal/migrate/migratesqlite")
	case suite:
		if ours && (to == path.Dir(dir) || slices.Contains(tr.reach(path.Dir(dir)), to)) {
			return ""
		}
		if dir == "governance/governancetest" && ours && (kindOf(to) == core || kindOf(to) == suite) {
			return "" // it takes keys and policies too
		}
		return "a suite knows the standard library and its own core"
	case example:
		if under(dir, "examples/customstore") && ours && (kindOf(to) == inner || kindOf(to) == pg || kindOf(to) == sqlite || to == "governance/governancemem") {
			return "customstore stands for a stranger's store: neither internal nor our adapters"
		}
		if ours && kindOf(to) == inner {
			return "an example uses what everyone can use"
		}
	case inner:
		return innerMay(dir, imp, to, ours)
	}
	return ""
}

func coreMay(dir, imp, to string, ours bool) string {
	switch {
	case slices.Contains(extra[dir], imp):
		return ""
	case dir == "governance/amount":
		return "units are a leaf"
	case dir == "governance/policy" && to != "governance/amount" && to != "quota":
		return "documents know units and calendars: the governor asks them, not the other way round"
	case ours && kindOf(to) == core && (to != "governance/governancemem"):
		return ""
	}
	return "a core knows the standard library and cores"
}

func adapterMay(tr *tree, dir, to string, ours bool, k kind, tools ...string) string {
	own := path.Dir(dir)
	switch {
	case !ours:
		return "an adapter knows its driver's interface and nothing else from outside"
	case to == own, slices.Contains(tools, to), slices.Contains(tr.reach(own), to):
		return ""
	case to == "eventlog", to == "eventlog/eventlog"+strings.TrimPrefix(path.Base(dir), path.Base(own)):
		return "" // it records what it changes, in the log of the same database
	case own == "governance" && (kindOf(to) == core || kindOf(to) == k) && to != "governance/governancemem":
		return "" // it composes keys and policies in one database, through their own packages
	}
	return "an adapter knows its core and " + strings.Join(tools, ", ")
}

func innerMay(dir, imp, to string, ours bool) string {
	pgSide := under(imp, pgx)
	switch {
	case !shipped(dir):
	case dir == "internal/migrate":
		return "both sides link it: standard library only"
	case ours && kindOf(to) == inner && shipped(to):
		if strings.Contains(dir, "sqlite") && strings.Contains(to, "pg") {
			return "the SQLite side does not know the Postgres side"
		}
		if strings.Contains(dir, "pg") && strings.Contains(to, "sqlite") {
			return "the Postgres side does not know the SQLite side"
		}
	case ours:
		return "what adapters share knows no core"
	case pgSide && (dir == "internal/pgtx" || dir == "internal/migrate/migratepg"):
	default:
		return "not among what adapters share"
	}
	return ""
}

func TestThirdPartiesStayWhereTheyBelong(t *testing.T) {
	tr := theTree(t)
	var docker []string
	for _, f := range tr.files {
		for _, imp := range f.imports {
			if under(imp, dockertest) || strings.HasPrefix(imp, dockertest+"/") {
				docker = append(docker, f.path)
			}
			if under(imp, driver) && !f.test && shipped(f.dir) {
				t.Errorf("%s imports the SQLite driver: tests and examples only", f.path)
			}
			for _, only := range []string{"github.com/stretchr/testify", "pgregory.net/rapid", "go.uber.org/goleak", "github.com/anishathalye/porcupine"} {
				if under(imp, only) && !f.test {
					t.Errorf("%s imports %s outside a test", f.path, imp)
				}
			}
		}
	}
	slices.Sort(docker)
	if docker = slices.Compact(docker); len(docker) > 1 || (len(docker) == 1 && !under(path.Dir(docker[0]), "internal/pgtest")) {
		t.Errorf("dockertest belongs into one file of internal/pgtest, it is in %v", docker)
	}
}

// What is reached through others counts as well, in our packages and beyond.
func TestNothingShippedLinksTesting(t *testing.T) {
	tr := theTree(t)
	args := []string{"list", "-e", "-deps", "-f", "{{.ImportPath}}"}
	for _, dir := range tr.packages() {
		if !shipped(dir) {
			continue
		}
		for _, to := range tr.reach(dir) {
			if !shipped(to) {
				t.Errorf("%s reaches %s, which does not ship", dir, to)
			}
		}
		args = append(args, path.Join(module, dir))
	}
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < len(args)-5 {
		t.Fatalf("go list named %d packages for %d asked", len(deps), len(args)-5)
	}
	for _, dep := range deps {
		for _, no := range []string{"testing", "github.com/stretchr/testify", dockertest, driver, "pgregory.net/rapid", "github.com/anishathalye/porcupine", module + "/internal/pgtest", module + "/internal/mutate"} {
			if under(dep, no) {
				t.Errorf("what ships links %s", dep)
			}
		}
	}
}

func TestFilesStayReadable(t *testing.T) {
	const most = 600
	for _, f := range theTree(t).files {
		if f.lines > most {
			t.Errorf("%s has %d lines: split it by subject, %d is the most", f.path, f.lines, most)
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	tr := theTree(t)
	said := map[string]bool{}
	for _, f := range tr.files {
		if !f.test && f.syntax.Doc != nil {
			said[f.dir] = true
		}
	}
	for _, dir := range tr.packages() {
		if !said[dir] {
			t.Errorf("%s has no package comment", dir)
		}
	}
}

// Every public package can be read by its example. One on Postgres need not run: it has no server.
func TestEveryPublicPackageHasAnExample(t *testing.T) {
	tr := theTree(t)
	for _, dir := range tr.packages() {
		k := kindOf(dir)
		if k != core && k != pg && k != sqlite {
			continue
		}
		if !slices.ContainsFunc(tr.files, func(f file) bool { return f.dir == dir && f.test && hasExample(f.syntax, k != pg) }) {
			t.Errorf("%s has no example (with // Output: unless it needs a server)", dir)
		}
	}
}

func hasExample(f *ast.File, mustRun bool) bool {
	for _, d := range f.Decls {
		fn, is := d.(*ast.FuncDecl)
		if !is || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Example") {
			continue
		}
		if !mustRun {
			return true
		}
		for _, c := range f.Comments {
			text := strings.ToLower(strings.TrimSpace(c.Text()))
			if c.Pos() > fn.Body.Pos() && c.End() <= fn.Body.End() &&
				(strings.HasPrefix(text, "output:") || strings.HasPrefix(text, "unordered output:")) {
				return true
			}
		}
	}
	return false
}

// Counters are exact: no float comes near them in the packages that decide.
func TestNoFloatsWhereThingsAreCounted(t *testing.T) {
	exact := []string{"governance", "governance/amount", "governance/governancemem", "governance/policy", "quota", "ratelimit", "keys", "escrow", "journal", "lease", "eventlog"}
	for _, f := range theTree(t).files {
		if f.test || !slices.Contains(exact, f.dir) {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if id, is := n.(*ast.Ident); is && (id.Name == "float64" || id.Name == "float32") {
				t.Errorf("%s uses %s", f.path, id.Name)
			}
			return true
		})
	}
}
