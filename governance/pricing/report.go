package pricing

import (
	"cmp"
	"fmt"
	"slices"
)

// Kind says what a [Finding] means.
type Kind uint8

const (
	// Refused means that the entry has no price: asking for it is an error.
	Refused Kind = iota + 1
	// Unpriced means that no cost uses the field. The package comment says what
	// happens to calls that it would apply to.
	Unpriced
	// Gap means that a price is missing where it may be needed. Usage that needs
	// it costs Unknown, so that its bound is kept.
	Gap
	// Assumed means that a rule fills in what the entry leaves open.
	Assumed
)

// String returns the name in lower case.
func (k Kind) String() string {
	switch k {
	case Refused:
		return "refused"
	case Unpriced:
		return "unpriced"
	case Gap:
		return "gap"
	case Assumed:
		return "assumed"
	default:
		return "unknown kind"
	}
}

// Finding is one thing about one entry that an operator may want to know.
type Finding struct {
	Kind   Kind
	Model  string
	Field  string // empty if it is about the entry
	Reason string
}

// String writes the finding on one line.
func (f Finding) String() string {
	if f.Field == "" {
		return fmt.Sprintf("%s: %q: %s", f.Kind, f.Model, f.Reason)
	}
	return fmt.Sprintf("%s: %q: %s: %s", f.Kind, f.Model, f.Field, f.Reason)
}

// FieldUse counts what became of a cost field in all entries that have it. The
// three numbers add up to its occurrences.
type FieldUse struct {
	Field    string
	Priced   int // the entry is priced with it
	Unpriced int // reported as a Finding
	Refused  int // the entry was refused
}

// Report names every entry and every cost field of a catalogue that nothing is
// priced with. None is dropped in silence.
type Report struct {
	Entries  int // in the file
	Priced   int // entries that have a price
	Findings []Finding
	Fields   []FieldUse
}

// Of returns the findings about one model.
func (r *Report) Of(model string) []Finding {
	var found []Finding
	for _, f := range r.Findings {
		if f.Model == model {
			found = append(found, f)
		}
	}
	return found
}

func (r *Report) sort() {
	slices.SortFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Reason, b.Reason))
	})
	slices.SortFunc(r.Fields, func(a, b FieldUse) int { return cmp.Compare(a.Field, b.Field) })
}

// count adds one occurrence of a field.
func (r *Report) count(use map[string]FieldUse, field string, priced, refused bool) {
	u := use[field]
	u.Field = field
	switch {
	case refused:
		u.Refused++
	case priced:
		u.Priced++
	default:
		u.Unpriced++
	}
	use[field] = u
}
