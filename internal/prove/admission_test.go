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
		for _, h := range f.round(t, f.order(3, 75), nil) {
			decided, err := h.check(patience)
			require.NoError(t, err)
			require.True(t, decided, "team %s: too many orders to try", h.Team)
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

// The same while connections are ended under the processes and one of them is killed. What has no answer may have happened
// at any time since, or never.
func TestAdmissionIsLinearizableThroughBreaks(t *testing.T) {
	f := muster(t, os.Args[0], 4, 2)
	lost := 0
	for range 3 {
		for _, h := range f.round(t, func() order { o := f.order(4, 50); o.Rough = true; return o }(), func() { f.disturb(t) }) {
			decided, err := h.check(patience)
			require.NoError(t, err)
			if !decided {
				t.Logf("team %s: too many orders to try", h.Team)
			}
			for _, o := range h.operations {
				if o.Said == saidLost {
					lost++
				}
			}
		}
	}
	t.Logf("%d answers were lost", lost)
	f.verify(t)
}

// disturb ends connections of the fleet one by one, and at last one process. It is paced by what was done, not by time.
func (f *fleet) disturb(t *testing.T) {
	t.Helper()
	const sessions = `select count(*) from pg_stat_activity where application_name = $1 and state <> 'idle'`
	const end = `select count(pg_terminate_backend(pid)) from (select pid from pg_stat_activity where application_name = $1 and pid <> pg_backend_pid()
and (query ilike 'commit%' or query ilike 'with%' or state = 'active') order by random() limit 1) p`
	name := applicationName(f.db.Schema)
	for ended := 0; ended < 8; {
		var busy, n int
		if require.NoError(t, f.db.Pool.QueryRow(t.Context(), sessions, name).Scan(&busy)); busy == 0 {
			break
		}
		require.NoError(t, f.db.Pool.QueryRow(t.Context(), end, name).Scan(&n))
		ended += n
	}
	require.NoError(t, f.members[len(f.members)-1].cmd.Process.Kill())
}

var _ = time.Second
