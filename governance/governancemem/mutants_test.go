package governancemem_test

import (
	"testing"

	"github.com/tallystick-go/tallystick/internal/mutate"
)

// What a store may get wrong; the suite must notice each.
var mutants = []mutate.Mutant{
	{Name: "the caller is asked twice", Old: "	ch := decide(loaded)", New: "	decide(s.d.load(plan, true))\n	ch := decide(loaded)"},
	{Name: "a cancelled context is no reason", Old: "Changes) error {\n	if err := ctx.Err(); err != nil {", New: "Changes) error {\n	if err := ctx.Err(); err != nil && false {"},
	{Name: "steps do not wait for one another", Old: "	ch := decide(loaded)\n", New: "	s.d.mu.Unlock()\n	ch := decide(loaded)\n	s.d.mu.Lock()\n"},
	{Name: "the clock is read before the lock", Old: "	s.d.mu.Lock()\n	defer s.d.mu.Unlock()\n	loaded := s.d.load(plan, true)", New: "	now := s.d.now().UnixMicro()\n	s.d.mu.Lock()\n	defer s.d.mu.Unlock()\n	loaded := s.d.load(plan, true)\n	loaded.Now = now"},
	{Name: "locked rows are not said to be", Old: "Current{Locked: locked, Window", New: "Current{Locked: !locked, Window"},
	{Name: "accounts are those of the current window", Old: "			l.Accounts[i] = d.cell(key)", New: "			key.WindowStart = d.windows[key.Constraint].Start\n			l.Accounts[i] = d.cell(key)"},
	{Name: "definitions without their team", Old: "d.teams[key.TeamID])", New: "keys.Team{})"},
	{Name: "what decide changed is kept", Old: "	c.Slots = c.Slots.Clone()\n", New: ""},
	{Name: "entries begin one too late", Old: "	first := q.After - d", New: "	first := q.After + 1 - d"},
	{Name: "entries forget where they ended", Old: "		l.EntriesRead++\n", New: ""},
	{Name: "a batch commits twice", Old: "		if _, used := d.batches[b.ID]; used {", New: "		if _, used := d.batches[b.ID]; used && false {"},
	{Name: "an id is two permits", Old: "			if d.permits[b.Permits[i].ID] != nil {", New: "			if d.permits[b.Permits[i].ID] != nil && false {"},
	{Name: "an id is two permits of one batch", Old: "		if twice(b.Permits) {", New: "		if false {"},
	{Name: "a lost update is taken", Old: "old == nil || old.Version+1 != ch.Permits[i].Version", New: "old == nil"},
	{Name: "half of a step is written", Old: "	if b := ch.Batch; b != nil {\n		if _, used", New: "	for _, c := range ch.Cells {\n		d.cells[c.Key] = c\n	}\n	if b := ch.Batch; b != nil {\n		if _, used"},
	{Name: "a window is forgotten", Old: "d.labels[w.Constraint] = w.Window, w.Label", New: "d.labels[w.Constraint] = d.windows[w.Constraint], w.Label"},
	{Name: "what is counted is forgotten", Old: "			c.Label = s.d.labels[key.Constraint]\n", New: ""},
	{Name: "all permits have the terms of the first", Old: "b.Terms[rec.TermsIndex]", New: "b.Terms[0]"},
	{Name: "an account's permits are not remembered", Old: "append(d.entries[e.Account], ids)", New: "append(d.entries[e.Account], nil)"},
	{Name: "permits in no order", Old: "return bytes.Compare(a.ID[:], b.ID[:]) })", New: "return 0 })"},
	{Name: "a page repeats the last of the one before", Old: "bytes.Compare(id[:], q.After[:]) > 0", New: "bytes.Compare(id[:], q.After[:]) >= 0"},
	{Name: "a page of accounts repeats the last of the one before", Old: "key.Compare(q.After) > 0", New: "key.Compare(q.After) >= 0"},
	{Name: "a page has no end", Old: "	return list[:min(len(list), q.Limit)], nil\n}\n\n// Accounts", New: "	return list, nil\n}\n\n// Accounts"},
	{Name: "what a step tells is dropped", Old: "		d.tell(ch.Events)\n", New: ""},
	{Name: "notes without numbers", Old: "		note.Number = int64(len(d.notes)) + 1\n", New: ""},
	{Name: "a checkpoint is forgotten", Old: "		d.checkpoints[c.Account] = bytes.Clone(c.Data)\n", New: ""},
	{Name: "a checkpoint is of all accounts", Old: "		l.Checkpoint = bytes.Clone(d.checkpoints[*plan.Checkpoint])", New: "		for _, c := range d.checkpoints {\n			l.Checkpoint = bytes.Clone(c)\n		}"},
	{Name: "decide may change a checkpoint", Old: "		l.Checkpoint = bytes.Clone(d.checkpoints[*plan.Checkpoint])", New: "		l.Checkpoint = d.checkpoints[*plan.Checkpoint]"},
	{Name: "entries go on behind a gap", Old: "		return // the next one is gone", New: "		first = 0"},
	{Name: "an entry without one of its permits is read", Old: "			if rec == nil {\n				return", New: "			if rec == nil {\n				continue"},
	{Name: "the horizon is not told", Old: ", Horizon: d.memory.Horizon}", New: "}"},
	{Name: "trimmed entries stay", File: "prune.go", Old: "	d.entries[key] = slices.Clone(list[n:])\n	d.trimmed[key] += n\n", New: "	_, _ = slices.Clone(list[n:]), n\n"},
	{Name: "the horizon falls", File: "prune.go", Old: "max(s.d.memory.Horizon, before)", New: "before"},
	{Name: "what is younger is judged", File: "prune.go", Old: "		if id.UnixMilli()*1000 >= d.memory.Horizon {", New: "		if false {"},
	{Name: "what is open is judged", File: "prune.go", Old: "		gone := rec.State != governance.StateOpen", New: "		gone := true"},
	{Name: "what the judge keeps is removed", File: "prune.go", Old: "		if !gone {\n			done.Kept++", New: "		if !gone && rec.State == governance.StateOpen {\n			done.Kept++"},
	{Name: "what was removed is not added up", File: "prune.go", Old: "	d.memory.Total = d.memory.Total.Add(done.Removed)\n", New: ""},
}

func TestMutants(t *testing.T) {
	for i := range mutants {
		mutants[i].Test = "TestSuite"
		if mutants[i].File == "" {
			mutants[i].File = "store.go"
		}
	}
	mutate.Run(t, mutate.Suite{Files: []string{"store_test.go"}, Checks: 1, Mutants: mutants})
}
