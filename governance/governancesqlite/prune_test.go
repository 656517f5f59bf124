package governancesqlite_test

import (
	"io/fs"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancesqlite"
)

// lived admits n permits of each kind.
func (d *governed) lived(t *testing.T, n int) (held []*governance.Permit) {
	t.Helper()
	for range n {
		for _, o := range []governance.Outcome{governance.Used(3, 4), governance.NotSent(), governance.Unknown(), governance.Used(30, 40)} {
			p, err := d.admit(t.Context())
			if err == nil {
				err = p.Settle(t.Context(), o)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		p, err := d.admit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, p)
	}
	return held
}

func (d *governed) balanced(t *testing.T) {
	t.Helper()
	for _, full := range []bool{false, true} {
		v, err := d.g.Verify(t.Context(), governance.VerifyQuery{Full: full})
		if err != nil || len(v.Differences) > 0 {
			t.Fatalf("verify, full %v: %+v, %v", full, v, err)
		}
	}
}

func (d *governed) rows(t *testing.T, table string) (n int) {
	t.Helper()
	if err := d.sql.QueryRow("select count(*) from " + table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

var monthly = governance.PruneQuery{OlderThan: 5 * 24 * time.Hour, Actor: "ops", Reason: "test"}

// TestPruneStopsAnywhere: from the k-th commit on nothing is written any more, or is
// and nobody learns of it. In between the books balance and nothing that is held is
// missing; a repetition finishes, and counts each permit once.
func TestPruneStopsAnywhere(t *testing.T) {
	for name, after := range map[string]bool{"before the commit": false, "after the commit": true} {
		t.Run(name, func(t *testing.T) {
			d := faulty(t)
			d.lived(t, 3)
			d.clock.us.Add((9 * 24 * time.Hour).Microseconds())
			stopped := 0
			for k := int32(0); ; k++ {
				inject(codeIOErr, after, math.MaxInt32)
				injected.skip.Store(k)
				_, err := d.g.Prune(t.Context(), monthly)
				injected.active.Store(false)
				d.balanced(t)
				holds, failed := d.g.Holds(t.Context(), governance.HoldQuery{})
				if failed != nil || len(holds) != 6 {
					t.Fatalf("after commit %d: %d holds, %v", k, len(holds), failed)
				}
				if err == nil {
					break
				}
				stopped++
			}
			if stopped < 3 && !after {
				t.Fatalf("it was stopped %d times only", stopped)
			}
			report, err := d.g.Prune(t.Context(), monthly)
			if err != nil || report.Total != (governance.Pruned{Permits: 6, Tokens: 9, Cost: 12}) || report.Kept != 9 {
				t.Fatalf("%+v, %v", report, err)
			}
			if n := d.rows(t, "governance_batches"); n != 9 {
				t.Fatalf("%d batches are left, want those of the permits that are", n)
			}
		})
	}
}

// TestNumbersOfBatchesComeAgain: the youngest batch is forgotten, and the next one gets
// its number. Nothing that is left takes it for the older one.
func TestNumbersOfBatchesComeAgain(t *testing.T) {
	d := govern(t, open(t, filepath.Join(t.TempDir(), "governance.db"), now()))
	for range 3 {
		held := d.lived(t, 1)
		p, err := d.admit(t.Context())
		if err == nil {
			err = p.Settle(t.Context(), governance.Used(1, 1)) // the youngest
		}
		if err != nil {
			t.Fatal(err)
		}
		d.clock.us.Add((9 * 24 * time.Hour).Microseconds())
		report, err := d.g.Prune(t.Context(), monthly)
		if err != nil || report.Removed.Permits < 3 {
			t.Fatalf("%+v, %v", report, err)
		}
		d.balanced(t)
		d.lived(t, 1)
		d.balanced(t)
		if err := held[0].Settle(t.Context(), governance.Used(2, 2)); err != nil {
			t.Fatal(err)
		}
		d.balanced(t)
	}
}

// TestOlderSchemaIsBroughtForward: what the schema before had written is read, verified
// and forgotten like anything else.
func TestOlderSchemaIsBroughtForward(t *testing.T) {
	d := govern(t, open(t, filepath.Join(t.TempDir(), "governance.db"), now()))
	held := d.lived(t, 2)
	down, err := fs.ReadFile(governancesqlite.Source().FS, "migrations/002_checkpoints.down.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{string(down), "delete from tallystick_migrations where package = 'governancesqlite' and version = 2"} {
		if _, err := d.sql.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Check(t.Context()); err == nil {
		t.Fatal("the older schema is taken")
	}
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.balanced(t)
	d.clock.us.Add((9 * 24 * time.Hour).Microseconds())
	report, err := d.g.Prune(t.Context(), monthly)
	if err != nil || report.Removed.Permits != 4 || report.Kept != 6 {
		t.Fatalf("%+v, %v", report, err)
	}
	for _, p := range held {
		if err := p.Settle(t.Context(), governance.Used(1, 1)); err != nil {
			t.Fatal(err)
		}
	}
	d.balanced(t)
}
