package escrowsqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/escrow/escrowsqlite"
)

// Example asks which nodes have spoken to the authority on a file: none, on a new one.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "nodes")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "authority.db")+
		"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	st := escrowsqlite.New(db)
	defer st.Close()
	if err := st.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	nodes, err := st.Nodes(ctx, escrow.NodeQuery{Limit: 100})
	fmt.Println(len(nodes), err)
	// Output:
	// 0 <nil>
}
