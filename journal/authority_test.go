package journal_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/governancemem"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/journal/journaltest"
	"github.com/tallystick-go/tallystick/quota"
)

// lossy loses every third heartbeat on its way, and every fifth answer.
type lossy struct {
	escrow.Authority
	n atomic.Int64
}

func (l *lossy) Beat(ctx context.Context, h *escrow.Heartbeat) (*escrow.Answer, error) {
	n := l.n.Add(1)
	if n%3 == 0 {
		return nil, escrow.ErrUnavailable
	}
	a, err := l.Authority.Beat(ctx, h)
	if n%5 == 0 {
		return nil, escrow.ErrUnavailable
	}
	return a, err
}

// TestNodesShareABudget lets two nodes spend one budget through real syncers, a lossy line and
// a real authority, with a crash in between. In the end the authority's account is exactly
// what was spent, what is not known, and nothing that is held for nobody.
//
// It does so beside an authority whose clock is theirs, and ones whose clocks are far off.
func TestNodesShareABudget(t *testing.T) {
	for _, ahead := range [...]time.Duration{0, -2 * time.Hour, 100 * 24 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) { nodesShareABudget(t, ahead) })
	}
}

func nodesShareABudget(t *testing.T, ahead time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	db, err := governancemem.New(&governancemem.Options{Now: func() time.Time { return time.Now().Add(ahead) }})
	if err != nil {
		t.Fatal(err)
	}
	rule := policy.Rule{Name: "month", FailurePolicy: policy.FailClosed, Budget: &policy.Budget{LimitMilliUSD: 100, HardCap: true, Calendar: quota.Calendar{Period: quota.Month}}}
	now, err := db.Policies.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	doc := policy.Document{Name: "p", Subject: policy.Subject{Team: "team-1"}, Rules: []policy.Rule{rule}}
	if _, err := db.Policies.Apply(ctx, policy.Apply{Documents: []policy.Document{doc}, Expect: now.Generation}); err != nil {
		t.Fatal(err)
	}
	a, err := governance.NewAuthority(db, nil)
	if err != nil {
		t.Fatal(err)
	}
	line := &lossy{Authority: a}
	type node struct {
		store  *journaltest.Memory
		j      *journal.Journal
		syncer *escrow.Syncer
	}
	begin := func(name string, store *journaltest.Memory) *node {
		j, err := journal.Open(ctx, store, &journal.Options{Node: name})
		if err != nil {
			t.Fatal(err)
		}
		s, err := escrow.NewSyncer(line, j, &escrow.SyncerOptions{Logger: slog.New(slog.DiscardHandler), Every: 20 * time.Millisecond, Gap: time.Millisecond, Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for !s.Ready() {
			if err := s.Sync(ctx); ctx.Err() != nil {
				t.Fatal(err)
			}
		}
		return &node{store, j, s}
	}
	const each = 700
	spend := func(n *node, times int) (spent, unknown int64) {
		defs := n.j.Definitions()
		if len(defs) != 1 {
			t.Fatalf("definitions are %+v", defs)
		}
		for range times {
			r := journal.Reservation{ID: journal.NewID(), Needs: []journal.Need{{Account: defs[0].Account, Amount: each}}}
			err := n.j.Reserve(ctx, r)
			for tries := 0; errors.Is(err, journal.ErrShortage) && tries < 50; tries++ {
				_ = n.syncer.Sync(ctx)
				err = n.j.Reserve(ctx, r)
			}
			switch {
			case errors.Is(err, journal.ErrShortage):
				return spent, unknown
			case err != nil:
				t.Fatal(err)
			}
			o := journal.Used(each - 100)
			if spent > 0 && unknown == 0 {
				o = journal.Unknown(5)
				unknown += each
			} else {
				spent += each - 100
			}
			if err := n.j.Settle(ctx, r.ID, o); err != nil {
				t.Fatal(err)
			}
		}
		return spent, unknown
	}
	first, second := begin("node-1", journaltest.NewMemory()), begin("node-2", journaltest.NewMemory())
	spent1, unknown1 := spend(first, 20)
	spent2, unknown2 := spend(second, 20)
	// The first node dies, and its next opening burns what it held.
	crashed := first.store
	old := first
	first = begin("node-1", crashed)
	if first.j.Burnt().Number != 2 {
		t.Fatal(first.j.Burnt())
	}
	for old.syncer.Status().Ready { // the old process hears that it is fenced
		_ = old.syncer.Sync(ctx)
		if ctx.Err() != nil {
			t.Fatal("the old process goes on")
		}
	}
	more, perhaps := spend(first, 200) // until nothing is left
	spent1, unknown1 = spent1+more, unknown1+perhaps
	for _, n := range []*node{first, second} {
		if err := n.syncer.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	cells, err := db.Store.Accounts(ctx, governance.AccountQuery{Limit: 10})
	if err != nil || len(cells) != 1 {
		t.Fatal(cells, err)
	}
	c := cells[0].Account
	if c.Granted != 0 || c.Consumed != spent1+spent2 || c.Uncertain < unknown1+unknown2 || c.Consumed+c.Uncertain > 100_000 {
		t.Fatalf("the account is %+v; spent were %d and %d, unknown %d and %d", c, spent1, spent2, unknown1, unknown2)
	}
	for _, n := range []*node{first, second} {
		if s, err := journal.Look(ctx, n.store); err != nil || s.Untold != 0 {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	_ = old.syncer.Close(ctx)
}

// TestRestsAreGivenBack: two nodes that each keep a rest which is too little for a call, while
// nothing else is left, do not keep each other from the sum; then they hear that it is spent.
func TestRestsAreGivenBack(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	db, err := governancemem.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	rule := policy.Rule{Name: "month", FailurePolicy: policy.FailClosed, Budget: &policy.Budget{LimitMilliUSD: 2, HardCap: true, Calendar: quota.Calendar{Period: quota.Month}, Lease: &policy.Lease{GrantMilliUSD: 1}}}
	now, err := db.Policies.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	doc := policy.Document{Name: "p", Subject: policy.Subject{Team: "team-1"}, Rules: []policy.Rule{rule}}
	if _, err := db.Policies.Apply(ctx, policy.Apply{Documents: []policy.Document{doc}, Expect: now.Generation}); err != nil {
		t.Fatal(err)
	}
	a, err := governance.NewAuthority(db, nil)
	if err != nil {
		t.Fatal(err)
	}
	var ahead time.Duration
	clock := func() time.Time { return time.Now().Add(ahead) }
	var nodes []*journal.Journal
	beat := func(j *journal.Journal) {
		t.Helper()
		h, err := j.Next(ctx, false)
		if err != nil {
			t.Fatal(err)
		}
		sent := clock()
		answer, err := a.Beat(ctx, h)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Take(ctx, h, answer, sent); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range [...]string{"one", "two"} {
		j, err := journal.Open(ctx, journaltest.NewMemory(), &journal.Options{Node: name, Now: clock})
		if err != nil {
			t.Fatal(err)
		}
		beat(j)
		nodes = append(nodes, j)
	}
	account := nodes[0].Definitions()[0].Account
	spend := func(j *journal.Journal, cost amount.MicroUSD) error {
		r := journal.Reservation{ID: journal.NewID(), Needs: []journal.Need{{Account: account, Amount: cost}}}
		err := j.Reserve(ctx, r)
		if err == nil {
			err = j.Settle(ctx, r.ID, journal.Used(cost))
		}
		return err
	}
	// Each gets one of two grants, and uses all but 150 of it.
	for _, j := range nodes {
		if err := spend(j, 450); !errors.Is(err, journal.ErrShortage) {
			t.Fatal(err)
		}
		beat(j)
		for _, cost := range [...]amount.MicroUSD{450, 400} {
			if err := spend(j, cost); err != nil {
				t.Fatal(err)
			}
		}
	}
	calls, over := 0, 0
	for round := 0; over < len(nodes); round++ {
		if over = 0; round == 20 {
			t.Fatalf("%d calls, and then neither credit nor an end", calls)
		}
		for _, j := range nodes {
			err := spend(j, 290)
			var short *journal.Shortage
			switch {
			case err == nil:
				calls++
			case errors.As(err, &short) && short.Spent():
				over++
			case errors.As(err, &short):
				beat(j)
				ahead += 5 * time.Second // an interval of renewal is over
			default:
				t.Fatal(err)
			}
		}
	}
	if calls != 1 {
		t.Fatalf("%d calls of 290 were served by the last 300", calls)
	}
}
