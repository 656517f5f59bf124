package journal_test

import (
	"testing"

	_ "pgregory.net/rapid" // its flags: the mutants' harness gives them

	"github.com/tallystick-go/tallystick/internal/mutate"
)

const memory = "TestMemory"

var mutants = []mutate.Mutant{
	{Name: "a settlement charges the bound", File: "book.go", Test: memory,
		Old: "l.Consumed += part", New: "l.Consumed += p.Amount"},
	{Name: "what is not known charges what was seen", File: "book.go", Test: memory,
		Old: "l.Uncertain += p.Amount\n\t\t\tl.Observed += part", New: "l.Uncertain += part\n\t\t\tl.Observed += part"},
	{Name: "an overrun passes", File: "book.go", Test: memory,
		Old: "if o.State == Settled && o.Cost > bound &&", New: "if false && o.Cost > bound &&"},
	{Name: "poison stops nobody", File: "raise.go", Test: memory,
		Old: "if b.meta.Poison != (Poison{}) {", New: "if false {"},
	{Name: "an id is used twice", File: "book.go", Test: memory,
		Old: "case known.Fingerprint != fingerprint:", New: "case false:"},
	{Name: "what was burned is settled", File: "book.go", Test: memory,
		Old: "case r.State == Burned:", New: "case false:"},
	{Name: "another outcome is a repetition", File: "book.go", Test: memory,
		Old: "case r.State != Reserved && r.State == o.State && r.Cost == o.Cost:", New: "case r.State != Reserved:"},
	{Name: "a grant has no deadline", File: "book.go", Test: memory,
		Old: "l.usable = l.left > 0", New: "l.usable = true"},
	{Name: "any opening writes", File: "book.go", Test: memory,
		Old: "if l.Meta.Boot != t.Boot || l.Meta.Number == 0 {", New: "if l.Meta.Number == 0 {"},
	{Name: "a shortage reserves", File: "book.go", Test: memory,
		Old: "if any && free >= n.Amount {", New: "if any && free+1 >= n.Amount {"},
	{Name: "what may be spent twice is free", File: "grant.go", Test: memory,
		Old: "return max(0, g.Amount-g.Reserved-g.Consumed-g.Uncertain)", New: "return max(0, g.Amount-g.Reserved-g.Consumed)"},
	{Name: "a crash gives back what was free", File: "grant.go", Test: memory,
		Old: "\t\tg.Uncertain += g.Free()\n", New: ""},
	{Name: "a crash gives back what was on its way", File: "grant.go", Test: memory,
		Old: "\tg.Uncertain += g.Reserved\n", New: ""},
	{Name: "an opening looks like the one before", File: "open.go", Test: memory,
		Old: "m.Boot, m.Number = boot, m.Number+1", New: "m.Boot, m.Number = boot, max(1, m.Number)"},
	{Name: "a replay moves a deadline", File: "take.go", Test: memory,
		Old: "!ok || deadline.Before(old)", New: "!ok || old.Before(deadline)"},
	{Name: "a receipt is for what came later", File: "take.go", Test: memory,
		Old: "l.Acked = told", New: "l.Acked = l.Version"},
	{Name: "a grant is closed while it is used", File: "beat.go", Test: memory,
		Old: "if l.Ending != escrow.Open || l.Meter || l.Reserved > 0 {", New: "if l.Ending != escrow.Open || l.Meter {"},
	{Name: "what the authority has not heard is dropped", File: "take.go", Test: memory,
		Old: "gone && (l.Acked == l.Version || r.Late)", New: "gone"},
	{Name: "who leaves keeps what it has", File: "beat.go", Test: memory,
		Old: "case p.leaving, !waits &&", New: "case !waits &&"},
	{Name: "more is granted than was asked for", File: "take.go", Test: memory,
		Old: "(g.Amount <= 0 || g.Amount > l.Amount)", New: "(g.Amount <= 0)"},
	{Name: "a reservation is forgotten before it was told", File: "take.go", Test: memory,
		Old: "upTo := min(b.meta.Acked, ", New: "upTo := min(b.meta.Ended, "},
	{Name: "what is past its use is kept", File: "beat.go", Test: memory,
		Old: "(!l.usable || (answered && !defined))", New: "(answered && !defined)"},
	{Name: "what reserved nothing needs its grant for ever", File: "book.go", Test: memory,
		Old: "if l == nil && p.Amount == 0 {", New: "if false {"},
	{Name: "ids follow the node's own clock", File: "demand.go", Test: "TestIDsFollowTheAuthoritysClock",
		Old: "return time.UnixMicro(t.clock).Add(now.Sub(t.read))", New: "return now"},
	{Name: "a copy is readmitted with what it holds", File: "readmit.go", Test: memory,
		Old: "case len(l.Grants) > 0 || len(l.Records) > 0:", New: "case false:"},
	{Name: "a readmission takes back a number", File: "readmit.go", Test: memory,
		Old: "case m.Number >= heard:", New: "case m.Number == heard:"},
}

// Every mistake makes the suite fail.
func TestMutants(t *testing.T) {
	mutate.Run(t, mutate.Suite{Files: []string{"suite_test.go", "beat_test.go", "mutants_test.go"}, Checks: 1, Mutants: mutants})
}
