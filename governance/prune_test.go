package governance

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

const testDay = 24 * time.Hour

func (r *rig) prune(ago time.Duration) PruneReport {
	r.Helper()
	report, err := r.g.Prune(r.ctx, PruneQuery{OlderThan: ago, Actor: "ops", Reason: "test"})
	r.ok(err)
	return report
}

// audited recomputes the books from the checkpoints and in full.
func (r *rig) audited(differences int) {
	r.Helper()
	for _, full := range []bool{false, true} {
		v, err := r.g.Verify(r.ctx, VerifyQuery{Full: full})
		r.ok(err)
		if len(v.Differences) != differences {
			r.Fatalf("full %v: %+v, want %d differences", full, v.Differences, differences)
		}
	}
}

// TestForgettingAtRandom lets weeks pass in which permits end at once, late or never,
// while what is old is forgotten. The shelf refuses to remove what an entry needs;
// what is held is never removed, and whatever was removed had ended.
func TestForgettingAtRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	n := rand.New(rand.NewPCG(seed, 0))
	r := newRig(t, nil)
	limits := keys.Limits{TokensPerDay: keys.Limit(1_000_000), CostPerMonth: keys.Cost(1_000_000)}
	callers := []*keys.Principal{r.caller("red", "k1", limits, limits), r.caller("blue", "k2", limits, keys.Limits{})}
	var open []*Permit
	outcome := func() Outcome {
		return []Outcome{Used(1, 2), NotSent(), Unknown(), Observed(3, 4), Used(500, 600)}[n.IntN(5)]
	}
	for range 150 {
		for range n.IntN(12) {
			p := r.admit(callers[n.IntN(2)], Bound{Tokens: 100, Cost: 200})
			if n.IntN(4) == 0 {
				open = append(open, p)
				continue
			}
			r.ok(p.Settle(r.ctx, outcome()))
		}
		if len(open) > 0 && n.IntN(2) == 0 {
			i := n.IntN(len(open))
			r.ok(open[i].Settle(r.ctx, outcome()))
			open = append(open[:i], open[i+1:]...)
		}
		if n.IntN(6) == 0 {
			for _, h := range r.holds() {
				if h.State != StateOpen && n.IntN(3) == 0 {
					_, err := r.g.Resolve(r.ctx, Evidence{ID: h.ID, Outcome: Used(7, 8), Actor: "ops", Reason: "test"})
					r.ok(err)
				}
			}
		}
		r.shelf.advance(time.Duration(n.IntN(20)) * time.Hour)
		if n.IntN(3) == 0 {
			r.audited(0)
		}
		if n.IntN(5) == 0 {
			r.forgotten(time.Duration(1+n.IntN(200)) * time.Hour)
		}
	}
	r.audited(0)
	for _, p := range open {
		r.ok(p.Settle(r.ctx, Used(1, 2)))
	}
	r.audited(0)
}

func (r *rig) holds() []Hold {
	r.Helper()
	list, err := r.g.Holds(r.ctx, HoldQuery{Limit: 1000})
	r.ok(err)
	return list
}

// forgotten prunes and compares with what was there before.
func (r *rig) forgotten(ago time.Duration) {
	r.Helper()
	_, cells, before := r.shelf.copyOf()
	report := r.prune(ago)
	_, after, left := r.shelf.copyOf()
	if len(report.Differences) > 0 || int64(len(before)-len(left)) != report.Removed.Permits {
		r.Fatalf("%d permits of %d are left; %+v", len(left), len(before), report)
	}
	for key, c := range cells {
		if after[key] != c {
			r.Fatalf("account %v went from %+v to %+v", key, c, after[key])
		}
	}
	var sum Pruned
	for id, rec := range before {
		held := rec.State == StateOpen || rec.Flags&(FlagTokensUncertain|FlagCostUncertain|FlagOverrun) != 0
		_, there := left[id]
		// This rig admits with ids of its own: what is older by its id is older by its admission.
		old := rec.At < report.Horizon && id.older(report.Horizon)
		if there != (held || !old) {
			r.Fatalf("permit %s is there: %v; %+v", id, there, rec)
		}
		if !there {
			sum.Permits++
			for _, o := range []Outcome{rec.Outcome, rec.Resolution} {
				if o.Tokens.Certainty == Known {
					sum.Tokens, sum.Cost = sum.Tokens+o.Tokens.Value, sum.Cost+o.Cost.Value
				}
			}
		}
	}
	if sum != report.Removed {
		r.Fatalf("removed %+v, reported %+v", sum, report.Removed)
	}
}

// settled admits n permits that end at once.
func (r *rig) settled(p *keys.Principal, n int) (permits []*Permit) {
	r.Helper()
	for range n {
		permits = append(permits, r.admit(p, Bound{Tokens: 10, Cost: 20}))
		r.ok(permits[len(permits)-1].Settle(r.ctx, Used(3, 4)))
	}
	return permits
}

// TestPlantedCheckpoints: one that belongs to other sums is found from it where the
// balance is right, and in full where the balance was made to suit it.
func TestPlantedCheckpoints(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k1", keys.Limits{TokensPerDay: keys.Limit(10_000)}, keys.Limits{})
	r.settled(p, 50)
	r.audited(0)
	for key, genuine := range r.shelf.checkpoints {
		c, err := decodeCheckpoint(genuine)
		r.ok(err)
		if c.latest.through != 50 || c.latest.consumed != 150 || c.latest.permits != 50 {
			r.Fatalf("checkpoint %+v", c)
		}
		for _, spoil := range []func(c *checkpoint){
			func(c *checkpoint) { c.latest.consumed++ }, func(c *checkpoint) { c.latest.observed = 1 },
			func(c *checkpoint) { c.latest.through-- }, func(c *checkpoint) { c.latest.pending = []PermitID{{7}} },
		} {
			spoiled := c
			spoil(&spoiled)
			r.shelf.checkpoints[key] = spoiled.append(nil)
			r.audited(1)
		}
		spoiled, cell := c, r.shelf.cells[key]
		spoiled.latest.consumed--
		r.shelf.checkpoints[key] = spoiled.append(nil)
		suited := cell
		suited.account.Consumed--
		r.shelf.cells[key] = suited
		v, err := r.g.Verify(r.ctx, VerifyQuery{Full: true})
		r.ok(err)
		if len(v.Differences) != 1 {
			r.Fatalf("in full: %+v", v)
		}
		// The number of permits alone.
		r.shelf.cells[key] = cell
		spoiled = c
		spoiled.latest.permits--
		r.shelf.checkpoints[key] = spoiled.append(nil)
		if v, err = r.g.Verify(r.ctx, VerifyQuery{Full: true}); err != nil || len(v.Differences) != 1 {
			r.Fatalf("in full: %+v %v", v, err)
		}
		r.shelf.checkpoints[key] = genuine
	}
	r.audited(0)
}

// TestEndedSinceTheFold: a permit that ends between the fold and the removal is in no
// sum. It stays until the next time.
func TestEndedSinceTheFold(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k1", keys.Limits{TokensPerDay: keys.Limit(10_000)}, keys.Limits{})
	r.settled(p, 2)
	late := r.admit(p, Bound{Tokens: 10})
	r.shelf.advance(5 * testDay)
	r.shelf.sweeping = func() { r.ok(late.Settle(r.ctx, Used(1, 0))) }
	report := r.prune(2 * testDay)
	r.shelf.sweeping = nil
	if report.Removed.Permits != 2 || report.Kept != 1 {
		r.Fatalf("%+v", report)
	}
	r.audited(0)
	if report := r.prune(2 * testDay); report.Removed != (Pruned{Permits: 1, Tokens: 1}) {
		r.Fatalf("%+v", report)
	}
	r.audited(0)
}

// TestTooMuchIsPending: an account with more permits that may still change than a
// checkpoint names is not folded, nor forgotten.
func TestTooMuchIsPending(t *testing.T) {
	parts := []part{{through: 9, old: true}}
	for i := range maxPending {
		parts[0].pending = append(parts[0].pending, PermitID{1, byte(i >> 8), byte(i)})
	}
	if f, ok := foldOf(parts); !ok || len(f.pending) != maxPending || f.through != 9 {
		t.Fatal(f.through, ok)
	}
	parts = append(parts, part{through: 10, pending: []PermitID{{2}}})
	if _, ok := foldOf(parts); ok {
		t.Fatal("it was folded")
	}
}

func FuzzCheckpoint(f *testing.F) {
	f.Add([]byte(nil))
	f.Add((&checkpoint{}).append(nil))
	f.Add((&checkpoint{
		latest: fold{through: 300, permits: 299, consumed: 1 << 62, observed: 7, pending: []PermitID{{1}, {2}}}, floor: fold{through: 9, permits: 9}, trimmed: 5,
	}).append(nil))
	f.Fuzz(func(t *testing.T, p []byte) {
		c, err := decodeCheckpoint(p)
		if err != nil {
			return
		}
		if again := c.append(nil); len(p) > 0 && !bytes.Equal(again, p) {
			t.Fatalf("% x becomes % x", p, again)
		}
		for _, f := range []fold{c.latest, c.floor} {
			if f.through < 0 || f.permits < 0 || f.consumed < 0 || f.observed < 0 || c.trimmed < 0 || len(f.pending) > maxPending {
				t.Fatalf("%+v", c)
			}
		}
	})
}
