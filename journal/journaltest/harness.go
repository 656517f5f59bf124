package journaltest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/quota"
)

// Harness says how to try an adapter.
type Harness struct {
	// New returns a store on an empty, migrated journal. It is called once per case.
	New func(t testing.TB) journal.Store
	// Reopen returns another handle on the data of s, which may still be open.
	Reopen func(t testing.TB, s journal.Store) journal.Store
}

// Run tries every rule of a journal.Store, and of the journal on top of it.
func Run(t *testing.T, h Harness) {
	if h.New == nil || h.Reopen == nil {
		t.Fatal("the harness needs New and Reopen")
	}
	for name, f := range map[string]func(*testing.T, Harness){
		"Step": testStep, "Open": testOpen, "Reserve": testReserve, "Settle": testSettle, "Raise": testRaise, "Beat": testBeat, "Random": testRandom,
	} {
		t.Run(name, func(t *testing.T) { f(t, h) })
	}
}

// clock is a monotonic clock that only moves when it is told to.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Now()} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

const (
	renew = 10 * time.Second
	life  = 60 * time.Second
)

// window is any window: the journal has no calendar.
var window = quota.Window{Start: 1_000_000_000_000, End: 2_000_000_000_000}

func account(rule string) escrow.Account {
	return escrow.Account{Policy: "p", Rule: rule, Subject: policy.Subject{Team: "t", User: "u"}, Period: quota.Month, Window: window}
}

// rig is a journal with an authority that it talks to.
type rig struct {
	t     testing.TB
	h     Harness
	store journal.Store
	j     *journal.Journal
	clock *clock
	bank  *bank
}

func newRig(t testing.TB, h Harness) *rig {
	r := &rig{t: t, h: h, store: h.New(t), clock: newClock()}
	r.bank = newBank(r.clock)
	r.open()
	return r
}

func (r *rig) open() {
	r.t.Helper()
	j, err := journal.Open(r.t.Context(), r.store, &journal.Options{Node: "node-1", Now: r.clock.Now, Receipts: 8})
	if err != nil {
		r.t.Fatal(err)
	}
	r.j = j
}

// crash opens the journal again, as after the death of its process.
func (r *rig) crash() {
	r.t.Helper()
	r.store = r.h.Reopen(r.t, r.store)
	r.open()
}

// budget defines an account at the authority. Two beats later there is what was asked for.
func (r *rig) budget(a escrow.Account, limit, grant amount.MicroUSD, hard bool) {
	r.bank.define(escrow.Definition{Account: a, Limit: limit, Hard: hard, Grant: grant, Renew: renew})
}

// budgeted is a rig that knows of one hard budget: 1000, in grants of 100.
func budgeted(t testing.TB, h Harness, a escrow.Account) *rig {
	t.Helper()
	r := newRig(t, h)
	r.budget(a, 1000, 100, true)
	r.beat()
	return r
}

// beat is one exchange with the authority.
func (r *rig) beat() (*escrow.Heartbeat, *escrow.Answer) {
	r.t.Helper()
	h := r.next()
	a := r.send(h)
	r.take(h, a)
	return h, a
}

// next is what the journal would say now.
func (r *rig) next() *escrow.Heartbeat {
	r.t.Helper()
	h, err := r.j.Next(r.t.Context(), false)
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

func (r *rig) send(h *escrow.Heartbeat) *escrow.Answer {
	r.t.Helper()
	a, err := r.bank.Beat(r.t.Context(), h)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

func (r *rig) take(h *escrow.Heartbeat, a *escrow.Answer) {
	r.t.Helper()
	if err := r.j.Take(r.t.Context(), h, a, r.clock.Now()); err != nil {
		r.t.Fatal(err)
	}
}

// fund makes sure that so much can be reserved.
func (r *rig) fund(a escrow.Account, n amount.MicroUSD) {
	r.t.Helper()
	for range 3 {
		id := journal.NewID()
		err := r.j.Reserve(r.t.Context(), journal.Reservation{ID: id, Needs: []journal.Need{{Account: a, Amount: n}}})
		if err == nil {
			r.settle(id, journal.NotSent(), nil)
			return
		}
		if !errors.Is(err, journal.ErrShortage) {
			r.t.Fatal(err)
		}
		r.beat()
	}
	r.t.Fatalf("no credit came for %v", a)
}

func (r *rig) reserve(want error, needs ...journal.Need) journal.ID {
	r.t.Helper()
	id := journal.NewID()
	err := r.j.Reserve(r.t.Context(), journal.Reservation{ID: id, Needs: needs})
	if !errors.Is(err, want) {
		r.t.Fatalf("Reserve says %v, want %v", err, want)
	}
	return id
}

func (r *rig) settle(id journal.ID, o journal.Outcome, want error) {
	r.t.Helper()
	if err := r.j.Settle(r.t.Context(), id, o); !errors.Is(err, want) {
		r.t.Fatalf("Settle says %v, want %v", err, want)
	}
}

func need(a escrow.Account, n amount.MicroUSD) journal.Need {
	return journal.Need{Account: a, Amount: n}
}

func soft(a escrow.Account, n amount.MicroUSD) journal.Need {
	return journal.Need{Account: a, Amount: n, Soft: true}
}

func (r *rig) load(plan *journal.Plan) *journal.Loaded {
	r.t.Helper()
	l, err := r.store.View(r.t.Context(), plan)
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

// sums adds up what the journal has of an account.
func (r *rig) sums(a escrow.Account) (total journal.Grant) {
	r.t.Helper()
	for _, g := range r.load(&journal.Plan{Everything: true}).Grants {
		if g.Account == a && !g.Asked {
			total.Amount += g.Amount
			total.Reserved += g.Reserved
			total.Consumed += g.Consumed
			total.Uncertain += g.Uncertain
			total.Observed += g.Observed
		}
	}
	return total
}

func (r *rig) expect(a escrow.Account, reserved, consumed, uncertain, observed amount.MicroUSD) {
	r.t.Helper()
	s := r.sums(a)
	if s.Reserved != reserved || s.Consumed != consumed || s.Uncertain != uncertain || s.Observed != observed {
		r.t.Fatalf("reserved %d consumed %d uncertain %d observed %d, want %d %d %d %d", s.Reserved, s.Consumed, s.Uncertain, s.Observed, reserved, consumed, uncertain, observed)
	}
}

// bank is the simplest authority: what it grants it takes from the limit, and it gives
// back only what the first normal closing proves to be unused.
type bank struct {
	mu     sync.Mutex
	clock  *clock
	defs   []escrow.Definition
	grants map[escrow.GrantID]*holding
	meters map[escrow.GrantID]escrow.Meter
	beats  int
}

type holding struct {
	escrow.Grant
	escrow.Report
}

func newBank(c *clock) *bank {
	return &bank{clock: c, grants: map[escrow.GrantID]*holding{}, meters: map[escrow.GrantID]escrow.Meter{}}
}

func (b *bank) define(d escrow.Definition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.defs = append(b.defs, d)
}

// bound is what the account is charged or may still be charged.
func (b *bank) bound(a escrow.Account) (n amount.MicroUSD) {
	for _, g := range b.grants {
		if g.Account == a {
			n += g.charge()
		}
	}
	return n
}

func (h *holding) charge() amount.MicroUSD {
	if h.Ending == escrow.Closed {
		return h.Consumed + h.Uncertain
	}
	return max(h.Amount, h.Consumed+h.Uncertain)
}

// Beat implements escrow.Authority.
func (b *bank) Beat(_ context.Context, h *escrow.Heartbeat) (*escrow.Answer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.beats++
	now := b.clock.Now().UnixMicro()
	a := &escrow.Answer{Now: now, Definitions: b.defs, Documents: &policy.Set{}}
	for _, r := range h.Reports {
		if r.Consumed < 0 || r.Uncertain < 0 || r.Observed < 0 {
			return nil, &escrow.Error{Field: "reports", Why: "are negative"}
		}
		g := b.grants[r.Grant]
		if g == nil {
			a.Receipts = append(a.Receipts, escrow.Receipt{Grant: r.Grant, Ending: r.Ending, Late: true})
			continue
		}
		if late := g.Ending != escrow.Open && g.Report != r; late {
			a.Receipts = append(a.Receipts, escrow.Receipt{Grant: r.Grant, Ending: g.Ending, Late: true})
			continue
		}
		if r.Consumed < g.Consumed || r.Uncertain < g.Uncertain {
			return nil, &escrow.Error{Field: "reports", Why: "fell"}
		}
		if r.Ending == escrow.Closed && r.Consumed+r.Uncertain > g.Amount && r.Consumed <= g.Amount {
			return nil, &escrow.Error{Field: "reports", Why: "is above the grant"}
		}
		g.Report = r
		a.Receipts = append(a.Receipts, escrow.Receipt{Grant: r.Grant, Ending: r.Ending})
	}
	for _, m := range h.Meters {
		if old := b.meters[m.ID]; m.Consumed < old.Consumed || m.Uncertain < old.Uncertain {
			return nil, &escrow.Error{Field: "meters", Why: "fell"}
		}
		b.meters[m.ID] = m
		a.Receipts = append(a.Receipts, escrow.Receipt{Grant: m.ID})
	}
	for _, r := range h.Requests {
		if g := b.grants[r.ID]; g != nil {
			a.Grants = append(a.Grants, g.Grant)
			continue
		}
		left := b.left(r.Account)
		if left < r.Least {
			a.Denials = append(a.Denials, escrow.Denial{ID: r.ID, Reason: escrow.Spent, Left: left})
			continue
		}
		g := &holding{Grant: escrow.Grant{ID: r.ID, Account: r.Account, Amount: min(left, r.Amount, max(r.Least, b.size(r.Account))), ExpiresAt: now + life.Microseconds()}}
		b.grants[r.ID] = g
		a.Grants = append(a.Grants, g.Grant)
	}
	return a, nil
}

// size is one grant, which is all that a request gets unless it needs more.
func (b *bank) size(a escrow.Account) amount.MicroUSD {
	for _, d := range b.defs {
		if d.Account == a {
			return d.Grant
		}
	}
	return 0
}

func (b *bank) left(a escrow.Account) amount.MicroUSD {
	for _, d := range b.defs {
		if d.Account == a {
			return max(0, d.Limit-b.bound(a))
		}
	}
	return 0
}
