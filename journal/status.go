package journal

import (
	"context"
	"slices"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
)

// Status is how a journal stands, for operators.
type Status struct {
	Boot     escrow.BootID
	Number   int64 // of the opening that owns it
	Poison   Poison
	Accounts []AccountStatus
	Untold   int // grants and meters of which the authority has not receipted all
}

// AccountStatus adds up what the journal has of one account.
type AccountStatus struct {
	Account escrow.Account
	Meter   bool
	Open    amount.MicroUSD // amounts of the grants that are open
	Free    amount.MicroUSD // of them, what nobody uses: stranded, if nobody comes for it
	Asked   amount.MicroUSD
	// Of open grants and of those whose ending is not receipted:
	Reserved, Consumed, Uncertain, Observed amount.MicroUSD
}

// Look reads how a journal stands, beside whoever owns it. It takes nothing over.
//
// Errors: ErrUnavailable, ErrCorrupt.
func Look(ctx context.Context, s Store) (*Status, error) {
	l, err := s.View(ctx, &Plan{Everything: true})
	if err != nil {
		return nil, err
	}
	out := &Status{Boot: l.Meta.Boot, Number: l.Meta.Number, Poison: l.Meta.Poison}
	type key struct {
		account escrow.Account
		meter   bool
	}
	sums := map[key]*AccountStatus{}
	for i := range l.Grants {
		g := &l.Grants[i]
		if err := g.Validate(); err != nil {
			return nil, err
		}
		k := key{g.Account, g.Meter}
		if sums[k] == nil {
			sums[k] = &AccountStatus{Account: g.Account, Meter: g.Meter}
		}
		a := sums[k]
		if g.Pending() {
			out.Untold++
		}
		if g.Asked {
			a.Asked = plus(a.Asked, g.Amount)
			continue
		}
		if g.Ending == escrow.Open {
			a.Open, a.Free = plus(a.Open, g.Amount), plus(a.Free, g.Free())
		}
		a.Reserved, a.Consumed = plus(a.Reserved, g.Reserved), plus(a.Consumed, g.Consumed)
		a.Uncertain, a.Observed = plus(a.Uncertain, g.Uncertain), plus(a.Observed, g.Observed)
	}
	for _, a := range sums {
		out.Accounts = append(out.Accounts, *a)
	}
	slices.SortFunc(out.Accounts, func(a, b AccountStatus) int { return compareAccounts(a.Account, b.Account) })
	return out, nil
}

// plus stays at the largest amount: what is shown may stop there, what is counted may not.
func plus(a, b amount.MicroUSD) amount.MicroUSD {
	if sum, err := amount.Add(a, b); err == nil {
		return sum
	}
	return 1<<63 - 1
}

// Release is Journal.Release for an operator's tool, beside whoever owns the journal. It
// reports whether there was anything to release.
//
// Errors: *FieldError, ErrUnavailable, ErrUnknownOutcome, ErrCorrupt.
func Release(ctx context.Context, s Store, actor, reason string) (released bool, err error) {
	if err := signed(actor, reason); err != nil {
		return false, err
	}
	err = s.Step(ctx, &Plan{}, func(l *Loaded) (*Changes, error) {
		b := &Book{meta: l.Meta}
		released = b.Release(actor, reason)
		return b.Changes(), nil
	})
	return released && err == nil, err
}
