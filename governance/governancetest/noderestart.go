package governancetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/keys"
)

// Another opening has taken over: the first process admits nothing, be it of what no budget limits.
// What it has on its way ends without the journal, which has charged it.
func nodeFenced(n *node) {
	n.hub.policies(document("p", team1, budget("month", 100, true)))
	tokens := int64(1000)
	c := n.someone(keys.Limits{TokensPerDay: &tokens})
	n.env.team("team-2", keys.Limits{})
	other := n.caller("team-2", keys.Limits{})
	n.sync()
	p := n.credited(c, both(10, 1*milli))
	over := n.credited(c, both(10, 100))
	old := n.g
	n.open()
	granted := n.rule("month")
	n.equal("reserved", granted.Reserved, amount.MicroUSD(0))
	n.untouched(func() {
		for _, who := range []*caller{c, other} {
			_, err := old.Admit(n.ctx, request(who, both(1, 1)))
			n.notReady(err, journal.ErrFenced)
		}
		n.notReady(p.Raise(n.ctx, both(10, 2*milli)), journal.ErrFenced)
		n.notReady(old.Ready(n.ctx), journal.ErrFenced)
	})
	n.settle(p, governance.Used(4, 200))
	n.settle(over, governance.Used(4, 101)) // charged with its grant; flagged, and poisons nothing
	n.held(c, governance.ScopeKey, "tokens_per_day", 8, 0, 0)
	n.equal("uncertain", n.rule("month").Uncertain, granted.Uncertain)
	if rec := n.record(over.ID()); rec.Flags&governance.FlagOverrun == 0 || rec.State != governance.StateSettled {
		n.Fatalf("%+v", rec)
	}
	n.sync()
	n.ok(n.ready())
}

func nodeLeaves(n *node) {
	n.hub.policies(document("p", team1, budget("month", 100, true)))
	c := n.someone(keys.Limits{})
	n.sync()
	p := n.credited(c, dollars(1*milli))
	n.settle(n.credited(c, dollars(10)), governance.Used(1, 10))
	n.leave()
	n.notReady(n.tryAdmit(c, dollars(1)), journal.ErrClosed)
	n.notReady(n.ready(), journal.ErrClosed)
	n.hub.accountHolds(n.hubAccount("month"), 10, 1*milli, 0) // what was on its way is charged, the rest is back
	n.settle(p, governance.Used(1, 400))
	if rec := n.record(p.ID()); rec.State != governance.StateSettled || rec.Outcome.Cost.Value != 400 {
		n.Fatalf("%+v", rec)
	}
	n.hub.accountHolds(n.hubAccount("month"), 10, 1*milli, 0)
}

func nodeResolve(n *node) {
	n.hub.policies(document("p", team1, budget("month", 100, true)))
	c := n.someone(keys.Limits{})
	n.sync()
	open, unknown := n.credited(c, dollars(1*milli)), n.credited(c, dollars(1*milli))
	n.settle(unknown, governance.Observed(1, 7))
	holds, err := n.g.Holds(n.ctx, governance.HoldQuery{})
	n.ok(err)
	n.equal("holds", len(holds), 2)
	finding := governance.Evidence{ID: open.ID(), Outcome: governance.Used(1, 300), Actor: "ada", Reason: "asked the provider"}
	for range 2 {
		_, err = n.g.Resolve(n.ctx, finding)
		n.ok(err)
	}
	n.has("month", 0, 300, 1*milli, 7)
	n.is(open.Settle(n.ctx, governance.Used(1, 5)), governance.ErrTerminal)
	// What was told as uncertain is not taken back here: the authority's operator does that.
	finding.ID = unknown.ID()
	_, err = n.g.Resolve(n.ctx, finding)
	n.ok(err)
	n.has("month", 0, 300, 1*milli, 7)
	// A tool beside the owner leaves the reservation to the next opening.
	beside := n.credited(c, dollars(50))
	tool, err := governance.New(n.b.Backend(), &governance.Options{Beside: true})
	n.ok(err)
	defer tool.Close(n.ctx)
	finding.ID = beside.ID()
	_, err = tool.Resolve(n.ctx, finding)
	n.ok(err)
	n.has("month", 50, 300, 1*milli, 7)
	if n.h.Features.Events {
		n.wantTold(governance.EventHoldOpened, governance.EventOverrun, governance.EventHoldResolved, governance.EventNote,
			governance.EventHoldResolved, governance.EventNote, governance.EventOverrun, governance.EventHoldResolved, governance.EventNote)
	}
	n.leave()
	n.hub.accountHolds(n.hubAccount("month"), 300, 1*milli+50, 0)
}

// A commit whose answer is lost is found out; what nobody can find out is given back when it can.
func nodeDoubt(n *node) {
	n.hub.policies(document("p", team1, budget("month", 100, true)))
	c := n.someone(keys.Limits{})
	n.sync()
	n.settle(n.credited(c, dollars(5*milli)), governance.NotSent())
	stores := n.b.Backend()
	doubt, commits := false, false
	stores.Store = &faulty{n.store, func(_ context.Context, _ *governance.Plan, commit func() error) error {
		if doubt {
			doubt = false
			if commits {
				n.ok(commit())
			}
			return unknown()
		}
		return commit()
	}}
	g := n.governor(stores, &governance.Options{Journal: n.j})
	n.l = g.Ledger() // who decides must hear the answers
	n.sync()
	for _, commits = range []bool{true, false} {
		doubt = true
		_, err := g.Admit(n.ctx, request(c, dollars(100)))
		n.is(err, governance.ErrUnknownOutcome)
		n.eventually("the orphan is cancelled", func() bool { return n.rule("month").Reserved == 0 })
		p, err := g.Admit(n.ctx, request(c, dollars(100)))
		n.ok(err)
		doubt = true
		n.ok(p.Settle(n.ctx, governance.Used(1, 30))) // done again
	}
	n.has("month", 0, 60, 0, 0)
	n.ok(g.Close(n.ctx))
}

func nodeRestart(n *node) {
	n.hub.policies(document("p", team1, budget("month", 100, true), budget("meter", 100, false)))
	daily := amount.MicroUSD(50 * milli)
	c := n.someone(keys.Limits{CostPerDay: &daily})
	n.sync()
	n.settle(n.credited(c, dollars(1*milli)), governance.Used(1, 500))
	p := n.credited(c, dollars(1*milli))
	n.sync()
	before := n.hub.cell(n.hub.keyOf(n.hubAccount("month"))).Account
	n.crash()
	n.notReady(n.ready(), nil) // nothing is known of budgets yet
	n.notReady(n.tryAdmit(c, dollars(1)), nil)
	burnt := n.j.Burnt()
	if burnt.Number != 2 || burnt.Reservations != 1 || burnt.Grants < 1 {
		n.Fatalf("%+v", burnt)
	}
	n.sync()
	n.ok(n.ready())
	account := n.hubAccount("month")
	n.hub.accountHolds(account, 500, amount.MicroUSD(before.Granted), 0) // charged once, whatever was open of it
	n.refusal(n.tryAdmit(c, dollars(1)), governance.ReasonCredit)        // nothing of the old credit is there
	holds, err := n.g.Holds(n.ctx, governance.HoldQuery{Open: true})
	n.ok(err)
	if len(holds) != 1 || holds[0].ID != p.ID() || holds[0].Flags&governance.FlagJournal == 0 {
		n.Fatalf("%+v", holds)
	}
	n.held(c, governance.ScopeKey, "cost_per_day", 500, 0, 1*milli)
	_, err = n.g.Resolve(n.ctx, governance.Evidence{ID: p.ID(), Outcome: governance.Used(1, 600), Actor: "ada", Reason: "it was answered"})
	n.ok(err)
	n.held(c, governance.ScopeKey, "cost_per_day", 1100, 0, 0)
	n.sync()
	n.hub.accountHolds(account, 500, amount.MicroUSD(before.Granted), n.rule("month").Open) // and what is new
	// An overrun is remembered across restarts.
	n.settle(n.credited(c, dollars(10)), governance.Used(1, 11))
	n.crash()
	n.sync()
	n.notReady(n.ready(), journal.ErrPoisoned)
	n.ok(n.j.Release(n.ctx, "ada", "looked at it"))
	n.ok(n.ready())
}

// bet is one attempt of a random schedule, and what became of it.
type bet struct {
	p     *governance.Permit
	bound amount.MicroUSD
}

// truth is what attempts came to, added up apart: known, unknown at least, on its way.
type truth struct{ consumed, least, open amount.MicroUSD }

// nodeRandom plays any schedule of attempts, heartbeats, losses, deaths and edits.
func nodeRandom(n *node) {
	const limit = 60
	r := n.source()
	hard := func(milliUSD int64) {
		n.hub.policies(document("p", team1, budget("month", milliUSD, true), budget("meter", 20, false)))
	}
	hard(limit)
	daily := int64(5000)
	c := n.someone(keys.Limits{TokensPerDay: &daily})
	n.sync()
	highest := int64(limit)
	var open []bet
	var sum truth
	admitted, refusals, restarts := 0, map[governance.Reason]int{}, 0
	for step := range 300 {
		switch k := r.IntN(100); {
		case k < 40:
			b := both(amount.Tokens(r.IntN(40)), amount.MicroUSD(r.IntN(2*milli)))
			p, err := n.g.Admit(n.ctx, request(c, b))
			var refused *governance.Refusal
			switch {
			case err == nil:
				open = append(open, bet{p, b.Cost})
				sum.open += b.Cost
				admitted++
			case errors.Is(err, governance.ErrNotReady):
				if k%2 == 0 {
					n.ok(n.j.Release(n.ctx, "ada", "on it goes"))
				}
			case !errors.As(err, &refused):
				n.Fatal(err)
			default:
				refusals[refused.Reason]++
			}
		case k < 68 && len(open) > 0:
			i := r.IntN(len(open))
			b := open[i]
			open = append(open[:i], open[i+1:]...)
			sum.open -= b.bound
			n.settle(b.p, n.randomOutcome(r, b.bound, &sum))
		case k < 75 && len(open) > 0:
			b := &open[r.IntN(len(open))]
			to := b.bound + amount.MicroUSD(r.IntN(milli))
			if err := b.p.Raise(n.ctx, governance.Bound{Cost: to}); err == nil {
				sum.open += to - b.bound
				b.bound = to
			}
		case k < 92:
			n.randomBeat(r)
		case k < 95:
			n.pass(time.Duration(r.Int64N(int64(grantTTL))))
		case k < 97:
			next := limit/2 + int64(r.IntN(limit))
			highest = max(highest, next)
			hard(next)
		case k < 99:
			restarts++
			n.crash() // whoever is on its way is charged with the grant
			sum.least += sum.open
			sum.open, open = 0, nil
		default:
			if err := n.hubBooks(); err != nil {
				n.Fatal(err)
			}
		}
		n.weigh(step, &sum, highest*milli)
	}
	for _, b := range open {
		n.settle(b.p, n.randomOutcome(r, b.bound, &sum))
		sum.open -= b.bound
	}
	n.sync()
	n.leave()
	n.weigh(-1, &sum, highest*milli)
	have := n.hub.cell(n.hub.keyOf(n.hubAccount("month"))).Account
	if have.Granted != 0 || have.Consumed != int64(sum.consumed) || have.Uncertain < int64(sum.least) {
		n.Fatalf("the authority's account is %+v; consumed were %d, and at least %d are uncertain", have, sum.consumed, sum.least)
	}
	n.ok(n.hubBooks())
	n.Logf("%d admitted, refused %v, %d restarts; in the end %+v", admitted, refusals, restarts, have)
}

// randomOutcome is one, and adds it to what was told.
func (n *node) randomOutcome(r *rand.Rand, bound amount.MicroUSD, sum *truth) governance.Outcome {
	switch r.IntN(8) {
	case 0:
		sum.least += bound
		return governance.Observed(1, bound/2)
	case 1:
		return governance.NotSent()
	case 2:
		if r.IntN(8) == 0 {
			sum.consumed += bound + 5
			return governance.Used(1, bound+5)
		}
	}
	used := amount.MicroUSD(r.Int64N(int64(bound) + 1))
	sum.consumed += used
	return governance.Used(1, used)
}

// randomBeat is a heartbeat that arrives, or not, and whose answer does, or not, once or twice.
func (n *node) randomBeat(r *rand.Rand) {
	n.Helper()
	h, err := n.l.Next(n.ctx, false)
	n.ok(err)
	sent := n.clock.now()
	if r.IntN(5) == 0 {
		return
	}
	a, err := n.line.Beat(n.ctx, h)
	n.ok(err)
	for range r.IntN(3) {
		n.ok(n.l.Take(n.ctx, h, a, sent))
	}
}

// weigh holds the authority's account and the node's journal against what was spent.
func (n *node) weigh(step int, sum *truth, highest int64) {
	n.Helper()
	var have governance.Cell
	for _, c := range n.hub.everyAccount() {
		if c.Label.Rule == "month" {
			have = c
		}
	}
	// An overrun alone leads above the limit: five at a time.
	total := have.Account.Consumed + have.Account.Uncertain + have.Account.Granted + have.Account.Reserved
	if total > highest+1000 {
		n.Fatalf("step %d: the authority's account is %+v under a limit of %d", step, have.Account, highest)
	}
	mine := n.rule("month")
	if mine.Reserved != sum.open {
		n.Fatalf("step %d: %d are reserved, and attempts hold %d", step, mine.Reserved, sum.open)
	}
	// What was spent is under what the authority has counted or given out.
	if spent := int64(sum.consumed); spent > total+1000 {
		n.Fatalf("step %d: %d were spent, and the authority knows of %d", step, spent, total)
	}
}

// hubBooks recomputes the authority's accounts.
func (n *node) hubBooks() error {
	v, err := n.hub.g.Verify(n.ctx, governance.VerifyQuery{})
	if err == nil && len(v.Differences) > 0 {
		n.Fatalf("the authority's books differ: %+v", v.Differences)
	}
	return err
}
