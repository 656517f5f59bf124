package keysimport

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/tallystick-go/tallystick/keys"
)

// Effect says what a difference between the other system and this one does.
type Effect int

// The effects.
const (
	Lost     Effect = iota + 1 // information is gone; what is allowed stays the same
	Restarts                   // counting begins at zero
	Narrower                   // less is allowed than before
	Wider                      // more is allowed than before
)

var effectNames = map[Effect]string{Lost: "lost", Restarts: "restarts", Narrower: "narrower", Wider: "wider"}

func (e Effect) String() string { return effectNames[e] }

// MarshalText writes the effect's name.
func (e Effect) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// Finding is one thing of one row that could not be carried as it was.
type Finding struct {
	Table  string `json:"table"`
	Line   int    `json:"line,omitempty"` // in the export; 0: about the whole table
	ID     string `json:"id,omitempty"`   // of the key or team here
	Column string `json:"column"`
	Effect Effect `json:"effect"`
	Why    string `json:"why"`
}

// mostFindings bounds a report. What is beyond is counted.
const mostFindings = 100_000

// Report says what a plan carries and what it does not.
type Report struct {
	Source   string         `json:"source"`
	Carried  keys.Count     `json:"carried"`
	Refused  int            `json:"refused"` // keys among them that are revoked or used up
	Skipped  int            `json:"skipped"` // rows that were left out
	Effects  map[string]int `json:"effects"`
	Findings []Finding      `json:"findings"`
	Omitted  int            `json:"omitted,omitempty"` // findings beyond the first 100 000
	Imported *keys.Imported `json:"imported,omitempty"`
}

func newReport(source string) *Report {
	return &Report{Source: source, Effects: map[string]int{}, Findings: []Finding{}}
}

func (r *Report) add(f Finding) {
	r.Effects[f.Effect.String()]++
	if len(r.Findings) < mostFindings {
		r.Findings = append(r.Findings, f)
	} else {
		r.Omitted++
	}
}

// Wider is how many findings let more through than before.
func (r *Report) Wider() int { return r.Effects[Wider.String()] }

// WriteTable writes r for people.
func (r *Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s: %s; %d keys stay refused, %d rows left out\n", r.Source, r.Carried, r.Refused, r.Skipped)
	if len(r.Findings) > 0 {
		fmt.Fprintln(t, "TABLE\tLINE\tID\tCOLUMN\tEFFECT\tWHY")
	}
	for _, f := range r.Findings {
		line := ""
		if f.Line > 0 {
			line = fmt.Sprint(f.Line)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", f.Table, line, f.ID, f.Column, f.Effect, f.Why)
	}
	if r.Omitted > 0 {
		fmt.Fprintf(t, "and %d more\n", r.Omitted)
	}
	if r.Imported != nil {
		fmt.Fprintf(t, "added: %s\nthere already: %s\n", r.Imported.Added, r.Imported.Same)
	}
	return t.Flush()
}

// WriteJSON writes r as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// TableError says where an export cannot be read. It is keys.ErrInvalid and never
// repeats what stands there.
type TableError struct {
	Table  string
	Line   int // 0: the whole table
	Column string
	Why    string
}

func (e *TableError) Error() string {
	parts := []string{"keysimport: " + e.Table}
	if e.Line > 0 {
		parts = append(parts, fmt.Sprintf("line %d", e.Line))
	}
	if e.Column != "" {
		parts = append(parts, e.Column)
	}
	return strings.Join(append(parts, e.Why), ": ")
}

// Is makes errors.Is(err, keys.ErrInvalid) hold.
func (e *TableError) Is(target error) bool { return target == keys.ErrInvalid }
