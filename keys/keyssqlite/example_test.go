package keyssqlite_test

import (
	"bytes"
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

// ExampleStore_Bootstrap is what every start of every replica does.
func ExampleStore_Bootstrap() {
	ctx := context.Background()
	st, closer := emptyStore()
	defer closer()
	token, err := keys.Mint(bytes.NewReader(make([]byte, 32))) // from the environment, in earnest
	if err != nil {
		log.Fatal(err)
	}
	configured := func(owner string) keys.Bootstrap {
		return keys.Bootstrap{Declarations: []keys.Declaration{
			{Team: &keys.CreateTeam{ID: "research", Limits: keys.Limits{TokensPerDay: keys.Limit(1000)}}},
			{Key: &keys.CreateKey{ID: "ci", TeamID: "research", Owner: owner, Token: token}},
		}}
	}
	first, err := st.Bootstrap(ctx, configured("ann"))
	fmt.Println(first.Created, first.Unchanged, err)
	if _, err := st.RevokeKey(ctx, keys.RevokeKey{ID: "ci"}); err != nil {
		log.Fatal(err)
	}
	again, err := st.Bootstrap(ctx, configured("ann"))
	fmt.Println(again.Created, again.Unchanged, err)
	_, err = st.Resolve(ctx, token.Reveal())
	fmt.Println(err)
	_, err = st.Bootstrap(ctx, configured("bob"))
	fmt.Println(err)
	// Output:
	// [team research key ci] 0 <nil>
	// [] 2 <nil>
	// keys: revoked
	// keys: conflict: key ci (owner): was declared differently before: restore the declaration, or edit the row instead
}

func emptyStore() (st *keyssqlite.Store, closer func()) {
	folder, err := os.MkdirTemp("", "tallystick")
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(folder, "keys.db")+
		"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)&_pragma=fullfsync(1)")
	if err != nil {
		log.Fatal(err)
	}
	if st, err = keyssqlite.New(db, nil); err == nil {
		err = st.Migrate(context.Background())
	}
	if err != nil {
		log.Fatal(err)
	}
	return st, func() {
		if err := errors.Join(st.Close(), db.Close(), os.RemoveAll(folder)); err != nil {
			log.Fatal(err)
		}
	}
}
