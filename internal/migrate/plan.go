package migrate

import (
	"errors"
	"fmt"
	"slices"
)

var (
	// ErrOlder says that migrations are missing: run Migrate, then attach again.
	ErrOlder = errors.New("tallystick: the schema is older than this program: run Migrate")
	// ErrForeign says that what stands in the schema is not what our migrations make. Migrate does
	// not touch it: use another schema or file, or restore the one that belongs here.
	ErrForeign = errors.New("tallystick: the schema is not ours: use another schema or file")
)

// SchemaError says what an attach or a migration found. It wraps ErrOlder or ErrForeign.
type SchemaError struct {
	Kind    error // ErrOlder or ErrForeign
	Package string
	Have    int // highest version found in the database
	Want    int // highest version this program knows
	Detail  string
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("%s (%s at version %d, this program needs %d: %s)", e.Kind, e.Package, e.Have, e.Want, e.Detail)
}

func (e *SchemaError) Unwrap() error { return e.Kind }

// Applied is one row of the migrations table.
type Applied struct {
	Package  string
	Version  int
	Name     string
	Checksum string
}

// State is what a database says about itself.
type State struct {
	Marker  bool      // the migrations table stands
	Alien   bool      // a table of that name stands but has not our columns
	Applied []Applied // in any order, any package
	Tables  []string  // every table in the schema, lower case
}

// Missing compares a set with a database. It returns the steps still to apply, or a
// *SchemaError wrapping ErrForeign. Versions above the set's own pass: they are a newer program's.
func (s Set) Missing(st State) ([]Step, error) {
	foreign := func(have int, format string, args ...any) error {
		return &SchemaError{Kind: ErrForeign, Package: s.Package, Have: have, Want: s.Latest(), Detail: fmt.Sprintf(format, args...)}
	}
	if st.Alien {
		return nil, foreign(0, "table %s has not our columns", Table)
	}
	var rows []Applied
	for _, a := range st.Applied {
		if a.Package == s.Package {
			rows = append(rows, a)
		}
	}
	slices.SortFunc(rows, func(a, b Applied) int { return a.Version - b.Version })
	have := 0
	if len(rows) > 0 {
		have = rows[len(rows)-1].Version
	}
	if have == 0 {
		for _, t := range s.everCreated() {
			if slices.Contains(st.Tables, t) {
				return nil, foreign(0, "table %s is already there and was not made by our migrations", t)
			}
		}
		return s.Steps, nil
	}
	for i, a := range rows {
		if a.Version != i+1 {
			return nil, foreign(have, "version %d is not recorded though %d is", i+1, have)
		}
		if a.Version > s.Latest() {
			break
		}
		step := s.Steps[i]
		if a.Name != step.Name {
			return nil, foreign(have, "version %d is recorded under another name", a.Version)
		}
		if a.Checksum != step.Checksum {
			return nil, foreign(have, "version %d (%s) was applied from a different file", a.Version, a.Name)
		}
	}
	known := min(have, s.Latest())
	for _, t := range s.TablesAt(known) {
		if !slices.Contains(st.Tables, t) {
			return nil, foreign(have, "table %s is gone", t)
		}
	}
	for _, t := range s.TablesAt(s.Latest()) {
		if have < s.Latest() && !slices.Contains(s.TablesAt(known), t) && slices.Contains(st.Tables, t) {
			return nil, foreign(have, "table %s is already there and was not made by our migrations", t)
		}
	}
	return s.Steps[known:], nil
}

// Check is Missing for an attach: anything still to apply is an error that wraps ErrOlder.
func (s Set) Check(st State) error {
	missing, err := s.Missing(st)
	if err != nil || len(missing) == 0 {
		return err
	}
	detail := "not migrated yet"
	if missing[0].Version > 1 {
		detail = fmt.Sprintf("version %d (%s) is missing", missing[0].Version, missing[0].Name)
	}
	return &SchemaError{Kind: ErrOlder, Package: s.Package, Have: missing[0].Version - 1, Want: s.Latest(), Detail: detail}
}

func (s Set) everCreated() []string {
	var out []string
	for _, step := range s.Steps {
		out = append(out, step.Creates...)
	}
	return out
}

// Newest is the highest version recorded for a package, 0 where there is none.
func (st State) Newest(pkg string) int {
	v := 0
	for _, a := range st.Applied {
		if a.Package == pkg {
			v = max(v, a.Version)
		}
	}
	return v
}
