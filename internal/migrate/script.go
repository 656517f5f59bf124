package migrate

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io/fs"
	"strings"
)

// File is one migration as it can be handed to another tool: complete SQL that also
// records itself, so that a later Check accepts it.
type File struct {
	Package  string
	Version  int
	Name     string
	Up, Down string
}

// Script renders every step for another migration tool. ddl creates the migrations table and
// must be repeatable; splice puts the schema in (the identity for SQLite).
func Script(ddl string, splice func(string) string, sets ...Set) []File {
	var out []File
	for _, set := range sets {
		for _, s := range set.Steps {
			f := File{Package: set.Package, Version: s.Version, Name: s.Name}
			prefix := ""
			if strings.Contains(ddl, Placeholder) {
				prefix = Placeholder + "."
			}
			// Package, name and checksum are checked against narrow patterns: nothing in them needs escaping.
			record := fmt.Sprintf("INSERT INTO %s%s (package, version, name, checksum) VALUES ('%s', %d, '%s', '%s');\n",
				prefix, Table, set.Package, s.Version, s.Name, s.Checksum)
			forget := fmt.Sprintf("DELETE FROM %s%s WHERE package = '%s' AND version = %d;\n", prefix, Table, set.Package, s.Version)
			f.Up = splice(ddl + "\n" + s.Up + record)
			if s.Down != "" {
				f.Down = splice(s.Down + forget)
			}
			out = append(out, f)
		}
	}
	return out
}

// Export gives the files of a Script as a file system, keyspg/001_start.up.sql and so on, for tools
// that read migrations from one. They are complete: nothing is left to splice, and each records itself.
func Export(files []File) (fs.FS, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b) // the standard library's one file system in memory that does not link testing
	for _, f := range files {
		for direction, body := range map[string]string{"up": f.Up, "down": f.Down} {
			if body == "" {
				continue
			}
			out, err := w.Create(fmt.Sprintf("%s/%03d_%s.%s.sql", f.Package, f.Version, f.Name, direction))
			if err != nil {
				return nil, err
			}
			if _, err := out.Write([]byte(body)); err != nil {
				return nil, err
			}
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
}
