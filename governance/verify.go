package governance

import (
	"fmt"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/quota"
)

// Difference is an account whose counters are not what its permits say.
type Difference struct {
	Account  AccountKey
	Kind     Kind
	Stored   quota.Account
	Computed quota.Account
	Why      string
}

// tally adds up what permits hold in one account.
type tally struct {
	sum     quota.Account
	permits int64
}

// share is what a permit holds in an account of the kind. It knows the states of
// permits and nothing of how accounts were moved: that is what makes it a check.
func (rec *Record) share(kind Kind) (one quota.Account, err error) {
	if rec.Flags&FlagGrant != 0 {
		if kind == KindMoney {
			return rec.grantShare()
		}
		return one, nil
	}
	bound, outcome, resolution := rec.Tokens, rec.Outcome.Tokens, rec.Resolution.Tokens
	uncertain := rec.Flags&FlagTokensUncertain != 0
	if kind == KindMoney {
		bound, outcome, resolution = rec.Cost, rec.Outcome.Cost, rec.Resolution.Cost
		uncertain = rec.Flags&FlagCostUncertain != 0
	}
	switch rec.State {
	case StateOpen:
		one.Reserved = bound
	case StateSettled:
		if uncertain {
			one.Uncertain, one.Observed = bound, outcome.Value
		} else {
			one.Consumed = outcome.Value
		}
	case StateResolved:
		if outcome.Certainty == Known {
			one.Consumed = outcome.Value
		} else {
			one.Consumed, one.Observed = resolution.Value, outcome.Value
		}
	case StateCancelled:
	default:
		return one, fmt.Errorf("%w: permit %s is in no known state", ErrCorrupt, rec.ID)
	}
	return one, nil
}

// add counts what one permit holds.
func (t *tally) add(rec *Record, kind Kind) error {
	one, err := rec.share(kind)
	if err != nil {
		return err
	}
	return t.merge(tally{sum: one, permits: 1})
}

// merge adds another sum.
func (t *tally) merge(other tally) error {
	a, b := &t.sum, &other.sum
	for _, column := range [...]struct {
		sum *int64
		one int64
	}{{&a.Consumed, b.Consumed}, {&a.Uncertain, b.Uncertain}, {&a.Reserved, b.Reserved}, {&a.Granted, b.Granted}, {&a.Observed, b.Observed}, {&t.permits, other.permits}} {
		sum, err := amount.Add(*column.sum, column.one)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		*column.sum = sum
	}
	return nil
}

// holdsIn reports whether the permit reserved in the account.
func (t *terms) holdsIn(key AccountKey) bool {
	for i := range t.holds {
		if t.holds[i].account() == key {
			return true
		}
	}
	return false
}

// final reports whether nothing can change the permit any more.
func (rec *Record) final() bool {
	switch rec.State {
	case StateCancelled, StateResolved:
		return true
	case StateSettled:
		return rec.Flags&(FlagTokensUncertain|FlagCostUncertain) == 0
	}
	return false
}

// reservedIn reports whether the permit reserved in the account. Errors: ErrCorrupt.
func (rec *Record) reservedIn(key AccountKey) (bool, error) {
	tm, err := decodeTerms(rec.Terms)
	if err != nil {
		return false, err
	}
	return tm.holdsIn(key), nil
}
