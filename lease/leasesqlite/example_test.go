package leasesqlite_test

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

	"github.com/tallystick-go/tallystick/lease"
	"github.com/tallystick-go/tallystick/lease/leasesqlite"
)

// Two processes of one machine; the second takes over, and what the first still wants to delete matches nothing.
func Example() {
	dir, err := os.MkdirTemp("", "lease")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "app.db")+
		"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := run(context.Background(), db); err != nil {
		log.Fatal(err)
	}
	// Output:
	// ann has generation 1
	// bob: true
	// bob has generation 2
	// ann deletes: true
	// bob deletes: <nil>
}

func run(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, "create table servers (id text primary key, gone integer)"); err != nil {
		return err
	}
	leaser := leasesqlite.New(db, &leasesqlite.Options{SharedFile: true})
	defer leaser.Close()
	if err := leaser.Migrate(ctx); err != nil {
		return err
	}
	ann, err := leaser.Acquire(ctx, lease.Claim{Name: "sweep", Holder: lease.NewHolder("ann"), TTL: time.Minute})
	if err != nil {
		return err
	}
	fmt.Println("ann has generation", ann.Generation)
	claim := lease.Claim{Name: "sweep", Holder: lease.NewHolder("bob"), TTL: time.Minute}
	_, err = leaser.Acquire(ctx, claim)
	fmt.Println("bob:", errors.Is(err, lease.ErrHeld))
	if err := leaser.Release(ctx, ann); err != nil {
		return err
	}
	bob, err := leaser.Acquire(ctx, claim)
	if err != nil {
		return err
	}
	fmt.Println("bob has generation", bob.Generation)
	err = sweep(ctx, db, leaser, ann) // ann was asleep, and does not know
	fmt.Println("ann deletes:", errors.Is(err, lease.ErrLost))
	fmt.Println("bob deletes:", sweep(ctx, db, leaser, bob))
	return nil
}

// sweep deletes what is gone, if the lease is held when it does.
func sweep(ctx context.Context, db *sql.DB, leaser *leasesqlite.Leaser, held lease.Lease) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := leaser.Fence(ctx, tx, held); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "delete from servers where gone"); err != nil {
		return err
	}
	return tx.Commit()
}
