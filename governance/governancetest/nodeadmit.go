package governancetest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/keys"
)

func nodeUnheard(n *node) {
	c := n.someone(keys.Limits{})
	n.notReady(n.ready(), nil)
	_, err := n.g.Admit(n.ctx, request(c, tokens(1)))
	n.notReady(err, nil)
	_, err = n.g.Usage(n.ctx, governance.UsageQuery{Principal: c.p})
	n.notReady(err, nil)
	n.hub.policies()
	n.sync()
	n.ok(n.ready())
	n.settle(n.admit(c, both(1, 1)), governance.Used(1, 1)) // no budget, no grant
	if s, err := journal.Look(n.ctx, n.b.Backend().Journal); err != nil || len(s.Accounts) > 0 {
		n.Fatalf("%+v, %v", s, err)
	}
}

func nodeWiring(n *node) {
	stores := n.b.Backend()
	n.equal("profile", stores.Profile, policy.Node)
	wrong := func(what string, s governance.Stores, o governance.Options) {
		n.Helper()
		var field *governance.FieldError
		if _, err := governance.New(s, &o); !errors.As(err, &field) {
			n.Fatalf("%s: %v", what, err)
		}
	}
	wrong("no journal", stores, governance.Options{})
	for _, p := range []policy.Profile{0, policy.Local, policy.Shared} {
		other := stores
		other.Profile = p
		wrong("another profile", other, governance.Options{Journal: n.j})
		wrong("beside what is no node", other, governance.Options{Beside: true})
	}
	none := stores
	none.Journal = nil
	wrong("a backend without", none, governance.Options{Journal: n.j})
	none.Journal = struct{ journal.Store }{stores.Journal}
	wrong("opened elsewhere", none, governance.Options{Journal: n.j})
	wrong("owner and tool", stores, governance.Options{Journal: n.j, Beside: true})
	if n.hub.g.Ledger() != nil {
		n.Fatal("who has no journal has a ledger")
	}
	// Local edits are refused, before and after.
	for range 2 {
		n.is(replacePolicies(n.ctx, stores.Policies, document("p", team1, budget("month", 1, false))), policy.ErrFollows)
		n.sync()
	}
	// A tool beside the owner admits nothing.
	c := n.someone(keys.Limits{})
	tool, err := governance.New(stores, &governance.Options{Beside: true})
	n.ok(err)
	defer tool.Close(n.ctx)
	for _, foreign := range []int64{0, 1} {
		_, err = tool.Holds(n.ctx, governance.HoldQuery{Limit: int(foreign) + 1})
		n.ok(err)
	}
	if _, _, err := n.g.Policies(n.ctx); err != nil {
		n.Fatal(err)
	}
	n.settle(n.admit(c, tokens(1)), governance.Used(1, 0))
}

// The store writes permits and the journal's rows together, or none of them.
func nodeOneTransaction(n *node) {
	n.hub.policies(document("p", team1, budget("month", 100, true)))
	c := n.someone(keys.Limits{})
	n.sync()
	p := n.credited(c, both(5, 100))
	plan := &governance.Plan{Batch: governance.BatchID(n.id()), Permits: []governance.PermitID{p.ID()}, Journal: &journal.Plan{Reservations: []journal.ID{journal.ID(p.ID())}}}
	change := func(version int32, write bool) error {
		plan.Batch = governance.BatchID(n.id())
		return n.store.Step(n.ctx, plan, func(l *governance.Loaded) *governance.Changes {
			if l.Journal == nil || len(l.Journal.Records) != 1 || len(l.Journal.Grants) != 1 || l.Journal.Meta.Boot != n.j.Boot() {
				n.Errorf("loaded is %+v", l.Journal)
				return nil
			}
			if !write {
				return &governance.Changes{Journal: &journal.Changes{}}
			}
			rec, g := l.Permits[0], l.Journal.Grants[0]
			rec.Version += version
			rec.Flags |= governance.FlagInvalid
			g.Observed += 7
			return &governance.Changes{Permits: []governance.Record{rec}, Journal: &journal.Changes{Grants: []journal.Grant{g}}}
		})
	}
	n.untouched(func() {
		n.ok(change(1, false))
		n.is(change(5, true), governance.ErrRetry)
	})
	n.ok(change(1, true))
	n.has("month", 100, 0, 0, 7)
	if rec := n.record(p.ID()); rec.Flags&governance.FlagInvalid == 0 {
		n.Fatalf("%+v", rec)
	}
	loaded, err := n.store.View(n.ctx, plan)
	n.ok(err)
	if loaded.Journal == nil || len(loaded.Journal.Records) != 1 {
		n.Fatalf("%+v", loaded.Journal)
	}
	if loaded, err = n.store.View(n.ctx, &governance.Plan{}); err != nil || loaded.Journal != nil {
		n.Fatalf("nobody asked for a journal: %+v, %v", loaded.Journal, err)
	}
	n.settle(p, governance.Used(1, 1))
}

func nodeAllOrNone(n *node) {
	n.hub.policies(
		document("a", team1, budget("month", 100, true)),
		document("b", policy.Subject{User: "ada"}, budget("own", 10, true)),
	)
	n.env.team("team-1", keys.Limits{})
	one := int64(3)
	c := n.create(keys.CreateKey{TeamID: "team-1", Owner: "ada", Limits: keys.Limits{RequestsPerMinute: &one}})
	n.sync()
	// Each budget lacks a grant, the cells have room: nothing is reserved anywhere.
	n.untouched(func() {
		r := n.refusal(n.tryAdmit(c, both(5, 2*milli)), governance.ReasonCredit)
		n.equal("budgets that lack credit", len(r.All), 2)
		if !r.Retryable || r.RetryAfter != time.Second || !r.Verdict.Node || r.Verdict.Held != 0 || r.Verdict.Need != 2*milli || governance.StatusOf(r).Code != http.StatusServiceUnavailable {
			n.Fatalf("%+v", r)
		}
		if r.Verdict.Constraint.Policy == "" || r.Verdict.Constraint.Rule == "" {
			n.Fatalf("%+v names no rule", r.Verdict.Constraint)
		}
	})
	p := n.credited(c, both(5, 2*milli))
	n.has("month", 2*milli, 0, 0, 0)
	n.has("own", 2*milli, 0, 0, 0)
	if rec := n.record(p.ID()); rec.Flags&governance.FlagJournal == 0 {
		n.Fatalf("%+v", rec)
	}
	n.credited(c, both(5, 1))
	n.credited(c, both(5, 1))
	// The rate has no room, the budgets have: nothing is reserved of them.
	n.untouched(func() { n.refusal(n.tryAdmit(c, both(5, 1)), governance.ReasonRate) })
	n.settle(p, governance.Used(5, 1*milli))
	n.has("month", 2, 1*milli, 0, 0)
	n.has("own", 2, 1*milli, 0, 0)
}

func (n *node) tryAdmit(c *caller, b governance.Bound) error {
	_, err := n.g.Admit(n.ctx, request(c, b))
	return err
}

func nodeFallback(n *node) {
	n.hub.policies(document("p", team1, budget("month", 100, true)))
	c := n.someone(keys.Limits{})
	n.sync()
	first := n.credited(c, dollars(1*milli))
	n.settle(first, governance.Unknown()) // nobody knows what it used
	second := n.credited(c, dollars(700))
	n.has("month", 700, 0, 1*milli, 0)
	n.settle(second, governance.Used(1, 600))
	n.has("month", 0, 600, 1*milli, 0)
	// The permit's id is the reservation's.
	l, err := n.b.Backend().Journal.View(n.ctx, &journal.Plan{Reservations: []journal.ID{journal.ID(first.ID()), journal.ID(second.ID())}})
	n.ok(err)
	n.equal("reservations", len(l.Records), 2)
}

func nodeShortage(n *node) {
	n.hub.policies(document("p", team1, budget("month", 100, true)))
	c := n.someone(keys.Limits{})
	s, err := escrow.NewSyncer(n.line, n.l, &escrow.SyncerOptions{Gap: time.Millisecond, Logger: quiet()})
	n.ok(err)
	defer s.Close(n.ctx)
	n.ok(s.Sync(n.ctx))
	account := n.hubAccount("month")
	// Nobody asks for a heartbeat: the refusal does.
	n.eventually("credit comes", func() bool {
		p, err := n.g.Admit(n.ctx, request(c, dollars(2*milli)))
		if err != nil {
			n.refusal(err, governance.ReasonCredit)
			return false
		}
		n.settle(p, governance.Used(1, 5))
		return true
	})
	n.ok(s.Close(n.ctx))
	n.equal("untold", n.status().Untold, 0)
	n.hub.accountHolds(account, 5, 0, 0)
}

func (n *node) status() *journal.Status {
	n.Helper()
	s, err := journal.Look(n.ctx, n.b.Backend().Journal)
	n.ok(err)
	return s
}

func nodeReasons(n *node) {
	n.hub.policies(document("p", team1, budget("month", 10, true)))
	c := n.someone(keys.Limits{})
	n.sync()
	r := n.refusal(n.tryAdmit(c, dollars(10*milli+1)), governance.ReasonNeverFits)
	n.equal("retryable", r.Retryable, false)
	n.refusal(n.tryAdmit(c, governance.Bound{Unpriced: true}), governance.ReasonUnpriced)
	other := n.hub.speaker(n.hub.authority(n.hub.b), "node-2")
	g := other.granted("month", 8*milli)
	// Others hold it, and may give it back.
	n.refusal(n.tryAdmit(c, dollars(3*milli)), governance.ReasonCredit)
	n.sync()
	n.refusal(n.tryAdmit(c, dollars(3*milli)), governance.ReasonCredit)
	other.report(escrow.Report{Grant: g.ID, Consumed: 8 * milli, Ending: escrow.Closed})
	n.settle(n.credited(c, dollars(2*milli)), governance.Used(1, 2*milli))
	n.refusal(n.tryAdmit(c, dollars(1)), governance.ReasonCredit) // it has not asked
	n.sync()
	r = n.refusal(n.tryAdmit(c, dollars(1)), governance.ReasonMoney)
	if r.Retryable || governance.StatusOf(r).Code != http.StatusPaymentRequired {
		n.Fatalf("%+v", r)
	}
	n.hub.policies(document("p", team1, budget("month", 20, true)))
	n.refusal(n.tryAdmit(c, dollars(1*milli)), governance.ReasonMoney) // nobody has told it
	n.sync()
	n.settle(n.credited(c, dollars(1*milli)), governance.Used(1, 1*milli))
}

// What is refused for other reasons asks nobody for money.
func nodeDemand(n *node) {
	n.hub.policies(document("p", team1, budget("month", 1000, true)))
	zero, model := int64(0), []string{"model-9"}
	c := n.someone(keys.Limits{RequestsPerMinute: &zero})
	strict := n.create(keys.CreateKey{TeamID: "team-1", AllowedModels: model})
	n.sync()
	for range 5 {
		n.refusal(n.tryAdmit(c, dollars(9*milli)), governance.ReasonNeverFits)
		n.refusal(n.tryAdmit(strict, dollars(9*milli)), governance.ReasonModel)
		_, err := n.g.Explain(n.ctx, request(strict, dollars(9*milli)))
		n.ok(err)
	}
	if _, err := n.g.Explain(n.ctx, governance.Request{Principal: strict.p, Model: "model-9", Bound: dollars(9 * milli)}); err != nil {
		n.Fatal(err)
	}
	h, err := n.l.Next(n.ctx, false)
	n.ok(err)
	n.equal("requests", len(h.Requests), 0)
	n.equal("wants", len(n.l.Wants()), 0)
}

func nodeOutage(n *node) {
	n.hub.policies(document("p", team1, budget("month", 100, true)))
	c := n.someone(keys.Limits{})
	line := &away{Authority: n.line}
	n.line = line
	n.sync()
	n.settle(n.credited(c, dollars(1*milli)), governance.Used(1, 100))
	line.down.Store(true)
	free := governance.Bound{Free: true}
	for range 9 { // what is held is good
		n.pass(grantTTL / 10)
		if _, err := n.exchange(); !errors.Is(err, escrow.ErrUnavailable) {
			n.Fatal(err)
		}
		n.ok(n.ready())
		n.settle(n.admit(c, dollars(1)), governance.Used(1, 1))
		n.settle(n.admit(c, free), governance.Used(1, 0))
	}
	held := n.admit(c, dollars(1))
	n.pass(grantTTL / 10)
	n.ok(n.ready())
	n.untouched(func() {
		for _, b := range []governance.Bound{dollars(1), dollars(0), free} { // even what is cheap, or free
			r := n.refusal(n.tryAdmit(c, b), governance.ReasonCredit)
			n.equal("held", r.Verdict.Held, int64(0))
		}
	})
	n.settle(held, governance.Used(1, 1)) // what was on its way goes on
	line.down.Store(false)
	n.settle(n.credited(c, dollars(0)), governance.Used(0, 0))
	n.settle(n.credited(c, free), governance.Unknown())
	n.settle(n.credited(c, free), governance.Used(1, 5)) // nothing of it is counted in money
	n.ok(n.ready())
	n.leave()
	n.hub.accountHolds(n.hubAccount("month"), 100+9+1, 0, 0)
}

// hubAccount is the account that a rule is in, as the node was told.
func (n *node) hubAccount(rule string) escrow.Account {
	n.Helper()
	for _, d := range n.j.Definitions() {
		if d.Account.Rule == rule {
			return d.Account
		}
	}
	n.Fatalf("no definition of %s", rule)
	return escrow.Account{}
}

func nodeOutcomes(n *node) {
	n.hub.policies(document("p", team1, budget("month", 100, true)))
	c := n.someone(keys.Limits{})
	n.sync()
	var consumed, uncertain, observed amount.MicroUSD
	for _, o := range someOutcomes() {
		p := n.credited(c, both(100, 70))
		over := o.Cost.Certainty == governance.Known && o.Cost.Value > 70
		n.settle(p, o)
		n.settle(p, o) // once more
		switch {
		case o.Unsent:
		case o.Cost.Certainty == governance.Known:
			consumed += amount.MicroUSD(o.Cost.Value)
		default:
			uncertain += 70
			if o.Cost.Certainty == governance.Uncertain {
				observed += amount.MicroUSD(o.Cost.Value)
			}
		}
		n.has("month", 0, consumed, uncertain, observed)
		if over {
			n.ok(n.j.Release(n.ctx, "ada", "the price row was wrong"))
		}
		if rec := n.record(p.ID()); (rec.Flags&governance.FlagCostUncertain != 0) != (!o.Unsent && o.Cost.Certainty != governance.Known) {
			n.Fatalf("%+v", rec)
		}
	}
	p := n.credited(c, both(100, 70))
	n.ok(p.Cancel(n.ctx))
	n.has("month", 0, consumed, uncertain, observed)
	n.is(p.Settle(n.ctx, governance.Used(1, 1)), governance.ErrConflict)
	// A caller that left before it received its permit: all goes back.
	ctx, cancel := context.WithCancel(n.ctx)
	cancel()
	_, err := n.g.Admit(ctx, request(c, dollars(5)))
	n.is(err, context.Canceled)
	n.has("month", 0, consumed, uncertain, observed)
	n.leave()
	n.hub.accountHolds(n.hubAccount("month"), consumed, uncertain, 0)
}

func nodeRaise(n *node) {
	n.hub.policies(document("p", team1, budget("month", 100, true), budget("meter", 100, false)))
	limit := int64(50)
	c := n.someone(keys.Limits{TokensPerDay: &limit})
	n.sync()
	p := n.credited(c, both(10, 1*milli))
	n.ok(p.Raise(n.ctx, both(20, 1500)))
	n.ok(p.Raise(n.ctx, both(20, 1500)))
	n.ok(p.Raise(n.ctx, both(5, 2)))
	n.has("month", 1500, 0, 0, 0)
	n.has("meter", 1500, 0, 0, 0)
	n.equal("bound", p.Bound(), both(20, 1500))
	n.untouched(func() { // neither alone
		n.refusal(p.Raise(n.ctx, both(51, 1600)), governance.ReasonReserved)
		r := n.refusal(p.Raise(n.ctx, both(30, 50*milli)), governance.ReasonCredit)
		if !r.Retryable || r.Verdict.Constraint.Rule != "month" || r.Verdict.Limit != 100*milli {
			n.Fatalf("%+v", r)
		}
	})
	for try := 0; ; try++ {
		n.sync()
		err := p.Raise(n.ctx, both(30, 50*milli))
		if err == nil {
			break
		}
		if n.refusal(err, governance.ReasonCredit); try > 3 {
			n.Fatal("no credit came")
		}
	}
	n.has("month", 50*milli, 0, 0, 0)
	n.settle(p, governance.Used(20, 40*milli))
	n.has("month", 0, 40*milli, 0, 0)
	n.has("meter", 0, 40*milli, 0, 0)
	n.is(p.Raise(n.ctx, both(30, 60*milli)), governance.ErrTerminal)
	// Of a budget that is gone nothing more can be had.
	p = n.credited(c, both(1, 10))
	n.hub.policies(document("p", team1, budget("meter", 100, false)))
	n.sync()
	n.sync()
	n.ok(p.Raise(n.ctx, both(1, 20)))
	n.pass(grantTTL)
	n.refusal(p.Raise(n.ctx, both(1, 30)), governance.ReasonCredit)
	n.ok(p.Cancel(n.ctx))
}

func nodePoison(n *node) {
	n.hub.policies(document("p", team1, budget("month", 100, true)))
	c := n.someone(keys.Limits{})
	n.env.team("team-2", keys.Limits{})
	other := n.caller("team-2", keys.Limits{})
	n.sync()
	p, open := n.credited(c, dollars(100)), n.credited(c, dollars(100))
	n.settle(p, governance.Used(1, 101))
	n.has("month", 100, 101, 0, 0)
	n.notReady(n.tryAdmit(c, dollars(1)), journal.ErrPoisoned)
	n.notReady(n.ready(), journal.ErrPoisoned)
	n.notReady(open.Raise(n.ctx, dollars(101)), journal.ErrPoisoned)
	n.settle(n.admit(other, dollars(1)), governance.Used(1, 1)) // no policy limits its money
	n.settle(open, governance.Used(1, 100))
	if rec := n.record(p.ID()); rec.Flags&governance.FlagOverrun == 0 {
		n.Fatalf("%+v", rec)
	}
	_, err := journal.Release(n.ctx, n.b.Backend().Journal, "", "")
	n.is(err, journal.ErrInvalid)
	released, err := journal.Release(n.ctx, n.b.Backend().Journal, "ada", "the provider confirmed it")
	n.ok(err)
	n.equal("released", released, true)
	n.ok(n.ready())
	n.settle(n.credited(c, dollars(1)), governance.Used(1, 1))
	n.leave()
	n.hub.accountHolds(n.hubAccount("month"), 101+100+1, 0, 0)
}
