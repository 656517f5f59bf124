// Package migrate reads the numbered SQL files that each adapter embeds, and
// decides from what a database says about itself which of them are missing.
//
// A package's files are named NNN_name.up.sql and NNN_name.down.sql, numbered
// from 1 without gaps, at the root of its fs.FS or in a folder "migrations". In
// Postgres files every object is written {{schema}}.name: the schema is spliced
// in once, so nothing depends on search_path.
//
// This package does no I/O on a database. The runners are migratepg and
// migratesqlite, so that neither side links the other's driver.
package migrate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Table is the table in which a database says what was applied to it.
const Table = "tallystick_migrations"

// Placeholder stands for the quoted schema in Postgres files.
const Placeholder = "{{schema}}"

// Source is one package's migrations.
type Source struct {
	Package string // the name recorded in the database, e.g. "keyspg"
	FS      fs.FS
}

// Step is one numbered migration.
type Step struct {
	Version  int
	Name     string
	Up, Down string // Down is empty where the package has no way back
	Checksum string // of Up with line endings normalized, before any splicing
	Creates  []string
	Drops    []string
}

// Set is the parsed migrations of one package, in order.
type Set struct {
	Package string
	Steps   []Step
}

var (
	fileName    = regexp.MustCompile(`^([0-9]{3,6})_([a-z0-9][a-z0-9_]*)\.(up|down)\.sql$`)
	packageName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
	tableWords  = `(?:"?(?:\{\{schema\}\}|main)"?\s*\.\s*)?"?([A-Za-z_][A-Za-z0-9_]*)"?`
	createTable = regexp.MustCompile(`(?i)\bCREATE\s+(?:UNLOGGED\s+|VIRTUAL\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?` + tableWords)
	dropTable   = regexp.MustCompile(`(?i)\bDROP\s+TABLE\s+(?:IF\s+EXISTS\s+)?` + tableWords)
	renameTable = regexp.MustCompile(`(?i)\bALTER\s+TABLE\s+(?:IF\s+EXISTS\s+)?(?:ONLY\s+)?` + tableWords + `\s+RENAME\s+TO\s+"?([A-Za-z_][A-Za-z0-9_]*)"?`)
	comment     = regexp.MustCompile(`(?m)--[^\n]*$`)
)

// Parse reads and checks a package's files.
func Parse(src Source) (Set, error) {
	if !packageName.MatchString(src.Package) {
		return Set{}, fmt.Errorf("migrate: %q is no package name", src.Package)
	}
	if src.FS == nil {
		return Set{}, fmt.Errorf("migrate: %s has no files", src.Package)
	}
	dir, entries, err := list(src)
	if err != nil {
		return Set{}, err
	}
	steps := map[int]*Step{}
	for _, e := range entries {
		m := fileName.FindStringSubmatch(e.Name())
		if m == nil {
			return Set{}, fmt.Errorf("migrate: %s: file %q is not named NNN_name.up.sql or NNN_name.down.sql", src.Package, e.Name())
		}
		body, err := fs.ReadFile(src.FS, path.Join(dir, e.Name()))
		if err != nil {
			return Set{}, fmt.Errorf("migrate: %s: %w", src.Package, err)
		}
		version, _ := strconv.Atoi(m[1]) // at most six digits, the pattern saw to it
		s := steps[version]
		if s == nil {
			s = &Step{Version: version, Name: m[2]}
			steps[version] = s
		}
		if err := s.add(src.Package, m[2], m[3], normalize(string(body))); err != nil {
			return Set{}, err
		}
	}
	return assemble(src.Package, steps)
}

func (s *Step) add(pkg, name, direction, body string) error {
	if name != s.Name {
		return fmt.Errorf("migrate: %s: version %d is named both %q and %q", pkg, s.Version, s.Name, name)
	}
	if strings.TrimSpace(body) == "" {
		return fmt.Errorf("migrate: %s: version %d (%s) is empty", pkg, s.Version, direction)
	}
	target := &s.Up
	if direction == "down" {
		target = &s.Down
	}
	if *target != "" {
		return fmt.Errorf("migrate: %s: version %d has two %s files", pkg, s.Version, direction)
	}
	*target = body
	return nil
}

func assemble(pkg string, steps map[int]*Step) (Set, error) {
	set := Set{Package: pkg}
	for v := 1; v <= len(steps); v++ {
		s := steps[v]
		if s == nil {
			return Set{}, fmt.Errorf("migrate: %s: version %d is missing", pkg, v)
		}
		if s.Up == "" {
			return Set{}, fmt.Errorf("migrate: %s: version %d has no up file", pkg, v)
		}
		sum := sha256.Sum256([]byte(s.Up))
		s.Checksum = hex.EncodeToString(sum[:])
		s.Creates, s.Drops = tables(s.Up)
		set.Steps = append(set.Steps, *s)
	}
	if len(set.Steps) == 0 {
		return Set{}, fmt.Errorf("migrate: %s has no files", pkg)
	}
	return set, nil
}

// ParseAll parses several packages and refuses one named twice, and a table that two of them create.
func ParseAll(sources ...Source) ([]Set, error) {
	var sets []Set
	owner := map[string]string{}
	for _, src := range sources {
		set, err := Parse(src)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(sets, func(s Set) bool { return s.Package == set.Package }) {
			return nil, fmt.Errorf("migrate: %s is given twice", set.Package)
		}
		for _, t := range set.TablesAt(set.Latest()) {
			if other, taken := owner[t]; taken {
				return nil, fmt.Errorf("migrate: %s and %s both create table %s", other, set.Package, t)
			}
			owner[t] = set.Package
		}
		sets = append(sets, set)
	}
	return sets, nil
}

// Latest is the highest version of the set.
func (s Set) Latest() int { return len(s.Steps) }

// TablesAt lists the tables that stand after the given version, sorted.
func (s Set) TablesAt(version int) []string {
	var out []string
	for _, step := range s.Steps[:min(version, len(s.Steps))] {
		out = append(out, step.Creates...)
		out = slices.DeleteFunc(out, func(t string) bool { return slices.Contains(step.Drops, t) })
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func list(src Source) (string, []fs.DirEntry, error) {
	for _, dir := range []string{".", "migrations"} {
		entries, err := fs.ReadDir(src.FS, dir)
		if err != nil {
			if dir == "." {
				return "", nil, fmt.Errorf("migrate: %s: %w", src.Package, err)
			}
			continue
		}
		entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
			return e.IsDir() || !strings.HasSuffix(e.Name(), ".sql")
		})
		if len(entries) > 0 {
			return dir, entries, nil
		}
	}
	return "", nil, fmt.Errorf("migrate: %s has no files", src.Package)
}

// normalize makes a checkout with CRLF or a byte order mark equal to one without.
func normalize(s string) string {
	s = strings.TrimPrefix(s, "\ufeff")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	return strings.TrimRight(s, "\n") + "\n"
}

// tables finds what a file creates and drops. It reads the plain statements that our
// files use; a table made inside a DO block is simply not looked for at attach.
func tables(sql string) (creates, drops []string) {
	sql = comment.ReplaceAllString(sql, "")
	for _, m := range createTable.FindAllStringSubmatch(sql, -1) {
		creates = append(creates, strings.ToLower(m[1]))
	}
	for _, m := range dropTable.FindAllStringSubmatch(sql, -1) {
		drops = append(drops, strings.ToLower(m[1]))
	}
	for _, m := range renameTable.FindAllStringSubmatch(sql, -1) {
		drops = append(drops, strings.ToLower(m[1]))
		creates = append(creates, strings.ToLower(m[2]))
	}
	return creates, drops
}
