package prove

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// enough is how many operations a run must have looked at.
const enough = 10_000

// Four processes admit, raise, settle, look, edit, revoke and create at the same time, close to
// limits that change. There is an order of all operations that a single store could have gone through, in which an edit is
// in force for whatever began after it returned.
//
// Source: internal/docs/guarantees.md "Revoked is revoked", "One after another".
func TestAdmissionIsLinearizable(t *testing.T) {
	f := muster(t, os.Args[0], 4, 3)
	want := int(fromEnv("TALLYSTICK_PROVE_OPERATIONS", enough))
	said, checked, nothing := map[string]int{}, 0, map[string]int{}
	for checked < want {
		for _, h := range f.round(t, f.order(4, 75), nil) {
			h.allowed(t)
			for _, o := range h.operations {
				if said[o.Verb+" "+o.Said]++; o.Said == saidNothing {
					nothing[o.Why]++
				} else {
					checked++
				}
			}
		}
	}
	t.Logf("%d operations in %d rounds: %v; nothing was done: %v", checked, f.rounds, said, nothing)
	for why, n := range nothing {
		require.Less(t, n, checked/100, "too many calls were told %q", why)
	}
	for _, must := range []string{
		"admit ok", "admit refused", "admit unauthenticated", "raise ok", "raise refused", "settle ok", "find ok", "usage ok", "holds ok",
		"resolve ok", "resolve revoked", "resolve unknown", "edit key ok", "edit team ok", "edit team stale", "revoke ok", "create ok",
	} {
		require.NotZero(t, said[must], "nobody was told %q: the schedule proves too little", must)
	}
	f.verify(t)
}

// The same while connections are ended under the processes and one process after another is killed. What has no answer may have happened
// at any time since, or never.
func TestAdmissionIsLinearizableThroughBreaks(t *testing.T) {
	f := muster(t, os.Args[0], 5, 2)
	lost := 0
	for len(f.members) > 2 {
		o := f.order(4, 60)
		o.Rough = true
		for _, h := range f.round(t, o, func() { f.disturb(t, 2*60*len(f.members)) }) {
			h.allowed(t)
			for _, o := range h.operations {
				if o.Said == saidLost {
					lost++
				}
			}
		}
	}
	t.Logf("%d answers were lost", lost)
	require.NotZero(t, lost)
	f.verify(t)
}

// disturb ends a connection of the fleet for every few operations of so many, and a process when half of them are done.
func (f *fleet) disturb(t *testing.T, operations int) {
	t.Helper()
	const end = `select count(pg_terminate_backend(pid)) from (
select pid from pg_stat_activity where application_name = $1 and state <> 'idle' order by random() limit 1) busy`
	answered := func() (n int) {
		for _, m := range f.members {
			n += int(m.answered.Load())
		}
		return n
	}
	from, most := answered(), 12
	for i := range most {
		require.Eventually(t, func() bool { return answered()-from >= i*operations/2/most }, patience, time.Millisecond)
		_, err := f.db.Pool.Exec(t.Context(), end, applicationName(f.db.Schema))
		require.NoError(t, err)
	}
	victim := f.members[len(f.members)-1]
	victim.dead = true
	require.NoError(t, victim.cmd.Process.Kill())
}
