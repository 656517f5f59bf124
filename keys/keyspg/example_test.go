package keyspg_test

import (
	"context"
	"fmt"
	"io/fs"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keyspg"
)

func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")) // yours to configure and to close
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	st, err := keyspg.New(pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := st.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	team, err := st.CreateTeam(ctx, keys.CreateTeam{Name: "Research"})
	if err != nil {
		log.Fatal(err)
	}
	made, err := st.CreateKey(ctx, keys.CreateKey{TeamID: team.ID, Owner: "ann@example.com"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("show this once:", made.Token.Reveal())
}

// ExampleStore_Migrations lists the files for a migration tool of your own. No
// database is asked: the pool connects when it is first used.
func ExampleStore_Migrations() {
	pool, err := pgxpool.New(context.Background(), "postgres://localhost/app")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	st, err := keyspg.New(pool, &keyspg.Options{Schema: "tallystick"})
	if err != nil {
		log.Fatal(err)
	}
	files, err := st.Migrations()
	if err != nil {
		log.Fatal(err)
	}
	names, err := fs.Glob(files, "keyspg/*.sql")
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range names {
		fmt.Println(name)
	}
	// Output:
	// keyspg/001_keys.down.sql
	// keyspg/001_keys.up.sql
	// keyspg/002_declarations.down.sql
	// keyspg/002_declarations.up.sql
}
