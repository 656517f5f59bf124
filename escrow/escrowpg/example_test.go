package escrowpg_test

import (
	"context"
	"fmt"
	"io/fs"
	"log"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/escrow/escrowpg"
)

// ExampleStore_Migrations lists the files for a migration tool of your own. No
// database is asked: the pool connects when it is first used.
func ExampleStore_Migrations() {
	pool, err := pgxpool.New(context.Background(), "postgres://localhost/app")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	st, err := escrowpg.New(pool, &escrowpg.Options{Schema: "tallystick"})
	if err != nil {
		log.Fatal(err)
	}
	files, err := st.Migrations()
	if err != nil {
		log.Fatal(err)
	}
	names, err := fs.Glob(files, "escrowpg/*.sql")
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range names {
		fmt.Println(name)
	}
	// Output:
	// escrowpg/001_nodes.down.sql
	// escrowpg/001_nodes.up.sql
}
