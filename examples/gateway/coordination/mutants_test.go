package coordination

import (
	"testing"

	"github.com/tallystick-go/tallystick/internal/mutate"
)

const (
	follows = "TestPropertyViewAgainstAModel"
	scrubs  = "TestScrub"
)

// TestMutants plants mistakes in what every gateway knows of what is shared.
func TestMutants(t *testing.T) {
	mutate.Run(t, mutate.Suite{Files: []string{"view_test.go"}, Checks: 500, Mutants: []mutate.Mutant{
		{Name: "what comes again is taken again", File: "view.go", Test: follows,
			Old: "if version <= v.rows[name].Version || !v.ready {", New: "if version < v.rows[name].Version || !v.ready {"},
		{Name: "an older record overwrites", File: "view.go", Test: follows,
			Old: "if version <= v.rows[name].Version || !v.ready {", New: "if !v.ready {"},
		{Name: "a snapshot undoes what was set meanwhile", File: "view.go", Test: follows,
			Old: "if was := v.rows[name]; was.Version > rows[name].Version {", New: "if was := v.rows[name]; false {"},
		{Name: "what was set meanwhile overwrites a later snapshot", File: "view.go", Test: follows,
			Old: "if was := v.rows[name]; was.Version > rows[name].Version {", New: "if was := v.rows[name]; was.Version > 0 {"},
		{Name: "what is set while a snapshot is read is forgotten", File: "view.go", Test: follows,
			Old: "\tif v.fresh != nil {\n", New: "\tif false {\n"},
		{Name: "a beginning remembers what was set before the last", File: "view.go", Test: "TestAHistoryThatWentBackReplacesWhatWas",
			Old: "for name := range v.fresh {", New: "for name := range v.rows {"},
		{Name: "who waits is not told", File: "view.go", Test: "TestWhoWaitsForAViewHearsOfIt",
			Old: "\tif v.known != nil {\n\t\tclose(v.known)\n\t\tv.known = nil\n", New: "\tif v.known != nil {\n\t\tv.known = nil\n"},
		{Name: "the server's text passes", File: "tx.go", Test: scrubs,
			Old: `return fmt.Errorf("%w: SQLSTATE %s", ErrUnavailable, server.Code)`, New: `return fmt.Errorf("%w: %w", ErrUnavailable, server)`},
		{Name: "the driver's text passes", File: "tx.go", Test: scrubs,
			Old: "\t}\n\treturn ErrUnavailable\n}\n", New: "\t}\n\treturn errors.Join(ErrUnavailable, err)\n}\n"},
		{Name: "a lease that was lost is an outage", File: "tx.go", Test: scrubs,
			Old: "ErrUnavailable, lease.ErrLost, lease.ErrInvalid,", New: "ErrUnavailable, lease.ErrInvalid,"},
	}})
}
