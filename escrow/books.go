package escrow

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/quota"
)

// Record is a grant or a meter as an authority keeps it.
type Record struct {
	ID         GrantID
	Node       string
	BootNumber int64 // of the boot that asked
	Account    Account
	ExpiresAt  int64 // µs; zero for a meter
	Held
}

func (r *Record) grant() Grant {
	return Grant{ID: r.ID, Account: r.Account, Amount: r.Amount, ExpiresAt: r.ExpiresAt}
}

// Standing is an account as an authority keeps it.
type Standing struct {
	quota.Account
	Latch policy.Percent // the highest threshold that was reached in the window
}

// Books is what an authority has before it to answer one heartbeat, all of it read when the
// accounts were locked. Take is the whole decision; whoever keeps the books only loads,
// locks and writes.
type Books struct {
	Now       int64 // µs, read after the locks were held
	TTL       time.Duration
	Horizon   int64 // µs: ended records with older ids may have been removed; zero when none were
	Mark      policy.Mark
	Documents *policy.Set // of that mark
	// Definitions are those of the documents, with the windows that are current here.
	Definitions []Definition
	Node        Node
	Records     map[GrantID]Record // those of the heartbeat's IDs that exist
	// Accounts are those that Needs lists, and those of the definitions.
	Accounts map[Account]Standing
}

// Outcome is what is to be written before Answer is given.
type Outcome struct {
	Answer   *Answer
	Node     Node
	Records  []Record  // new or changed, in the order of their ids
	Accounts []Account // changed, in order; Books.Accounts has the new states
	Overruns []GrantID // grants that used more than their amount, newly or still more
}

// IDs lists the grants and meters of a heartbeat, in order.
func (h *Heartbeat) IDs() []GrantID {
	out := make([]GrantID, 0, len(h.Reports)+len(h.Meters)+len(h.Requests))
	for i := range h.Reports {
		out = append(out, h.Reports[i].Grant)
	}
	for i := range h.Meters {
		out = append(out, h.Meters[i].ID)
	}
	for i := range h.Requests {
		out = append(out, h.Requests[i].ID)
	}
	slices.SortFunc(out, GrantID.Compare)
	return out
}

// Compare orders ids by their bytes.
func (id GrantID) Compare(other GrantID) int { return bytes.Compare(id[:], other[:]) }

// Compare orders accounts by policy, rule, subject, period and window.
func (a Account) Compare(b Account) int {
	return cmp.Or(strings.Compare(a.Policy, b.Policy), strings.Compare(a.Rule, b.Rule),
		strings.Compare(a.Subject.Team, b.Subject.Team), strings.Compare(a.Subject.User, b.Subject.User),
		cmp.Compare(a.Period, b.Period), cmp.Compare(a.Window.Start, b.Window.Start), cmp.Compare(a.Window.End, b.Window.End))
}

// Needs lists the accounts that answering a heartbeat may change, in order: those of its
// meters, of its requests, and of the records that it names.
func (h *Heartbeat) Needs(records map[GrantID]Record) []Account {
	var out []Account
	for i := range h.Meters {
		out = append(out, h.Meters[i].Account)
	}
	for i := range h.Requests {
		out = append(out, h.Requests[i].Account)
	}
	for _, r := range records {
		out = append(out, r.Account)
	}
	slices.SortFunc(out, Account.Compare)
	return slices.Compact(out)
}

// Take decides a heartbeat: first what its reports and meters say, then what it asks for. It
// takes all of it or, with an error, none; then the books must not be used any more.
//
// A heartbeat that is repeated finds what was granted, and is granted nothing new: a copy of
// it may arrive when the node has long gone on. What it still wants it asks for again.
//
// Errors: *Error, *Fenced, ErrStale, ErrIncompatible, ErrRegressed; anything else says that
// the books are not in order.
//
// Source: ADR-045 "Accounts, windows and reports".
func (b *Books) Take(h *Heartbeat) (*Outcome, error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	switch {
	case h.Mark == policy.Mark{}:
	case h.Mark.Namespace != b.Mark.Namespace:
		return nil, fmt.Errorf("%w: it goes by the policies of %s, these are of %s", ErrIncompatible, h.Mark.Namespace, b.Mark.Namespace)
	case h.Mark.Revision > b.Mark.Revision, h.Mark.Revision == b.Mark.Revision && h.Mark.Generation != b.Mark.Generation:
		return nil, fmt.Errorf("%w: revision %d of the policies was answered otherwise, or %d is older", ErrRegressed, h.Mark.Revision, b.Mark.Revision)
	}
	node, replay, err := b.Node.Next(h)
	if err != nil {
		return nil, err
	}
	t := taking{Books: b, h: h, replay: replay, records: map[GrantID]Record{}, accounts: map[Account]bool{}}
	t.out.Node = node
	t.out.Answer = &Answer{Mark: b.Mark, Documents: b.Documents, Now: b.Now, Definitions: b.Definitions}
	for i := range h.Reports {
		if err := t.report(&h.Reports[i]); err != nil {
			return nil, within(index("reports", i), err)
		}
	}
	for i := range h.Meters {
		if err := t.meter(&h.Meters[i]); err != nil {
			return nil, within(index("meters", i), err)
		}
	}
	for i := range h.Requests {
		if err := t.request(&h.Requests[i]); err != nil {
			return nil, within(index("requests", i), err)
		}
	}
	return t.close()
}

// taking is a heartbeat on its way through the books.
type taking struct {
	*Books
	h        *Heartbeat
	replay   bool
	records  map[GrantID]Record // changed
	accounts map[Account]bool   // changed
	out      Outcome
}

func (t *taking) report(r *Report) error {
	rec, known := t.Records[r.Grant]
	if !known {
		// Given up before it was granted, or so long ended that it was removed.
		if t.removed(r.Grant) || (r.Ending != Open && *r == Report{Grant: r.Grant, Ending: r.Ending}) {
			t.receipt(Receipt{Grant: r.Grant, Ending: r.Ending, Late: true})
			return nil
		}
		return fmt.Errorf("%w: grant %s is not known, and was used", ErrRegressed, r.Grant)
	}
	if rec.Node != t.h.Node {
		return refuse("grant", "must not be another node's")
	}
	if r.Ending == Open && rec.BootNumber != t.h.BootNumber && rec.Ending == Open {
		return refuse("ending", "must be closed or burned: an earlier boot was granted it")
	}
	next, d, late, err := rec.Apply(r)
	if err != nil {
		return t.contradiction(&rec, err)
	}
	if next.Overrun() > rec.Overrun() {
		t.out.Overruns = append(t.out.Overruns, rec.ID)
	}
	t.receipt(Receipt{Grant: r.Grant, Ending: next.Ending, Late: late})
	return t.keep(rec, next, d)
}

func (t *taking) meter(m *Meter) error {
	rec, known := t.Records[m.ID]
	switch {
	case !known && t.removed(m.ID):
		t.receipt(Receipt{Grant: m.ID, Ending: Closed, Late: true})
		return nil
	case !known:
		rec = Record{ID: m.ID, Node: t.h.Node, BootNumber: t.h.BootNumber, Account: m.Account, Held: Held{Meter: true}}
	case rec.Node != t.h.Node:
		return refuse("id", "must not be another node's")
	case rec.Account != m.Account:
		return refuse("account", "must not be another one than before")
	}
	next, d, late, err := rec.Measure(m)
	if err != nil {
		return t.contradiction(&rec, err)
	}
	t.receipt(Receipt{Grant: m.ID, Ending: next.Ending, Late: late})
	if !known {
		rec.Held = Held{} // whatever it says is new
	}
	return t.keep(rec, next, d)
}

func (t *taking) removed(id GrantID) bool { return id.UnixMilli()*1000 < t.Horizon }

// contradiction is what an error of a record means: a later boot that knows less than an
// earlier one has reported speaks from a journal that was restored.
func (t *taking) contradiction(rec *Record, err error) error {
	if fell(err) && rec.BootNumber < t.h.BootNumber {
		return &Fenced{Restored, t.Node.BootNumber}
	}
	return err
}

func (t *taking) request(r *Request) error {
	rec, known := t.Records[r.ID]
	switch {
	case known && rec.Node != t.h.Node:
		return refuse("id", "must not be another node's")
	case known && (rec.Meter || rec.Account != r.Account || rec.Amount > r.Amount || rec.Amount < r.Least):
		return refuse("", "was granted before, on other terms")
	case known && (rec.Ending != Open || rec.BootNumber != t.h.BootNumber), !known && t.removed(r.ID):
		t.deny(Denial{ID: r.ID, Reason: Over})
		return nil
	case known:
		t.out.Answer.Grants = append(t.out.Answer.Grants, rec.grant())
		return nil
	}
	standing, err := t.standing(r.Account)
	if err != nil {
		return err
	}
	grant, denial := Decide(r, definition(t.Definitions, r.Account), standing.Account, t.Now, t.TTL)
	switch {
	case denial != nil:
		t.deny(*denial)
		return nil
	case t.replay:
		t.deny(Denial{ID: r.ID, Reason: NoRoom, Left: grant.Amount})
		return nil
	}
	t.out.Answer.Grants = append(t.out.Answer.Grants, grant)
	held, d := Granting(grant.Amount)
	return t.keep(Record{ID: r.ID, Node: t.h.Node, BootNumber: t.h.BootNumber, Account: r.Account, ExpiresAt: grant.ExpiresAt}, held, d)
}

func (t *taking) deny(d Denial)     { t.out.Answer.Denials = append(t.out.Answer.Denials, d) }
func (t *taking) receipt(r Receipt) { t.out.Answer.Receipts = append(t.out.Answer.Receipts, r) }
func (t *taking) standing(a Account) (Standing, error) {
	s, loaded := t.Accounts[a]
	if !loaded {
		return s, errors.New("escrow: an account that is needed was not loaded")
	}
	return s, nil
}

// keep records what becomes of a record and of its account.
func (t *taking) keep(rec Record, next Held, d Delta) error {
	if next == rec.Held {
		return nil
	}
	s, err := t.standing(rec.Account)
	if err != nil {
		return err
	}
	if s.Account, err = d.Add(s.Account); err != nil {
		return err
	}
	rec.Held = next
	t.records[rec.ID], t.Records[rec.ID] = rec, rec
	t.Accounts[rec.Account], t.accounts[rec.Account] = s, true
	return nil
}

// close judges thresholds and puts everything in order.
func (t *taking) close() (*Outcome, error) {
	for account := range t.accounts {
		s := t.Accounts[account]
		for _, m := range t.Documents.Match(account.Subject.Team, account.Subject.User) {
			if b := m.Rule.Budget; b != nil && m.Policy == account.Policy && m.Rule.Name == account.Rule && m.Subject == account.Subject && !b.Unlimited && b.Calendar.Period == account.Period {
				s.Latch = b.Tier(s.Account, m.Thresholds, s.Latch)
			}
		}
		t.Accounts[account] = s
		t.out.Accounts = append(t.out.Accounts, account)
	}
	slices.SortFunc(t.out.Accounts, Account.Compare)
	for _, r := range t.records {
		t.out.Records = append(t.out.Records, r)
	}
	slices.SortFunc(t.out.Records, func(a, b Record) int { return a.ID.Compare(b.ID) })
	for i := range t.Definitions {
		s, err := t.standing(t.Definitions[i].Account)
		if err != nil {
			return nil, err
		}
		t.out.Answer.Budgets = append(t.out.Answer.Budgets, s.budget())
	}
	return &t.out, nil
}

func (s *Standing) budget() Budget {
	var b Budget
	b.Consumed, b.Uncertain = amount.MicroUSD(s.Consumed), amount.MicroUSD(s.Uncertain)
	b.Reserved, b.Granted = amount.MicroUSD(s.Reserved), amount.MicroUSD(s.Granted)
	b.Latch, b.Frozen = s.Latch, s.Frozen
	return b
}

// definition finds the budget in a list that is sorted by policy and rule.
func definition(list []Definition, a Account) *Definition {
	i, ok := slices.BinarySearchFunc(list, a, func(d Definition, a Account) int {
		return cmp.Or(strings.Compare(d.Account.Policy, a.Policy), strings.Compare(d.Account.Rule, a.Rule))
	})
	if !ok {
		return nil
	}
	return &list[i]
}
