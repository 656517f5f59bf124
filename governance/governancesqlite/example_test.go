package governancesqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancesqlite"
	"github.com/tallystick-go/tallystick/keys"
)

// A team with a budget of ten dollars a month: two calls, one of which used less
// than it might have, and a third that does not fit any more.
func Example() {
	dir, err := os.MkdirTemp("", "governance")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "gateway.db")+
		"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := budget(context.Background(), db); err != nil {
		log.Fatal(err)
	}
	// Output:
	// admitted, $6.000000 reserved
	// settled, $2.500000 used
	// admitted, $7.000000 reserved
	// refused: money: limit 10000000, consumed 2500000, uncertain 7000000, left 500000
	// differences: 0
}

func budget(ctx context.Context, db *sql.DB) error {
	st := governancesqlite.Open(db, nil)
	defer st.Close()
	if err := st.Migrate(ctx); err != nil {
		return err
	}
	gov, err := governance.New(st, nil)
	if err != nil {
		return err
	}
	defer gov.Close(ctx)

	if _, err := st.Keys.CreateTeam(ctx, keys.CreateTeam{ID: "research", Limits: keys.Limits{CostPerMonth: keys.Cost(10_000_000)}}); err != nil {
		return err
	}
	made, err := st.Keys.CreateKey(ctx, keys.CreateKey{TeamID: "research"})
	if err != nil {
		return err
	}
	caller, err := st.Keys.Resolve(ctx, made.Token.Reveal())
	if err != nil {
		return err
	}
	request := governance.Request{Principal: &caller, Model: "small", Bound: governance.Bound{Tokens: 2000, Cost: 6_000_000}}

	permit, err := gov.Admit(ctx, request)
	if err != nil {
		return err
	}
	fmt.Println("admitted,", permit.Bound().Cost, "reserved")
	if err := permit.Settle(ctx, governance.Used(900, 2_500_000)); err != nil {
		return err
	}
	fmt.Println("settled, $2.500000 used")

	request.Bound.Cost = 7_000_000
	if permit, err = gov.Admit(ctx, request); err != nil {
		return err
	}
	fmt.Println("admitted,", permit.Bound().Cost, "reserved")
	if err := permit.Settle(ctx, governance.Unknown()); err != nil { // the provider timed out: all of it may have been used
		return err
	}

	_, err = gov.Admit(ctx, request)
	var refused *governance.Refusal
	if !errors.As(err, &refused) {
		return fmt.Errorf("not refused: %w", err)
	}
	v := refused.Verdict
	fmt.Printf("refused: %s: limit %d, consumed %d, uncertain %d, left %d\n", refused.Reason, v.Limit, v.Consumed, v.Uncertain, v.Remaining())

	books, err := gov.Verify(ctx, governance.VerifyQuery{})
	if err != nil {
		return err
	}
	fmt.Println("differences:", len(books.Differences))
	return nil
}
