package journal

import (
	"fmt"
	"slices"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
)

// Raise makes each need of a reservation reach its amount, or changes nothing: r names the
// accounts that were reserved in, in the same order. It is absolute and monotone: a need that has
// reached its amount keeps what it holds.
//
// Retry: safe with the same r.
// Errors: *FieldError, ErrNotFound, ErrEnded, ErrConflict (other accounts), *PoisonedError,
// *Shortage, Terms.Refuse.
func (b *Book) Raise(r Reservation) error {
	if err := r.validate(); err != nil {
		return err
	}
	i, ok := b.ids[r.ID]
	if !ok {
		return ErrNotFound
	}
	known := &b.records[i]
	if known.State != Reserved {
		return ErrEnded
	}
	more, places, err := b.below(known, r.Needs)
	if err != nil || len(more) == 0 {
		return err
	}
	if b.terms.Refuse != nil {
		return b.terms.Refuse
	}
	if err := b.poisoned(); err != nil {
		return err
	}
	if err := b.lacks(more, true); err != nil {
		return err
	}
	portions := slices.Clone(known.Portions)
	for k := range more {
		for _, p := range b.take(nil, places[k], &more[k]) {
			portions = join(portions, p)
		}
	}
	known.Portions, known.changed = portions, !known.made
	return nil
}

// below lists what the needs lack to their amounts, and their places among all needs.
func (b *Book) below(r *entry, needs []Need) (more []Need, places []int, err error) {
	has := make([]amount.MicroUSD, len(needs))
	for i := range r.Portions {
		p := &r.Portions[i]
		if p.Need >= len(needs) {
			return nil, nil, ErrConflict
		}
		if l := b.lineOf(p); l != nil && (l.Account != needs[p.Need].Account || l.Meter != needs[p.Need].Soft) {
			return nil, nil, ErrConflict
		}
		has[p.Need] += p.Amount
	}
	for i := range needs {
		if lack := needs[i]; has[i] < lack.Amount {
			lack.Amount -= has[i]
			more, places = append(more, lack), append(places, i)
		}
	}
	if len(r.Portions)+len(b.lines) > mostPortions {
		return nil, nil, invalid("needs", "would be of too many grants; end the reservation and begin another")
	}
	return more, places, nil
}

// join adds a portion to a list that is in the order of the needs.
func join(list []Portion, p Portion) []Portion {
	at := len(list)
	for i := range list {
		switch {
		case list[i].Need == p.Need && list[i].Grant == p.Grant:
			list[i].Amount += p.Amount
			return list
		case list[i].Need > p.Need && at == len(list):
			at = i
		}
	}
	return slices.Insert(list, at, p)
}

// poisoned is the error of a journal that no operator has released.
func (b *Book) poisoned() error {
	if b.meta.Poison != (Poison{}) {
		return &PoisonedError{b.meta.Poison}
	}
	return nil
}

// Refused is why this opening reserves nothing any more, be it of what nobody limits; nil
// while it does. A poisoned journal reserves nothing either: see Poison.
func (b *Book) Refused() error { return b.terms.Refuse }

// Poison is the overrun that no operator has released; zero where there is none.
func (b *Book) Poison() Poison { return b.meta.Poison }

// Lacks is the *Shortage that Reserve would return for the needs, and nil where they are covered.
// It is a question: nobody is asked for what is missing.
//
// Errors: *Shortage, *FieldError.
func (b *Book) Lacks(needs []Need) error { return b.lacks(needs, false) }

// Standing is what a node has of one account, of grants and meters that are open.
type Standing struct {
	Meter     escrow.GrantID // of this opening; zero where it has none yet
	Free      amount.MicroUSD
	Reserved  amount.MicroUSD
	Consumed  amount.MicroUSD
	Uncertain amount.MicroUSD
}

// Standing adds up what was loaded of an account. Free counts only what has not passed its deadline.
func (b *Book) Standing(a escrow.Account) (s Standing) {
	s.Free, _ = b.free(a)
	for i := range b.lines {
		l := &b.lines[i]
		if l.Account != a || l.Ending != escrow.Open || l.Asked {
			continue
		}
		if l.Meter {
			s.Meter = l.ID
		}
		s.Reserved, s.Consumed, s.Uncertain = plus(s.Reserved, l.Reserved), plus(s.Consumed, l.Consumed), plus(s.Uncertain, l.Uncertain)
	}
	return s
}

// Metered is the meter that this opening counts an account with, and what it counts as used; zero
// where it has none yet.
func (b *Book) Metered(a escrow.Account) (id escrow.GrantID, used amount.MicroUSD) {
	i := b.meterOf(a)
	if i < 0 {
		return id, 0
	}
	return b.lines[i].ID, plus(b.lines[i].Consumed, b.lines[i].Uncertain)
}

// On reports whether the journal was opened on the store.
func (j *Journal) On(s Store) bool { return same(j.store, s) }

func same(a, b Store) bool {
	defer func() { _ = recover() }() // stores that cannot be compared are not known to be the same
	return a == b
}

// Imbalance is a grant or meter that does not have reserved what reservations hold of it.
type Imbalance struct {
	Grant    Grant
	Computed amount.MicroUSD // what the reservations on their way add up to
}

func (i Imbalance) String() string {
	return fmt.Sprintf("grant %s has %s reserved, and its reservations hold %s", i.Grant.ID, i.Grant.Reserved, i.Computed)
}

// Audit adds up what every reservation on its way holds, and lists the grants that say otherwise.
//
// Errors: ErrCorrupt.
func Audit(l *Loaded) ([]Imbalance, error) {
	held := map[escrow.GrantID]amount.MicroUSD{}
	for i := range l.Records {
		if l.Records[i].State != Reserved {
			continue
		}
		for _, p := range l.Records[i].Portions {
			sum, err := amount.Add(held[p.Grant], p.Amount)
			if err != nil {
				return nil, corrupt("reservation %s holds more than can be counted", l.Records[i].ID)
			}
			held[p.Grant] = sum
		}
	}
	var out []Imbalance
	for i := range l.Grants {
		g := &l.Grants[i]
		if g.Reserved != held[g.ID] {
			out = append(out, Imbalance{*g, held[g.ID]})
		}
		delete(held, g.ID)
	}
	for id, sum := range held {
		out = append(out, Imbalance{Grant{ID: id}, sum})
	}
	return out, nil
}
