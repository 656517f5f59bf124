package governance

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
)

// NodesQuery selects nodes by name.
type NodesQuery struct {
	After string // continue behind this name
	Limit int    // at most so many, default 100, at most 1000
}

// NodeReport is what an authority knows of one node.
type NodeReport struct {
	Name       string
	HeardAt    int64 // µs, the store's clock, when it was heard last
	BootNumber int64 // of the boot that spoke last
	Sequence   int64 // of its last heartbeat
	Left       bool  // that was its last: it stopped in good order
	Boots      []BootReport
}

// BootReport is what one boot of a node has not given back, by account.
type BootReport struct {
	Boot     escrow.BootID
	Number   int64
	Accounts []BootAccount
}

// BootAccount is what of one account is out at one boot, or was lost with it.
//
// Units: microUSD.
type BootAccount struct {
	Account     escrow.Account
	Outstanding amount.MicroUSD // of grants that the boot may still spend from
	Stranded    amount.MicroUSD // of grants that have expired and were not reported back
	Burned      amount.MicroUSD // made uncertain by a crash, and not resolved yet
	Pending     amount.MicroUSD // what a meter said was on its way
}

// Nodes reports what nodes hold, by name. What is stranded or burned comes back by a
// report of the node, or by Governor.Resolve. It reads every open permit of the store.
//
// Time: the store's clock. Errors: ErrInvalid, ErrUnavailable, ErrCorrupt.
//
// Source: ADR-045 "Failure and operational boundaries".
func (a *Authority) Nodes(ctx context.Context, q NodesQuery) ([]NodeReport, error) {
	if q.Limit == 0 {
		q.Limit = 100
	}
	if q.Limit < 1 || q.Limit > 1000 {
		return nil, invalid("limit", "must be between 1 and 1000")
	}
	rows, err := a.nodes.Nodes(ctx, escrow.NodeQuery{After: q.After, Limit: q.Limit})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	reports, byName := make([]NodeReport, len(rows)), map[string]*NodeReport{}
	for i := range rows {
		var node escrow.Node
		if err := node.UnmarshalBinary(rows[i].Data); err != nil {
			return nil, fmt.Errorf("%w: the row of node %s", ErrCorrupt, rows[i].Name)
		}
		reports[i] = NodeReport{Name: rows[i].Name, HeardAt: rows[i].HeardAt, BootNumber: node.BootNumber, Sequence: node.Sequence, Left: node.Bye}
		byName[rows[i].Name] = &reports[i]
	}
	if err := a.addHolds(ctx, byName); err != nil {
		return nil, err
	}
	for i := range reports {
		slices.SortFunc(reports[i].Boots, func(a, b BootReport) int { return cmp.Compare(a.Number, b.Number) })
		for _, boot := range reports[i].Boots {
			slices.SortFunc(boot.Accounts, func(a, b BootAccount) int { return a.Account.Compare(b.Account) })
		}
	}
	return reports, nil
}

// addHolds adds what grants hold to their nodes.
func (a *Authority) addHolds(ctx context.Context, byName map[string]*NodeReport) error {
	loaded, err := a.store.View(ctx, &Plan{})
	if err != nil {
		return err
	}
	q := PermitQuery{Limit: 1000, States: []State{StateOpen}, Flags: FlagCostUncertain}
	for {
		list, err := a.store.Permits(ctx, q)
		if err != nil {
			return err
		}
		for i := range list {
			rec := &list[i]
			if q.After = rec.ID; rec.Flags&FlagGrant == 0 || rec.final() {
				continue
			}
			t, err := decodeTerms(rec.Terms)
			if err != nil {
				return err
			}
			h, err := rec.held()
			if err != nil {
				return err
			}
			if n := byName[t.grant.node]; n != nil {
				n.add(t.grant, h, loaded.Now)
			}
		}
		if len(list) < q.Limit {
			return nil
		}
	}
}

func (n *NodeReport) add(g *grantTerms, h escrow.Held, now int64) {
	var one BootAccount
	switch left := h.Share().Granted; {
	case h.Ending == escrow.Burned:
		one.Burned = h.Uncertain - h.Resolved
	case h.Meter:
		one.Pending = left
	case now < g.expires:
		one.Outstanding = left
	default:
		one.Stranded = left
	}
	if one == (BootAccount{}) {
		return
	}
	b := slices.IndexFunc(n.Boots, func(b BootReport) bool { return b.Boot == g.boot })
	if b < 0 {
		b = len(n.Boots)
		n.Boots = append(n.Boots, BootReport{Boot: g.boot, Number: g.number})
	}
	boot := &n.Boots[b]
	i := slices.IndexFunc(boot.Accounts, func(a BootAccount) bool { return a.Account == g.account })
	if i < 0 {
		i = len(boot.Accounts)
		boot.Accounts = append(boot.Accounts, BootAccount{Account: g.account})
	}
	to := &boot.Accounts[i]
	to.Outstanding += one.Outstanding // all of it is in one account, whose sums fit
	to.Stranded += one.Stranded
	to.Burned += one.Burned
	to.Pending += one.Pending
}
