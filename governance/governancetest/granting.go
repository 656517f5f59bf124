package governancetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/keys"
)

func authorityLimits(e *env) {
	e.policies(document("p", team1, budget("month", 10, true)))
	n := e.speaker(e.authority(e.b), "node-1")
	g := n.granted("month", 8*milli)
	e.policies(document("p", team1, budget("month", 5, true)))
	n.hello()
	e.equal("limit", n.definition("month").Limit, amount.MicroUSD(5*milli))
	e.accountHolds(g.Account, 0, 0, 8*milli) // nothing is revoked
	n.denied("month", 1, escrow.NoRoom)
	n.report(escrow.Report{Grant: g.ID, Consumed: 3 * milli})
	n.denied("month", 1, escrow.NoRoom)
	n.report(escrow.Report{Grant: g.ID, Consumed: 3 * milli, Ending: escrow.Closed})
	n.granted("month", 2*milli)
	n.denied("month", 1, escrow.NoRoom)
	e.policies(document("p", team1, budget("month", 6, true)))
	n.granted("month", 1*milli)
	e.policies(document("p", team1, budget("month", 6, false))) // a meter needs no grants
	n.denied("month", 1, escrow.Unknown)
}

func authorityReturn(e *env) {
	e.policies(document("p", team1, budget("month", 10, true)))
	n := e.speaker(e.authority(e.b), "node-1")
	g := n.granted("month", 8*milli)
	wish := n.wish("month", 1*milli)
	e.policies()
	h := n.next()
	h.Reports = []escrow.Report{{Grant: g.ID, Consumed: 5 * milli}}
	h.Requests = []escrow.Request{wish}
	if answer := n.must(h); len(answer.Definitions) != 0 || answer.Denials[0].Reason != escrow.Unknown {
		e.Fatalf("%+v", answer)
	}
	e.accountHolds(g.Account, 5*milli, 0, 3*milli)
	e.policies(document("p", team1, budget("month", 10, true)))
	n.hello()
	n.denied("month", 3*milli, escrow.NoRoom)
	n.granted("month", 2*milli)
}

func authorityRollover(e *env) {
	e.policies(document("p", team1, budget("month", 10, true)))
	n := e.speaker(e.authority(e.b), "node-1")
	g := n.granted("month", 8*milli)
	e.advance(e.until(g.Account.Window.End) - time.Minute)
	last := n.granted("month", 1*milli)
	e.equal("expiry", last.ExpiresAt, last.Account.Window.End)
	e.advance(2 * time.Minute)
	wish := n.wish("month", 1*milli) // of the window that has ended
	h := n.next()
	h.Reports = []escrow.Report{{Grant: g.ID, Consumed: 6 * milli, Ending: escrow.Closed}}
	h.Requests = []escrow.Request{wish}
	if answer := n.must(h); answer.Denials[0].Reason != escrow.Unknown || n.definition("month").Account.Window.Start != g.Account.Window.End {
		e.Fatalf("%+v", answer)
	}
	e.accountHolds(g.Account, 6*milli, 0, 1*milli)
	e.equal("consumed of the new window", n.budget("month").Consumed, amount.MicroUSD(0))
	fresh := n.granted("month", 10*milli)
	n.report(escrow.Report{Grant: last.ID, Uncertain: 1 * milli, Ending: escrow.Closed})
	e.accountHolds(g.Account, 6*milli, 1*milli, 0)
	e.accountHolds(fresh.Account, 0, 0, 10*milli)
}

func authorityMeters(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	e.policies(document("p", team1, budget("month", 10, false), thrift(true)))
	n := e.speaker(e.authority(e.b), "node-1")
	n.hello()
	m := escrow.Meter{ID: e.grantID(), Account: n.definition("month").Account, Consumed: 1 * milli, Pending: 9 * milli}
	n.meter(m)
	e.accountHolds(m.Account, 1*milli, 0, 9*milli)
	e.equal("latch", n.budget("month").Latch, policy.Percent(0)) // pending switches nothing
	m.Consumed, m.Uncertain, m.Pending = 4*milli, 1*milli, 2*milli
	n.meter(m)
	e.equal("latch", n.budget("month").Latch, policy.Percent(50))
	e.accountHolds(m.Account, 4*milli, 1*milli, 2*milli)
	e.equal("stored", e.cell(e.keyOf(m.Account)).Latch, policy.Percent(50))
	e.refused(c, dollars(1), governance.ReasonModel)
	// Another boot has a meter of its own, and a limit that becomes hard counts them all.
	next := n.reboot()
	next.hello()
	m.Pending = 0
	next.meter(m, escrow.Meter{ID: e.grantID(), Account: m.Account, Consumed: 3 * milli})
	e.accountHolds(m.Account, 7*milli, 1*milli, 0)
	e.policies(document("p", team1, budget("month", 10, true)))
	next.granted("month", 2*milli)
	next.denied("month", 1, escrow.NoRoom)
}

// What a node used of a soft budget counts though nobody has heard of its meter before the
// policy was deleted, and though the window has ended.
func authorityOrphan(e *env) {
	e.policies(document("p", team1, budget("month", 10, false)))
	n := e.speaker(e.authority(e.b), "node-1")
	n.hello()
	first := n.definition("month").Account
	e.policies()
	n.meter(escrow.Meter{ID: e.grantID(), Account: first, Consumed: 3})
	e.accountHolds(first, 3, 0, 0)
	e.policies(document("p", team1, budget("month", 10, false)))
	n.hello()
	e.equal("consumed", n.budget("month").Consumed, amount.MicroUSD(3))
	e.advance(e.until(first.Window.End))
	n.hello()
	second := n.definition("month").Account
	e.advance(e.until(second.Window.End))
	n.meter(escrow.Meter{ID: e.grantID(), Account: second, Consumed: 5}, escrow.Meter{ID: e.grantID(), Account: first, Consumed: 1})
	e.accountHolds(first, 4, 0, 0)
	e.accountHolds(second, 5, 0, 0)
	n.meter(escrow.Meter{ID: e.grantID(), Account: n.definition("month").Account, Consumed: 2})
	e.equal("consumed", n.budget("month").Consumed, amount.MicroUSD(2))
}

func authorityCompetes(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	e.policies(document("p", team1, budget("month", 40, true)))
	issuers := []*governance.Authority{e.authority(e.b), e.authority(e.replica())}
	nodes := []*speaker{e.speaker(issuers[0], "node-1"), e.speaker(issuers[1], "node-2")}
	var taken atomic.Int64
	var wg sync.WaitGroup
	for _, n := range nodes {
		n.hello()
		wg.Go(func() {
			for {
				h := n.next()
				h.Requests = []escrow.Request{n.wish("month", 2*milli)}
				answer, err := n.send(h)
				if err != nil || len(answer.Grants) == 0 {
					e.background(err)
					return
				}
				taken.Add(2 * milli)
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for {
				_, err := e.g.Admit(e.ctx, request(c, dollars(1*milli)))
				var refusal *governance.Refusal
				if errors.As(err, &refusal) {
					return
				}
				if err != nil {
					e.background(err)
					return
				}
				taken.Add(1 * milli)
			}
		})
	}
	wg.Wait()
	if e.Failed() {
		return
	}
	v := e.verdict(c, governance.ScopeTeam, "month")
	if v.Reserved+v.Granted != taken.Load() || taken.Load() != 40*milli || v.Consumed+v.Uncertain != 0 {
		e.Fatalf("%d taken, the account says %+v", taken.Load(), v)
	}
}

func authorityResolve(e *env) {
	e.policies(document("p", team1, budget("month", 10, true), budget("meter", 10, false)))
	n := e.speaker(e.authority(e.b), "node-1")
	g := n.granted("month", 8*milli)
	n.report(escrow.Report{Grant: g.ID, Consumed: 1 * milli})
	finding := governance.Evidence{ID: governance.PermitID(g.ID), Outcome: governance.Used(0, 3*milli), Actor: "ada", Reason: "the machine is gone"}
	before := e.snapshot()
	_, err := e.g.Resolve(e.ctx, finding)
	var held *governance.SpendableError
	if !errors.As(err, &held) || !errors.Is(err, governance.ErrSpendable) || held.Until != g.ExpiresAt {
		e.Fatalf("%v, want spendable until %d", err, g.ExpiresAt)
	}
	e.unchanged(before)
	e.advance(grantTTL)
	hold, err := e.g.Resolve(e.ctx, finding)
	e.ok(err)
	if hold.State != governance.StateResolved || hold.Grant == nil {
		e.Fatalf("%+v", hold)
	}
	e.accountHolds(g.Account, 3*milli, 0, 0)
	answer := n.report(escrow.Report{Grant: g.ID, Consumed: 7 * milli, Ending: escrow.Closed})
	e.equal("receipt", answer.Receipts[0], escrow.Receipt{Grant: g.ID, Ending: escrow.Burned, Late: true})
	e.accountHolds(g.Account, 3*milli, 0, 0)
	notes, err := e.g.Notes(e.ctx, governance.NoteQuery{Limit: 10})
	e.ok(err)
	if len(notes) != 1 || notes[0].Action != "resolve" || notes[0].Permit != governance.PermitID(g.ID) || notes[0].Actor != "ada" {
		e.Fatalf("%+v", notes)
	}
	// What a lost meter says was on its way.
	m := escrow.Meter{ID: e.grantID(), Account: n.definition("meter").Account, Pending: 5}
	n.meter(m)
	finding.ID, finding.Outcome = governance.PermitID(m.ID), governance.Used(0, 4)
	_, err = e.g.Resolve(e.ctx, finding)
	e.is(err, governance.ErrSpendable)
	n.reboot().hello()
	_, err = e.g.Resolve(e.ctx, finding)
	e.ok(err)
	e.accountHolds(m.Account, 4, 0, 0)
}

func authorityNodes(e *env) {
	e.policies(document("p", team1, budget("month", 100, true), budget("meter", 10, false)))
	a := e.authority(e.b)
	n, other := e.speaker(a, "node-1"), e.speaker(a, "node-2")
	first := n.granted("month", 10*milli)
	n.report(escrow.Report{Grant: first.ID, Consumed: 1 * milli})
	n.granted("month", 2*milli)
	n.meter(escrow.Meter{ID: e.grantID(), Account: n.definition("meter").Account, Consumed: 5, Pending: 6})
	e.advance(grantTTL)
	next := n.reboot()
	next.hello()
	next.report(escrow.Report{Grant: first.ID, Consumed: 3 * milli, Ending: escrow.Burned})
	at := e.now()
	out := next.granted("month", 4*milli)
	bye := other.next()
	bye.Bye = true
	other.must(bye)
	list, err := a.Nodes(e.ctx, governance.NodesQuery{})
	e.ok(err)
	if len(list) != 2 || list[0].Name != "node-1" || list[0].BootNumber != 2 || list[0].HeardAt != at || list[0].Left || !list[1].Left || len(list[1].Boots) != 0 {
		e.Fatalf("%+v", list)
	}
	boots := list[0].Boots
	if len(boots) != 2 || boots[0].Boot != n.boot || boots[0].Number != 1 || len(boots[0].Accounts) != 2 || boots[1].Boot != next.boot || len(boots[1].Accounts) != 1 {
		e.Fatalf("%+v", boots)
	}
	e.equal("meter", boots[0].Accounts[0], governance.BootAccount{Account: n.definition("meter").Account, Pending: 6})
	e.equal("first boot", boots[0].Accounts[1], governance.BootAccount{Account: first.Account, Stranded: 2 * milli, Burned: 7 * milli})
	e.equal("second boot", boots[1].Accounts[0], governance.BootAccount{Account: out.Account, Outstanding: 4 * milli})
	list, err = a.Nodes(e.ctx, governance.NodesQuery{After: "node-1", Limit: 1})
	if e.ok(err); len(list) != 1 || list[0].Name != "node-2" {
		e.Fatalf("%+v", list)
	}
}

func authorityVerify(e *env) {
	e.policies(document("p", team1, budget("month", 100, true)))
	n := e.speaker(e.authority(e.b), "node-1")
	g := n.granted("month", 10*milli)
	n.report(escrow.Report{Grant: g.ID, Consumed: 3 * milli, Uncertain: 1 * milli, Observed: 2})
	e.wantDifferences(0)
	genuine := e.cell(e.keyOf(g.Account))
	falsified := genuine
	falsified.Account.Granted--
	e.write(&governance.Changes{Cells: []governance.Cell{falsified}})
	d := e.wantDifferences(1).Differences[0]
	e.equal("granted", d.Computed.Granted, int64(6*milli))
	e.write(&governance.Changes{Cells: []governance.Cell{genuine}})
	n.report(escrow.Report{Grant: g.ID, Consumed: 3 * milli, Uncertain: 1 * milli, Observed: 2, Ending: escrow.Burned})
	e.wantDifferences(0)
}

func authorityPrune(e *env) {
	e.policies(document("p", team1, budget("month", 100, true), budget("meter", 10, false)))
	a := e.authority(e.b)
	n := e.speaker(a, "node-1")
	open, closed, burned := n.granted("month", 10*milli), n.granted("month", 5*milli), n.granted("month", 2*milli)
	m := escrow.Meter{ID: e.grantID(), Account: n.definition("meter").Account, Consumed: 9}
	n.meter(m)
	pending := escrow.Meter{ID: e.grantID(), Account: m.Account, Consumed: 1, Pending: 1}
	n.meter(pending)
	n.report(escrow.Report{Grant: closed.ID, Consumed: 4 * milli, Ending: escrow.Closed}, escrow.Report{Grant: burned.ID, Ending: escrow.Burned})
	e.advance(40 * 24 * time.Hour)
	report, err := e.g.Prune(e.ctx, governance.PruneQuery{OlderThan: 2 * time.Hour, Actor: "ada", Reason: "old"})
	e.ok(err)
	if report.Removed.Permits != 2 || report.Removed.Cost != 4*milli+9 || len(report.Differences) != 0 {
		e.Fatalf("%+v", report)
	}
	// What is out or uncertain is kept; what was removed is late.
	answer := n.report(
		escrow.Report{Grant: open.ID, Consumed: 1 * milli, Ending: escrow.Closed},
		escrow.Report{Grant: closed.ID, Consumed: 4 * milli, Ending: escrow.Closed},
		escrow.Report{Grant: burned.ID, Ending: escrow.Burned},
	)
	for i, late := range []bool{false, true, false} {
		if r := answer.Receipts[i]; r.Late != late {
			e.Fatalf("%d: %+v", i, r)
		}
	}
	if r := n.meter(m).Receipts[0]; !r.Late {
		e.Fatalf("%+v", r)
	}
	e.accountHolds(open.Account, 5*milli, 2*milli, 0)
	pending.Pending, pending.Consumed = 0, 2
	n.meter(pending)
	e.accountHolds(m.Account, 11, 0, 0)
}

func authorityRestart(e *env) {
	e.policies(document("p", team1, budget("month", 10, true)))
	n := e.speaker(e.authority(e.b), "node-1")
	n.hello()
	h := n.next()
	h.Requests = []escrow.Request{n.wish("month", 3*milli)}
	first := n.must(h)
	if !e.h.Features.Shared {
		if c, ok := e.b.(interface{ Close() error }); ok {
			e.ok(c.Close())
		}
	}
	b := e.h.Reopen(e, e.b)
	now, err := b.Backend().Policies.Load(e.ctx)
	e.ok(err)
	n.a = e.authority(b)
	if now.Namespace != n.mark.Namespace {
		// Policies in the process are another authority after a restart, and say so.
		_, err := n.a.Beat(e.ctx, h)
		e.is(err, escrow.ErrIncompatible)
		return
	}
	if again := n.must(h); len(again.Grants) != 1 || again.Grants[0] != first.Grants[0] {
		e.Fatalf("%+v, then %+v", first, again)
	}
	n.report(escrow.Report{Grant: first.Grants[0].ID, Consumed: 1, Ending: escrow.Closed})
	e.accountHolds(first.Grants[0].Account, 1, 0, 0)
}
