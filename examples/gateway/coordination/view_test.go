package coordination

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/lease"
)

// row makes a record that tells its version.
func row(version int64) Versioned[int64] { return Versioned[int64]{version, version} }

// TestPropertyViewAgainstAModel: edits are told by the log in order, again, or ahead of it by who made them, while the view begins
// anew from snapshots now and then. It shows the latest that it was told, always, and all there is once it was told all.
func TestPropertyViewAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var v View[int64]
		type edit struct {
			name    string
			version int64
		}
		var log []edit
		read, ready := 0, false
		table, known, since := map[string]int64{}, map[string]int64{}, map[string]int64(nil)
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		set := func(e edit) {
			want := ready && e.version > known[e.name]
			if got := v.Set(e.name, e.version, e.version); got != want {
				t.Fatalf("Set(%v) reports %v, wanted %v", e, got, want)
			}
			if want {
				known[e.name] = e.version
				if since != nil {
					since[e.name] = e.version
				}
			}
		}
		var snapshot map[string]int64
		from := 0
		t.Repeat(map[string]func(*rapid.T){
			"another edits": func(t *rapid.T) {
				n := name.Draw(t, "name")
				table[n]++
				log = append(log, edit{n, table[n]})
			},
			"own edit": func(t *rapid.T) {
				n := name.Draw(t, "name")
				table[n]++
				log = append(log, edit{n, table[n]})
				set(log[len(log)-1])
			},
			"the log tells": func(t *rapid.T) {
				if read == len(log) || !ready {
					t.Skip()
				}
				set(log[read])
				read++
			},
			"the log repeats": func(t *rapid.T) {
				if read == 0 {
					t.Skip()
				}
				set(log[rapid.IntRange(0, read-1).Draw(t, "which")])
			},
			"begin": func(*rapid.T) {
				v.Begin()
				since = map[string]int64{}
				snapshot, from = maps.Clone(table), len(log)
			},
			"replace": func(t *rapid.T) {
				if snapshot == nil {
					t.Skip()
				}
				rows := map[string]Versioned[int64]{}
				for n, version := range snapshot {
					rows[n] = row(version)
				}
				v.Replace(rows)
				known, ready, read = snapshot, true, from
				for n, version := range since {
					known[n] = max(known[n], version)
				}
				since, snapshot = nil, nil
			},
			"": func(t *rapid.T) {
				if v.Ready() != ready {
					t.Fatalf("Ready %v, wanted %v", v.Ready(), ready)
				}
				for _, n := range []string{"a", "b", "c"} {
					if got, is := v.Get(n); ready && (is != (known[n] > 0) || got != known[n]) {
						t.Fatalf("%s is at %d, wanted %d", n, got, known[n])
					}
				}
			},
		})
		if !ready {
			return
		}
		for ; read < len(log); read++ {
			set(log[read])
		}
		if all := v.All(); len(all) != len(table) {
			t.Fatalf("%v of %v", all, table)
		}
		for n, version := range table {
			if got, _ := v.Get(n); got != version {
				t.Fatalf("in the end %s is at %d and not at %d", n, got, version)
			}
		}
	})
}

// TestAHistoryThatWentBackReplacesWhatWas: what an operator accepted is the state, also where it is less.
func TestAHistoryThatWentBackReplacesWhatWas(t *testing.T) {
	var v View[int64]
	v.Begin()
	v.Replace(map[string]Versioned[int64]{"a": row(5), "b": row(1)})
	v.Begin()
	v.Replace(map[string]Versioned[int64]{"a": row(3)})
	require.Equal(t, []int64{3}, v.All())
	require.True(t, v.Set("a", 4, 4))
}

func TestWhoWaitsForAViewHearsOfIt(t *testing.T) {
	var v View[int64]
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, v.Await(ended), context.Canceled)
	done := make(chan error, 2)
	for range 2 {
		go func() { done <- v.Await(t.Context()) }()
	}
	var known chan struct{}
	require.Eventually(t, func() bool {
		v.mu.RLock()
		defer v.mu.RUnlock()
		known = v.known
		return known != nil
	}, 30*time.Second, time.Millisecond)
	v.Begin()
	v.Replace(nil)
	select {
	case <-known:
	default:
		t.Fatal("whoever waits is not told")
	}
	for range 2 {
		require.NoError(t, <-done)
	}
	require.NoError(t, v.Await(ended), "what is known already keeps nobody")
	require.Empty(t, v.All())
}

// TestScrub: nothing of the driver's passes; what is ours passes as it is.
func TestScrub(t *testing.T) {
	require.NoError(t, Scrub(nil))
	field := &FieldError{Field: "name", Why: "is taken"}
	for _, ours := range []error{field, ErrNotFound, lease.ErrLost, fmt.Errorf("more: %w", lease.ErrLost)} {
		require.Equal(t, ours, Scrub(ours))
	}
	server := &pgconn.PgError{Code: "55P03", Message: "s3cret", Detail: "s3cret", Where: "s3cret"}
	for _, theirs := range []error{server, fmt.Errorf("s3cret: %w", server), errors.New("dial s3cret")} {
		got := Scrub(theirs)
		require.ErrorIs(t, got, ErrUnavailable)
		require.NotContains(t, got.Error(), "s3cret")
	}
	require.ErrorContains(t, Scrub(server), "SQLSTATE 55P03")
}
