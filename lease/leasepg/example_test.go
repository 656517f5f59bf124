package leasepg_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/lease"
	"github.com/tallystick-go/tallystick/lease/leasepg"
)

// A loop that runs on one replica at a time, and deletes only what it may.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")) // yours to configure and to close
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	leaser, err := leasepg.New(pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := leaser.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	keeper, err := lease.NewKeeper(leaser, []string{"sweep"}, &lease.KeeperOptions{Label: os.Getenv("POD_NAME")})
	if err != nil {
		log.Fatal(err)
	}
	for range time.Tick(30 * time.Second) {
		err := keeper.Do(ctx, "sweep", func(ctx context.Context, held lease.Lease) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if err := leaser.Fence(ctx, tx, held); err != nil {
					return err // lost: nothing is written
				}
				_, err := tx.Exec(ctx, "delete from servers where gone")
				return err
			})
		})
		if errors.Is(err, lease.ErrNotHeld) {
			continue // another replica sweeps
		}
		if err != nil {
			break
		}
	}
	if err := keeper.Close(ctx); err != nil { // hands over
		log.Print(err)
	}
}

// ExampleLeaser_Migrations lists the files for a migration tool of your own. No
// database is asked: the pool connects when it is first used.
func ExampleLeaser_Migrations() {
	pool, err := pgxpool.New(context.Background(), "postgres://localhost/app")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	l, err := leasepg.New(pool, &leasepg.Options{Schema: "tallystick"})
	if err != nil {
		log.Fatal(err)
	}
	files, err := l.Migrations()
	if err != nil {
		log.Fatal(err)
	}
	names, err := fs.Glob(files, "leasepg/*.sql")
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range names {
		fmt.Println(name)
	}
	// Output:
	// leasepg/001_leases.down.sql
	// leasepg/001_leases.up.sql
}
