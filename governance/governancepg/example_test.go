package governancepg_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancepg"
	"github.com/tallystick-go/tallystick/keys"
)

// The caller opens and owns the pool; every process of a fleet does the same on
// the same schema. (This example needs a database, so it is compiled and not run.)
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	db, err := governancepg.Open(pool, &governancepg.Options{Schema: "tallystick"})
	if err != nil {
		log.Fatal(err)
	}
	if err := db.Migrate(ctx); err != nil { // or db.Check(ctx) where your own tool migrates
		log.Fatal(err)
	}
	gov, err := governance.New(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = gov.Close(ctx) }()

	if _, err := db.Keys.CreateTeam(ctx, keys.CreateTeam{ID: "search", Name: "Search", Limits: keys.Limits{TokensPerDay: keys.Limit(1_000_000)}}); err != nil {
		log.Fatal(err)
	}
	created, err := db.Keys.CreateKey(ctx, keys.CreateKey{TeamID: "search", Name: "indexer"})
	if err != nil {
		log.Fatal(err)
	}
	who, err := db.Keys.Resolve(ctx, created.Token.Reveal())
	if err != nil {
		log.Fatal(err)
	}
	permit, err := gov.Admit(ctx, governance.Request{Principal: &who, Model: "demo-small", Bound: governance.Bound{Tokens: 1200, Cost: 90}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(permit.Settle(ctx, governance.Used(800, 60)))
}
