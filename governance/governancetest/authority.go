package governancetest

import (
	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
)

// authorityCases hold an Authority on the store to what escrow.Authority promises.
func authorityCases() []scenario {
	needs := Features{Policies: true, Nodes: true}
	return []scenario{
		{name: "GrantsAndTakesBack", needs: needs, run: authorityLife},
		{name: "EmptyAnswerIsComplete", needs: needs, run: authorityEmpty},
	}
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
}
