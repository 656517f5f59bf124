package audit

import (
	"testing"

	"github.com/tallystick-go/tallystick/internal/mutate"
)

const (
	lined   = "TestPropertyLines"
	torn    = "TestALineThatBrokeOffIsALineOfItsOwn"
	pauses  = "TestPauses"
	answers = "TestWhatAWebhookAnswers"
)

// TestMutantsOfTheExport plants mistakes in what is exported, and when. CI has no time for them: who changes it runs them.
func TestMutantsOfTheExport(t *testing.T) {
	mutate.Run(t, mutate.Suite{Files: []string{"line_test.go"}, Checks: 200, Mutants: []mutate.Mutant{
		{Name: "all data is JSON", File: "export.go", Test: lined, Old: "if json.Valid(e.Data) {", New: "if true {"},
		{Name: "no data is JSON", File: "export.go", Test: lined, Old: "if json.Valid(e.Data) {", New: "if false {"},
		{Name: "who exports is who produced", File: "export.go", Test: lined, Old: "Exporter: x.instance(),", New: "Exporter: string(e.Producer),"},
		{Name: "a line goes on behind one that broke off", File: "sinks.go", Test: torn, Old: "\tif f.torn { //", New: "\tif false { //"},
		{Name: "every line is torn", File: "sinks.go", Test: torn, Old: "\tf.torn = false\n", New: ""},
		{Name: "a name leads out of the folder", File: "sinks.go", Test: torn, Old: "\t\t\treturn '_'\n", New: "\t\t\treturn r\n"},
		{Name: "pauses do not grow", File: "export.go", Test: pauses, Old: "max(2*x.pause, firstPause)", New: "max(x.pause, firstPause)"},
		{Name: "pauses grow for ever", File: "export.go", Test: pauses, Old: "min(max(2*x.pause, firstPause), longestPause)", New: "max(2*x.pause, firstPause)"},
		{Name: "all are tried while it may be down", File: "export.go", Test: pauses, Old: "\tcase x.pause > 0:\n", New: "\tcase false:\n"},
		{Name: "an answer does not end a pause", File: "export.go", Test: pauses, Old: "x.pause, x.until = 0, time.Time{}", New: "x.until = time.Time{}"},
		{Name: "a redirection has taken it", File: "sinks.go", Test: answers, Old: "case code >= 200 && code <= 299:", New: "case code >= 200 && code <= 399:"},
		{Name: "a redirection is followed", File: "sinks.go", Test: answers, Old: "return http.ErrUseLastResponse", New: "return nil"},
		{Name: "too many requests is for good", File: "sinks.go", Test: answers, Old: " && code != http.StatusTooManyRequests", New: ""},
		{Name: "a repetition cannot be told", File: "sinks.go", Test: answers, Old: "\treq.Header.Set(\"Idempotency-Key\", id)\n", New: ""},
	}})
}
