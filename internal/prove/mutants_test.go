package prove

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// mutant is a mistake, by what is put in another's place where.
type mutant struct {
	name  string
	edits []replacement
}

type replacement struct {
	file     string // from the root of the module
	old, new string // old occurs exactly once
}

const (
	loads     = "governance/governancepg/load.go"
	stores    = "governance/governancepg/store.go"
	pgSQL     = "governance/governancepg/queries.go"
	keyStore  = "keys/keyspg/store.go"
	teamStore = "keys/keyspg/teams.go"

	waits            = "\treturn confirm(ctx, s, next, err)\n"
	readsDefinitions = "\tif len(l.plan.Keys) > 0 {\n\t\tl.definitions(b)\n\t}\n"
)

var mutants = []mutant{
	{"definitions are read before the rows are locked", []replacement{
		{loads, readsDefinitions, ""},
		{loads, "\tids := uuids(l.plan.Constraints)\n\tif len(ids) > 0 {\n\t\tsql := q.lock\n", readsDefinitions + "\tids := uuids(l.plan.Constraints)\n\tif len(ids) > 0 {\n\t\tsql := q.lock\n"},
	}},
	{"definitions are read before the barrier is entered", []replacement{
		{loads, "\tif len(l.plan.Keys) > 0 {\n", "\tif len(l.plan.Keys) > 0 && !lock {\n"},
		{stores, "\t\tl.queue(&b, true)\n", "\t\tvar early pgx.Batch\n\t\tif len(plan.Keys) > 0 {\n\t\t\tl.definitions(&early)\n\t\t}\n\t\tif err := s.pool.SendBatch(ctx, &early).Close(); err != nil {\n\t\t\treturn translate(pgtx.Scrub(err))\n\t\t}\n\t\tl.queue(&b, true)\n"},
	}},
	{"an admission does not enter the barrier", []replacement{
		{stores, "step.Barrier, step.PinPlans = schema.LockKey(), true", "step.PinPlans = true"},
	}},
	{"an edit does not wait at the barrier", []replacement{
		{keyStore, "\treturn result, coreError(pgtx.Barrier(ctx, s.pool, s.schema, s.barrier))\n", "\treturn result, nil\n"},
	}},
	{"the edit of a team does not wait", []replacement{
		{teamStore, waits, "\treturn next, err\n"},
	}},
	{"an edit that repeats what is in force does not wait", []replacement{
		{teamStore, "\tvar next keys.Team\n\terr := s.edit", "\tvar next keys.Team\n\tvar changed bool\n\terr := s.edit"},
		{teamStore, "\t\tvar changed bool\n\t\tnext", "\t\tnext"},
		{teamStore, waits, "\tif !changed {\n\t\treturn next, err\n\t}\n" + waits},
	}},
	{"limits are those of the cached principal", []replacement{
		{"keys/principal.go", "\tcase p.Key.Revision != d.KeyRevision, p.Team.Revision != d.TeamRevision:\n", "\tcase false:\n"},
	}},
	{"a revocation is not looked at", []replacement{
		{"keys/principal.go", "\tcase d.RevokedAt != 0, d.TeamDeleted:\n", "\tcase false:\n"},
		{"keys/principal.go", "\tcase p.Key.Revision != d.KeyRevision, p.Team.Revision != d.TeamRevision:\n", "\tcase p.Team.Revision != d.TeamRevision:\n"},
	}},
	{"rows are read without a lock", []replacement{
		{pgSQL, "order by id for update`,\n\t\tlockFree", "order by id`,\n\t\tlockFree"},
	}},
}

// most is how many rounds a mistake gets to show itself. What takes the longest takes a tenth of it.
const most = 100

// Each mistake is planted in the gateway processes, one at a time, and shows in a history that no order explains. Nothing of it touches
// the tree: the go command lays the changed file over the real one while it compiles their program.
func TestMutants(t *testing.T) {
	switch {
	case raced:
		t.Skip("no mutants with -race, which would compile them all for nothing new: go test -run Mutants tries them")
	case testing.Short():
		t.Skip("no mutants with -short: each is a compilation")
	}
	needClock(t)
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			f := muster(t, m.program(t), 4, 3)
			operations := 0
			for f.rounds < most {
				for _, h := range f.round(t, f.order(2, 50), nil) {
					operations += len(h.operations)
					result, err := h.check(20 * time.Second)
					require.NoError(t, err)
					if result == porcupine.Illegal {
						t.Logf("noticed in round %d of at most %d, after %d operations", f.rounds, most, operations)
						return
					}
				}
			}
			t.Fatalf("not noticed in %d operations of %d rounds", operations, f.rounds)
		})
	}
}

// program compiles the gateway process with the mistake in it.
func (m *mutant) program(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir := t.TempDir()
	changed := map[string][]byte{}
	for _, e := range m.edits {
		at := filepath.Join(root, filepath.FromSlash(e.file))
		if changed[at] == nil {
			changed[at], err = os.ReadFile(at)
			require.NoError(t, err)
		}
		require.Equal(t, 1, bytes.Count(changed[at], []byte(e.old)), "%q must occur once in %s: bring the mutant up to date", e.old, e.file)
		changed[at] = bytes.Replace(changed[at], []byte(e.old), []byte(e.new), 1)
	}
	replace := map[string]string{}
	for at, source := range changed {
		over := filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(at, root), string(filepath.Separator), "_"))
		require.NoError(t, os.WriteFile(over, source, 0o600))
		replace[at] = over
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	listed, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutant.test")
	require.NoError(t, os.WriteFile(listed, list, 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-gcflags=-dwarf=false", "-ldflags=-s -w", "-overlay", listed, "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "the mutant does not compile: %s", out)
	return program
}
