package report

import (
	"time"

	"github.com/tallystick-go/tallystick/governance"
)

// Pruning is what was forgotten.
type Pruning struct {
	Horizon     time.Time    `json:"horizon"`
	Removed     Removed      `json:"removed"`
	RemovedEver Removed      `json:"removed_ever"`
	Kept        int64        `json:"kept"`
	Accounts    int64        `json:"accounts"`
	Differences []Difference `json:"differences"`
}

// Removed is a number of permits and what they had used.
type Removed struct {
	Permits int64 `json:"permits"`
	Amount
}

// PruningOf writes what was forgotten.
func PruningOf(r governance.PruneReport) Pruning {
	out := Pruning{
		Horizon: time.UnixMicro(r.Horizon).UTC(), Removed: removed(r.Removed), RemovedEver: removed(r.Total),
		Kept: r.Kept, Accounts: r.Accounts, Differences: []Difference{},
	}
	for _, d := range r.Differences {
		out.Differences = append(out.Differences, Difference{AccountOf(d.Account), d.Why})
	}
	return out
}

func removed(p governance.Pruned) Removed {
	return Removed{p.Permits, Amount{Tokens: p.Tokens, CostMicroUSD: p.Cost}}
}
