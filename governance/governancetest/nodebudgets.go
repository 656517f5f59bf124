package governancetest

import (
	"errors"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/keys"
)

func nodeMeters(n *node) {
	n.hub.policies(document("p", team1, budget("month", 5, false)))
	c := n.someone(keys.Limits{})
	n.sync()
	p := n.admit(c, dollars(100*milli))
	n.settle(n.admit(c, dollars(7*milli)), governance.Used(0, 6*milli))
	n.has("month", 100*milli, 6*milli, 0, 0)
	n.settle(n.admit(c, governance.Bound{Free: true}), governance.Used(9, 0))
	n.has("month", 100*milli, 6*milli, 0, 0)
	n.refusal(n.tryAdmit(c, governance.Bound{Unpriced: true}), governance.ReasonUnpriced) // a meter could not count it
	n.sync()
	n.hub.accountHolds(n.hubAccount("month"), 6*milli, 0, 100*milli)
	n.settle(p, governance.Unknown())
	n.sync()
	n.hub.accountHolds(n.hubAccount("month"), 6*milli, 100*milli, 0)
	// Nobody knows what a meter shows that was told the impossible, wherever that was.
	n.hub.team("team-1", keys.Limits{})
	gateway := n.hub.caller("team-1", keys.Limits{})
	n.hub.settle(n.hub.admit(gateway, dollars(1)), impossible())
	n.sync()
	r := n.refusal(n.tryAdmit(c, dollars(1)), governance.ReasonFrozen)
	n.equal("status", governance.StatusOf(r).Code, 423)
}

// A node knows what it has used itself before the authority does.
func nodeTiers(n *node) {
	n.hub.policies(document("p", team1, budget("month", 10, false), thrift(false)))
	c := n.someone(keys.Limits{})
	n.sync()
	n.equal("model", n.route(c).Model, "model-1")
	p := n.admit(c, dollars(9*milli))
	n.equal("tier while it is pending", n.tierOf(c), policy.Percent(0))
	n.settle(p, governance.Used(1, 3*milli))
	n.sync()
	n.settle(n.admit(c, dollars(2*milli)), governance.Used(1, 1*milli)) // 3 told, 1 not
	n.equal("tier", n.tierOf(c), policy.Percent(0))
	n.settle(n.admit(c, dollars(2*milli)), governance.Used(1, 1*milli)) // 3 told, 2 not
	n.equal("tier", n.tierOf(c), policy.Percent(50))
	n.settle(n.admit(c, dollars(1)), governance.Used(1, 1)) // which sees it
	n.equal("model", n.route(c).Model, "model-2")
	n.hub.policies(document("p", team1, budget("month", 1000, false), thrift(false)))
	n.sync() // by now it is half of nothing like the limit
	n.equal("tier stays in the window", n.tierOf(c), policy.Percent(50))
	n.equal("model", n.route(c).Model, "model-2")
	n.hub.policies(document("p", team1, budget("month", 10, false), thrift(false)))
	n.sync()
	other := newNode(n.hub, "node-2") // which learns what others used
	other.env.team("team-1", keys.Limits{})
	other.sync()
	n.equal("model on another node", other.route(other.caller("team-1", keys.Limits{})).Model, "model-2")
	other.audit()
}

func nodeStrict(n *node) {
	n.hub.policies(document("p", team1, budget("month", 10, true), thrift(true)))
	c := n.someone(keys.Limits{})
	n.sync()
	n.settle(n.credited(c, dollars(1)), governance.Used(1, 1))
	route := n.route(c)
	other := n.hub.speaker(n.hub.authority(n.hub.b), "node-2")
	other.granted("month", 6*milli) // issued is encumbered
	n.sync()
	n.refusal(n.tryAdmit(c, dollars(1)), governance.ReasonModel)
	r := request(c, dollars(1))
	r.Route = route // selected before
	_, err := n.g.Admit(n.ctx, r)
	n.is(err, governance.ErrStale)
	r.Route = n.route(c)
	r.Model = r.Route.Model
	n.equal("model", r.Model, "model-2")
	p, err := n.g.Admit(n.ctx, r)
	n.ok(err)
	n.settle(p, governance.Used(1, 1))
}

func nodeEdits(n *node) {
	n.hub.policies(document("p", team1, budget("month", 10, true)))
	c := n.someone(keys.Limits{})
	n.sync()
	mark := n.j.Mark()
	if now, _, err := n.g.Policies(n.ctx); err != nil || now != mark {
		n.Fatalf("%+v, %v; want %+v", now, err, mark)
	}
	n.refusal(n.tryAdmit(c, dollars(11*milli)), governance.ReasonNeverFits)
	n.hub.policies(document("p", team1, budget("month", 100, true)))
	n.refusal(n.tryAdmit(c, dollars(11*milli)), governance.ReasonNeverFits) // nobody has told it
	n.sync()
	p := n.credited(c, dollars(11*milli))
	n.hub.policies(document("p", team1, budget("month", 100, false)))
	n.sync()
	n.settle(n.admit(c, dollars(200*milli)), governance.Used(1, 1)) // a meter now
	n.hub.policies()
	n.sync()
	n.settle(n.admit(c, dollars(1)), governance.Used(1, 1)) // no budget at all
	n.settle(p, governance.Used(1, 10*milli))
	zoned := budget("zone", 10, true)
	zoned.Budget.Calendar.Zone = "Europe/Berlin"
	n.hub.policies(document("p", team1, zoned))
	n.sync()
	n.refusal(n.tryAdmit(c, dollars(1)), governance.ReasonGated)
	n.hub.policies(document("p", team1, budget("month", 10, true)))
	n.sync()
	// What is out counts where it was granted, whatever became of the rule meanwhile.
	n.leave()
	n.hub.accountHolds(n.hubAccount("month"), 10*milli+1, 0, 0)

	// An answer of another authority, or of one that went back, is not taken.
	other := newNode(n.hub, "node-2")
	a := other.sync()
	for _, change := range []func(*escrow.Answer){
		func(a *escrow.Answer) { a.Mark.Namespace[0]++ },
		func(a *escrow.Answer) { a.Mark.Revision-- },
	} {
		h, err := other.l.Next(n.ctx, false)
		n.ok(err)
		forged := *a
		change(&forged)
		err = other.l.Take(n.ctx, h, &forged, other.clock.now())
		if !errors.Is(err, escrow.ErrIncompatible) && !errors.Is(err, escrow.ErrRegressed) {
			n.Fatalf("%v", err)
		}
		n.equal("mark", other.j.Mark(), a.Mark)
	}
	other.audit()
}

// No clock of the node says which window it is.
func nodeWindows(n *node) {
	n.hub.policies(document("p", team1, budget("month", 100, true), budget("meter", 100, false)))
	c := n.someone(keys.Limits{})
	n.sync()
	first := n.hubAccount("month")
	n.advance(100 * 24 * time.Hour) // its own calendar is far ahead
	p := n.credited(c, dollars(2*milli))
	n.equal("account", n.rule("month").Account, first)
	rest := time.UnixMicro(first.Window.End).Sub(time.UnixMicro(n.hub.now()))
	n.hub.advance(rest)
	n.clock.moved.Add(int64(rest))
	n.refusal(n.tryAdmit(c, dollars(1)), governance.ReasonCredit) // that was for the last window
	n.sync()
	second := n.hubAccount("month")
	if second == first {
		n.Fatal("the window did not roll")
	}
	n.settle(n.credited(c, dollars(3*milli)), governance.Used(1, 3*milli))
	n.settle(p, governance.Used(1, 2*milli)) // late
	n.leave()
	n.hub.accountHolds(first, 2*milli, 0, 0)
	n.hub.accountHolds(second, 3*milli, 0, 0)
}

func nodeUsage(n *node) {
	n.hub.policies(document("p", team1, budget("month", 100, true), budget("meter", 50, false)))
	daily := amount.MicroUSD(20 * milli)
	c := n.someone(keys.Limits{CostPerDay: &daily})
	n.sync()
	v := n.verdict(c, governance.ScopeTeam, "month")
	if !v.Node || v.Limit != 100*milli || v.Held != 0 || v.Remaining() != 0 || v.Reason != governance.ReasonCredit && v.Reason != 0 {
		n.Fatalf("%+v", v)
	}
	if end, ok := v.ResetsAt(); !ok || end != n.hubAccount("month").Window.End {
		n.Fatalf("%+v", v)
	}
	p := n.credited(c, dollars(1*milli))
	v = n.verdict(c, governance.ScopeTeam, "month")
	if v.Reserved != 1*milli || v.Held <= 0 || v.Remaining() != v.Held || v.Held > 99*milli || v.Reason != 0 {
		n.Fatalf("%+v", v)
	}
	n.settle(p, governance.Used(1, 400))
	v = n.verdict(c, governance.ScopeTeam, "meter")
	if !v.Node || v.Consumed != 400 || v.Reserved != 0 || v.Remaining() != 50*milli-400 {
		n.Fatalf("%+v", v)
	}
	if v := n.verdict(c, governance.ScopeKey, "cost_per_day"); v.Node || v.Consumed != 400 {
		n.Fatalf("%+v", v)
	}
	e, err := n.g.Explain(n.ctx, request(c, dollars(1)))
	n.ok(err)
	n.equal("admitted", e.Admitted, true)
	e, err = n.g.Explain(n.ctx, request(c, dollars(19*milli)))
	n.ok(err)
	if e.Admitted || e.Refusal.Reason != governance.ReasonCredit || e.Refusal.Verdict.Constraint.Rule != "month" {
		n.Fatalf("%+v", e)
	}
	n.pass(grantTTL)
	e, err = n.g.Explain(n.ctx, request(c, governance.Bound{Free: true}))
	n.ok(err)
	n.equal("admitted past the deadline", e.Admitted, false)
}

// Many calls share a step; one that is refused takes nothing from the others.
func nodeTogether(n *node) {
	n.hub.policies(document("p", team1, budget("month", 100, true)), document("q", policy.Subject{Team: "team-2"}, budget("month", 100, true)))
	c := n.someone(keys.Limits{})
	n.env.team("team-2", keys.Limits{})
	poor := n.caller("team-2", keys.Limits{})
	n.sync()
	n.settle(n.credited(c, dollars(50*milli)), governance.Used(1, 50*milli))
	n.settle(n.credited(c, dollars(1)), governance.NotSent())
	var mu sync.Mutex
	admitted, spent := 0, int64(0)
	n.flood(400, func(i int) (*governance.Permit, error) {
		who, b := c, both(1, 100)
		switch i % 4 {
		case 0:
			b = dollars(90 * milli)
		case 1:
			who = poor
		}
		p, err := n.g.Admit(n.ctx, request(who, b))
		if err != nil {
			return nil, err
		}
		if who == poor || b.Cost != 100 {
			n.Errorf("admitted without credit: %+v", b)
		}
		if i%3 == 0 {
			err = p.Cancel(n.ctx)
		} else {
			err = p.Settle(n.ctx, governance.Used(1, 70))
		}
		mu.Lock()
		defer mu.Unlock()
		if admitted++; i%3 != 0 {
			spent += 70
		}
		return p, err
	})
	if admitted == 0 {
		n.Fatal("nobody was admitted")
	}
	for _, a := range n.status().Accounts {
		if a.Reserved != 0 || a.Account.Subject == team1 && a.Consumed != amount.MicroUSD(50*milli+spent) {
			n.Fatalf("%d were admitted and %d spent: %+v", admitted, spent, a)
		}
	}
}

func nodeBooks(n *node) {
	n.hub.policies(document("p", team1, budget("month", 100, true)))
	c := n.someone(keys.Limits{})
	n.sync()
	n.credited(c, dollars(1*milli))
	v, err := n.g.Verify(n.ctx, governance.VerifyQuery{})
	n.ok(err)
	n.equal("differences", len(v.Differences), 0)
	n.equal("reservations", v.Reservations, int64(1))
	store := n.b.Backend().Journal
	tamper := func(change func(*journal.Grant)) {
		n.ok(store.Step(n.ctx, &journal.Plan{Everything: true}, func(l *journal.Loaded) (*journal.Changes, error) {
			g := l.Grants[0]
			for _, other := range l.Grants {
				if other.Reserved > g.Reserved {
					g = other
				}
			}
			change(&g)
			return &journal.Changes{Grants: []journal.Grant{g}}, nil
		}))
	}
	tamper(func(g *journal.Grant) { g.Reserved++ })
	v, err = n.g.Verify(n.ctx, governance.VerifyQuery{})
	n.ok(err)
	if len(v.Differences) != 1 || v.Differences[0].Stored.Reserved != v.Differences[0].Computed.Reserved+1 {
		n.Fatalf("%+v", v.Differences)
	}
	tamper(func(g *journal.Grant) { g.Reserved-- })
	// A reservation without a permit is one that nobody will settle.
	id := journal.NewID()
	n.ok(n.j.Reserve(n.ctx, journal.Reservation{ID: id, Needs: []journal.Need{{Account: n.hubAccount("month"), Amount: 1}}}))
	v, err = n.g.Verify(n.ctx, governance.VerifyQuery{})
	n.ok(err)
	n.equal("differences", len(v.Differences), 1)
	n.ok(n.j.Settle(n.ctx, id, journal.NotSent()))
}
