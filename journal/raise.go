package journal

import (
	"fmt"
	"slices"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
)

// Raise makes every need of a reservation reach an amount, in the accounts that it
// already holds something of, or changes nothing. It is absolute and monotone: needs that have
// reached the amount keep what they hold.
//
// Units: to is microUSD per need.
// Retry: safe with the same amount.
// Errors: *FieldError, ErrNotFound, ErrEnded, *PoisonedError, *Shortage, Terms.Refuse.
func (b *Book) Raise(id ID, to amount.MicroUSD) error {
	if to < 0 {
		return invalid("to", "must not be negative")
	}
	i, ok := b.ids[id]
	if !ok {
		return ErrNotFound
	}
	r := &b.records[i]
	if r.State != Reserved {
		return ErrEnded
	}
	more, err := b.below(r, to)
	if err != nil || len(more) == 0 {
		return err
	}
	if b.terms.Refuse != nil {
		return b.terms.Refuse
	}
	if err := b.poisoned(); err != nil {
		return err
	}
	needs := make([]Need, len(more))
	for k := range more {
		needs[k] = more[k].Need
	}
	if err := b.lacks(needs, true); err != nil {
		return err
	}
	portions := slices.Clone(r.Portions)
	for k := range more {
		for _, p := range b.take(nil, more[k].place, &more[k].Need) {
			portions = join(portions, p)
		}
	}
	r.Portions = portions
	r.changed = !r.made
	return nil
}

// share is what one need of a reservation lacks to an amount.
type share struct {
	Need
	place int // among the reservation's needs
}

// below lists the needs that hold less than an amount.
func (b *Book) below(r *entry, to amount.MicroUSD) (list []share, err error) {
	for first := 0; first < len(r.Portions); {
		place := r.Portions[first].Need
		l := &b.lines[b.byID[r.Portions[first].Grant]]
		var has amount.MicroUSD
		last := first
		for ; last < len(r.Portions) && r.Portions[last].Need == place; last++ {
			has += r.Portions[last].Amount
		}
		if has < to {
			list = append(list, share{Need{Account: l.Account, Amount: to - has, Soft: l.Meter}, place})
		}
		first = last
	}
	if len(r.Portions)+len(list)*len(b.lines) > mostPortions {
		return nil, invalid("to", "would make too many portions of the reservation; end it and begin another")
	}
	return list, nil
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
