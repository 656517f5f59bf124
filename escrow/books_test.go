package escrow_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/policy"
)

// desk is a model authority with a node that speaks to it by hand.
type desk struct {
	*modelAuthority
	t    *testing.T
	now  time.Time
	hard escrow.Account
	soft escrow.Account
	h    escrow.Heartbeat
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t, now: noon, h: escrow.Heartbeat{Node: "n", Boot: bootID(1), BootNumber: 1}}
	set := budgets(t, 1000, 1000)
	d.modelAuthority = newModelAuthority(set, func() time.Time { return d.now })
	list := definitions(t, set, noon)
	d.hard, d.soft = list[0].Account, list[1].Account
	return d
}

// say sends the next heartbeat.
func (d *desk) say(change func(h *escrow.Heartbeat)) (*escrow.Answer, error) {
	d.t.Helper()
	d.h.Sequence++
	h := d.h
	change(&h)
	a, err := d.Beat(context.Background(), &h)
	if err == nil {
		if err := a.Verify(&h); err != nil {
			d.t.Errorf("the answer does not pass: %v", err)
		}
		d.h.Answered, d.h.Mark = h.Sequence, a.Mark
	}
	return a, err
}

func (d *desk) must(change func(h *escrow.Heartbeat)) *escrow.Answer {
	d.t.Helper()
	a, err := d.say(change)
	if err != nil {
		d.t.Fatal(err)
	}
	return a
}

func (d *desk) ask(n int, amount int64) func(h *escrow.Heartbeat) {
	return func(h *escrow.Heartbeat) {
		h.Requests = append(h.Requests, escrow.Request{ID: grantID(n), Account: d.hard, Amount: usd(amount), Least: usd(amount)})
	}
}

func report(n int, consumed, uncertain int64, e escrow.Ending) func(h *escrow.Heartbeat) {
	return func(h *escrow.Heartbeat) {
		h.Reports = append(h.Reports, escrow.Report{Grant: grantID(n), Consumed: usd(consumed), Uncertain: usd(uncertain), Ending: e})
	}
}

// A lost answer is answered again with the original, however late.
func TestReplayReturnsTheOriginal(t *testing.T) {
	d := newDesk(t)
	first := d.must(d.ask(1, 500))
	d.now = d.now.Add(20 * time.Second)
	again := d.must(d.ask(1, 500))
	if len(first.Grants) != 1 || !reflect.DeepEqual(first.Grants, again.Grants) || d.accounts[d.hard].Granted != 500 {
		t.Errorf("%+v, then %+v", first.Grants, again.Grants)
	}
	if _, err := d.say(d.ask(1, 501)); !malformed(err) {
		t.Errorf("other terms: %v", err)
	}
	d.must(report(1, 1, 0, escrow.Closed))
	if a := d.must(d.ask(1, 500)); len(a.Denials) != 1 || a.Denials[0].Reason != escrow.Over {
		t.Errorf("a grant that has ended was given again: %+v", a)
	}
}

// A copy of a heartbeat that arrives late grants nothing: the node has long gone on.
func TestReplayGrantsNothingNew(t *testing.T) {
	d := newDesk(t)
	for n := range 10 {
		d.must(d.ask(n, 100_000))
	}
	denied := func(h *escrow.Heartbeat) { h.Sequence = 20; d.ask(20, 100_000)(h) }
	d.h.Sequence = 19
	if a := d.must(denied); len(a.Denials) != 1 || a.Denials[0].Reason != escrow.NoRoom || a.Denials[0].Left != 0 {
		t.Fatalf("%+v", a)
	}
	if err := d.operate(grantID(1), func(h escrow.Held) (escrow.Held, escrow.Delta, error) {
		next, delta, _, err := h.Apply(&escrow.Report{Ending: escrow.Closed})
		return next, delta, err
	}); err != nil {
		t.Fatal(err)
	}
	d.h.Sequence, d.h.Answered, d.h.Mark = 19, 10, policy.Mark{Namespace: d.mark.Namespace, Generation: d.mark.Generation, Revision: d.mark.Revision}
	if a := d.must(denied); len(a.Grants) != 0 || len(a.Denials) != 1 || a.Denials[0].Left != 100_000 {
		t.Errorf("%+v", a)
	}
	if a := d.must(d.ask(20, 100_000)); len(a.Grants) != 1 {
		t.Errorf("asked anew, a denied request is decided anew: %+v", a)
	}
}

// One bad entry, and nothing of the heartbeat has happened.
func TestBatchIsAllOrNothing(t *testing.T) {
	d := newDesk(t)
	d.must(d.ask(1, 500))
	d.must(report(1, 100, 0, escrow.Open))
	meter := func(h *escrow.Heartbeat) {
		h.Meters = append(h.Meters, escrow.Meter{ID: grantID(50), Account: d.soft, Consumed: 5})
	}
	for name, bad := range map[string]func(h *escrow.Heartbeat){
		"falls":              report(1, 99, 0, escrow.Open),
		"negative":           report(1, -1, 0, escrow.Open),
		"there twice":        func(h *escrow.Heartbeat) { report(1, 200, 0, escrow.Open)(h); report(1, 300, 0, escrow.Open)(h) },
		"overflows":          report(1, 1<<62, 1<<62, escrow.Open),
		"is no grant":        func(h *escrow.Heartbeat) { h.Reports = []escrow.Report{{Grant: escrow.GrantID{1}}} },
		"a meter of a grant": func(h *escrow.Heartbeat) { h.Meters = []escrow.Meter{{ID: grantID(1), Account: d.hard}} },
		"a request by an old": func(h *escrow.Heartbeat) {
			h.Requests = []escrow.Request{{ID: grantID(1), Account: d.soft, Amount: 500, Least: 500}}
		},
	} {
		before := d.copy()
		_, err := d.say(func(h *escrow.Heartbeat) { d.ask(2, 100)(h); meter(h); bad(h) })
		if !malformed(err) {
			t.Errorf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(before.accounts, d.accounts) || !reflect.DeepEqual(before.nodes, d.nodes) || len(before.records) != len(d.records) {
			t.Errorf("%s: something was taken", name)
		}
	}
}

func TestOthersGrantsAreTheirs(t *testing.T) {
	d := newDesk(t)
	d.must(d.ask(1, 500))
	d.must(func(h *escrow.Heartbeat) { h.Meters = []escrow.Meter{{ID: grantID(2), Account: d.soft, Consumed: 7}} })
	d.h = escrow.Heartbeat{Node: "other", Boot: bootID(9), BootNumber: 1}
	for name, theft := range map[string]func(h *escrow.Heartbeat){
		"report": report(1, 1, 0, escrow.Closed), "request": d.ask(1, 500),
		"meter": func(h *escrow.Heartbeat) { h.Meters = []escrow.Meter{{ID: grantID(2), Account: d.soft, Consumed: 9}} },
	} {
		if _, err := d.say(theft); !malformed(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What an earlier boot was granted is never armed again, only closed or burned.
func TestLaterBootBurns(t *testing.T) {
	d := newDesk(t)
	d.must(func(h *escrow.Heartbeat) { d.ask(1, 500)(h); d.ask(2, 400)(h) })
	d.must(report(2, 50, 0, escrow.Open))
	d.h = escrow.Heartbeat{Node: "n", Boot: bootID(2), BootNumber: 2}
	if _, err := d.say(report(1, 5, 0, escrow.Open)); !malformed(err) {
		t.Errorf("an earlier boot's grant stays open: %v", err)
	}
	if a := d.must(d.ask(1, 500)); len(a.Denials) != 1 || a.Denials[0].Reason != escrow.Over {
		t.Errorf("an earlier boot's grant is given again: %+v", a)
	}
	if _, err := d.say(report(2, 49, 0, escrow.Burned)); !fencing(escrow.Restored)(err) {
		t.Errorf("a journal that knows less than was reported: %v", err)
	}
	a := d.must(func(h *escrow.Heartbeat) {
		report(1, 100, 0, escrow.Burned)(h)
		report(2, 400, 0, escrow.Closed)(h)
		report(3, 0, 0, escrow.Burned)(h)
	})
	if a.Receipts[0] != (escrow.Receipt{Grant: grantID(1), Ending: escrow.Burned}) || !a.Receipts[2].Late {
		t.Errorf("%+v", a.Receipts)
	}
	if s := d.accounts[d.hard]; s.Consumed != 500 || s.Uncertain != 400 || s.Granted != 0 {
		t.Errorf("%+v", s)
	}
}

// An authority that does not know what it has answered must not grant.
func TestHistoryThatWentBack(t *testing.T) {
	d := newDesk(t)
	d.must(func(*escrow.Heartbeat) {})
	backup := d.copy()
	d.must(d.ask(1, 500))
	lost := *d
	lost.modelAuthority = backup
	if _, err := lost.say(d.ask(2, 500)); !regressed(err) {
		t.Errorf("a heartbeat was forgotten: %v", err)
	}
	lost.h = escrow.Heartbeat{Node: "n", Boot: bootID(2), BootNumber: 2}
	if _, err := lost.say(report(1, 100, 0, escrow.Burned)); !regressed(err) {
		t.Errorf("a grant that was used was forgotten: %v", err)
	}
	d.edit(budgets(t, 2000, 1000))
	d.must(func(*escrow.Heartbeat) {})
	lost.h = d.h
	if _, err := lost.say(func(h *escrow.Heartbeat) { h.Answered = 0 }); !regressed(err) {
		t.Errorf("policies were forgotten: %v", err)
	}
	if _, err := d.say(func(h *escrow.Heartbeat) { h.Mark.Namespace[5]++ }); !errors.Is(err, escrow.ErrIncompatible) {
		t.Errorf("another namespace: %v", err)
	}
}

// Late use counts in the window that it happened in, and tiers stay reached.
func TestUseCountsInItsOwnWindow(t *testing.T) {
	d := newDesk(t)
	d.must(d.ask(1, 100_000))
	d.must(func(h *escrow.Heartbeat) {
		h.Meters = []escrow.Meter{{ID: grantID(2), Account: d.soft, Pending: 900_000}}
	})
	if latch := d.accounts[d.soft].Latch; latch != 0 {
		t.Errorf("pending money reached %d %%", latch)
	}
	d.now = d.now.Add(24 * time.Hour)
	d.edit(budgets(t, 5, 1000)) // lowered: nothing that was issued is revoked
	a := d.must(func(h *escrow.Heartbeat) {
		report(1, 60_000, 10_000, escrow.Closed)(h)
		h.Meters = []escrow.Meter{{ID: grantID(2), Account: d.soft, Consumed: 500_000, Pending: 4}, {ID: grantID(3), Account: d.soft, Consumed: 1}}
		d.ask(4, 1000)(h) // of a window that is over
	})
	if len(a.Denials) != 1 || a.Denials[0].Reason != escrow.Unknown {
		t.Errorf("%+v", a.Denials)
	}
	if s := d.accounts[d.hard]; s.Consumed != 60_000 || s.Uncertain != 10_000 || s.Granted != 0 {
		t.Errorf("%+v", s)
	}
	if s := d.accounts[d.soft]; s.Consumed != 500_001 || s.Granted != 4 || s.Latch != 50 {
		t.Errorf("%+v", s)
	}
	if a.Budgets[0] != (escrow.Budget{}) {
		t.Errorf("the new window begins with %+v", a.Budgets[0])
	}
}

// What was removed long ago is not granted, charged or refunded again.
func TestHorizon(t *testing.T) {
	d := newDesk(t)
	b := escrow.Books{
		Now: noon.UnixMicro(), TTL: time.Minute, Horizon: noon.UnixMicro() + 1_000_000, Mark: d.mark, Documents: d.set,
		Definitions: definitions(t, d.set, noon), Records: map[escrow.GrantID]escrow.Record{},
		Accounts: map[escrow.Account]escrow.Standing{d.hard: {}, d.soft: {}},
	}
	h := d.h
	h.Sequence = 1
	report(1, 70, 5, escrow.Closed)(&h)
	d.ask(2, 5)(&h)
	h.Meters = []escrow.Meter{{ID: grantID(3), Account: d.soft, Consumed: 5}}
	out, err := b.Take(&h)
	if err != nil || len(out.Accounts) != 0 || !out.Answer.Receipts[0].Late || !out.Answer.Receipts[1].Late || len(out.Answer.Denials) != 1 || out.Answer.Denials[0].Reason != escrow.Over {
		t.Errorf("%+v, %v", out, err)
	}
	b.Horizon = 0
	delete(b.Accounts, d.hard)
	if _, err := b.Take(&h); err == nil {
		t.Error("an account that was not loaded counts as an empty one")
	}
}

func TestOverrunIsFlagged(t *testing.T) {
	d := newDesk(t)
	d.must(d.ask(1, 500))
	for _, c := range []struct{ consumed, flagged int }{{500, 0}, {600, 1}, {600, 0}, {700, 1}} {
		d.must(report(1, int64(c.consumed), 0, escrow.Open))
		if len(d.last.Overruns) != c.flagged {
			t.Errorf("at %d: %v", c.consumed, d.last.Overruns)
		}
	}
}

func TestIDs(t *testing.T) {
	at := time.Date(2026, 3, 14, 1, 2, 3, 4_000_000, time.UTC)
	id := escrow.NewGrantID(at)
	if !id.Valid() || id.UnixMilli() != at.UnixMilli() || id == escrow.NewGrantID(at) {
		t.Error(id)
	}
	if one, other := escrow.NewBootID(), escrow.NewBootID(); one == other {
		t.Error(one)
	}
	if back, err := escrow.ParseGrantID(id.String()); err != nil || back != id {
		t.Error(back, err)
	}
	boot := escrow.NewBootID()
	if back, err := escrow.ParseBootID(boot.String()); err != nil || back != boot {
		t.Error(back, err)
	}
	for _, bad := range []string{"", boot.String(), id.String() + " ", id.String()[1:], "00000000-0000-0000-0000-000000000000"} {
		if _, err := escrow.ParseGrantID(bad); !malformed(err) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, bad := range []string{"n\x7f", "", "-n", "n/n", "é"} {
		if err := escrow.ValidNode(bad); !malformed(err) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
