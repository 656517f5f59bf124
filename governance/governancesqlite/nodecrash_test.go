package governancesqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancesqlite"
	"github.com/tallystick-go/tallystick/governance/policy"
)

// hubAt opens the authority's file. The policies of a file are its process's: the namespace is not, so a
// child and its parent give the same documents and are not told apart by a node that was started anew.
func hubAt(ctx context.Context, path string) (*governancesqlite.DB, *sql.DB, error) {
	handle, err := sql.Open("sqlite", "file:"+path+pragmas)
	if err != nil {
		return nil, nil, err
	}
	db := governancesqlite.Open(handle, nil)
	return db, handle, db.Migrate(ctx)
}

// sameHub answers under one namespace, as an authority does that keeps its policies: those of SQLite are
// of one process.
type sameHub struct{ escrow.Authority }

func (s sameHub) Beat(ctx context.Context, h *escrow.Heartbeat) (*escrow.Answer, error) {
	sent := *h
	sent.Mark = policy.Mark{}
	a, err := s.Authority.Beat(ctx, &sent)
	if err == nil {
		a.Mark.Namespace = policy.Namespace{7}
	}
	return a, err
}

// childNode spends from an authority on a second file. It never ends by itself.
func childNode(path, token, hub string) error {
	ctx := context.Background()
	db, _, err := hubAt(ctx, hub)
	if err != nil {
		return err
	}
	a, err := authorityOn(ctx, db)
	if err != nil {
		return err
	}
	n, err := startNode(ctx, "sqlite", path, token, false)
	if err != nil {
		return err
	}
	s, err := escrow.NewSyncer(sameHub{a}, n.g.Ledger(), &escrow.SyncerOptions{Gap: time.Millisecond, Every: 20 * time.Millisecond, Logger: quiet})
	if err != nil {
		return err
	}
	if err := s.Sync(ctx); err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(what string, id governance.PermitID) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(what, id) // one write, unbuffered
	}
	failed := make(chan error)
	for i := range 6 {
		go func() {
			for k := 0; ; k++ {
				permit, err := n.admit(ctx)
				var refused *governance.Refusal
				if errors.As(err, &refused) && refused.Reason == governance.ReasonCredit {
					if err = s.Sync(ctx); err == nil {
						continue
					}
				}
				if err != nil {
					failed <- err
					return
				}
				say("admitted", permit.ID())
				outcome, what := governance.Used(3, 7), "settled"
				switch (k + i) % 8 {
				case 0:
					continue // still on its way when the process dies
				case 1, 2:
					outcome, what = governance.NotSent(), "cancelled"
				case 3:
					if err := permit.Raise(ctx, governance.Bound{Tokens: 10, Cost: 1010}); err != nil && !errors.As(err, &refused) {
						failed <- err
						return
					}
				}
				if err := permit.Settle(ctx, outcome); err != nil {
					failed <- err
					return
				}
				say(what, permit.ID())
			}
		}()
	}
	return <-failed
}

// TestNodeKilled kills a node at random moments. What it said is so in its file; what the authority has
// in the end is what was settled, and under the limit, and nothing is held for nobody.
func TestNodeKilled(t *testing.T) {
	ctx := t.Context()
	folder := t.TempDir()
	path, hub := filepath.Join(folder, "node.db"), filepath.Join(folder, "authority.db")
	db, handle, err := hubAt(ctx, hub)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = db.Close(), handle.Close()
	n, err := startNode(ctx, "sqlite", path, "", false)
	if err != nil {
		t.Fatal(err)
	}
	made, err := n.Keys.CreateKey(ctx, keyOfTeam1)
	if err != nil {
		t.Fatal(err)
	}
	token := made.Token.Reveal()
	n.stop()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	said := map[string]string{}
	for round := range 5 {
		run(t, time.Duration(10+r.IntN(120))*time.Millisecond, said, childFile+"="+path, childToken+"="+token, childHub+"="+hub)
		checkNode(t, path, hub, token, said)
		t.Logf("round %d: %d permits were admitted in all", round, len(said))
	}
}

// checkNode starts the node as it was left, and lets it leave in good order.
func checkNode(t *testing.T, path, hub, token string, said map[string]string) {
	t.Helper()
	ctx := t.Context()
	db, handle, err := hubAt(ctx, hub)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	defer db.Close()
	a, err := authorityOn(ctx, db)
	if err != nil {
		t.Fatal(err)
	}
	n, err := startNode(ctx, "sqlite", path, token, false)
	if err != nil {
		t.Fatal(err)
	}
	defer n.stop()
	if reserved, _, _ := n.sums(t); reserved != 0 {
		t.Fatalf("%d are reserved after a restart", reserved)
	}
	for bye := false; !bye; {
		if bye, err = n.exchange(ctx, sameHub{a}, true); err != nil {
			t.Fatal(err)
		}
	}
	states, settled, perhaps := map[string]governance.State{}, int64(0), int64(0)
	q := governance.PermitQuery{Limit: 1000}
	for more := true; more; {
		page, err := n.Store.Permits(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page {
			rec := &page[i]
			states[rec.ID.String()], q.After = rec.State, rec.ID
			switch rec.State {
			case governance.StateOpen:
				perhaps += rec.Cost
			case governance.StateSettled:
				settled += rec.Outcome.Cost.Value
			}
			if rec.Flags&governance.FlagJournal == 0 {
				t.Fatalf("permit %s reserved nothing of the budget", rec.ID)
			}
		}
		more = len(page) == q.Limit
	}
	for id, what := range said {
		state := states[id]
		if state == 0 || what != "admitted" && state.String() != what {
			t.Fatalf("the process said that permit %s was %s; it is %s", id, what, state)
		}
	}
	g, err := governance.New(db, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close(ctx)
	if v, err := g.Verify(ctx, governance.VerifyQuery{}); err != nil || len(v.Differences) > 0 {
		t.Fatalf("the authority's books: %+v, %v", v, err)
	}
	cells, err := db.Store.Accounts(ctx, governance.AccountQuery{Limit: 10})
	if err != nil || len(cells) != 1 {
		t.Fatal(cells, err)
	}
	c := cells[0].Account
	if c.Granted != 0 || c.Consumed != settled || c.Uncertain < perhaps || c.Consumed+c.Uncertain > 1_000_000 {
		t.Fatalf("the authority's account is %+v; settled were %d, and %d are open", c, settled, perhaps)
	}
}
