package governancetest

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

// authorityCases hold an Authority on the store to what escrow.Authority promises.
func authorityCases() []scenario {
	needs := Features{Policies: true, Nodes: true}
	list := []scenario{
		{name: "GrantsAndTakesBack", run: authorityLife},
		{name: "EmptyAnswerIsComplete", run: authorityEmpty},
		{name: "IssuersTogetherStayWithinTheLimit", run: authorityIssuers},
		{name: "RepeatedHeartbeatIsAnsweredTheSame", run: authorityReplay},
		{name: "LostCommitIsFoundOut", run: authorityDoubt},
		{name: "DeniedIsDecidedAnew", run: authorityAnew},
		{name: "OneBadElementRejectsAll", run: authorityAtomic},
		{name: "OneBootSpeaksForANode", run: authorityFencing},
		{name: "ExpiryRefundsNothing", run: authorityExpiry},
		{name: "FirstClosureAloneRefunds", run: authorityClosure},
		{name: "BurnedIsUncertain", run: authorityBurn},
		{name: "OverrunIsCountedInFull", run: authorityOverrun},
		{name: "LimitLoweredAndRaised", run: authorityLimits},
		{name: "PolicyDeletedAndAddedAgain", run: authorityReturn},
		{name: "LateReportsGoToTheirWindow", run: authorityRollover},
		{name: "MetersCountAndSwitchTiers", run: authorityMeters},
		{name: "MeterOfADeletedPolicy", run: authorityOrphan},
		{name: "GrantsCompeteWithReservations", run: authorityCompetes},
		{name: "ResolvedWhenItCannotBeSpent", run: authorityResolve},
		{name: "NodesSayWhatIsOut", run: authorityNodes},
		{name: "VerifyCountsGrants", run: authorityVerify},
		{name: "PruneKeepsWhatIsOut", run: authorityPrune},
	}
	for i := range list {
		list[i].needs = needs
	}
	return append(list, scenario{name: "AnotherProcessGoesOn", needs: Features{Policies: true, Nodes: true, Durable: true}, run: authorityRestart})
}

func authorityLife(e *env) {
	e.policies(document("p", team1, budget("month", 100, true)))
	n := e.speaker(e.authority(e.b), "node-1")
	g := n.granted("month", 10*milli)
	e.equal("expiry", g.ExpiresAt, e.now()+grantTTL.Microseconds())
	e.accountHolds(g.Account, 0, 0, 10*milli)
	e.equal("granted by the answer", n.budget("month").Granted, amount.MicroUSD(10*milli))
	n.report(escrow.Report{Grant: g.ID, Consumed: 3 * milli, Uncertain: 1 * milli})
	e.accountHolds(g.Account, 3*milli, 1*milli, 6*milli)
	answer := n.report(escrow.Report{Grant: g.ID, Consumed: 4 * milli, Uncertain: 1 * milli, Observed: 7, Ending: escrow.Closed})
	e.accountHolds(g.Account, 4*milli, 1*milli, 0)
	e.equal("receipt", answer.Receipts[0], escrow.Receipt{Grant: g.ID, Ending: escrow.Closed})
}

func authorityEmpty(e *env) {
	e.policies()
	n := e.speaker(e.authority(e.b), "node-1")
	answer := n.hello()
	if answer.Documents == nil || answer.Documents.Len() != 0 || answer.Mark.Revision == 0 || answer.Now == 0 {
		e.Fatalf("%+v", answer)
	}
	if _, err := governance.NewAuthority(e.b, &governance.AuthorityOptions{GrantTTL: -1}); !errors.Is(err, governance.ErrInvalid) {
		e.Fatal(err)
	}
}

// replica is a second handle where it goes by the same policies, else the same one.
func (e *env) replica() governance.Backend {
	e.Helper()
	if !e.h.Features.Shared {
		return e.b
	}
	other := e.h.Reopen(e, e.b)
	here, err := e.b.Backend().Policies.Load(e.ctx)
	e.ok(err)
	there, err := other.Backend().Policies.Load(e.ctx)
	e.ok(err)
	if here.Namespace != there.Namespace {
		return e.b
	}
	return other
}

func authorityIssuers(e *env) {
	e.policies(document("p", team1, budget("month", 30, true)))
	issuers := []*governance.Authority{e.authority(e.b), e.authority(e.replica())}
	var granted atomic.Int64
	var wg sync.WaitGroup
	for i := range 4 {
		n := e.speaker(issuers[i%2], string(rune('a'+i)))
		n.hello()
		wg.Go(func() {
			for {
				h := n.next()
				h.Requests = []escrow.Request{n.wish("month", 2*milli), n.wish("month", 1*milli)}
				answer, err := n.send(h)
				if err != nil {
					e.background(err)
					return
				}
				for _, g := range answer.Grants {
					granted.Add(int64(g.Amount))
				}
				if len(answer.Grants) == 0 {
					return
				}
			}
		})
	}
	wg.Wait()
	e.equal("granted", granted.Load(), int64(30*milli))
}

func authorityReplay(e *env) {
	e.policies(document("p", team1, budget("month", 10, true)))
	a := e.authority(e.b)
	n := e.speaker(a, "node-1")
	n.hello()
	h := n.next()
	h.Requests = []escrow.Request{n.wish("month", 3*milli), n.wish("month", 20*milli)}
	first := n.must(h)
	e.advance(time.Minute)
	n.a = e.authority(e.replica()) // its answer was lost; another replica hears the repetition
	again := n.must(h)
	if len(again.Grants) != 1 || again.Grants[0] != first.Grants[0] || len(again.Denials) != 1 {
		e.Fatalf("%+v, then %+v", first, again)
	}
	e.accountHolds(again.Grants[0].Account, 0, 0, 3*milli)
	next := n.next()
	next.Requests = h.Requests[:1]
	if third := n.must(next); len(third.Grants) != 1 || third.Grants[0] != first.Grants[0] {
		e.Fatalf("%+v, then %+v", first, third)
	}
	e.accountHolds(again.Grants[0].Account, 0, 0, 3*milli)
	before := e.snapshot()
	_, err := a.Beat(e.ctx, h)
	e.is(err, escrow.ErrStale)
	e.unchanged(before)
	// What has ended is not granted again.
	n.report(escrow.Report{Grant: first.Grants[0].ID, Ending: escrow.Closed})
	next = n.next()
	next.Requests = h.Requests[:1]
	if over := n.must(next); len(over.Denials) != 1 || over.Denials[0].Reason != escrow.Over {
		e.Fatalf("%+v", over)
	}
}

func authorityDoubt(e *env) {
	e.policies(document("p", team1, budget("month", 10, true)))
	doubts, commits := 0, false
	stores := e.b.Backend()
	stores.Store = &faulty{e.store, func(_ context.Context, _ *governance.Plan, commit func() error) error {
		if doubts > 0 {
			if doubts--; commits {
				e.ok(commit())
			}
			return unknown()
		}
		return commit()
	}}
	n := e.speaker(e.authority(stores), "node-1")
	n.hello()
	doubts, commits = 1, true
	if g := n.granted("month", 4*milli); e.record(governance.PermitID(g.ID)).State != governance.StateOpen {
		e.Fatal("what was answered was not granted")
	}
	doubts, commits = 1, false
	g := n.granted("month", 5*milli)
	e.accountHolds(g.Account, 0, 0, 9*milli)
	// Where nothing can be found out, the node must ask again.
	doubts, commits = 2, true
	h := n.next()
	h.Reports = []escrow.Report{{Grant: g.ID, Consumed: 3, Ending: escrow.Closed}}
	_, err := n.send(h)
	e.is(err, escrow.ErrUnavailable)
	n.must(h)
	e.accountHolds(g.Account, 3, 0, 4*milli)
}

func authorityAnew(e *env) {
	e.policies(document("p", team1, budget("month", 10, true)))
	a := e.authority(e.b)
	n, other := e.speaker(a, "node-1"), e.speaker(a, "node-2")
	g := other.granted("month", 8*milli)
	n.hello()
	wish := n.wish("month", 5*milli)
	h := n.next()
	h.Requests = []escrow.Request{wish}
	if d := n.must(h).Denials; len(d) != 1 || d[0] != (escrow.Denial{ID: wish.ID, Reason: escrow.NoRoom, Left: 2 * milli}) {
		e.Fatalf("%+v", d)
	}
	other.report(escrow.Report{Grant: g.ID, Consumed: 2 * milli, Ending: escrow.Closed})
	h = n.next()
	h.Requests = []escrow.Request{wish}
	if got := n.must(h).Grants; len(got) != 1 || got[0].ID != wish.ID || got[0].Amount != 5*milli {
		e.Fatalf("%+v", got)
	}
	n.denied("month", 9*milli, escrow.Spent)
}

func authorityAtomic(e *env) {
	e.team("team-1", keys.Limits{})
	attempt := e.admit(e.caller("team-1", keys.Limits{}), dollars(1))
	e.policies(document("p", team1, budget("month", 100, true), budget("meter", 100, false)))
	a := e.authority(e.b)
	n, other := e.speaker(a, "node-1"), e.speaker(a, "node-2")
	foreign := other.granted("month", 1*milli)
	g := n.granted("month", 10*milli)
	n.report(escrow.Report{Grant: g.ID, Consumed: 5 * milli})
	soft := escrow.Meter{ID: e.grantID(), Account: n.definition("meter").Account, Consumed: 7}
	n.meter(soft)
	fresh := func() escrow.Meter {
		return escrow.Meter{ID: e.grantID(), Account: soft.Account, Consumed: 1}
	}
	for name, spoil := range map[string]func(h *escrow.Heartbeat){
		"a report that falls": func(h *escrow.Heartbeat) {
			h.Reports = append(h.Reports, escrow.Report{Grant: g.ID, Consumed: 4 * milli})
		},
		"a report that overflows": func(h *escrow.Heartbeat) {
			h.Reports = append(h.Reports, escrow.Report{Grant: g.ID, Consumed: 5 * milli, Uncertain: math.MaxInt64 - 5*milli, Observed: math.MaxInt64})
			h.Meters = append(h.Meters, escrow.Meter{ID: e.grantID(), Account: g.Account, Uncertain: math.MaxInt64 - 1})
		},
		"a negative report": func(h *escrow.Heartbeat) {
			h.Reports = append(h.Reports, escrow.Report{Grant: g.ID, Consumed: -1})
		},
		"another node's grant": func(h *escrow.Heartbeat) {
			h.Reports = append(h.Reports, escrow.Report{Grant: foreign.ID, Ending: escrow.Closed})
		},
		"a permit of a gateway": func(h *escrow.Heartbeat) {
			h.Reports = append(h.Reports, escrow.Report{Grant: escrow.GrantID(attempt.ID()), Ending: escrow.Closed})
		},
		"a meter as a grant": func(h *escrow.Heartbeat) {
			h.Reports = append(h.Reports, escrow.Report{Grant: soft.ID, Consumed: 7, Ending: escrow.Closed})
		},
		"a grant as a meter": func(h *escrow.Heartbeat) {
			h.Meters = append(h.Meters, escrow.Meter{ID: g.ID, Account: g.Account, Consumed: 6 * milli})
		},
		"a meter of another account": func(h *escrow.Heartbeat) {
			h.Meters = append(h.Meters, escrow.Meter{ID: soft.ID, Account: g.Account, Consumed: 8})
		},
		"a meter that falls": func(h *escrow.Heartbeat) {
			h.Meters = append(h.Meters, escrow.Meter{ID: soft.ID, Account: soft.Account, Consumed: 6})
		},
		"a meter in a window that is to come": func(h *escrow.Heartbeat) {
			m := fresh()
			m.Account.Window.Start, m.Account.Window.End = m.Account.Window.End, m.Account.Window.End+28*86_400_000_000
			h.Meters = append(h.Meters, m)
		},
		"a meter in a window that never was": func(h *escrow.Heartbeat) {
			m := fresh()
			m.Account.Window.Start++
			h.Meters = append(h.Meters, m)
		},
		"a request on other terms": func(h *escrow.Heartbeat) {
			h.Requests = append(h.Requests, escrow.Request{ID: g.ID, Account: g.Account, Amount: 9 * milli, Least: 1})
		},
		"an id of the future": func(h *escrow.Heartbeat) {
			r := n.wish("month", 1)
			r.ID = escrow.NewGrantID(time.UnixMicro(e.now()).Add(6 * time.Minute))
			h.Requests = append(h.Requests, r)
		},
	} {
		h := n.next()
		h.Requests = []escrow.Request{n.wish("month", 2*milli)}
		h.Meters = []escrow.Meter{fresh()}
		if spoil(h); len(h.Reports) == 0 {
			h.Reports = []escrow.Report{{Grant: g.ID, Consumed: 6 * milli}}
		}
		e.Log(name)
		n.rejects(h)
	}
	n.report(escrow.Report{Grant: g.ID, Consumed: 6 * milli})
	e.accountHolds(g.Account, 6*milli, 0, 5*milli)
}

func authorityFencing(e *env) {
	e.policies(document("p", team1, budget("month", 100, true)))
	n := e.speaker(e.authority(e.b), "node-1")
	g := n.granted("month", 10*milli)
	copied := *n
	copied.boot, copied.sequence, copied.answered = escrow.NewBootID(), 0, 0
	copied.fenced(escrow.Cloned)
	second := n.reboot()
	second.hello()
	n.fenced(escrow.Replaced)
	older := *n
	older.boot, older.sequence, older.answered = escrow.NewBootID(), 0, 0
	older.fenced(escrow.Restored)
	second.report(escrow.Report{Grant: g.ID, Consumed: 1 * milli, Ending: escrow.Burned})
	e.accountHolds(g.Account, 1*milli, 9*milli, 0)

	before := e.snapshot()
	h := second.next()
	h.Sequence += 5
	h.Answered = h.Sequence - 1
	_, err := second.a.Beat(e.ctx, h)
	e.is(err, escrow.ErrRegressed)
	h = second.next()
	h.Mark.Namespace[0]++
	_, err = second.a.Beat(e.ctx, h)
	e.is(err, escrow.ErrIncompatible)
	e.unchanged(before)
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	if _, err = second.a.Beat(ctx, second.next()); err != nil {
		e.Fatalf("a caller who leaves takes the heartbeat with it: %v", err)
	}
}

func authorityExpiry(e *env) {
	e.policies(document("p", team1, budget("month", 10, true)))
	a := e.authority(e.b)
	n := e.speaker(a, "node-1")
	g := n.granted("month", 8*milli)
	e.advance(grantTTL + time.Hour)
	other := e.speaker(a, "node-2")
	other.denied("month", 3*milli, escrow.NoRoom)
	e.accountHolds(g.Account, 0, 0, 8*milli)
	n.report(escrow.Report{Grant: g.ID, Consumed: 1 * milli, Ending: escrow.Closed}) // it was only late
	e.accountHolds(g.Account, 1*milli, 0, 0)
	other.granted("month", 9*milli)
}

func authorityClosure(e *env) {
	e.policies(document("p", team1, budget("month", 100, true)))
	n := e.speaker(e.authority(e.b), "node-1")
	g := n.granted("month", 10*milli)
	closing := escrow.Report{Grant: g.ID, Consumed: 2 * milli, Uncertain: 3 * milli, Ending: escrow.Closed}
	n.report(closing)
	e.accountHolds(g.Account, 2*milli, 3*milli, 0)
	if r := n.report(closing).Receipts[0]; r != (escrow.Receipt{Grant: g.ID, Ending: escrow.Closed}) {
		e.Fatalf("%+v", r)
	}
	for _, other := range []escrow.Report{
		{Grant: g.ID, Ending: escrow.Closed}, {Grant: g.ID, Consumed: 10 * milli, Ending: escrow.Closed}, {Grant: g.ID, Consumed: 2 * milli, Ending: escrow.Burned},
	} {
		if r := n.report(other).Receipts[0]; r != (escrow.Receipt{Grant: g.ID, Ending: escrow.Closed, Late: true}) {
			e.Fatalf("%+v: %+v", other, r)
		}
	}
	e.accountHolds(g.Account, 2*milli, 3*milli, 0)
	given := e.grantID() // a request whose answer was never had
	if r := n.report(escrow.Report{Grant: given, Ending: escrow.Closed}).Receipts[0]; !r.Late {
		e.Fatalf("%+v", r)
	}
}

func authorityBurn(e *env) {
	e.policies(document("p", team1, budget("month", 20, true)))
	n := e.speaker(e.authority(e.b), "node-1")
	g := n.granted("month", 10*milli)
	n.report(escrow.Report{Grant: g.ID, Consumed: 2 * milli, Uncertain: 1 * milli})
	next := n.reboot()
	next.hello()
	next.report(escrow.Report{Grant: g.ID, Consumed: 3 * milli, Uncertain: 1 * milli, Observed: 4, Ending: escrow.Burned})
	e.accountHolds(g.Account, 3*milli, 7*milli, 0)
	next.denied("month", 11*milli, escrow.Spent)
	holds, err := e.g.Holds(e.ctx, governance.HoldQuery{})
	e.ok(err)
	if len(holds) != 1 || holds[0].Grant == nil || !holds[0].Grant.Burned || holds[0].Grant.Node != "node-1" || holds[0].Grant.Boot != n.boot || holds[0].Grant.Uncertain != 7*milli || holds[0].Bound.Cost != 10*milli {
		e.Fatalf("%+v", holds)
	}
	finding := governance.Evidence{ID: holds[0].ID, Outcome: governance.Used(0, 4*milli), Actor: "ada", Reason: "asked the provider"}
	low := finding
	low.Outcome = governance.Used(0, 2*milli)
	_, err = e.g.Resolve(e.ctx, low)
	e.is(err, governance.ErrInvalid)
	for range 2 {
		_, err = e.g.Resolve(e.ctx, finding)
		e.ok(err)
	}
	e.accountHolds(g.Account, 4*milli, 0, 0)
	_, err = e.g.Resolve(e.ctx, low)
	e.is(err, governance.ErrConflict)
	next.granted("month", 11*milli)
}

func authorityOverrun(e *env) {
	e.policies(document("p", team1, budget("month", 10, true)))
	n := e.speaker(e.authority(e.b), "node-1")
	g := n.granted("month", 4*milli)
	n.report(escrow.Report{Grant: g.ID, Consumed: 11 * milli, Uncertain: 1 * milli})
	e.accountHolds(g.Account, 11*milli, 1*milli, 0)
	n.denied("month", 1, escrow.Spent)
	n.report(escrow.Report{Grant: g.ID, Consumed: 12 * milli, Uncertain: 1 * milli, Ending: escrow.Closed})
	e.accountHolds(g.Account, 12*milli, 1*milli, 0)
	if rec := e.record(governance.PermitID(g.ID)); rec.Flags&governance.FlagOverrun == 0 {
		e.Fatalf("%+v", rec)
	}
}
