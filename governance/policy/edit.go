package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Edit is an Apply, Delete or Replace that was checked. Stores ask it, under their lock,
// what becomes of the set that is there.
type Edit struct {
	expect Generation
	put    []*prepared
	remove []string
	whole  bool // put is the whole set
}

// Prepare checks the edit. Errors: *Error.
func (a Apply) Prepare() (*Edit, error) {
	if len(a.Documents) == 0 {
		return nil, refuse("documents", "must not be empty")
	}
	return prepareSet(a.Documents, a.Expect, false)
}

// Prepare checks the edit. Errors: *Error.
func (r Replace) Prepare() (*Edit, error) { return prepareSet(r.Documents, r.Expect, true) }

func prepareSet(documents []Document, expect Generation, whole bool) (*Edit, error) {
	if err := validExpect(expect); err != nil {
		return nil, err
	}
	set, err := NewSet(documents)
	if err != nil {
		return nil, err
	}
	return &Edit{expect: expect, put: set.entries, whole: whole}, nil
}

// Prepare checks the edit. Errors: *Error.
func (d Delete) Prepare() (*Edit, error) {
	if err := validExpect(d.Expect); err != nil {
		return nil, err
	}
	if len(d.Names) == 0 {
		return nil, refuse("names", "must not be empty")
	}
	if len(d.Names) > MaxDocuments {
		return nil, refuse("names", fmt.Sprintf("must be at most %d", MaxDocuments))
	}
	seen := make(map[string]bool, len(d.Names))
	for i, name := range d.Names {
		if err := validName(index("names", i), name); err != nil {
			return nil, err
		}
		if seen[name] {
			return nil, refuse(index("names", i), "must not stand in the list twice")
		}
		seen[name] = true
	}
	return &Edit{expect: d.Expect, remove: slices.Clone(d.Names)}, nil
}

func validExpect(g Generation) error {
	if g.IsZero() {
		return refuse("expect", "must be the generation that the edit was decided on; Load tells it")
	}
	return nil
}

// On returns the set after the edit, which is now.Set itself where the edit is in force
// already: then there is nothing to write, but admissions to wait for.
//
// Errors: *ConflictError, ErrNotFound, *Error (the set would be too large).
func (e *Edit) On(now Snapshot) (*Set, error) {
	missing := 0
	for _, name := range e.remove {
		if now.Set.find(name) == nil {
			missing++
		}
	}
	expected := e.expect == now.Set.Generation()
	switch {
	case missing > 0 && expected:
		return nil, ErrNotFound
	case missing > 0 && missing == len(e.remove):
		return now.Set, nil
	case missing > 0:
		return nil, &ConflictError{Now: now.Mark}
	}
	next, err := e.merge(now.Set)
	if next != nil && next.generation == now.Set.Generation() {
		return now.Set, nil
	}
	if !expected {
		return nil, &ConflictError{Now: now.Mark}
	}
	return next, err
}

// Over returns the set after an edit of one that cannot be read. Only Replace can do that.
//
// Errors: corrupt itself; *ConflictError.
func (e *Edit) Over(corrupt *CorruptError) (*Set, error) {
	switch {
	case !e.whole || corrupt.Now.Generation.IsZero():
		return nil, corrupt
	case corrupt.Now.Generation != e.expect:
		return nil, &ConflictError{Now: corrupt.Now}
	}
	return assemble(slices.Clone(e.put))
}

func (e *Edit) merge(now *Set) (*Set, error) {
	all := map[string]*prepared{}
	if now != nil && !e.whole {
		for _, p := range now.entries {
			all[p.document.Name] = p
		}
	}
	for _, p := range e.put {
		all[p.document.Name] = p
	}
	for _, name := range e.remove {
		delete(all, name)
	}
	return assemble(slices.Collect(maps.Values(all)))
}

// Row is one document as a store keeps it: under its name, as JSON.
type Row struct {
	Name string
	Text string
}

// Difference lists what a store has to write to get from one set to another: the rows to put,
// and the names of those to remove.
func Difference(from, to *Set) (put []Row, remove []string) {
	for i := range to.Len() {
		p := to.entries[i]
		if old := from.find(p.document.Name); old == nil || old.digest != p.digest {
			put = append(put, Row{Name: p.document.Name, Text: p.text})
		}
	}
	for i := range from.Len() {
		if name := from.entries[i].document.Name; to.find(name) == nil {
			remove = append(remove, name)
		}
	}
	return put, remove
}

// Restore makes the set that a store has kept under a mark. What earlier has of it, perhaps nil, is
// taken from there instead of being decoded again.
//
// Errors: *CorruptError.
func Restore(earlier *Set, now Mark, rows []Row) (*Set, error) {
	entries := make([]*prepared, len(rows))
	seen := make(map[string]bool, len(rows))
	for i, row := range rows {
		if entries[i] = earlier.find(row.Name); entries[i] == nil || entries[i].text != row.Text {
			var d Document
			err := d.UnmarshalJSON([]byte(row.Text))
			if err == nil {
				entries[i], err = prepare(&d)
			}
			if err != nil {
				return nil, &CorruptError{Now: now, Name: row.Name, Why: whyOf(err)}
			}
		}
		if name := entries[i].document.Name; name != row.Name || seen[name] {
			return nil, &CorruptError{Now: now, Name: row.Name, Why: "the document has another name"}
		}
		seen[row.Name] = true
	}
	s, err := assemble(entries)
	switch {
	case err != nil:
		return nil, &CorruptError{Now: now, Why: whyOf(err)}
	case s.generation != now.Generation:
		return nil, &CorruptError{Now: now, Why: "the documents are not those of the stored generation"}
	}
	return s, nil
}

// whyOf is an *Error's text without the package's name.
func whyOf(err error) string {
	var e *Error
	if errors.As(err, &e) && e.Path != "" {
		return e.Path + ": " + e.Why
	}
	if e != nil {
		return e.Why
	}
	return "it cannot be read"
}
