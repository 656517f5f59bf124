package governancetest

import (
	"errors"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
)

// speaker is one boot of a node, as an authority hears it.
type speaker struct {
	e      *env
	a      *governance.Authority
	name   string
	boot   escrow.BootID
	number int64

	sequence, answered int64
	mark               policy.Mark
	last               *escrow.Answer
}

// grantTTL is how long grants of the suite last: the clock stands still, so it is no wait.
const grantTTL = 10 * time.Minute

// authority makes an Authority on a backend.
func (e *env) authority(b governance.Backend) *governance.Authority {
	e.Helper()
	a, err := governance.NewAuthority(b, &governance.AuthorityOptions{GrantTTL: grantTTL, StepTimeout: patience})
	e.ok(err)
	return a
}

// speaker opens the journal of a node for the first time.
func (e *env) speaker(a *governance.Authority, name string) *speaker {
	return &speaker{e: e, a: a, name: name, boot: escrow.NewBootID(), number: 1}
}

// reboot opens the same journal once more.
func (n *speaker) reboot() *speaker {
	return &speaker{e: n.e, a: n.a, name: n.name, boot: escrow.NewBootID(), number: n.number + 1}
}

// next is an empty heartbeat with the next number.
func (n *speaker) next() *escrow.Heartbeat {
	n.sequence++
	return &escrow.Heartbeat{Node: n.name, Boot: n.boot, BootNumber: n.number, Sequence: n.sequence, Answered: n.answered, Mark: n.mark}
}

// send hands over a heartbeat and holds the answer against it.
func (n *speaker) send(h *escrow.Heartbeat) (*escrow.Answer, error) {
	n.e.Helper()
	answer, err := n.a.Beat(n.e.ctx, h)
	if err != nil {
		return nil, err
	}
	if err := answer.Verify(h); err != nil {
		n.e.Errorf("an answer that no node takes: %v", err)
	}
	n.answered, n.mark, n.last = h.Sequence, answer.Mark, answer
	return answer, nil
}

// must send.
func (n *speaker) must(h *escrow.Heartbeat) *escrow.Answer {
	n.e.Helper()
	answer, err := n.send(h)
	n.e.ok(err)
	return answer
}

// hello is the first heartbeat, or one to look around.
func (n *speaker) hello() *escrow.Answer {
	n.e.Helper()
	return n.must(n.next())
}

// definition finds a budget in the last answer.
func (n *speaker) definition(rule string) *escrow.Definition {
	n.e.Helper()
	for i := range n.last.Definitions {
		if n.last.Definitions[i].Account.Rule == rule {
			return &n.last.Definitions[i]
		}
	}
	n.e.Fatalf("no definition of %s among %+v", rule, n.last.Definitions)
	return nil
}

// budget is how the account of a rule stands by the last answer.
func (n *speaker) budget(rule string) escrow.Budget {
	n.e.Helper()
	for i := range n.last.Definitions {
		if n.last.Definitions[i].Account.Rule == rule {
			return n.last.Budgets[i]
		}
	}
	n.e.Fatalf("no definition of %s among %+v", rule, n.last.Definitions)
	return escrow.Budget{}
}

// wish asks for an amount of a rule's budget, all of it or nothing.
func (n *speaker) wish(rule string, sum amount.MicroUSD) escrow.Request {
	n.e.Helper()
	return escrow.Request{ID: n.e.grantID(), Account: n.definition(rule).Account, Amount: sum, Least: sum}
}

// granted asks for one grant and must get it.
func (n *speaker) granted(rule string, sum amount.MicroUSD) escrow.Grant {
	n.e.Helper()
	if n.last == nil {
		n.hello()
	}
	h := n.next()
	h.Requests = []escrow.Request{n.wish(rule, sum)}
	answer := n.must(h)
	if len(answer.Grants) != 1 || answer.Grants[0].Amount != sum {
		n.e.Fatalf("granted %+v, denied %+v, want %d", answer.Grants, answer.Denials, sum)
	}
	return answer.Grants[0]
}

// denied asks for one grant and must not get it.
func (n *speaker) denied(rule string, sum amount.MicroUSD, reason escrow.DenialReason) escrow.Denial {
	n.e.Helper()
	if n.last == nil {
		n.hello()
	}
	h := n.next()
	h.Requests = []escrow.Request{n.wish(rule, sum)}
	answer := n.must(h)
	if len(answer.Denials) != 1 || answer.Denials[0].Reason != reason {
		n.e.Fatalf("granted %+v, denied %+v, want a denial for reason %d", answer.Grants, answer.Denials, reason)
	}
	return answer.Denials[0]
}

// report tells what became of grants.
func (n *speaker) report(list ...escrow.Report) *escrow.Answer {
	n.e.Helper()
	h := n.next()
	h.Reports = list
	return n.must(h)
}

// meter tells what was used of soft budgets.
func (n *speaker) meter(list ...escrow.Meter) *escrow.Answer {
	n.e.Helper()
	h := n.next()
	h.Meters = list
	return n.must(h)
}

// rejects sends a heartbeat that must change nothing but be answered with an *escrow.Error.
func (n *speaker) rejects(h *escrow.Heartbeat) {
	n.e.Helper()
	before := n.e.snapshot()
	_, err := n.a.Beat(n.e.ctx, h)
	var bad *escrow.Error
	if !errors.As(err, &bad) {
		n.e.Fatalf("error is %v, want an *escrow.Error", err)
	}
	n.e.unchanged(before)
	if node := n.e.node(n.name); n.last != nil && len(node.Data) == 0 {
		n.e.Fatalf("the node is forgotten")
	}
}

// fenced sends a heartbeat that another boot has shut out.
func (n *speaker) fenced(reason escrow.FenceReason) {
	n.e.Helper()
	before := n.e.snapshot()
	_, err := n.a.Beat(n.e.ctx, n.next())
	var f *escrow.Fenced
	if !errors.As(err, &f) || f.Reason != reason {
		n.e.Fatalf("error is %v, want fenced for reason %d", err, reason)
	}
	n.e.unchanged(before)
}

// grantID mints one at the store's present.
func (e *env) grantID() escrow.GrantID {
	e.Helper()
	return escrow.NewGrantID(time.UnixMicro(e.now()))
}

// accountHolds checks an account that a definition names.
func (e *env) accountHolds(a escrow.Account, consumed, uncertain, granted amount.MicroUSD) {
	e.Helper()
	have := e.cell(e.keyOf(a)).Account
	if have.Consumed != int64(consumed) || have.Uncertain != int64(uncertain) || have.Granted != int64(granted) {
		e.Fatalf("consumed %d, uncertain %d, granted %d; want %d, %d, %d", have.Consumed, have.Uncertain, have.Granted, consumed, uncertain, granted)
	}
}

// keyOf finds an account among the store's by its label.
func (e *env) keyOf(a escrow.Account) governance.AccountKey {
	e.Helper()
	list, err := e.store.Accounts(e.ctx, governance.AccountQuery{Limit: 1000})
	e.ok(err)
	for i := range list {
		l := &list[i].Label
		if l.Policy == a.Policy && l.Rule == a.Rule && l.Subject == a.Subject.String() && l.Period == a.Period && list[i].Key.WindowStart == a.Window.Start {
			return list[i].Key
		}
	}
	e.Fatalf("no account %+v", a)
	return governance.AccountKey{}
}

// until is how long it is to an instant of the store's clock.
func (e *env) until(us int64) time.Duration {
	e.Helper()
	return time.Duration(us-e.now()) * time.Microsecond
}
