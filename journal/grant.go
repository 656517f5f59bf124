package journal

import (
	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
)

// Grant is what the journal keeps of one grant, or of one meter of a soft budget, which
// is a grant without an amount.
//
// The sums of a grant that was not overrun add up: Amount = Reserved + Consumed +
// Uncertain + Free.
type Grant struct {
	ID        escrow.GrantID
	Account   escrow.Account
	Boot      int64           // number of the opening that asked for it
	Meter     bool            // it counts a soft budget and refuses nothing
	Asked     bool            // asked for and not answered yet: nothing can be reserved from it
	Amount    amount.MicroUSD // granted, or asked for
	Reserved  amount.MicroUSD
	Consumed  amount.MicroUSD
	Uncertain amount.MicroUSD
	Observed  amount.MicroUSD
	Ending    escrow.Ending
	// Version rises whenever what is reported of it changes; Acked is the version that
	// the authority has receipted. While they differ it is to be reported.
	Version int64
	Acked   int64
}

// Free is what can still be reserved of an open grant. It is zero after an overrun.
func (g *Grant) Free() amount.MicroUSD {
	if g.Meter || g.Asked {
		return 0
	}
	return max(0, g.Amount-g.Reserved-g.Consumed-g.Uncertain)
}

// Overrun is how much more was used than was granted.
func (g *Grant) Overrun() amount.MicroUSD {
	if g.Meter {
		return 0
	}
	return max(0, g.Reserved+g.Consumed+g.Uncertain-g.Amount)
}

// Pending reports whether the authority still has to be told something of it.
func (g *Grant) Pending() bool { return g.Version != g.Acked }

// Validate refuses a grant that no history leads to. Errors: ErrCorrupt.
func (g *Grant) Validate() error {
	total, err := amount.Sum(g.Reserved, g.Consumed, g.Uncertain)
	switch {
	case g.ID == (escrow.GrantID{}), g.Account.Policy == "", g.Account.Rule == "":
		return corrupt("a grant without a name")
	case err != nil, total < 0, g.Reserved < 0, g.Consumed < 0, g.Uncertain < 0, g.Observed < 0, g.Amount < 0:
		return corrupt("grant %s has impossible sums", g.ID)
	case g.Meter && g.Amount != 0, !g.Meter && g.Amount == 0:
		return corrupt("grant %s has an impossible amount", g.ID)
	case g.Ending > escrow.Burned, g.Version < 1, g.Acked < 0, g.Acked > g.Version, g.Boot < 1:
		return corrupt("grant %s has an impossible state", g.ID)
	case g.Ending == escrow.Closed && g.Reserved > 0:
		return corrupt("grant %s was closed while something is reserved from it", g.ID)
	case g.Asked && (g.Meter || total > 0 || g.Observed > 0):
		return corrupt("grant %s is used and was not granted", g.ID)
	}
	return nil
}

// report is what the authority is told.
func (g *Grant) report() escrow.Report {
	return escrow.Report{Grant: g.ID, Consumed: g.Consumed, Uncertain: g.Uncertain, Observed: g.Observed, Ending: g.Ending}
}

func (g *Grant) meter() escrow.Meter {
	return escrow.Meter{ID: g.ID, Account: g.Account, Consumed: g.Consumed, Uncertain: g.Uncertain, Observed: g.Observed, Pending: g.Reserved}
}

// told reports whether a and b are the same to the authority.
func told(a, b *Grant) bool {
	if a.Meter {
		return a.meter() == b.meter() && a.Ending == b.Ending
	}
	return a.report() == b.report()
}

// burn ends what a process that is gone held: all that is not known to be used counts
// as perhaps used.
func (g *Grant) burn() {
	if g.Ending == escrow.Open {
		g.Uncertain += g.Free()
		g.Ending = escrow.Burned
	}
	g.Uncertain += g.Reserved
	g.Reserved = 0
}
