package governance

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/quota"
)

// beat is one heartbeat on its way through a step.
type beat struct {
	heartbeat *escrow.Heartbeat
	law       *law
	ttl       time.Duration

	permits     []PermitID // grants, meters and requests of the heartbeat, sorted
	seen        *Loaded    // how law.ids and permits were before the step
	constraints []ConstraintID
	accounts    []AccountKey

	answer *escrow.Answer
}

// names lists the permits of the heartbeat.
func (b *beat) names() {
	ids := b.heartbeat.IDs()
	b.permits = make([]PermitID, len(ids))
	for i, id := range ids {
		b.permits[i] = PermitID(id)
	}
}

// place says where in the heartbeat an id is.
func (b *beat) place(id escrow.GrantID) string {
	h := b.heartbeat
	for i := range h.Reports {
		if h.Reports[i].Grant == id {
			return fmt.Sprintf("reports[%d]", i)
		}
	}
	for i := range h.Meters {
		if h.Meters[i].ID == id {
			return fmt.Sprintf("meters[%d]", i)
		}
	}
	for i := range h.Requests {
		if h.Requests[i].ID == id {
			return fmt.Sprintf("requests[%d]", i)
		}
	}
	return ""
}

// plan names the rows to lock: those of accounts that the heartbeat reports on or asks for.
// How the other budgets stand is told as it was seen; nothing is decided by it.
func (b *beat) plan() error {
	b.constraints, b.accounts = nil, nil
	add := func(c ConstraintID, start int64) {
		b.constraints = append(b.constraints, c)
		b.accounts = append(b.accounts, AccountKey{c, start})
	}
	for i := range b.seen.Permits {
		if rec := &b.seen.Permits[i]; rec.State != 0 && rec.Flags&FlagGrant != 0 {
			t, err := decodeTerms(rec.Terms)
			if err != nil {
				return err
			}
			add(t.holds[0].constraint, t.holds[0].window.Start)
		}
	}
	for i := range b.heartbeat.Meters {
		m := &b.heartbeat.Meters[i]
		add(constraintOf(&m.Account).ID, m.Account.Window.Start)
	}
	for i := range b.heartbeat.Requests {
		r := &b.heartbeat.Requests[i]
		if c := constraintOf(&r.Account); b.law.find(c.ID) != nil { // nobody makes rows for what there is not
			add(c.ID, r.Account.Window.Start)
		}
	}
	slices.SortFunc(b.constraints, func(a, b ConstraintID) int { return bytes.Compare(a[:], b[:]) })
	slices.SortFunc(b.accounts, AccountKey.Compare)
	b.constraints, b.accounts = slices.Compact(b.constraints), slices.Compact(b.accounts)
	return nil
}

// beat decides a heartbeat: all of it happens, or an error says why nothing does. What is
// decided, escrow.Books says; here are the rows that it is decided on.
func (s *sheet) beat(b *beat) error {
	if b.law.mark != s.loaded.Policies {
		return errRules
	}
	books := &escrow.Books{
		Now: s.now, TTL: b.ttl, Horizon: max(s.loaded.Horizon, s.now-idLife.Microseconds()), Mark: b.law.mark, Documents: b.law.set,
		Records: map[escrow.GrantID]escrow.Record{}, Accounts: map[escrow.Account]escrow.Standing{},
	}
	if data := s.loaded.Node.Data; len(data) > 0 {
		if err := books.Node.UnmarshalBinary(data); err != nil {
			return fmt.Errorf("%w: the row of node %s cannot be read", ErrCorrupt, b.heartbeat.Node)
		}
	}
	if err := s.records(b, books); err != nil {
		return err
	}
	if err := s.define(b, books); err != nil {
		return err
	}
	cells, err := s.cells(b, books)
	if err != nil {
		return err
	}
	out, err := books.Take(b.heartbeat)
	if err != nil {
		return err
	}
	for _, account := range out.Accounts {
		now, w := books.Accounts[account], cells[account]
		if w == nil {
			return errMoved
		}
		w.Account, w.Latch, w.dirty = now.Account, now.Latch, true
	}
	for i := range out.Records {
		s.file(b, &out.Records[i], cells[out.Records[i].Account])
	}
	data, err := out.Node.AppendBinary(nil)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	s.node = &escrow.NodeRow{Name: b.heartbeat.Node, Data: data, HeardAt: s.now}
	b.answer = out.Answer
	return nil
}

// records takes what the heartbeat's ids name into the books.
func (s *sheet) records(b *beat, books *escrow.Books) error {
	for i := range s.loaded.Permits {
		rec := &s.loaded.Permits[i]
		id := escrow.GrantID(s.plan.Permits[i])
		switch {
		case rec.State == 0 && id.UnixMilli()*1000 > s.now+maxIDAhead.Microseconds():
			return &escrow.Error{Field: b.place(id), Why: "has an id that lies more than 5 minutes ahead of the authority's clock"}
		case rec.State == 0:
			continue
		case rec.Flags&FlagGrant == 0:
			return &escrow.Error{Field: b.place(id), Why: "has an id that was used for something else"}
		}
		t, err := decodeTerms(rec.Terms)
		if err != nil {
			return err
		}
		if t.grant == nil {
			return fmt.Errorf("%w: permit %s is a grant without a node", ErrCorrupt, rec.ID)
		}
		if books.Records[id], err = rec.entry(t.grant); err != nil {
			return err
		}
	}
	return nil
}

// define takes the budgets into the books, in the windows that their accounts are in.
func (s *sheet) define(b *beat, books *escrow.Books) error {
	list, err := escrow.Definitions(b.law.set, s.now)
	if err != nil || len(list) != len(b.law.list) {
		return fmt.Errorf("%w: the budgets of one generation changed", ErrCorrupt)
	}
	for place, i := range b.law.order {
		c, seen := &b.law.list[i], &b.seen.Current[place]
		w := &cell{Cell: &seen.Cell, window: seen.Window}
		if j, planned := s.position(c.ID); planned {
			if w, err = s.locked(c, j); err != nil {
				return err
			}
		} else if window, err := c.windowAt(w.window, s.now); err != nil {
			return err
		} else if window != w.window {
			w = &cell{Cell: new(Cell), window: window} // nothing has happened in it yet
		}
		list[i].Account.Window = w.window
		books.Accounts[list[i].Account] = standing(w, c)
	}
	books.Definitions = list
	return nil
}

func standing(w *cell, c *Constraint) escrow.Standing {
	now := escrow.Standing{Account: w.Account, Latch: w.Latch}
	if len(c.thresholds) > 0 {
		now.Latch = w.tier(c)
	}
	return now
}

// cells finds the accounts that the heartbeat may change.
func (s *sheet) cells(b *beat, books *escrow.Books) (map[escrow.Account]*cell, error) {
	cells := map[escrow.Account]*cell{}
	for _, account := range b.heartbeat.Needs(books.Records) {
		c := constraintOf(&account)
		if now := b.law.find(c.ID); now != nil {
			c = now // its row was entered when the budgets were defined
		}
		w, err := s.cellOf(b, c, &account)
		if err != nil {
			return nil, err
		}
		if cells[account] = w; w != nil {
			books.Accounts[account] = standing(w, c)
		} else if _, defined := books.Accounts[account]; !defined {
			books.Accounts[account] = escrow.Standing{}
		}
	}
	for i := range b.heartbeat.Meters {
		m := &b.heartbeat.Meters[i]
		if _, known := books.Records[m.ID]; known || cells[m.Account] != nil {
			continue
		}
		w, why := s.open(b, &m.Account)
		if w == nil {
			return nil, &escrow.Error{Field: fmt.Sprintf("meters[%d].account.window", i), Why: why}
		}
		cells[m.Account] = w
	}
	return cells, nil
}

// cellOf returns the cell of an account, nil where there is none.
func (s *sheet) cellOf(b *beat, c *Constraint, account *escrow.Account) (*cell, error) {
	i, planned := s.position(c.ID)
	k, also := slices.BinarySearchFunc(b.accounts, AccountKey{c.ID, account.Window.Start}, AccountKey.Compare)
	switch {
	case !planned && b.law.find(c.ID) == nil:
		return nil, nil
	case !planned || !also:
		return nil, errMoved // it became known after the look
	}
	w := &s.current[i]
	if !w.locked {
		return nil, ErrUnavailable
	}
	if w.window != account.Window {
		w = &s.older[k]
	}
	if w.Kind == 0 || w.End != account.Window.End {
		return nil, nil
	}
	w.limit = b.law.find(c.ID)
	return w, nil
}

// open makes the cell that a new meter counts in. What a node used it has used, whatever
// became of the policy since.
func (s *sheet) open(b *beat, account *escrow.Account) (w *cell, why string) {
	c := constraintOf(account)
	if now := b.law.find(c.ID); now != nil {
		c = now
	}
	i, _ := s.position(c.ID)
	k, _ := slices.BinarySearchFunc(b.accounts, AccountKey{c.ID, account.Window.Start}, AccountKey.Compare)
	current, older, window := &s.current[i], &s.older[k], account.Window
	switch {
	case window.Start > s.now:
		return nil, "lies in the future"
	case current.window == window:
		w = current
	case current.window == (quota.Window{}) || window.Start >= current.window.End:
		// Nobody has used the budget since: its row moves on to where the node was.
		s.leave(current)
		current.Cell, current.window, current.moved = new(Cell), window, true
		current.latched = 0
		w = current
	case older.Kind == 0 && window.End <= current.window.Start:
		current.dirty = current.dirty || current.moved // the row must not stay behind an account that exists
		w = older
	default:
		return nil, "is none that the account was ever in"
	}
	w.Key, w.End, w.Kind, w.limit = AccountKey{c.ID, window.Start}, window.End, KindMoney, c
	return w, ""
}

// file writes down a grant or meter that is new or changed.
func (s *sheet) file(b *beat, r *escrow.Record, w *cell) {
	g := &grantTerms{node: r.Node, boot: b.heartbeat.Boot, number: r.BootNumber, meter: r.Meter, account: r.Account, expires: r.ExpiresAt}
	if p := s.permit(PermitID(r.ID)); p >= 0 {
		before := s.loaded.Permits[p]
		s.loaded.Permits[p].put(r.Held, s.now)
		s.ended = append(s.ended, p)
		s.turned(&before, &s.loaded.Permits[p], &terms{grant: g})
		return
	}
	rec := Record{
		ID: PermitID(r.ID), Batch: s.plan.Batch, TermsIndex: s.captureGrant(g), Owner: Nonce(g.boot),
		At: s.now, State: StateOpen, Version: 1, Cost: int64(r.Amount), Flags: FlagGrant,
	}
	if r.Meter {
		rec.Flags |= FlagMeter
	}
	rec.put(r.Held, s.now)
	w.dirty, w.entry = true, true
	s.made = append(s.made, rec)
	s.turned(&Record{}, &rec, &terms{grant: g})
}

// captureGrant stores terms once for all equal grants of the heartbeat.
func (s *sheet) captureGrant(g *grantTerms) int {
	encoded := g.append(nil)
	for i := range s.terms {
		if bytes.Equal(s.terms[i].encoded, encoded) {
			return i
		}
	}
	s.terms = append(s.terms, &sharedTerms{encoded: encoded})
	return len(s.terms) - 1
}
