package suspend

import (
	"testing"

	"github.com/tallystick-go/tallystick/internal/mutate"
)

const (
	subjects = "TestPropertySubjects"
	applied  = "TestApplied"
)

// TestMutantsOfSuspensions plants mistakes in what is suspended, and by which event. CI has no time for them: who changes it runs them.
func TestMutantsOfSuspensions(t *testing.T) {
	mutate.Run(t, mutate.Suite{Files: []string{"record_test.go"}, Checks: 2000, Mutants: []mutate.Mutant{
		{Name: "a session is every key's", File: "suspend.go", Test: subjects, Old: `return r.Key + " " + r.Session`, New: "return r.Session"},
		{Name: "key and session run together", File: "suspend.go", Test: subjects, Old: `return r.Key + " " + r.Session`, New: "return r.Key + r.Session"},
		{Name: "a session suspends its key", File: "suspend.go", Test: subjects, Old: `return r.Key + " " + r.Session`, New: "return r.Key"},
		{Name: "a key may hold a space", File: "suspend.go", Test: subjects, Old: `|| !f.spaces && unicode.IsSpace(c)`, New: ""},
		{Name: "anything may be long", File: "suspend.go", Test: subjects, Old: "case len(f.value) > f.most:", New: "case len(f.value) > 2*f.most:"},
		{Name: "a newer gateway's event is guessed at", File: "suspend.go", Test: applied, Old: "if e.Type != suspended && e.Type != lifted || json", New: "if json"},
		{Name: "an event may be of another subject", File: "suspend.go", Test: applied, Old: "!= nil || r.subject() != subject {", New: "!= nil {"},
		{Name: "an event that cannot be read lifts", File: "suspend.go", Test: applied, Old: "json.Unmarshal(e.Data, &r) != nil || r", New: "json.Unmarshal(e.Data, &r) == nil && r"},
		{Name: "what was lifted is listed", File: "suspend.go", Test: applied, Old: "\t\tif r.Suspended {\n\t\t\tout", New: "\t\t{\n\t\t\tout"},
	}})
}
