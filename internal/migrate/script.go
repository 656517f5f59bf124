package migrate

import (
	"fmt"
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
