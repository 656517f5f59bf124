package keyssqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keyssqlite"
)

func Example() {
	dir, err := os.MkdirTemp("", "keys")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "keys.db")+
		"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := run(context.Background(), db); err != nil {
		log.Fatal(err)
	}
	// Output:
	// tly_ token of 53 characters, shown once
	// key ci of team research, for ann@example.com
	// may use small: true, may use large: false
	// both tokens work during the grace, as one key: true
	// after the revocation: keys: revoked
}

func run(ctx context.Context, db *sql.DB) error {
	st, err := keyssqlite.New(db, nil)
	if err != nil {
		return err
	}
	defer st.Close()
	if err := st.Migrate(ctx); err != nil {
		return err
	}
	if _, err := st.CreateTeam(ctx, keys.CreateTeam{
		ID: "research", AllowedModels: []string{"small", "medium"},
		Limits: keys.Limits{CostPerMonth: keys.Cost(amount.MicroUSD(250_000_000))}, // $250
	}); err != nil {
		return err
	}
	made, err := st.CreateKey(ctx, keys.CreateKey{ID: "ci", TeamID: "research", Owner: "ann@example.com"})
	if err != nil {
		return err
	}
	plain := made.Token.Reveal()
	fmt.Println(plain[:4], "token of", len(plain), "characters, shown once")

	p, err := st.Resolve(ctx, plain)
	if err != nil {
		return err
	}
	fmt.Printf("%v, for %s\n", p, p.User)
	fmt.Printf("may use small: %v, may use large: %v\n", p.AllowsModel("small"), p.AllowsModel("large"))

	rotated, err := st.RotateKey(ctx, keys.RotateKey{ID: "ci", RotationID: "2030-spring", IfRevision: p.Key.Revision, Grace: time.Hour})
	if err != nil {
		return err
	}
	older, err1 := st.Resolve(ctx, plain)
	newer, err2 := st.Resolve(ctx, rotated.Token.Reveal())
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	fmt.Println("both tokens work during the grace, as one key:", older.KeyID == newer.KeyID)

	if _, err := st.RevokeKey(ctx, keys.RevokeKey{ID: "ci"}); err != nil {
		return err
	}
	_, err = st.Resolve(ctx, rotated.Token.Reveal())
	fmt.Println("after the revocation:", err)
	return nil
}
