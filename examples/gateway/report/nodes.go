package report

import (
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
)

// Node is what an authority knows of one node, and what of its money is out there.
type Node struct {
	Name       string    `json:"name"`
	HeardAt    time.Time `json:"heard_at"`
	BootNumber int64     `json:"boot_number"`
	Sequence   int64     `json:"sequence"`
	Left       bool      `json:"left"` // it stopped in good order
	Out
	Boots []Boot `json:"boots"` // that have not given everything back
}

// Out is money that is at nodes, or was lost with them.
type Out struct {
	Outstanding int64 `json:"outstanding_microusd"` // may still be spent
	Stranded    int64 `json:"stranded_microusd"`    // expired, and not reported back
	Burned      int64 `json:"burned_microusd"`      // made uncertain by a crash, and not resolved
	Pending     int64 `json:"pending_microusd"`     // on its way, of meters
}

// Boot is one opening of a node's journal.
type Boot struct {
	ID     string `json:"boot"`
	Number int64  `json:"number"`
	Out
	Accounts []BootAccount `json:"accounts"`
}

// BootAccount is what one boot holds of one budget in one window.
type BootAccount struct {
	Budget
	Out
}

// Budget is a budget of a policy in one window.
type Budget struct {
	Policy      string    `json:"policy"`
	Rule        string    `json:"rule"`
	Scope       string    `json:"scope"`
	Subject     string    `json:"subject"`
	WindowStart time.Time `json:"window_start"`
	WindowEnd   time.Time `json:"window_end"`
}

// BudgetOf writes an account of escrow.
func BudgetOf(a escrow.Account) Budget {
	return Budget{
		Policy: a.Policy, Rule: a.Rule, Scope: a.Subject.Scope().String(), Subject: a.Subject.String(),
		WindowStart: time.UnixMicro(a.Window.Start).UTC(), WindowEnd: time.UnixMicro(a.Window.End).UTC(),
	}
}

// NodePage is one page of nodes, by name. An empty Next says that it is the last.
type NodePage struct {
	Nodes []Node `json:"nodes"`
	Next  string `json:"next,omitempty"`
}

// NodeOf writes a node.
func NodeOf(n *governance.NodeReport) Node {
	out := Node{
		Name: n.Name, HeardAt: time.UnixMicro(n.HeardAt).UTC(), BootNumber: n.BootNumber, Sequence: n.Sequence, Left: n.Left, Boots: []Boot{},
	}
	for _, b := range n.Boots {
		boot := Boot{ID: b.Boot.String(), Number: b.Number, Accounts: []BootAccount{}}
		for _, a := range b.Accounts {
			account := BootAccount{BudgetOf(a.Account), Out{int64(a.Outstanding), int64(a.Stranded), int64(a.Burned), int64(a.Pending)}}
			boot.Accounts = append(boot.Accounts, account)
			boot.add(account.Out)
		}
		out.Boots = append(out.Boots, boot)
		out.add(boot.Out)
	}
	return out
}

// add adds up over budgets: what is shown may stop at the largest amount.
func (o *Out) add(more Out) {
	for _, sum := range [...]struct {
		to *int64
		by int64
	}{{&o.Outstanding, more.Outstanding}, {&o.Stranded, more.Stranded}, {&o.Burned, more.Burned}, {&o.Pending, more.Pending}} {
		total, err := amount.Add(*sum.to, sum.by)
		if err != nil {
			total = 1<<63 - 1
		}
		*sum.to = total
	}
}

// Grant is what a node holds by a grant, or says by a meter.
type Grant struct {
	Node       string `json:"node"`
	Boot       string `json:"boot"`
	BootNumber int64  `json:"boot_number"`
	Meter      bool   `json:"meter"`
	Budget
	Consumed  int64      `json:"consumed_microusd"`
	Uncertain int64      `json:"uncertain_microusd"`
	Pending   int64      `json:"pending_microusd"`
	ExpiresAt *time.Time `json:"expires_at"` // null: a meter
	Burned    bool       `json:"burned"`
}

func grantOf(g *governance.GrantHold) *Grant {
	if g == nil {
		return nil
	}
	out := &Grant{
		Node: g.Node, Boot: g.Boot.String(), BootNumber: g.BootNumber, Meter: g.Meter, Budget: BudgetOf(g.Account),
		Consumed: int64(g.Consumed), Uncertain: int64(g.Uncertain), Pending: int64(g.Pending), Burned: g.Burned,
	}
	if g.ExpiresAt != 0 {
		at := time.UnixMicro(g.ExpiresAt).UTC()
		out.ExpiresAt = &at
	}
	return out
}
