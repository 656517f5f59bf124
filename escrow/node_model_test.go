package escrow_test

import (
	"slices"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/policy"
)

// simGrant is a grant in a node's journal.
type simGrant struct {
	id                                     escrow.GrantID
	account                                escrow.Account
	amount                                 int64
	consumed, uncertain, observed, pending int64
	ending                                 escrow.Ending
	told                                   escrow.Report // what the authority has receipted
	deadline                               int64         // µs on the node's clock; gone with the process
	expires                                int64         // what the authority said, to check by
}

func (g *simGrant) report() escrow.Report {
	return escrow.Report{Grant: g.id, Consumed: usd(g.consumed), Uncertain: usd(g.uncertain), Observed: usd(g.observed), Ending: g.ending}
}

// end stops all spending. What is on its way may have been used.
func (g *simGrant) end(how escrow.Ending) {
	if g.ending == escrow.Open {
		g.uncertain, g.pending, g.ending = g.uncertain+g.pending, 0, how
	}
}

type simMeter struct{ now, told escrow.Meter }

// simJournal is what a crash leaves.
type simJournal struct {
	number  int64
	mark    policy.Mark
	grants  []*simGrant
	asked   []escrow.Request // sent, and not answered
	givenUp []escrow.Report
	meters  []*simMeter
}

func (j *simJournal) clone() *simJournal {
	out := *j
	out.grants, out.meters = nil, nil
	for _, g := range j.grants {
		c := *g
		out.grants = append(out.grants, &c)
	}
	for _, m := range j.meters {
		c := *m
		out.meters = append(out.meters, &c)
	}
	out.asked, out.givenUp = slices.Clone(j.asked), slices.Clone(j.givenUp)
	return &out
}

func (j *simJournal) grant(id escrow.GrantID) *simGrant {
	for _, g := range j.grants {
		if g.id == id {
			return g
		}
	}
	return nil
}

// attempt is a call to a provider on its way.
type attempt struct {
	grant        *simGrant
	bound, spent int64
}

// simNode is a process on a journal.
type simNode struct {
	w                  *world
	name               string
	journal            *simJournal
	boot               escrow.BootID
	sequence, answered int64
	attempts           []attempt
	meters             map[escrow.Account]*simMeter // of this boot
	wanted             map[escrow.Account]int64
	out                *exchange // on its way
	leaving, left      bool
	fenced             *escrow.Fenced
}

// open starts a process: everything that an earlier one had is burned, what it had asked for too.
func (w *world) open(name string, j *simJournal) *simNode {
	j.number++
	for _, g := range j.grants {
		g.end(escrow.Burned)
	}
	for _, r := range j.asked {
		j.givenUp = append(j.givenUp, escrow.Report{Grant: r.ID, Ending: escrow.Burned})
	}
	j.asked = nil
	for _, m := range j.meters {
		m.now.Uncertain, m.now.Pending = m.now.Uncertain+m.now.Pending, 0
	}
	n := &simNode{w: w, name: name, journal: j, boot: w.bootID(), meters: map[escrow.Account]*simMeter{}, wanted: map[escrow.Account]int64{}}
	w.nodes = append(w.nodes, n)
	return n
}

// next is the ledger's part: what is to be said now. Few reports fit, so that they come in parts.
func (n *simNode) next() *escrow.Heartbeat {
	const room = 5
	j := n.journal
	n.sequence++
	h := &escrow.Heartbeat{Node: n.name, Boot: n.boot, BootNumber: j.number, Sequence: n.sequence, Answered: n.answered, Mark: j.mark}
	if n.leaving {
		for _, g := range j.grants {
			g.end(escrow.Closed)
		}
		for _, m := range j.meters {
			m.now.Uncertain, m.now.Pending = m.now.Uncertain+m.now.Pending, 0
		}
		for _, r := range j.asked {
			j.givenUp = append(j.givenUp, escrow.Report{Grant: r.ID, Ending: escrow.Closed})
		}
		j.asked = nil
	}
	for _, g := range j.grants {
		if g.report() != g.told && len(h.Reports) < room {
			h.Reports = append(h.Reports, g.report())
		}
	}
	said := len(j.givenUp) + len(h.Reports)
	h.Reports = append(h.Reports, j.givenUp[:min(len(j.givenUp), room)]...)
	for _, m := range j.meters {
		if m.now != m.told {
			h.Meters = append(h.Meters, m.now)
		}
	}
	if n.leaving {
		h.Bye = said < room
		return h
	}
	for _, d := range n.w.definitions() {
		if want := n.wanted[d.Account]; want > 0 && d.Hard {
			j.asked = append(j.asked, escrow.Request{ID: n.w.grantID(), Account: d.Account, Amount: usd(want * 2), Least: usd(want)})
		}
	}
	clear(n.wanted)
	h.Requests = slices.Clone(j.asked)
	return h
}

// take is the ledger's part when an answer comes.
func (n *simNode) take(h *escrow.Heartbeat, a *escrow.Answer, sent int64) {
	j := n.journal
	j.mark, n.answered = a.Mark, h.Sequence
	for i, r := range a.Receipts {
		if i >= len(h.Reports) {
			for _, m := range j.meters {
				if m.now.ID == r.Grant {
					m.told = h.Meters[i-len(h.Reports)]
				}
			}
			continue
		}
		j.givenUp = slices.DeleteFunc(j.givenUp, func(x escrow.Report) bool { return x.Grant == r.Grant })
		if g := j.grant(r.Grant); g != nil {
			g.told = h.Reports[i]
			if r.Ending != escrow.Open {
				g.end(r.Ending) // an operator may have ended it there
				j.grants = slices.DeleteFunc(j.grants, func(x *simGrant) bool { return x == g })
			}
		}
	}
	answered := func(id escrow.GrantID) {
		j.asked = slices.DeleteFunc(j.asked, func(r escrow.Request) bool { return r.ID == id })
	}
	for _, g := range a.Grants {
		if !slices.ContainsFunc(j.asked, func(r escrow.Request) bool { return r.ID == g.ID }) {
			n.w.failf("%s was granted %s, which it did not ask for", n.name, g.ID)
		}
		answered(g.ID)
		sg := &simGrant{id: g.ID, account: g.Account, amount: int64(g.Amount), expires: g.ExpiresAt}
		sg.told = sg.report()
		sg.deadline = a.Deadline(g.ExpiresAt, time.UnixMicro(sent)).UnixMicro()
		j.grants = append(j.grants, sg)
	}
	for _, d := range a.Denials {
		if n.w.rng.IntN(2) == 0 || d.Reason != escrow.NoRoom {
			answered(d.ID)
		} // else it is asked again
	}
	n.left = h.Bye
}

// spend begins an attempt, if there is credit. The money is gone when it begins.
func (n *simNode) spend(account escrow.Account, bound int64) {
	for _, g := range n.journal.grants {
		if g.ending != escrow.Open || g.account != account || n.w.now >= g.deadline || g.amount-g.consumed-g.uncertain-g.pending < bound {
			continue
		}
		if n.w.now+n.w.skew >= g.expires {
			n.w.failf("%s spends from a grant that has expired", n.name)
		}
		g.pending += bound
		a := attempt{g, bound, n.w.rng.Int64N(bound + 1)}
		if n.w.overruns && n.w.rng.IntN(20) == 0 {
			a.spent = bound + 3
			n.w.overran = true
		}
		n.w.spent[account] += a.spent
		n.w.spentOf[g.id] += a.spent
		n.attempts = append(n.attempts, a)
		return
	}
	n.wanted[account] = max(n.wanted[account], bound)
}

// finish ends an attempt: what it used is known, or it is not.
func (n *simNode) finish() {
	i := n.w.rng.IntN(len(n.attempts))
	a := n.attempts[i]
	n.attempts = slices.Delete(n.attempts, i, i+1)
	if a.grant.ending != escrow.Open {
		return // counted as uncertain
	}
	a.grant.pending -= a.bound
	if n.w.rng.IntN(4) > 0 {
		a.grant.consumed += a.spent
		return
	}
	a.grant.uncertain += a.bound
	a.grant.observed += a.spent / 2
}

// measure meters a soft budget.
func (n *simNode) measure(account escrow.Account, amount int64) {
	m := n.meters[account]
	if m == nil {
		m = &simMeter{now: escrow.Meter{ID: n.w.grantID(), Account: account}}
		n.meters[account], n.journal.meters = m, append(n.journal.meters, m)
	}
	switch n.w.rng.IntN(3) {
	case 0:
		m.now.Pending += usd(amount)
	case 1:
		m.now.Consumed, m.now.Pending = m.now.Consumed+m.now.Pending, 0
	case 2:
		m.now.Uncertain, m.now.Pending = m.now.Uncertain+m.now.Pending, 0
	}
}
