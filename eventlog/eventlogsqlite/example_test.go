package eventlogsqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogsqlite"
)

// An event is appended in the transaction of what it tells of: both are there, or neither is.
func ExampleStore_AppendTx() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "eventlog")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "gateway.db")+
		"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)&_pragma=fullfsync(1)&_txlock=immediate")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	st := eventlogsqlite.New(db)
	defer st.Close()
	if err := st.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE servers (name TEXT PRIMARY KEY)"); err != nil {
		log.Fatal(err)
	}
	l, err := eventlog.New(st, &eventlog.Options{Label: "gateway-1"})
	if err != nil {
		log.Fatal(err)
	}
	register := func(name string, keep bool) error {
		stamped, err := l.Stamp(ctx, eventlog.Append{Stream: "servers", Events: []eventlog.Event{{Type: "registered", Data: []byte(name)}}})
		if err != nil {
			return err
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // harmless after a commit
		if _, err := tx.ExecContext(ctx, "INSERT INTO servers VALUES (?)", name); err != nil {
			return err
		}
		if _, err := st.AppendTx(ctx, tx, stamped...); err != nil || !keep {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		l.Wake()
		return nil
	}
	if err := register("search", true); err != nil {
		log.Fatal(err)
	}
	if err := register("gone", false); err != nil {
		log.Fatal(err)
	}
	page, err := st.Read(ctx, eventlog.Read{})
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range page.Events {
		fmt.Printf("%s: %s, version %d\n", e.Type, e.Data, e.Version)
	}
	// Output:
	// registered: search, version 1
}
