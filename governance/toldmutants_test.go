package governance

import (
	"testing"

	"github.com/tallystick-go/tallystick/internal/mutate"
)

const isTold = "TestTold"

var toldMutants = []mutate.Mutant{
	{Name: "only the highest of several thresholds", File: "events.go", Test: isTold,
		Old: "t <= c.latched || t > c.Latch",
		New: "t <= c.latched || t != c.Latch"},
	{Name: "one threshold early", File: "events.go", Test: isTold,
		Old: "t <= c.latched || t > c.Latch",
		New: "t <= c.latched"},
	{Name: "a threshold that an edit adds below the others", File: "events.go", Test: isTold,
		Old: "t <= c.latched || t > c.Latch",
		New: "t == c.latched || t > c.Latch"},
	{Name: "the latch of the last window", File: "sheet.go", Test: isTold,
		Old: "\t\tw.latched = 0\n",
		New: ""},
	{Name: "a refusal notices nothing", File: "admit.go", Test: isTold,
		Old: "\t\t\ts.observe(a.set)\n",
		New: ""},
	{Name: "a raise notices nothing", File: "raise.go", Test: isTold,
		Old: "\ts.notice(o.terms, o.set)\n",
		New: ""},
	{Name: "an overrun again with each change", File: "events.go", Test: isTold,
		Old: "after.Flags&^before.Flags&FlagOverrun != 0",
		New: "after.Flags&FlagOverrun != 0"},
	{Name: "a hold again with each change", File: "events.go", Test: isTold,
		Old: "\tcase after.holding() && !before.holding():",
		New: "\tcase after.State != before.State:"},
	{Name: "what is said of an open permit", File: "events.go", Test: isTold,
		Old: "\tcase before.holding() && !after.holding(), after.State == StateResolved && before.State != StateResolved:",
		New: "\tcase before.holding() && !after.holding():"},
	{Name: "a settlement opens no hold", File: "settle.go", Test: isTold,
		Old: "\ts.turned(&before, rec, o.terms)\n",
		New: "\t_ = before\n"},
	{Name: "a crash opens no hold", File: "beat.go", Test: isTold,
		Old: "\t\ts.turned(&before, &s.loaded.Permits[p], &terms{grant: g})\n",
		New: "\t\t_ = before\n"},
	{Name: "a finding about a grant closes no hold", File: "grantholds.go", Test: isTold,
		Old: "\ts.turned(&s.loaded.Permits[i], &rec, o.terms)\n",
		New: ""},
	{Name: "a note about an account is told elsewhere", File: "events.go", Test: isTold,
		Old: "\t\t\tstream = \"account/\" + n.Account.Constraint.String()\n",
		New: ""},
	{Name: "notes are not told", File: "sheet.go", Test: isTold,
		Old: "\ts.noted()\n",
		New: ""},
	{Name: "nothing is told", File: "sheet.go", Test: isTold,
		Old: "\tch.Events = s.events\n",
		New: ""},
}

// Every mistake in what is told makes the suite's cases about events fail.
func TestMutantsOfWhatIsTold(t *testing.T) {
	mutate.Run(t, mutate.Suite{Files: []string{"told_test.go"}, Checks: 1, Mutants: toldMutants})
}
