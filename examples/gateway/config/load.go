package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// ErrConfig is what every error of this package is.
var ErrConfig = errors.New("config: unusable")

// FieldError says which part of the file cannot be used and what would be right.
type FieldError struct {
	Path string // such as upstreams[1].base_url
	Line int    // zero when it is about something that is missing
	Why  string
}

func (e *FieldError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("config: line %d: %s: %s", e.Line, e.Path, e.Why)
	}
	return "config: " + e.Path + ": " + e.Why
}

// Is makes errors.Is(err, ErrConfig) hold.
func (e *FieldError) Is(target error) bool { return target == ErrConfig }

const maxFile = 1 << 20

// Load reads a file, checks all of it, and reads the secrets that it refers to.
// Nothing else is opened. Paths in the file are relative to its folder.
//
// Errors: *FieldError and *SecretError, joined when there are several.
func Load(path string) (*Config, error) { return load(path, &checker{}) }

// LoadForAdmin does what Load does for an operator's tool: it does not read the
// credentials of upstreams, which an operator need not have.
//
// Errors: those of Load.
func LoadForAdmin(path string) (*Config, error) { return load(path, &checker{blind: true}) }

func load(path string, k *checker) (*Config, error) {
	data, err := readFile(path, k)
	if err != nil {
		return nil, err
	}
	return parse(data, k)
}

// readFile reads the document, and tells the checker what its paths are relative to.
func readFile(path string, k *checker) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &FieldError{Path: path, Why: "the file cannot be opened: " + reason(err)}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, &FieldError{Path: path, Why: "the file cannot be read: " + reason(err)}
	}
	if len(data) > maxFile {
		return nil, &FieldError{Path: path, Why: "the file is larger than 1 MiB"}
	}
	k.folder, k.env = filepath.Dir(path), os.LookupEnv
	return data, nil
}

func reason(err error) string {
	var failed *os.PathError
	if errors.As(err, &failed) {
		return failed.Err.Error()
	}
	return err.Error()
}

// Parse does what Load does, with a document in memory. Errors: those of Load.
func Parse(data []byte, folder string, env func(string) (string, bool)) (*Config, error) {
	return parse(data, &checker{folder: folder, env: env})
}

func parse(data []byte, k *checker) (*Config, error) {
	c := Defaults()
	if err := decode(data, &c); err != nil {
		return nil, err
	}
	if err := c.check(k); err != nil {
		return nil, err
	}
	return &c, nil
}

// decode reads one document, strictly.
func decode(data []byte, into any) error {
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return explain(err, nil)
	}
	if len(file.Docs) > 1 {
		return &FieldError{Path: "$", Why: "must be one document"}
	}
	err = yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(into)
	if err != nil && !errors.Is(err, io.EOF) {
		return explain(err, file)
	}
	return nil
}

// explain turns what the YAML library says into a path and a line, without the
// lines of the file around it: a secret may stand in them.
func explain(err error, file *ast.File) error {
	out := &FieldError{Path: "$", Why: "is not YAML"}
	var failed yaml.Error
	if !errors.As(err, &failed) {
		return out
	}
	if at := failed.GetToken(); at != nil && at.Position != nil {
		out.Line = at.Position.Line
		out.Path = pathOf(file, at)
	}
	var unknown *yaml.UnknownFieldError
	var twice *yaml.DuplicateKeyError
	var mismatch *yaml.TypeError
	var overflow *yaml.OverflowError
	var shape *yaml.UnexpectedNodeTypeError
	switch {
	case file == nil && strings.Contains(failed.GetMessage(), "already defined"):
		out.Path, out.Why = failed.GetToken().Value, "stands here twice"
	case errors.As(err, &unknown):
		out.Why = "unknown field"
	case errors.As(err, &twice):
		out.Why = "stands here twice"
	case errors.As(err, &overflow):
		out.Why = "the number is too large"
	case errors.As(err, &mismatch):
		out.Why = "must be " + describe(mismatch.DstType.String())
	case errors.As(err, &shape):
		out.Why = fmt.Sprintf("must be a %s, not a %s", strings.ToLower(shape.Expected.String()), strings.ToLower(shape.Actual.String()))
	}
	return out
}

func describe(goType string) string {
	switch strings.TrimPrefix(goType, "*") {
	case "time.Duration":
		return "a duration such as 30s or 2m"
	case "int", "int64", "uint64":
		return "a whole number"
	case "bool":
		return "true or false"
	case "string":
		return "a text"
	}
	if strings.HasPrefix(goType, "[]") {
		return "a list"
	}
	return "a set of fields"
}

// pathOf finds the field that a token belongs to.
func pathOf(file *ast.File, at *token.Token) string {
	finder := &finder{offset: at.Position.Offset, path: "$"}
	if file != nil {
		for _, doc := range file.Docs {
			ast.Walk(finder, doc.Body)
		}
	}
	path := strings.TrimPrefix(strings.TrimPrefix(finder.path, "$"), ".")
	if path == "" {
		return "$"
	}
	return path
}

type finder struct {
	offset int
	path   string
}

func (f *finder) Visit(n ast.Node) ast.Visitor {
	if at := n.GetToken(); at != nil && at.Position != nil && at.Position.Offset == f.offset && len(n.GetPath()) > len(f.path) {
		f.path = n.GetPath()
	}
	return f
}
