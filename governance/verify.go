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
	account AccountKey
	sum     quota.Account
	permits int64
}

// add counts one permit's share. It knows the states of permits and nothing of
// how accounts were moved: that is what makes it a check.
func (t *tally) add(rec *Record, kind Kind) error {
	bound, outcome, resolution := rec.Tokens, rec.Outcome.Tokens, rec.Resolution.Tokens
	uncertain := rec.Flags&FlagTokensUncertain != 0
	if kind == KindMoney {
		bound, outcome, resolution = rec.Cost, rec.Outcome.Cost, rec.Resolution.Cost
		uncertain = rec.Flags&FlagCostUncertain != 0
	}
	var one quota.Account
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
		return fmt.Errorf("%w: permit %s is in no known state", ErrCorrupt, rec.ID)
	}
	for _, column := range [...]struct {
		sum *int64
		one int64
	}{{&t.sum.Consumed, one.Consumed}, {&t.sum.Uncertain, one.Uncertain}, {&t.sum.Reserved, one.Reserved}, {&t.sum.Observed, one.Observed}} {
		sum, err := amount.Add(*column.sum, column.one)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		*column.sum = sum
	}
	t.permits++
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

// audit recomputes one account under its lock. Permits that can no longer change
// were added up before, without the lock; pending names the others.
type audit struct {
	account AccountKey
	kind    Kind
	base    tally
	read    int64      // entries already in base
	pending []PermitID // permits of those entries that may still change

	difference *Difference
	permits    int64
	err        error
}

func (s *sheet) audit(o *audit) {
	o.difference = nil
	i, ok := s.position(o.account.Constraint)
	if !ok || !s.current[i].locked {
		o.err = ErrUnavailable
		return
	}
	w := s.current[i].Cell
	if s.current[i].window.Start != o.account.WindowStart {
		w = s.older[0].Cell
	}
	sum := o.base
	for _, list := range [...][]Record{s.loaded.Permits, s.loaded.Entries} {
		for j := range list {
			if o.err = sum.include(&list[j], o.kind); o.err != nil {
				return
			}
		}
	}
	read := max(o.read, s.loaded.EntriesRead)
	o.permits = sum.permits
	stored := w.Account
	computed := sum.sum
	computed.Granted, computed.Frozen = stored.Granted, stored.Frozen
	d := &Difference{Account: o.account, Kind: o.kind, Stored: stored, Computed: computed}
	switch {
	case w.Kind == 0:
		d.Why = "the account is gone"
	case read != w.Entries:
		d.Why = fmt.Sprintf("the account counts %d batches, %d were found", w.Entries, read)
	case stored != computed:
		d.Why = "the counters are not what the permits add up to"
	default:
		return
	}
	o.difference = d
}

// include adds a permit if it reserved in the account.
func (t *tally) include(rec *Record, kind Kind) error {
	if rec.State == 0 {
		return nil
	}
	tm, err := decodeTerms(rec.Terms)
	if err != nil {
		return err
	}
	if !tm.holdsIn(t.account) {
		return nil
	}
	return t.add(rec, kind)
}
