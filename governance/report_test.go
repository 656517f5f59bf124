package governance

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

func TestUsageSaysHowFullEverythingIs(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k",
		keys.Limits{CostPerMonth: keys.Cost(1000), CostPerDay: keys.Cost(100), Concurrency: keys.Limit(3)},
		keys.Limits{RequestsPerMinute: keys.Limit(60), TokensPerMinute: keys.Limit(600), TokensPerDay: keys.Limit(5000)})
	open := r.admit(p, Bound{Tokens: 100, Cost: 10})
	r.ok(r.admit(p, Bound{Tokens: 50, Cost: 5}).Settle(r.ctx, Used(40, 4)))
	r.ok(r.admit(p, Bound{Tokens: 30, Cost: 3}).Settle(r.ctx, Observed(7, 1)))
	usage, err := r.g.Usage(r.ctx, UsageQuery{Principal: p})
	r.ok(err)
	var have []string
	for _, v := range usage.Verdicts {
		have = append(have, fmt.Sprintf("%s %s %d: %d %d %d %d", v.Constraint.Scope, v.Constraint.Rule, v.Limit, v.Consumed, v.Uncertain, v.Reserved, v.Remaining()))
	}
	want := []string{
		"key requests_per_minute 60: 0 0 3 57",
		"key tokens_per_minute 600: 0 0 170 430",
		"key tokens_per_day 5000: 40 30 100 4830",
		"team cost_per_day 100: 4 3 10 83",
		"team cost_per_month 1000: 4 3 10 983",
		"team concurrency 3: 0 0 1 2",
	}
	if !slices.Equal(have, want) {
		t.Fatalf("usage\n%q, want\n%q", have, want)
	}
	midnight := time.Date(2026, 3, 11, 0, 0, 0, 0, time.UTC).UnixMicro()
	if at, ok := usage.Verdicts[3].ResetsAt(); !ok || at != midnight {
		t.Fatalf("resets at %d, %v", at, ok)
	}
	if _, ok := usage.Verdicts[0].ResetsAt(); ok {
		t.Fatal("a rate has no reset")
	}
	if steps, cells := r.shelf.steps, len(r.shelf.cells); steps != 5 || cells != 6 {
		t.Fatalf("%d transactions, %d cells: looking writes nothing", steps, cells)
	}
	r.ok(open.Cancel(r.ctx))
}

func TestHoldsAreListedByPages(t *testing.T) {
	r := newRig(t, nil)
	red, blue := r.caller("red", "k", plenty(), plenty()), r.caller("blue", "l", plenty(), plenty())
	var want []PermitID // in the order in which they were admitted
	for i := range 30 {
		r.shelf.advance(time.Millisecond)
		p := []*keys.Principal{red, blue}[i%2]
		permit, err := r.g.Admit(r.ctx, Request{Principal: p, Model: "m", Bound: Bound{Tokens: amount.Tokens(i), Cost: 1}, Price: []byte("price")})
		r.ok(err)
		switch i % 5 {
		case 0:
			r.ok(permit.Settle(r.ctx, Used(1, 1)))
			continue
		case 1:
			r.ok(permit.Settle(r.ctx, Observed(1, 1)))
		case 2:
			r.ok(permit.Settle(r.ctx, Outcome{Tokens: Measure{Certainty: Impossible}, Cost: Measure{Known, 1}}))
			r.ok(r.unfreezeAll())
		}
		if p == red {
			want = append(want, permit.ID())
		}
	}
	var have []PermitID
	q := HoldQuery{Team: "red", Limit: 5}
	for {
		page, err := r.g.Holds(r.ctx, q)
		r.ok(err)
		for _, h := range page {
			if h.KeyID != "k" || h.TeamID != "red" || h.User != "ann" || h.Model != "m" || string(h.Price) != "price" || h.At == 0 || len(h.Accounts) != 4 || h.Bound.Cost != 1 {
				t.Fatalf("hold %+v", h)
			}
			if h.State == StateSettled && h.Flags&FlagInvalid == 0 && h.Observed != (Bound{Tokens: 1, Cost: 1}) {
				t.Fatalf("observed %+v", h.Observed)
			}
			have = append(have, h.ID)
		}
		if len(page) < q.Limit {
			break
		}
		q.After = page[len(page)-1].ID
	}
	if !slices.Equal(have, want) {
		t.Fatalf("holds %v, want %v", have, want)
	}
	open, err := r.g.Holds(r.ctx, HoldQuery{Key: "l", Open: true})
	r.ok(err)
	if len(open) != 6 || slices.ContainsFunc(open, func(h Hold) bool { return h.State != StateOpen || h.KeyID != "l" }) {
		t.Fatalf("open %+v", open)
	}
}

// unfreezeAll lets all frozen accounts admit again.
func (r *rig) unfreezeAll() error {
	frozen, err := r.g.FrozenAccounts(r.ctx, AccountQuery{Limit: 100})
	if err != nil {
		return err
	}
	for _, c := range frozen {
		if err := r.g.Unfreeze(r.ctx, Release{Account: c.Key, Actor: "op", Reason: "checked"}); err != nil {
			return err
		}
	}
	return nil
}

// Verify notices whatever does not fit.
func TestVerifyNotices(t *testing.T) {
	for name, tamper := range map[string]func(r *rig, key AccountKey, c *shelved, id PermitID){
		"consumed":         func(_ *rig, _ AccountKey, c *shelved, _ PermitID) { c.account.Consumed++ },
		"uncertain":        func(_ *rig, _ AccountKey, c *shelved, _ PermitID) { c.account.Uncertain-- },
		"reserved":         func(_ *rig, _ AccountKey, c *shelved, _ PermitID) { c.account.Reserved++ },
		"observed":         func(_ *rig, _ AccountKey, c *shelved, _ PermitID) { c.account.Observed++ },
		"a batch too many": func(_ *rig, _ AccountKey, c *shelved, _ PermitID) { c.entries++ },
		"a lost batch":     func(r *rig, key AccountKey, _ *shelved, _ PermitID) { r.shelf.entries[key] = r.shelf.entries[key][1:] },
		"a permit's bound": func(r *rig, _ AccountKey, _ *shelved, id PermitID) {
			rec := r.shelf.permits[id]
			rec.Tokens++
			rec.Cost++
			r.shelf.permits[id] = rec
		},
		"a permit's state": func(r *rig, _ AccountKey, _ *shelved, id PermitID) {
			rec := r.shelf.permits[id]
			rec.State = StateCancelled
			r.shelf.permits[id] = rec
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			p := r.caller("red", "k", keys.Limits{TokensPerDay: keys.Limit(1000), CostPerDay: keys.Cost(1000)}, keys.Limits{})
			r.ok(r.admit(p, small).Settle(r.ctx, Used(2, 1)))
			r.ok(r.admit(p, small).Settle(r.ctx, Observed(1, 1)))
			id := r.admit(p, small).ID()
			r.verify()
			r.shelf.with(func() {
				for key, c := range r.shelf.cells {
					tamper(r, key, &c, id)
					r.shelf.cells[key] = c
				}
			})
			v, err := r.g.Verify(r.ctx, VerifyQuery{})
			r.ok(err)
			if v.Accounts != 2 || len(v.Differences) != 2 || v.Differences[0].Why == "" {
				t.Fatalf("verification %+v", v)
			}
		})
	}
}

// Verify adds up page by page what it can without the lock, and nothing twice,
// while admissions go on.
func TestVerifyWhileAdmissionsGoOn(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), keys.Limits{})
	for range verifyPage + 20 {
		r.ok(r.admit(p, small).Settle(r.ctx, Used(1, 1)))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 200 {
			if err := r.admit(p, small).Settle(r.ctx, Unknown()); err != nil {
				t.Error(err)
			}
		}
	}()
	for range 10 {
		r.verify()
	}
	<-done
	v, err := r.g.Verify(r.ctx, VerifyQuery{})
	r.ok(err)
	if v.Permits != 2*(verifyPage+20+200) {
		t.Fatalf("verification %+v", v)
	}
}
