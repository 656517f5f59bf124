package lease_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tallystick-go/tallystick/lease"
	"github.com/tallystick-go/tallystick/lease/leasesqlite"
)

// A loop that runs in one process at a time. With leasepg it is the same for a fleet, without OneMachine.
func ExampleKeeper() {
	ctx := context.Background()
	db, leaser, closer := open(ctx)
	defer closer()

	keeper, err := lease.NewKeeper(leaser, []string{"sweep", "discover"}, &lease.KeeperOptions{
		Label: os.Getenv("POD_NAME"), OneMachine: true, Logger: quiet,
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := keeper.Await(ctx, "sweep"); err != nil { // or ask in each cycle, as a loop does
		log.Fatal(err)
	}
	err = keeper.Do(ctx, "sweep", func(ctx context.Context, held lease.Lease) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := leaser.Fence(ctx, tx, held); err != nil { // lost: nothing is written
			return err
		}
		res, err := tx.ExecContext(ctx, "delete from servers where gone")
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		fmt.Println("generation", held.Generation, "swept", n)
		if err != nil {
			return err
		}
		return tx.Commit()
	})
	fmt.Println(err)

	fmt.Println(keeper.Close(ctx)) // hands over: a successor need not wait for the tenure to end
	row, err := leaser.Look(ctx, "sweep")
	fmt.Println("held:", row.Held(), "generation:", row.Generation, err)
	// Output:
	// generation 1 swept 1
	// <nil>
	// <nil>
	// held: false generation: 1 <nil>
}

func ExampleNewKeeper_refused() {
	_, leaser, closer := open(context.Background())
	defer closer()
	_, err := lease.NewKeeper(leaser, []string{"sweep"}, nil)
	fmt.Println(err)
	_, err = lease.NewKeeper(leaser, []string{"sweep"}, &lease.KeeperOptions{OneMachine: true, TTL: 10 * time.Second, Deadline: 10 * time.Second})
	fmt.Println(err)
	// Output:
	// lease: the store cannot be shared by several machines: each would grant itself the lease
	// lease: invalid options.deadline: must be below the TTL: who gives up later works beside a successor
}

func open(ctx context.Context) (*sql.DB, *leasesqlite.Leaser, func()) {
	dir, err := os.MkdirTemp("", "lease")
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "app.db")+
		"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)&_pragma=fullfsync(1)")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, "create table servers (id text primary key, gone integer); insert into servers values ('a', 1), ('b', 0)"); err != nil {
		log.Fatal(err)
	}
	leaser := leasesqlite.New(db, &leasesqlite.Options{SharedFile: true})
	if err := leaser.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	return db, leaser, func() { _, _, _ = leaser.Close(), db.Close(), os.RemoveAll(dir) }
}
