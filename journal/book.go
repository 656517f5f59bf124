package journal

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
)

// Terms are what a book goes by that no store keeps.
type Terms struct {
	Boot escrow.BootID // this opening
	// Left is for how long a grant may still be reserved from; zero or less: no more. It is
	// asked after the store's locks are held.
	Left func(escrow.GrantID) time.Duration
	// Refuse is why nothing is reserved any more; nil while it is.
	Refuse error
	// Now is the authority's clock, as far as it is known: ids of meters are minted by it.
	// Nil: time.Now.
	Now func() time.Time
}

func (t *Terms) now() time.Time {
	if t.Now == nil {
		return time.Now()
	}
	return t.Now()
}

// Book decides on loaded rows, one call after another, and says in the end what to
// write. Nothing of it is shared: a book is for one transaction.
type Book struct {
	terms   Terms
	meta    Meta
	moved   bool // meta changed
	lines   []line
	byID    map[escrow.GrantID]int
	open    map[escrow.Account][]int // what can be reserved from, soonest deadline first
	records []entry
	ids     map[ID]int
	dropped []escrow.GrantID
	forget  int64
	notes   []Note

	drawn map[escrow.Account]draw // for the estimate of demand
}

type line struct {
	Grant
	was    Grant
	made   bool // new in this transaction
	usable bool
	left   time.Duration
}

type entry struct {
	Record
	made, changed bool
}

// NewBook opens a book on what was loaded.
//
// Errors: *FencedError, ErrCorrupt.
func NewBook(l *Loaded, t Terms) (*Book, error) {
	if l.Meta.Boot != t.Boot || l.Meta.Number == 0 {
		return nil, &FencedError{&escrow.Fenced{Reason: escrow.Replaced, BootNumber: l.Meta.Number}}
	}
	b := &Book{terms: t, meta: l.Meta, lines: make([]line, 0, len(l.Grants)+1), byID: make(map[escrow.GrantID]int, len(l.Grants)), open: map[escrow.Account][]int{}}
	for i := range l.Grants {
		if err := l.Grants[i].Validate(); err != nil {
			return nil, err
		}
		if _, twice := b.byID[l.Grants[i].ID]; twice {
			return nil, corrupt("grant %s was loaded twice", l.Grants[i].ID)
		}
		b.add(l.Grants[i], false)
	}
	for _, list := range b.open {
		slices.SortFunc(list, func(i, j int) int {
			x, y := &b.lines[i], &b.lines[j]
			return cmp.Or(cmp.Compare(x.left, y.left), slices.Compare(x.ID[:], y.ID[:]))
		})
	}
	b.records, b.ids = make([]entry, len(l.Records), len(l.Records)+16), make(map[ID]int, len(l.Records)+16)
	for i := range l.Records {
		r := &l.Records[i]
		if err := b.check(r); err != nil {
			return nil, err
		}
		b.records[i].Record, b.ids[r.ID] = *r, i
	}
	return b, nil
}

func (b *Book) add(g Grant, made bool) int {
	i := len(b.lines)
	l := line{Grant: g, was: g, made: made}
	switch {
	case g.Ending != escrow.Open, g.Asked, g.Boot != b.meta.Number:
	case g.Meter:
		l.usable = true
	default:
		l.left = b.terms.Left(g.ID)
		l.usable = l.left > 0
	}
	b.lines, b.byID[g.ID] = append(b.lines, l), i
	if l.usable {
		b.open[g.Account] = append(b.open[g.Account], i)
	}
	return i
}

// check refuses a record that no history leads to, or whose grants are not there.
func (b *Book) check(r *Record) error {
	if r.ID == (ID{}) || r.State < Reserved || r.State > Burned || r.Cost < 0 || (r.State == Reserved) != (r.Number == 0) || r.Number < 0 || r.Number > b.meta.Ended {
		return corrupt("reservation %s has an impossible state", r.ID)
	}
	if r.State != Reserved {
		return nil
	}
	for i := range r.Portions {
		p := &r.Portions[i]
		l := b.lineOf(p)
		if l == nil && p.Amount == 0 {
			continue // nothing of it was held, so nothing kept it
		}
		if l == nil || l.Reserved < p.Amount || p.Amount < 0 {
			return corrupt("reservation %s holds what grant %s has not", r.ID, p.Grant)
		}
	}
	return nil
}

// lineOf is the grant or meter that a portion is of; nil where a portion of nothing has outlived
// it.
func (b *Book) lineOf(p *Portion) *line {
	i, ok := b.byID[p.Grant]
	if !ok {
		return nil
	}
	return &b.lines[i]
}

// Reserve takes every need, or nothing.
//
// Retry: a repetition with the same needs changes nothing while the reservation is on its way.
// Errors: *FieldError, ErrConflict, ErrEnded, *PoisonedError, *Shortage, Terms.Refuse.
func (b *Book) Reserve(r Reservation) error {
	if err := r.validate(); err != nil {
		return err
	}
	fingerprint := r.fingerprint()
	if i, ok := b.ids[r.ID]; ok {
		switch known := &b.records[i]; {
		case known.Fingerprint != fingerprint:
			return ErrConflict
		case known.State != Reserved:
			return ErrEnded
		}
		return b.terms.Refuse
	}
	if b.terms.Refuse != nil {
		return b.terms.Refuse
	}
	if err := b.poisoned(); err != nil {
		return err
	}
	if err := b.lacks(r.Needs, true); err != nil {
		return err
	}
	rec := Record{ID: r.ID, Fingerprint: fingerprint, State: Reserved, Portions: make([]Portion, 0, len(r.Needs))}
	for i := range r.Needs {
		rec.Portions = b.take(rec.Portions, i, &r.Needs[i])
	}
	b.ids[r.ID] = len(b.records)
	b.records = append(b.records, entry{Record: rec, made: true})
	return nil
}

// lacks returns a *Shortage when some need is not covered, and changes nothing. With
// wanted, what is missing counts as demand.
func (b *Book) lacks(needs []Need, wanted bool) error {
	var short *Shortage
	for i := range needs {
		n := &needs[i]
		if n.Soft {
			m := b.meterOf(n.Account)
			if m < 0 {
				if err := countable(&n.Account); err != nil {
					return err
				}
			} else {
				if _, err := amount.Sum(b.lines[m].Reserved, b.lines[m].Consumed, b.lines[m].Uncertain, n.Amount); err != nil {
					return invalid(fmt.Sprintf("needs[%d].amount", i), "is more than a meter can count")
				}
			}
			continue
		}
		free, any := b.free(n.Account)
		if any && free >= n.Amount {
			continue
		}
		if short == nil {
			short = &Shortage{RetryAfter: time.Second}
		}
		short.Lacks = append(short.Lacks, Lack{Account: n.Account, Need: n.Amount, Free: free})
		if !wanted {
			continue
		}
		b.draw(n.Account, func(d *draw) {
			d.short += n.Amount
			d.most = max(d.most, n.Amount)
			if !d.lacking || n.Amount < d.least {
				d.least = n.Amount
			}
			d.lacking = true
		})
	}
	if short == nil {
		return nil
	}
	return short
}

// countable refuses an account that no meter can be reported of: one bad meter would stop
// every heartbeat.
func countable(a *escrow.Account) error {
	h := escrow.Heartbeat{
		Node: "n", Boot: escrow.BootID{1}, BootNumber: 1, Sequence: 1,
		Meters: []escrow.Meter{{ID: escrow.NewGrantID(time.Time{}), Account: *a}},
	}
	var field *escrow.Error
	if err := h.Validate(); errors.As(err, &field) {
		return invalid("needs", "have an account that cannot be: "+field.Field+" "+field.Why)
	}
	return nil
}

// mostFree is far above any need, and twice of it can be added up.
const mostFree = 1 << 61

// free is what can be reserved of an account; any is false where nothing is held at all.
func (b *Book) free(a escrow.Account) (free amount.MicroUSD, any bool) {
	for _, i := range b.open[a] {
		if l := &b.lines[i]; !l.Meter && l.Ending == escrow.Open {
			any = true
			free = min(free+min(l.Free(), mostFree), mostFree)
		}
	}
	return free, any
}

func (b *Book) meterOf(a escrow.Account) int {
	for _, i := range b.open[a] {
		if b.lines[i].Meter && b.lines[i].Ending == escrow.Open {
			return i
		}
	}
	return -1
}

// take reserves one need, of which lacks has found that it is covered. Every need has a
// portion, also one of nothing: an overrun must be charged somewhere.
func (b *Book) take(portions []Portion, need int, n *Need) []Portion {
	if n.Soft {
		i := b.meterOf(n.Account)
		if i < 0 {
			i = b.add(Grant{ID: escrow.NewGrantID(b.terms.now()), Account: n.Account, Boot: b.meta.Number, Meter: true, Version: 1}, true)
		}
		b.lines[i].Reserved += n.Amount
		return append(portions, Portion{need, b.lines[i].ID, n.Amount})
	}
	b.draw(n.Account, func(d *draw) { d.taken += n.Amount; d.largest = max(d.largest, n.Amount) })
	first := len(portions)
	left := n.Amount
	for _, i := range b.open[n.Account] {
		l := &b.lines[i]
		if l.Meter || l.Ending != escrow.Open {
			continue
		}
		part := min(left, l.Free())
		if part == 0 && (left > 0 || len(portions) > first) {
			continue
		}
		l.Reserved += part
		left -= part
		portions = append(portions, Portion{need, l.ID, part})
		if left == 0 {
			break
		}
	}
	if left != 0 {
		panic("journal: a need was found covered and is not")
	}
	return portions
}

// Settle ends a reservation by its outcome. What is known releases what was not used;
// what is not known keeps the bound; more than the bound is recorded in full and poisons
// the journal.
//
// Retry: an exact repetition changes nothing.
// Errors: *FieldError, ErrNotFound, ErrConflict, ErrEnded (its process was taken for dead:
// the bound is charged).
func (b *Book) Settle(id ID, o Outcome) error {
	o, err := o.clean()
	if err != nil {
		return err
	}
	i, ok := b.ids[id]
	if !ok {
		return ErrNotFound
	}
	r := &b.records[i]
	switch {
	case r.State == Burned:
		return fmt.Errorf("%w: it was burned", ErrEnded)
	case r.State != Reserved && r.State == o.State && r.Cost == o.Cost:
		return nil
	case r.State != Reserved:
		return ErrConflict
	}
	if err := b.fits(r, o); err != nil {
		return err
	}
	b.end(r, o)
	return nil
}

// fits refuses a cost that the sums cannot hold, before anything is changed.
func (b *Book) fits(r *entry, o Outcome) error {
	for i := range r.Portions {
		l := b.lineOf(&r.Portions[i])
		if l == nil {
			continue
		}
		if _, err := amount.Sum(l.Reserved, l.Consumed, l.Uncertain, l.Observed, o.Cost); err != nil {
			return invalid("outcome.cost", "is more than can be counted")
		}
	}
	return nil
}

func (b *Book) end(r *entry, o Outcome) {
	for first := 0; first < len(r.Portions); {
		last := first + 1
		for last < len(r.Portions) && r.Portions[last].Need == r.Portions[first].Need {
			last++
		}
		b.apply(r.ID, r.Portions[first:last], o)
		first = last
	}
	r.State, r.Cost = o.State, o.Cost
	b.meta.Ended++
	r.Number, r.changed, b.moved = b.meta.Ended, true, true
}

// apply ends the portions of one need.
func (b *Book) apply(id ID, portions []Portion, o Outcome) {
	left := o.Cost
	var bound amount.MicroUSD
	for i := range portions {
		p := &portions[i]
		l := b.lineOf(p)
		if l == nil {
			continue // what is used beyond nothing counts nowhere any more, and poisons
		}
		l.Reserved -= p.Amount
		bound += p.Amount
		part := min(left, p.Amount)
		if i == len(portions)-1 {
			part = left // an overrun stays with the last one
		}
		left -= part
		switch o.State {
		case Settled:
			l.Consumed += part
			b.draw(l.Account, func(d *draw) { d.taken -= p.Amount - min(part, p.Amount) })
		case Uncertain:
			l.Uncertain += p.Amount
			l.Observed += part
		case Unsent:
			b.draw(l.Account, func(d *draw) { d.taken -= p.Amount })
		}
	}
	if o.State == Settled && o.Cost > bound && b.meta.Poison == (Poison{}) {
		b.meta.Poison, b.moved = Poison{Reservation: id, Used: o.Cost, Bound: bound}, true
	}
}

// Release lets the journal reserve again after an overrun. It reports whether there was
// anything to release.
func (b *Book) Release(actor, reason string) bool {
	if b.meta.Poison == (Poison{}) {
		return false
	}
	b.notes = append(b.notes, Note{Actor: actor, Action: "release", Reason: reason, Poison: b.meta.Poison})
	b.meta.Poison, b.moved = Poison{}, true
	return true
}

// Changes are what the decisions come to.
func (b *Book) Changes() *Changes {
	ch := &Changes{Dropped: b.dropped, Forget: b.forget, Notes: b.notes}
	for i := range b.lines {
		l := &b.lines[i]
		switch {
		case l.made:
			ch.Grants = append(ch.Grants, l.Grant)
		case l.Grant != l.was && !slices.Contains(b.dropped, l.ID):
			if l.Version == l.was.Version && !told(&l.Grant, &l.was) {
				l.Version++
			}
			ch.Grants = append(ch.Grants, l.Grant)
		}
	}
	for i := range b.records {
		switch r := &b.records[i]; {
		case r.made:
			ch.Made = append(ch.Made, r.Record)
		case r.changed:
			ch.Changed = append(ch.Changed, r.Record)
		}
	}
	if b.moved {
		meta := b.meta
		ch.Meta = &meta
	}
	return ch
}
