package escrow_test

import (
	"testing"

	"github.com/tallystick-go/tallystick/internal/mutate"
)

const (
	reports    = "TestReportsOfAGrant"
	deciding   = "TestDecide"
	fences     = "TestFencing"
	verifying  = "TestVerify"
	simulation = "TestSimulation"
)

var mutants = []mutate.Mutant{
	{Name: "a closure gives back what is uncertain", File: "held.go", Test: simulation,
		Old: "return max(h.Amount-h.Consumed-h.Uncertain, 0)", New: "return max(h.Amount-h.Consumed, 0)"},
	{Name: "a grant is refunded twice", File: "held.go", Test: reports,
		Old: "if h.Ending != Open {\n\t\treturn h, Delta{}, next != h, nil\n\t}\n\td, err", New: "d, err"},
	{Name: "a burn refunds", File: "held.go", Test: simulation,
		Old: "if r.Ending == Burned {", New: "if false {"},
	{Name: "sums may fall", File: "held.go", Test: reports,
		Old: "if h.Consumed < before.Consumed || h.Uncertain < before.Uncertain", New: "if h.Uncertain < before.Uncertain"},
	{Name: "a grant is what was asked, whatever is left", File: "decide.go", Test: simulation,
		Old: "max(d.Grant, r.Least), left)", New: "max(d.Grant, r.Least))"},
	{Name: "a grant outlives its window", File: "decide.go", Test: deciding,
		Old: "if life := max(ttl.Microseconds(), 1); life < expires-now {", New: "if life := max(ttl.Microseconds(), 1); true {"},
	{Name: "a late copy is granted", File: "books.go", Test: "TestReplayGrantsNothingNew",
		Old: "case t.replay:", New: "case false:"},
	{Name: "a repetition is granted anew", File: "books.go", Test: simulation,
		Old: "\tcase known:\n\t\tt.out.Answer.Grants = append(t.out.Answer.Grants, rec.grant())\n\t\treturn nil\n", New: ""},
	{Name: "an ended grant is given again", File: "books.go", Test: "TestReplayReturnsTheOriginal",
		Old: "case known && (rec.Ending != Open || rec.BootNumber", New: "case known && (false || rec.BootNumber"},
	{Name: "a restart arms old credit", File: "books.go", Test: "TestLaterBootBurns",
		Old: "if r.Ending == Open && rec.BootNumber != t.h.BootNumber", New: "if false && rec.BootNumber != t.h.BootNumber"},
	{Name: "use that nobody knows of is passed over", File: "books.go", Test: "TestHistoryThatWentBack",
		Old: "*r == Report{Grant: r.Grant, Ending: r.Ending})", New: "true)"},
	{Name: "an old journal is believed", File: "books.go", Test: "TestLaterBootBurns",
		Old: "if fell(err) && rec.BootNumber < t.h.BootNumber {", New: "if false {"},
	{Name: "heartbeats may come in any order", File: "node.go", Test: simulation,
		Old: "case h.Sequence < n.Sequence:\n\t\treturn n, false, ErrStale\n", New: ""},
	{Name: "two copies of a journal are one", File: "node.go", Test: fences,
		Old: "case h.Boot != n.Boot:", New: "case false:"},
	{Name: "a farewell is heard once", File: "node.go", Test: fences,
		Old: "if n.Bye && !h.Bye {", New: "if n.Bye {"},
	{Name: "definitions are believed", File: "verify.go", Test: verifying,
		Old: "if own[i] != theirs {", New: "if false {"},
	{Name: "a missing list is an empty one", File: "json.go", Test: "TestAnswerNamesThePlace",
		Old: "if seen&(1<<i) == 0 && !fields[i].optional {", New: "if false {"},
	{Name: "the round trip is on the node's side", File: "ledger.go", Test: "TestDeadlineTakesTheRoundTripOff",
		Old: "return sent.Add(", New: "return time.Now().Add("},
}

// Every mistake makes its test fail.
func TestMutants(t *testing.T) {
	mutate.Run(t, mutate.Suite{
		Files: []string{
			"sample_test.go", "held_test.go", "rules_test.go", "books_test.go", "json_test.go", "authority_model_test.go",
			"node_model_test.go", "simulation_test.go", "simulation_audit_test.go", "syncer_test.go",
		},
		Checks:  300,
		Mutants: mutants,
	})
}
