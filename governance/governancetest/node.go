package governancetest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/keys"
)

// nodeCases hold a Governor that has a node's journal, and a real Authority on a second database, to
// what ADR-045 promises. Every case is run with one node, which is audited at its end.
func nodeCases() []scenario {
	needs := Features{Policies: true, Nodes: true, Journal: true}
	var list []scenario
	for _, c := range []struct {
		name    string
		durable bool
		run     func(*node)
	}{
		{name: "NotReadyBeforeTheFirstSync", run: nodeUnheard},
		{name: "WiredAsANode", run: nodeWiring},
		{name: "OneTransaction", run: nodeOneTransaction},
		{name: "AllOrNoneOfCellsAndJournal", run: nodeAllOrNone},
		{name: "EachFallbackAttemptReserves", run: nodeFallback},
		{name: "MissingCreditComesInTheBackground", run: nodeShortage},
		{name: "RefusedForMoreThanCredit", run: nodeReasons},
		{name: "DemandOfOthersDoesNotCount", run: nodeDemand},
		{name: "OutageUntilTheDeadline", run: nodeOutage},
		{name: "SettledAsItWas", run: nodeOutcomes},
		{name: "RaiseTakesMoreOfTheSameAccounts", run: nodeRaise},
		{name: "OverrunPoisonsUntilReleased", run: nodePoison},
		{name: "MetersRefuseNothing", run: nodeMeters},
		{name: "TiersByWhatOneUsedOneself", run: nodeTiers},
		{name: "StrictTierReplacesTheModel", run: nodeStrict},
		{name: "PoliciesFollowTheAuthority", run: nodeEdits},
		{name: "WindowsAreTheAuthoritys", run: nodeWindows},
		{name: "UsageIsTheNodes", run: nodeUsage},
		{name: "OneStepOfMany", run: nodeTogether},
		{name: "FencedAdmitsNothing", run: nodeFenced},
		{name: "LeavesWithItsAttempts", run: nodeLeaves},
		{name: "ResolvedByAnOperator", run: nodeResolve},
		{name: "LostCommit", run: nodeDoubt},
		{name: "BooksAreCompared", run: nodeBooks},
		{name: "RestartBurns", durable: true, run: nodeRestart},
		{name: "AnySchedule", durable: true, run: nodeRandom},
	} {
		needs := needs
		needs.Durable = c.durable
		list = append(list, scenario{name: c.name, needs: needs, run: func(e *env) {
			n := newNode(e, "node-1")
			c.run(n)
			n.audit()
		}})
	}
	return list
}

// ticker is a process's clock, which has a monotonic reading and moves by hand.
type ticker struct {
	base  time.Time
	moved atomic.Int64
}

func (c *ticker) now() time.Time { return c.base.Add(time.Duration(c.moved.Load())) }

// node is a gateway with its own storage, and the authority that grants to it. The env is the node's.
type node struct {
	*env
	name  string
	hub   *env // the authority's database
	line  escrow.Authority
	clock *ticker
	j     *journal.Journal
	l     escrow.Ledger
}

func newNode(hub *env, name string) *node {
	hub.Helper()
	n := &node{name: name, hub: hub, line: hub.authority(hub.b), clock: &ticker{base: time.Now()}}
	n.env = &env{TB: hub.TB, h: hub.h, ctx: hub.ctx, b: hub.h.Node(hub.TB)}
	n.store, n.keys = n.b.Backend().Store, n.b.Backend().Keys
	n.advance(time.UnixMicro(hub.now()).Sub(time.UnixMicro(n.now())))
	n.open()
	return n
}

// open is a start of the node's process.
func (n *node) open() {
	n.Helper()
	var err error
	n.j, err = journal.Open(n.ctx, n.b.Backend().Journal, &journal.Options{Node: n.name, Now: n.clock.now, StepTimeout: patience, Logger: quiet()})
	n.ok(err)
	n.g = n.governor(n.b, &governance.Options{Journal: n.j})
	n.l = n.g.Ledger()
}

// crash opens the node's storage anew; nobody closed it.
func (n *node) crash() {
	n.Helper()
	n.b = n.h.Reopen(n, n.b)
	n.store, n.keys = n.b.Backend().Store, n.b.Backend().Keys
	n.open()
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// pass moves every clock.
func (n *node) pass(d time.Duration) {
	n.Helper()
	n.hub.advance(d)
	n.advance(d)
	n.clock.moved.Add(int64(d))
}

// exchange is one heartbeat and its answer.
func (n *node) exchange() (*escrow.Answer, error) {
	h, err := n.l.Next(n.ctx, false)
	if err != nil {
		return nil, err
	}
	sent := n.clock.now()
	a, err := n.line.Beat(n.ctx, h)
	if err != nil {
		return nil, err
	}
	if err := a.Verify(h); err != nil {
		return nil, err
	}
	return a, n.l.Take(n.ctx, h, a, sent)
}

func (n *node) sync() *escrow.Answer {
	n.Helper()
	a, err := n.exchange()
	n.ok(err)
	return a
}

// leave says goodbye until all is said.
func (n *node) leave() {
	n.Helper()
	for range 4 {
		h, err := n.l.Next(n.ctx, true)
		n.ok(err)
		a, err := n.line.Beat(n.ctx, h)
		n.ok(err)
		n.ok(n.l.Take(n.ctx, h, a, n.clock.now()))
		if h.Bye {
			return
		}
	}
	n.Fatalf("there is no end to the goodbye")
}

// someone is a caller of team-1 without limits of its own.
func (n *node) someone(l keys.Limits) *caller {
	n.Helper()
	n.env.team("team-1", keys.Limits{})
	return n.caller("team-1", l)
}

// credited admits, and asks the authority for what is missing.
func (n *node) credited(c *caller, b governance.Bound) *governance.Permit {
	n.Helper()
	for range 4 {
		p, err := n.g.Admit(n.ctx, request(c, b))
		if err == nil {
			return p
		}
		n.refusal(err, governance.ReasonCredit)
		n.sync()
	}
	n.Fatalf("no credit came for %+v", b)
	return nil
}

// rule is what the journal has of a rule's account.
func (n *node) rule(rule string) (s journal.AccountStatus) {
	n.Helper()
	status, err := journal.Look(n.ctx, n.b.Backend().Journal)
	n.ok(err)
	for _, a := range status.Accounts {
		if a.Account.Rule == rule {
			s.Account = a.Account
			s.Meter = s.Meter || a.Meter
			s.Open, s.Free, s.Asked = s.Open+a.Open, s.Free+a.Free, s.Asked+a.Asked
			s.Reserved, s.Consumed, s.Uncertain, s.Observed = s.Reserved+a.Reserved, s.Consumed+a.Consumed, s.Uncertain+a.Uncertain, s.Observed+a.Observed
		}
	}
	return s
}

func (n *node) has(rule string, reserved, consumed, uncertain, observed amount.MicroUSD) {
	n.Helper()
	if s := n.rule(rule); s.Reserved != reserved || s.Consumed != consumed || s.Uncertain != uncertain || s.Observed != observed {
		n.Fatalf("%s: reserved %d, consumed %d, uncertain %d, observed %d; want %d, %d, %d, %d", rule, s.Reserved, s.Consumed, s.Uncertain, s.Observed, reserved, consumed, uncertain, observed)
	}
}

// untouched must leave cells and journal as they are.
func (n *node) untouched(f func()) {
	n.Helper()
	rows := func() *journal.Loaded {
		l, err := n.b.Backend().Journal.View(n.ctx, &journal.Plan{Everything: true, OnTheirWay: true})
		n.ok(err)
		return l
	}
	before, cells := rows(), n.snapshot()
	f()
	n.unchanged(cells)
	after := rows()
	if before.Meta != after.Meta || len(before.Grants) != len(after.Grants) || len(before.Records) != len(after.Records) {
		n.Fatalf("the journal changed: %+v, then %+v", before, after)
	}
	for i := range before.Grants {
		n.equal("grant", after.Grants[i], before.Grants[i])
	}
}

// audit recomputes the node's books, by its own Governor, and holds the authority's account against the
// limit.
func (n *node) audit() {
	n.Helper()
	if n.Failed() {
		return
	}
	v, err := n.g.Verify(n.ctx, governance.VerifyQuery{Full: true})
	n.ok(err)
	if len(v.Differences) > 0 {
		n.Fatalf("the node's books differ: %+v", v.Differences)
	}
}

// ready waits for nothing: it says what is in the way.
func (n *node) ready() error { return n.g.Ready(n.ctx) }

// away is an authority that cannot be reached while it is down.
type away struct {
	escrow.Authority
	down atomic.Bool
}

func (a *away) Beat(ctx context.Context, h *escrow.Heartbeat) (*escrow.Answer, error) {
	if a.down.Load() {
		return nil, escrow.ErrUnavailable
	}
	return a.Authority.Beat(ctx, h)
}

// notReady must be the answer, and a 503.
func (n *node) notReady(err, why error) {
	n.Helper()
	if !errors.Is(err, governance.ErrNotReady) || (why != nil && !errors.Is(err, why)) {
		n.Fatalf("error is %v, want %v because of %v", err, governance.ErrNotReady, why)
	}
	if s := governance.StatusOf(err); s.Code != 503 || !s.Retryable || s.RetryAfter <= 0 {
		n.Fatalf("%+v", s)
	}
}
