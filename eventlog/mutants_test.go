package eventlog_test

import (
	"testing"

	"github.com/tallystick-go/tallystick/internal/mutate"
)

const (
	follows = "TestPropertyCursorAgainstAModel"
	sets    = "TestPropertySnapshotIsASet"
	one     = "TestPropertyPlanIsOneAfterAnother"
	replays = "TestReplay"
	refuses = "TestCursorsOfOtherHistoriesAreRefused"
	retains = "TestCursorsBehindRetentionAreRefused"
	memory  = "TestWitness"
)

var mutants = []mutate.Mutant{
	{Name: "a cursor is a position", File: "cursor.go", Test: follows,
		Old: "if c.through > 0 && !c.open.Empty() {",
		New: "if false {"},
	{Name: "what Postgres does not list is not open", File: "cursor.go", Test: follows,
		Old: "From: c.open.Max, To: c.open.Next,",
		New: "From: c.open.Max, To: c.open.Max,"},
	{Name: "what is listed is not open", File: "cursor.go", Test: follows,
		Old: "l.Late = &Late{Running: c.open.Running,",
		New: "l.Late = &Late{Running: nil,"},
	{Name: "a late page is judged by a later snapshot", File: "cursor.go", Test: follows,
		Old: "\t\ttarget := v.Snapshot\n",
		New: "\t\ttarget := Snapshot{Max: 1 << 60, Next: 1 << 60}\n"},
	{Name: "late pages begin anew", File: "cursor.go", Test: follows,
		Old: "After: c.after, Through: c.through,",
		New: "After: 0, Through: c.through,"},
	{Name: "after late pages everything was delivered", File: "cursor.go", Test: follows,
		Old: "p.Next.open, p.Next.target, p.Next.after = c.open.Narrow(*c.target), nil, 0",
		New: "p.Next.open, p.Next.target, p.Next.after = Snapshot{}, nil, 0"},
	{Name: "after late pages nothing was delivered", File: "cursor.go", Test: follows,
		Old: "p.Next.open, p.Next.target, p.Next.after = c.open.Narrow(*c.target), nil, 0",
		New: "p.Next.target, p.Next.after = nil, 0"},
	{Name: "a full page has delivered up to the head", File: "cursor.go", Test: follows,
		Old: "\t\tp.Next.through = fresh[room-1].Position\n",
		New: ""},
	{Name: "a page holds twice its limit", File: "cursor.go", Test: follows,
		Old: "if room := limit - len(late);",
		New: "if room := limit;"},
	{Name: "the snapshot stays the old one", File: "cursor.go", Test: follows,
		Old: "\tp.Next.open, p.Next.through = v.Snapshot, v.Head\n",
		New: "\tp.Next.through = v.Head\n"},
	{Name: "a full late page says that it is the last", File: "cursor.go", Test: follows,
		Old: "\t\ttarget := v.Snapshot\n\t\tp.Events, p.More = late, true\n",
		New: "\t\ttarget := v.Snapshot\n\t\tp.Events = late\n"},
	{Name: "the unlisted are lost when a cursor is kept", File: "cursor.go", Test: follows,
		Old: "\tb = binary.AppendUvarint(b, s.Next-s.Max)\n",
		New: "\tb = binary.AppendUvarint(b, 0)\n"},
	{Name: "any cluster will do", File: "cursor.go", Test: refuses,
		Old: "case c.origin.System != v.Origin.System:",
		New: "case false:"},
	{Name: "any log will do", File: "cursor.go", Test: refuses,
		Old: "case c.origin.Log != v.Origin.Log:",
		New: "case false:"},
	{Name: "any timeline will do", File: "cursor.go", Test: refuses,
		Old: "case c.origin.Timeline != v.Origin.Timeline:",
		New: "case false:"},
	{Name: "a cursor may be ahead of its log", File: "cursor.go", Test: refuses,
		Old: "case c.through > v.Head:",
		New: "case false:"},
	{Name: "retention may overtake", File: "cursor.go", Test: retains,
		Old: "if c.through < v.Pruned ||",
		New: "if false ||"},
	{Name: "late rows may have gone", File: "cursor.go", Test: retains,
		Old: "if x <= v.PrunedXID && v.Snapshot.Sees(x) {",
		New: "if x == 0 {"},
	{Name: "an open transaction's rows may have gone", File: "cursor.go", Test: retains,
		Old: "if x <= v.PrunedXID && v.Snapshot.Sees(x) {",
		New: "if x <= v.PrunedXID {"},
	{Name: "unlisted rows may have gone", File: "cursor.go", Test: retains,
		Old: "return c.open.Max < c.open.Next && c.open.Max <= v.PrunedXID",
		New: "return false"},
}

var smaller = []mutate.Mutant{
	{Name: "a snapshot sees what it lists", File: "snapshot.go", Test: sets,
		Old: "\treturn !listed\n",
		New: "\treturn listed || true\n"},
	{Name: "a snapshot sees its end", File: "snapshot.go", Test: sets,
		Old: "\tif xid >= s.Max {\n\t\treturn false",
		New: "\tif xid > s.Max {\n\t\treturn false"},
	{Name: "narrowing forgets what was listed", File: "snapshot.go", Test: sets,
		Old: "\t\tif !later.Sees(x) {\n",
		New: "\t\tif false {\n"},
	{Name: "narrowing forgets what was not listed", File: "snapshot.go", Test: sets,
		Old: "\t\tif x >= s.Max && x < s.Next {\n",
		New: "\t\tif false {\n"},
	{Name: "narrowing widens", File: "snapshot.go", Test: sets,
		Old: "\tout.Next = max(s.Next, out.Max)\n",
		New: "\tout.Next = max(s.Next, later.Next)\n"},
	{Name: "the one that ends later is the later", File: "snapshot.go", Test: sets,
		Old: "return uint64(len(s.Running)-i) < s.Max-other.Max",
		New: "return i >= 0"},
	{Name: "an expectation counts what comes after it", File: "append.go", Test: one,
		Old: "s.base = version - s.count",
		New: "s.base = version"},
	{Name: "the second expectation is not looked at", File: "append.go", Test: one,
		Old: "case s.base < 0 || s.base+s.count != version:",
		New: "case s.base < 0:"},
	{Name: "a conflict does not count what came before", File: "append.go", Test: one,
		Old: "if at := versions[a.Stream] + count[a.Stream]; exact",
		New: "if at := versions[a.Stream]; exact"},
	{Name: "other data is a repetition", File: "append.go", Test: replays,
		Old: "|| string(old.Data) != string(r.Data) {",
		New: "{"},
	{Name: "some of it is all of it", File: "append.go", Test: replays,
		Old: "if !is || old.Stream != r.Stream ||",
		New: "if is && old.Stream != r.Stream || is &&"},
	{Name: "another version is a repetition", File: "append.go", Test: replays,
		Old: "if r.Base >= 0 && old.Version != r.Base+r.Offset {",
		New: "if false {"},
	{Name: "a read that began before is a history that went back", File: "witness.go", Test: memory,
		Old: "v.Head < m.head &&",
		New: "v.Head < w.head &&"},
	{Name: "what grew again never went back", File: "witness.go", Test: memory,
		Old: "\tif w.went != nil {\n",
		New: "\tif w.went != nil && v.Head < w.went.Through {\n"},
	{Name: "less is no less after a take-over", File: "witness.go", Test: memory,
		Old: "v.Origin.System == m.origin.System && v.Origin.Log == m.origin.Log {",
		New: "v.Origin == m.origin {"},
}

var suite = mutate.Suite{Files: []string{"cursor_test.go", "snapshot_test.go", "append_test.go"}, Checks: 2000}

// TestMutants plants mistakes in the cursor.
func TestMutants(t *testing.T) {
	s := suite
	s.Mutants = mutants
	mutate.Run(t, s)
}

// TestMutantsOfTheRest plants them in what else is pure: snapshots by themselves, plans of appends, the witness.
func TestMutantsOfTheRest(t *testing.T) {
	s := suite
	s.Mutants = smaller
	mutate.Run(t, s)
}
