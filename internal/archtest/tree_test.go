package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/tallystick-go/tallystick"

// file is one Go file of the tree.
type file struct {
	path    string // slash-separated, from the root
	dir     string
	test    bool
	lines   int
	imports []string
	syntax  *ast.File
}

type tree struct {
	files []file
	dirs  []string
}

var load = sync.OnceValues(func() (*tree, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	t := &tree{}
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if d.Name() == "testdata" || (rel != "." && strings.HasPrefix(d.Name(), ".")) {
				return fs.SkipDir
			}
			t.dirs = append(t.dirs, rel)
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		f, err := read(p, rel)
		t.files = append(t.files, f)
		return err
	})
	return t, err
})

func read(p, rel string) (file, error) {
	body, err := os.ReadFile(p)
	if err != nil {
		return file{}, err
	}
	syntax, err := parser.ParseFile(token.NewFileSet(), rel, body, parser.ParseComments)
	if err != nil {
		return file{}, err
	}
	f := file{path: rel, dir: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go"), lines: bytes.Count(body, []byte("\n")), syntax: syntax}
	for _, spec := range syntax.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return file{}, err
		}
		f.imports = append(f.imports, name)
	}
	return f, nil
}

func theTree(t *testing.T) *tree {
	t.Helper()
	tr, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if len(tr.files) < 10 {
		t.Fatalf("only %d Go files found: this is not the repository", len(tr.files))
	}
	return tr
}

// packages lists the folders that hold Go files that are not tests.
func (t *tree) packages() []string {
	var out []string
	for _, f := range t.files {
		if !f.test {
			out = append(out, f.dir)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// importsOf lists what a package's own code imports of this module, as folders.
func (t *tree) importsOf(dir string) []string {
	var out []string
	for _, f := range t.files {
		if f.dir == dir && !f.test {
			for _, imp := range f.imports {
				if d, ours := folder(imp); ours {
					out = append(out, d)
				}
			}
		}
	}
	return out
}

// reach is importsOf to the end.
func (t *tree) reach(dir string) []string {
	seen := map[string]bool{}
	todo := []string{dir}
	for len(todo) > 0 {
		d := todo[0]
		todo = todo[1:]
		for _, next := range t.importsOf(d) {
			if !seen[next] {
				seen[next] = true
				todo = append(todo, next)
			}
		}
	}
	var out []string
	for d := range seen {
		out = append(out, d)
	}
	slices.Sort(out)
	return out
}

// folder turns an import path of this module into a folder.
func folder(imp string) (string, bool) {
	if imp == module {
		return ".", true
	}
	return strings.CutPrefix(imp, module+"/")
}

func std(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".")
}

func under(dir, top string) bool { return dir == top || strings.HasPrefix(dir, top+"/") }
