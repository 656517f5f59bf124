package governancesqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancemem"
	"github.com/tallystick-go/tallystick/governance/governancesqlite"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/journal/journalsqlite"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

// A node of a fleet: its authority has a budget for the team, and the node spends what it was granted.
func ExampleOpenNode() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "node")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	file, err := journalsqlite.Claim(filepath.Join(dir, "node.db"), nil) // nobody else may have it open
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("sqlite", file.DSN())
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	node := governancesqlite.OpenNode(db, file, nil)
	defer node.Close()
	if err := node.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	j, err := journal.Open(ctx, node.Journal, &journal.Options{Node: "node-1"}) // burns what an earlier opening held
	if err != nil {
		log.Fatal(err)
	}
	defer j.Close()
	gov, err := governance.New(node, &governance.Options{Journal: j})
	if err != nil {
		log.Fatal(err)
	}
	defer gov.Close(ctx)
	fmt.Println("not ready:", errors.Is(gov.Ready(ctx), governance.ErrNotReady))

	syncer, err := escrow.NewSyncer(tenDollars(ctx), gov.Ledger(), nil) // over HTTP: escrowhttp.Client
	if err != nil {
		log.Fatal(err)
	}
	if err := syncer.Sync(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready:", gov.Ready(ctx) == nil)

	principal := someone(ctx, node.Keys)
	call := governance.Request{Principal: principal, Bound: governance.Bound{Tokens: 1000, Cost: 50_000}}
	permit, err := gov.Admit(ctx, call)
	var refused *governance.Refusal
	if errors.As(err, &refused) {
		fmt.Println(refused.Reason, governance.StatusOf(err).Code, "retry", refused.Retryable)
		if err = syncer.Sync(ctx); err == nil { // a client comes back in a second; the syncer is awake already
			permit, err = gov.Admit(ctx, call)
		}
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("admitted")
	if err := permit.Settle(ctx, governance.Used(700, 31_000)); err != nil {
		log.Fatal(err)
	}
	fmt.Println("everything else goes back:", syncer.Close(ctx) == nil)
	// Output:
	// not ready: true
	// ready: true
	// missing_credit 503 retry true
	// admitted
	// everything else goes back: true
}

// tenDollars is an authority, here in memory, with a budget of team research.
func tenDollars(ctx context.Context) escrow.Authority {
	hub, err := governancemem.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	now, err := hub.Policies.Load(ctx)
	if err != nil {
		log.Fatal(err)
	}
	month := policy.Rule{Name: "month", FailurePolicy: policy.FailClosed, Budget: &policy.Budget{
		LimitMilliUSD: 10_000, HardCap: true, Calendar: quota.Calendar{Period: quota.Month},
	}}
	document := policy.Document{Name: "research", Subject: policy.Subject{Team: "research"}, Rules: []policy.Rule{month}}
	if _, err := hub.Policies.Apply(ctx, policy.Apply{Documents: []policy.Document{document}, Expect: now.Generation}); err != nil {
		log.Fatal(err)
	}
	authority, err := governance.NewAuthority(hub, nil)
	if err != nil {
		log.Fatal(err)
	}
	return authority
}

func someone(ctx context.Context, store keys.Store) *keys.Principal {
	if _, err := store.CreateTeam(ctx, keys.CreateTeam{ID: "research"}); err != nil {
		log.Fatal(err)
	}
	made, err := store.CreateKey(ctx, keys.CreateKey{TeamID: "research"})
	if err != nil {
		log.Fatal(err)
	}
	p, err := store.Resolve(ctx, made.Token.Reveal())
	if err != nil {
		log.Fatal(err)
	}
	return &p
}
