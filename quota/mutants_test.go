package quota_test

import (
	"testing"

	"github.com/tallystick-go/tallystick/internal/mutate"
)

const (
	mint    = "TestPropertyEditsMintNothing"
	rolls   = "TestPropertyRollIsWindow"
	clock   = "TestWindowsAreTheModel"
	books   = "TestPropertyAccountIsTheLedger"
	vectors = "TestWindow"
)

var mutants = []mutate.Mutant{
	{Name: "the 31st of February is the 3rd of March", File: "calendar.go", Test: vectors,
		Old: "\tif date.Month() != month {",
		New: "\tif false {"},
	{Name: "a month is thirty days", File: "calendar.go", Test: vectors,
		Old: "\tyear := floorDiv(n, 12)\n",
		New: "\tif true {\n\t\treturn n * 30\n\t}\n\tyear := floorDiv(n, 12)\n"},
	{Name: "a window that is over ends a day after the roll", File: "calendar.go", Test: rolls,
		Old: "\t\treturn Window{Start: prev.End, End: end}, nil",
		New: "\t\treturn Window{Start: nowMicros, End: nowMicros + day}, nil"},
	{Name: "the end itself is still in the window", File: "calendar.go", Test: rolls,
		Old: "\tif nowMicros < prev.End {",
		New: "\tif nowMicros <= prev.End {"},
	{Name: "an edit acts at once", File: "calendar.go", Test: mint,
		Old: "\tif nowMicros < prev.End {\n\t\treturn prev, nil",
		New: "\tif nowMicros < prev.End {\n\t\treturn c.Window(nowMicros)"},
	{Name: "an edit mints a short window", File: "calendar.go", Test: mint,
		Old: "c.End(prev.End + c.Period.half() - 1)",
		New: "c.End(prev.End)"},
	{Name: "a window starts before the last one ended", File: "calendar.go", Test: mint,
		Old: "\tif nowMicros < end {",
		New: "\tif nowMicros < end && end < 0 {"},
	{Name: "a day is 24 hours", File: "calendar.go", Test: clock,
		Old: "\tat, local := reach(nominal, loc)\n",
		New: "\t_, local := reach(nominal, loc)\n\tat := nominal\n"},
	{Name: "a reset hour that does not exist is before the change", File: "zone.go", Test: clock,
		Old: "at = max(t.UnixMicro(), nominal-ahead)",
		New: "at = nominal - ahead"},
	{Name: "a reset hour that exists twice is the second", File: "zone.go", Test: clock,
		Old: "time.UnixMicro(nominal - day).In(loc)",
		New: "time.UnixMicro(nominal).Add(time.Hour).In(loc)"},
	{Name: "a skipped date has a window", File: "calendar.go", Test: clock,
		Old: "return c.boundary(n+1, loc)",
		New: "return at"},
	{Name: "weeks start on Sunday", File: "calendar.go", Test: vectors,
		Old: "int64(max(c.WeekStart, 1) - 1)",
		New: "int64(max(c.WeekStart, 0) - 1)"},
	{Name: "uncertain amounts do not count", File: "account.go", Test: books,
		Old: "amount.Sum(a.Consumed, a.Uncertain, a.Granted)",
		New: "amount.Sum(a.Consumed, a.Granted)"},
	{Name: "grants do not count", File: "account.go", Test: books,
		Old: "amount.Sum(a.Consumed, a.Uncertain, a.Granted)",
		New: "amount.Sum(a.Consumed, a.Uncertain)"},
	{Name: "reserved amounts do not count", File: "account.go", Test: books,
		Old: "v.Remaining = free - a.Reserved",
		New: "v.Remaining = free"},
	{Name: "observed amounts are charged", File: "account.go", Test: books,
		Old: "amount.Sum(a.Consumed, a.Uncertain, a.Granted)",
		New: "amount.Sum(a.Consumed, a.Uncertain, a.Granted, a.Observed)"},
	{Name: "a sum that overflows fits", File: "account.go", Test: "TestCheck",
		Old: "\tsettled, err := amount.Sum(a.Consumed, a.Uncertain, a.Granted)\n\tif err != nil || settled > limit {",
		New: "\tsettled, err := a.Consumed+a.Uncertain+a.Granted, error(nil)\n\tif err != nil || settled > limit {"},
	{Name: "an overrun is cut at the bound", File: "account.go", Test: books,
		Old: "amount.Add(a.Consumed, used); err != nil {\n\t\treturn a, err\n\t}\n\treturn out, nil",
		New: "amount.Add(a.Consumed, min(used, reserved)); err != nil {\n\t\treturn a, err\n\t}\n\treturn out, nil"},
	{Name: "giving back twice is clamped", File: "account.go", Test: "TestGivingBackTwice",
		Old: "\tcase reserved > a.Reserved:\n\t\treturn a, fmt.Errorf",
		New: "\tcase reserved > a.Reserved:\n\t\ta.Reserved = 0\n\t\treturn a, nil\n\tcase false:\n\t\treturn a, fmt.Errorf"},
	{Name: "a hold releases the bound", File: "account.go", Test: books,
		Old: "amount.Add(a.Uncertain, reserved)",
		New: "amount.Add(a.Uncertain, observed)"},
	{Name: "a frozen account takes more", File: "account.go", Test: books,
		Old: "v.OK = fits && !a.Frozen",
		New: "v.OK = fits"},
}

// Every mistake makes its test fail.
func TestMutants(t *testing.T) {
	mutate.Run(t, mutate.Suite{
		Files:   []string{"property_test.go", "account_test.go", "calendar_test.go"},
		Checks:  1000,
		Mutants: mutants,
	})
}
